"""Does GRPO find out when to ask? A model that is bad at products has a calculator at hand.

    uv run checkpoints/blurred.py
    uv run studies/asking.py
    uv run studies/asking.py --picture-only

tiny-blurred does not know the last digit of products and quotients, is good at sums and
differences, and asks the calculator in one line of five, whatever the line computes. The reward is
1 for a correct answer. In half of the runs nobody answers the calls: they are the control. Each
line of the CSV file is a measurement on held-out problems or a summary of one step's rollouts.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from reasoning_from_scratch.errors import UserError, check_names
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.sampling import Sampling
from rfs.commands.cli import run_script
from rfs.engine import sample_groups
from rfs.files.models import load_model_and_tokenizer
from rfs.files.tables import read_table, replace_rows
from rfs.report.run_files import read_rollouts
from rfs.run.option_checks import flag
from rfs.run.options import configure
from rfs.run.start import train
from rfs.tasks.problem_sets import load_problems

BLURRED = "runs/tiny-blurred"
MAX_NEW_TOKENS = 176  # including the calculator's
ARMS = {"calculator": True, "nobody answers": False}
PLAN = {"problems": "tiny", "problems_per_step": 8, "rollouts": 8, "device": "cpu"}
COLOURS = {"calculator": "tab:blue", "nobody answers": "tab:gray"}
SUM = re.compile(r"\d+ ([-+*/]) \d+ =")
NAMES = ("right", "hard asked", "easy asked", "drawn", "written", "hard right alone")


@dataclass
class Options:
    out: Path = Path("studies/asking.csv")
    """Write this file; the picture has the same name with .png."""
    model: str = BLURRED
    """Start from this model."""
    arms: tuple[str, ...] = tuple(ARMS)
    """Train with these: calls are answered ("calculator") or not ("nobody answers")."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Make a run with each of these seeds."""
    steps: int = 60
    """Make this many updates per run."""
    lr: float = 2e-4
    """Learn at this rate."""
    limit: int = 100
    """Measure on this many held-out problems."""
    samples: int = 4
    """Draw this many answers per held-out problem, at temperature 1."""
    picture_only: bool = False
    """Draw the picture from the file, and train nothing."""


def main(options: Options) -> None:
    """Trains, measures, and draws."""
    check_names("arm", options.arms, ARMS)
    if not options.picture_only:
        check_table(options, ("model", "steps", "lr", "limit", "samples"))
        if options.model == BLURRED and not Path(BLURRED).is_dir():
            raise UserError(f"no model in {BLURRED}; make it: uv run checkpoints/blurred.py")
        for arm in options.arms:
            before = list(measured(options, arm, 0, *load_model_and_tokenizer(options.model)))
            for seed in options.seeds:
                found = before + list(run(options, arm, seed))
                replace_rows(options.out, {"arm": arm, "seed": str(seed)}, found)
    draw(read_table(options.out), options.out.with_suffix(".png"))
    print(options.out.with_suffix(".png"))


def check_table(options: Any, names: Sequence[str]) -> None:
    """A row does not say these options, so those of other runs would pass for more seeds of the
    runs in the usual file, or replace them."""
    usual = type(options)()
    for name in names if options.out == usual.out else ():
        value, stored = getattr(options, name), getattr(usual, name)
        if value != stored:
            raise UserError(
                f"{options.out} has runs with {flag(name)} {stored}, not {value}; choose another "
                "--out"
            )


def run(options: Options, arm: str, seed: int) -> Iterator[dict[str, str]]:
    """Trains one run; yields its steps, then the measurements after them."""
    with TemporaryDirectory() as place:
        config = configure(
            "grpo", model=options.model, steps=options.steps, lr=options.lr, seed=seed,
            calculator=ARMS[arm], max_new_tokens=MAX_NEW_TOKENS, log_path=f"{place}/run",
            preflight=False, num_groups_to_log=0, eval_every=0, report_every=0, **PLAN,
        )  # fmt: skip
        done = train(config, quiet=True).require_finished()
        seconds = sum(row["time/total"] for row in done.rows)
        print(f"{arm}, seed {seed}: {options.steps} steps in {seconds:.0f} s", flush=True)
        files = sorted(done.folder.glob("train_iteration_*_rollout_summaries.jsonl"))
        for step, path in enumerate(files):
            yield line(step, "of the step", figures(map(answer_of, read_rollouts(path))))
    yield from measured(options, arm, options.steps, done.model, done.tokenizer)


@dataclass
class Answer:
    """An answer, and how many of its tokens the model drew and the calculator wrote."""

    text: str
    right: float
    drawn: int
    written: int


def answer_of(row: dict[str, Any]) -> Answer:
    """The answer in a rollout from a run's folder."""
    step = row["steps"][0]
    forced = len(row.get("forced", []))
    return Answer(row["text"], step["metrics"]["correct"], step["ac_len"], forced)


