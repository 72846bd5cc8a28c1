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
RUN_SETTINGS = {"problems": "tiny", "problems_per_step": 8, "rollouts": 8, "device": "cpu"}
COLORS = {"calculator": "tab:blue", "nobody answers": "tab:gray"}
OPERATION = re.compile(r"\d+ ([-+*/]) \d+ =")
METRICS = ("right", "hard asked", "easy asked", "drawn", "written", "hard right alone")


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
        refuse_mixed_options(options, ("model", "steps", "lr", "limit", "samples"))
        if options.model == BLURRED and not Path(BLURRED).is_dir():
            raise UserError(f"no model in {BLURRED}; make it: uv run checkpoints/blurred.py")
        for arm in options.arms:
            untrained = load_model_and_tokenizer(options.model)
            untrained_rows = list(measure(options, arm, 0, *untrained))
            for seed in options.seeds:
                rows = untrained_rows + list(train_and_measure(options, arm, seed))
                replace_rows(options.out, {"arm": arm, "seed": str(seed)}, rows)
    draw(read_table(options.out), options.out.with_suffix(".png"))
    print(options.out.with_suffix(".png"))


def refuse_mixed_options(options: Any, names: Sequence[str]) -> None:
    """No row of the default file names these options, so rows with other values would pass for more
    seeds of the stored runs, or replace them."""
    defaults = type(options)()
    for name in names if options.out == defaults.out else ():
        value, default = getattr(options, name), getattr(defaults, name)
        if value != default:
            raise UserError(
                f"{options.out} has runs with {flag(name)} {default}, not {value}; choose another "
                "--out"
            )


def train_and_measure(options: Options, arm: str, seed: int) -> Iterator[dict[str, str]]:
    """Yields a row for each training step, then those of the final measurements."""
    with TemporaryDirectory() as folder:
        config = configure(
            "grpo", model=options.model, steps=options.steps, lr=options.lr, seed=seed,
            calculator=ARMS[arm], max_new_tokens=MAX_NEW_TOKENS, log_path=f"{folder}/run",
            preflight=False, num_groups_to_log=0, eval_every=0, report_every=0, **RUN_SETTINGS,
        )  # fmt: skip
        result = train(config, quiet=True).require_finished()
        seconds = sum(row["time/total"] for row in result.rows)
        print(f"{arm}, seed {seed}: {options.steps} steps in {seconds:.0f} s", flush=True)
        files = sorted(result.folder.glob("train_iteration_*_rollout_summaries.jsonl"))
        for step, path in enumerate(files):
            answers = map(answer_from_row, read_rollouts(path))
            yield table_row(step, "of the step", answer_metrics(answers))
    yield from measure(options, arm, options.steps, result.model, result.tokenizer)


@dataclass
class Answer:
    """An answer, and how many of its tokens come from the model and from the calculator."""

    text: str
    correct: float
    sampled_tokens: int
    calculator_tokens: int


def answer_from_row(row: dict[str, Any]) -> Answer:
    """The answer in a rollout from a run's folder."""
    step = row["steps"][0]
    forced = len(row.get("forced", []))
    return Answer(row["text"], step["metrics"]["correct"], step["ac_len"], forced)


def measure(options: Options, arm: str, step: int, model, tokenizer) -> Iterator[dict[str, str]]:
    """A row for greedy decoding and one for temperature 1, both on held-out problems. Calls are
    answered if they are in training."""
    problems = load_problems("tiny-test", limit=options.limit)
    for decoding, temperature, samples in (("greedy", 0.0, 1), ("sampled", 1.0, options.samples)):
        sampling = Sampling(
            MAX_NEW_TOKENS, temperature, rollouts=samples, seed=1, calculator=ARMS[arm]
        )
        groups = sample_groups(model, tokenizer, problems, sampling)
        answers = []
        for group in groups:
            for rollout in group.rollouts:
                correct = correctness(rollout.text, group.problem.answer)
                sampled_tokens, calculator_tokens = rollout.num_sampled, len(rollout.forced)
                answers.append(Answer(rollout.text, correct, sampled_tokens, calculator_tokens))
        yield table_row(step, decoding, answer_metrics(answers))


