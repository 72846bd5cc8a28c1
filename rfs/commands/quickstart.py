"""`rfs quickstart`: watch a small model learn to reason, on a CPU, with nothing to download."""

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reasoning_from_scratch.sampling import greedy
from reasoning_from_scratch.text import counted, percent
from reasoning_from_scratch.tiny.ways import ANSWER_TOKENS
from rfs.commands.ending import answers_text, next_commands_text, say_end, shell_commands
from rfs.commands.options import QuickstartOptions
from rfs.commands.plot import plot_runs
from rfs.config import RunConfig
from rfs.evaluation.evaluate import EvalResult, evaluate
from rfs.files.models import load_model_and_tokenizer
from rfs.report.ways import ways_before_and_after
from rfs.run.folder import RunFolder, new_folder
from rfs.run.options import configure
from rfs.run.start import train
from rfs.tasks.problem_sets import load_problems

# Found by experiment; benchmarks/README.md records what was tried.
SETTINGS: dict[str, Any] = {
    "model": "tiny-base",
    "steps": 90,
    "problems_per_step": 8,
    "rollouts": 8,
    "eval_every": 15,
    "eval_limit": 100,
    "device": "cpu",
    "dtype": "float32",
    "preflight": False,
    "num_groups_to_log": 1,
}
# The second run continues from the end of the first, on problems with more steps than any solution
# that the model has seen.
LONGER: dict[str, Any] = {
    "model": "tiny-grpo",
    "problems": "tiny-longer-train",
    "steps": 450,
    "max_new_tokens": ANSWER_TOKENS,
    "eval_problems": "tiny-longer",
    "eval_every": 50,
    "report_every": 50,
}
OPENING = {
    False: "A model with 2.2 million parameters: it can solve problems step by step, but guesses.",
    True: "The quickstart's model, on problems with more steps than any solution it has seen.",
}
CHAPTER = "ch06/ch06_main.ipynb"
TEST_SETS = {"tiny-test": "test problems", "tiny-longer": "longer problems"}


def quickstart_config(
    seed: int = 0, log_path: str | None = None, longer: bool = False, steps: int | None = None
) -> RunConfig:
    """The run that the quickstart makes. It made checkpoints/tiny-grpo and, with `longer`,
    checkpoints/tiny-grpo-longer."""
    settings = SETTINGS | (LONGER if longer else {})
    settings |= {"steps": steps or settings["steps"]}
    return configure("grpo", **settings, seed=seed, log_path=log_path or new_folder("quickstart"))


def quickstart(options: QuickstartOptions) -> int:
    """Evaluates the model, trains it with GRPO, evaluates again, and shows what changed."""
    config = quickstart_config(options.seed, options.log_path, options.longer, options.steps)
    advice = "continue it with rfs train --resume {}, or choose another --out"
    RunFolder(config.log_path).refuse_used(advice=advice)
    started = time.monotonic()
    print(OPENING[options.longer])
    before = measure(*load_model_and_tokenizer(config.model))
    steps = counted(config.steps, "step")
    sizes = f"{steps} of {config.problems_per_step} problems x {config.rollouts}"
    print(f"\nGRPO: {sizes} rollouts. Reward: 1 for a correct answer in \\boxed{{}}, else 0.")
    training_started = time.monotonic()
    result = train(config)
    if result.stopped:
        return say_end(result, "")
    training_seconds = time.monotonic() - training_started
    print()
    after = measure(result.model, result.tokenizer)
    curves = plot_runs([result.folder], result.folder / "curves.png")
    shown_set = "tiny-longer" if options.longer else "tiny-test"
    rows_before, rows_after = before[shown_set].rows, after[shown_set].rows
    print(f"\n{before_and_after(before, after)}\n")
    print(ways_before_and_after(load_problems(shown_set), rows_before, rows_after))
    print(f"\n{example_answers(rows_before, rows_after)}")
    total_seconds = time.monotonic() - started
    print(f"\nTraining took {training_seconds:.0f} s, everything {total_seconds:.0f} s.")
    if options.steps and options.steps < quickstart_config(longer=options.longer).steps:
        print("With fewer steps than usual, you see that it runs, not what it can learn.")
    report = (result.folder / "report.html").resolve().as_uri()
    print(f"curves: {curves}\nreport: {report}\n")
    print(next_commands(result.folder, options.longer))
    return 0


def measure(model, tokenizer) -> dict[str, EvalResult]:
    """Accuracy with greedy decoding on both held-out sets."""
    return {
        name: evaluate(
            model,
            tokenizer,
            load_problems(name),
            greedy(ANSWER_TOKENS),
            progress=True,
            name=title,
        )
        for name, title in TEST_SETS.items()
    }


def before_and_after(before: dict[str, EvalResult], after: dict[str, EvalResult]) -> str:
    """A small table of accuracy and answer length."""
    count = len(before["tiny-test"].rows)
    lines = [f"{f'greedy, {count} problems each':<34}{'before':>9}{'after':>9}"]
    for name, title in TEST_SETS.items():
        then, now = before[name], after[name]
        for what, a, b in (
            ("correct", percent(then.accuracy), percent(now.accuracy)),
            ("tokens per answer", f"{then.mean_length:.1f}", f"{now.mean_length:.1f}"),
        ):
            lines.append(f"{title + ', ' + what:<34}{a:>9}{b:>9}")
    return "\n".join(lines)


def example_answers(before: Sequence[dict], after: Sequence[dict]) -> str:
    """One problem whose answer was incorrect before and is correct now. Rows of evaluations."""
    pairs = zip(before, after, strict=True)
    learned = [(then, now) for then, now in pairs if now["correct"] and not then["correct"]]
    if not learned:
        return "No answer went from incorrect to correct."
    then, now = learned[0]
    return answers_text(then["problem"], then["generated_text"], now["generated_text"])


def next_commands(folder: Path, longer: bool) -> str:
    """What to do next, as commands for this shell."""
    rfs, jupyter = shell_commands()
    rows = [
        (f"{rfs} report {shlex.quote(str(folder))}", "each answer, and why it was rewarded"),
        (
            f"{rfs} evaluate --model tiny-base tiny-grpo tiny-grpo-longer --samples 64 "
            "--temperature 1",
            "pass@k",
        )
        if longer
        else (
            f"{rfs} quickstart --longer",
            "eight minutes more: problems longer than any it has seen",
        ),
    ]
    if Path(CHAPTER).is_file():  # absent if the package came without the book, or elsewhere
        rows.append((f"{jupyter} --notebook-dir . {CHAPTER}", "build it yourself"))
    return next_commands_text(rows)