def measured(options: Options, arm: str, step: int, model, tokenizer) -> Iterator[dict[str, str]]:
    """How a model answers held-out problems, with greedy decoding and at temperature 1; its calls
    are answered if they are in training."""
    problems = load_problems("tiny-test", limit=options.limit)
    for kind, temperature, samples in (("greedy", 0.0, 1), ("sampled", 1.0, options.samples)):
        sampling = Sampling(
            MAX_NEW_TOKENS, temperature, rollouts=samples, seed=1, calculator=ARMS[arm]
        )
        groups = sample_groups(model, tokenizer, problems, sampling)
        answers = []
        for group in groups:
            for rollout in group.rollouts:
                right = correctness(rollout.text, group.problem.answer)
                drawn, written = rollout.num_sampled, len(rollout.forced)
                answers.append(Answer(rollout.text, right, drawn, written))
        yield line(step, kind, figures(answers))


def figures(answers: Iterable[Answer]) -> dict[str, float]:
    """Shares of correct answers and of lines that ask, tokens, and how often a product or quotient
    is correct if the model computed it alone. "Hard" means products and quotients."""
    answers = list(answers)
    lines = [line for answer in answers for line in answer.text.splitlines()]
    sums = [(found[1] in "*/", line) for line in lines if (found := SUM.search(line))]
    hard = [line for is_hard, line in sums if is_hard]
    return {
        "right": mean(answer.right for answer in answers),
        "hard asked": share_of_true(asks(line) for line in hard),
        "easy asked": share_of_true(asks(line) for is_hard, line in sums if not is_hard),
        "drawn": mean(answer.drawn for answer in answers),
        "written": mean(answer.written for answer in answers),
        "hard right alone": share_of_true(is_true(line) for line in hard if not asks(line)),
    }


def share_of_true(these: Iterable[bool]) -> float:
    """The share that is true; nan if there are none."""
    found = list(these)
    return mean(found) if found else float("nan")


def asks(line: str) -> bool:
    return "<<" in line


def is_true(line: str) -> bool:
    """Whether a line's last number is the value of its first product or quotient. A line may be
    checked: "= 126? Yes", "= 127? No, 126"."""
    line = re.sub(r"= \d+\? No, (?=\d+$)", "= ", line.removesuffix("? Yes"))
    found = re.search(r"(\d+) ([*/]) (\d+) = (?:.*= )?(\d+)$", line)
    if not found:
        return False
    a, operator, b, result = int(found[1]), found[2], int(found[3]), int(found[4])
    return a * b == result if operator == "*" else a == b * result


def line(step: int, answers: str, of: dict[str, float]) -> dict[str, str]:
    """A line of the file, without arm and seed."""
    return {"step": str(step), "answers": answers} | {name: f"{of[name]:.4f}" for name in NAMES}


def draw(rows: Sequence[dict[str, str]], path: Path) -> None:
    """Over training: correct answers, lines that ask, and tokens, of the rollouts of each step."""
    import matplotlib.pyplot as plt

    figure, (right, asked, tokens) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for arm, colour in COLOURS.items():
        steps = [row for row in rows if row["arm"] == arm and row["answers"] == "of the step"]
        if not steps:
            continue
        for seed in sorted({row["seed"] for row in steps}):
            one = [row for row in steps if row["seed"] == seed]
            right.plot(smoothed(one, "right"), color=colour, alpha=0.3)
        right.plot(smoothed(steps, "right"), color=colour, label=arm)
        asked.plot(smoothed(steps, "hard asked"), color=colour, label=f"products, {arm}")
        asked.plot(smoothed(steps, "easy asked"), "--", color=colour, label=f"sums, {arm}")
        tokens.plot(smoothed(steps, "drawn"), color=colour, label=f"drawn, {arm}")
    steps = [row for row in rows if row["arm"] == "calculator" and row["answers"] == "of the step"]
    if steps:
        written = smoothed(steps, "written")
        tokens.plot(written, ":", color=COLOURS["calculator"], label="the calculator's")
    right.set(title="Correct answers", xlabel="step", ylabel="share", ylim=(0, 1))
    asked.set(title="Lines that ask", xlabel="step", ylabel="share", ylim=(0, 1))
    tokens.set(title="Tokens of an answer", xlabel="step", ylabel="tokens", ylim=(0, None))
    for axes in (right, asked, tokens):
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def smoothed(rows: Sequence[dict[str, str]], name: str, width: int = 5) -> list[float]:
    """For each step, the mean over the seeds and the last `width` steps; unknown values are
    skipped."""
    count = 1 + max(int(row["step"]) for row in rows)
    found: list[list[float]] = [[] for _ in range(count)]
    for row in rows:
        if row[name] != "nan":
            found[int(row["step"])].append(float(row[name]))
    windows = [sum(found[max(0, step - width + 1) : step + 1], []) for step in range(count)]
    return [mean(window) if window else float("nan") for window in windows]


if __name__ == "__main__":
    sys.exit(run_script(main))