def answer_metrics(answers: Iterable[Answer]) -> dict[str, float]:
    """Shares of correct answers and of lines that call the calculator, tokens, and how often a
    product or quotient is correct without it. "Hard" means products and quotients."""
    answers = list(answers)
    lines = [line for answer in answers for line in answer.text.splitlines()]
    operations = [(match[1] in "*/", line) for line in lines if (match := OPERATION.search(line))]
    products = [line for is_product, line in operations if is_product]
    sums = [line for is_product, line in operations if not is_product]
    alone = [line for line in products if not calls_calculator(line)]
    return {
        "right": mean(answer.correct for answer in answers),
        "hard asked": mean_or_nan(map(calls_calculator, products)),
        "easy asked": mean_or_nan(map(calls_calculator, sums)),
        "drawn": mean(answer.sampled_tokens for answer in answers),
        "written": mean(answer.calculator_tokens for answer in answers),
        "hard right alone": mean_or_nan(map(product_is_correct, alone)),
    }


def mean_or_nan(values: Iterable[bool]) -> float:
    """The share of true values; nan if there are none."""
    known = list(values)
    return mean(known) if known else float("nan")


def calls_calculator(line: str) -> bool:
    return "<<" in line


def product_is_correct(line: str) -> bool:
    """Whether a line's last number is the value of its first product or quotient. A line may be
    checked: "= 126? Yes", "= 127? No, 126"."""
    line = re.sub(r"= \d+\? No, (?=\d+$)", "= ", line.removesuffix("? Yes"))
    match = re.search(r"(\d+) ([*/]) (\d+) = (?:.*= )?(\d+)$", line)
    if not match:
        return False
    a, operator, b, result = int(match[1]), match[2], int(match[3]), int(match[4])
    return a * b == result if operator == "*" else a == b * result


def table_row(step: int, decoding: str, metrics: dict[str, float]) -> dict[str, str]:
    """A row of the file, without arm and seed."""
    cells = {name: f"{metrics[name]:.4f}" for name in METRICS}
    return {"step": str(step), "answers": decoding} | cells


def draw(rows: Sequence[dict[str, str]], path: Path) -> None:
    """Over training: correct answers, lines that ask, and tokens, of the rollouts of each step."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    correct_panel, calls_panel, tokens_panel = panels
    for arm, color in COLORS.items():
        steps = [row for row in rows if row["arm"] == arm and row["answers"] == "of the step"]
        if not steps:
            continue
        for seed in sorted({row["seed"] for row in steps}):
            seed_rows = [row for row in steps if row["seed"] == seed]
            correct_panel.plot(smoothed(seed_rows, "right"), color=color, alpha=0.3)
        correct_panel.plot(smoothed(steps, "right"), color=color, label=arm)
        calls_panel.plot(smoothed(steps, "hard asked"), color=color, label=f"products, {arm}")
        calls_panel.plot(smoothed(steps, "easy asked"), "--", color=color, label=f"sums, {arm}")
        tokens_panel.plot(smoothed(steps, "drawn"), color=color, label=f"drawn, {arm}")
    steps = [row for row in rows if row["arm"] == "calculator" and row["answers"] == "of the step"]
    if steps:
        written, color = smoothed(steps, "written"), COLORS["calculator"]
        tokens_panel.plot(written, ":", color=color, label="the calculator's")
    correct_panel.set(title="Correct answers", xlabel="step", ylabel="share", ylim=(0, 1))
    calls_panel.set(title="Lines that ask", xlabel="step", ylabel="share", ylim=(0, 1))
    tokens_panel.set(title="Tokens of an answer", xlabel="step", ylabel="tokens", ylim=(0, None))
    for axes in panels:
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def smoothed(rows: Sequence[dict[str, str]], column: str, width: int = 5) -> list[float]:
    """For each step, the mean over the seeds and the last `width` steps; "nan" is skipped."""
    count = 1 + max(int(row["step"]) for row in rows)
    values: list[list[float]] = [[] for _ in range(count)]  # by step
    for row in rows:
        if row[column] != "nan":
            values[int(row["step"])].append(float(row[column]))
    windows = [sum(values[max(0, step - width + 1) : step + 1], []) for step in range(count)]
    return [mean(window) if window else float("nan") for window in windows]


if __name__ == "__main__":
    sys.exit(run_script(main))
