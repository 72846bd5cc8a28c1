"""What does a second try do to the first? tiny-base is told once that its answer is wrong.

    uv run studies/second_try.py
    uv run studies/second_try.py --picture-only

Three ways to train, with the same problems and the same number of rollouts:

    one try        the answer is graded, and that is all: plain GRPO
    two tries      an incorrect answer gets "That is wrong. Try again."; the last one is rewarded
    less for two   the same, but the reward is one half if only the second try is correct

All are measured the same way, before and after: on held-out problems, with a second try. Each line
of the CSV file is such a measurement or a summary of one training step's rollouts.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from asking import refuse_mixed_options, smoothed

from reasoning_from_scratch.errors import check_names
from reasoning_from_scratch.sampling import Sampling
from rfs.commands.cli import run_script
from rfs.engine import sample_groups
from rfs.files.models import load_model_and_tokenizer
from rfs.files.tables import read_table, replace_rows
from rfs.report.metrics import RIGHT
from rfs.run.options import configure
from rfs.run.start import train
from rfs.tasks.environments.retry import TRY_AGAIN
from rfs.tasks.problem_sets import load_problems

TWO_TRIES = {"environment": "retry", "max_turn_tokens": 128, "max_new_tokens": 288}
ARMS: dict[str, dict[str, Any]] = {
    "one try": {"max_new_tokens": 128},
    "two tries": TWO_TRIES,
    "less for two": TWO_TRIES | {"reward_parts": {"correct": 0.5, "first_try": 0.5}},
}
RUN_SETTINGS = {"problems": "tiny", "problems_per_step": 8, "rollouts": 8, "device": "cpu"}
COLORS = {"one try": "tab:gray", "two tries": "tab:blue", "less for two": "tab:orange"}


@dataclass
class Options:
    out: Path = Path("studies/second_try.csv")
    """Write this file; the picture has the same name with .png."""
    model: str = "tiny-base"
    """Start from this model."""
    arms: tuple[str, ...] = ("one try", "two tries")
    """Train in these ways: "one try", "two tries", "less for two"."""
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
        untrained_rows = list(measure(options, 0, *load_model_and_tokenizer(options.model)))
        for arm in options.arms:
            for seed in options.seeds:
                rows = untrained_rows + list(train_and_measure(options, arm, seed))
                replace_rows(options.out, {"arm": arm, "seed": str(seed)}, rows)
    draw(read_table(options.out), options.out.with_suffix(".png"))
    print(options.out.with_suffix(".png"))


def train_and_measure(options: Options, arm: str, seed: int) -> Iterator[dict[str, str]]:
    """Yields a row for each training step, then those of the final measurements."""
    with TemporaryDirectory() as folder:
        config = configure(
            "grpo", model=options.model, steps=options.steps, lr=options.lr, seed=seed,
            log_path=f"{folder}/run", preflight=False, num_groups_to_log=0, eval_every=0,
            report_every=0, **RUN_SETTINGS, **ARMS[arm],
        )  # fmt: skip
        result = train(config, quiet=True).require_finished()
    seconds = sum(row["time/total"] for row in result.rows)
    print(f"{arm}, seed {seed}: {options.steps} steps in {seconds:.0f} s", flush=True)
    for step, row in enumerate(result.rows):
        correct = row[RIGHT]
        shares = {"first try": row.get("env/all/first_try", correct), "last try": correct}
        yield table_row(step, "of the step", shares)
    yield from measure(options, options.steps, result.model, result.tokenizer)


def measure(options: Options, step: int, model, tokenizer) -> Iterator[dict[str, str]]:
    """A row for greedy decoding and one for temperature 1, both on held-out problems with a second
    try."""
    problems = load_problems("tiny-test", limit=options.limit)
    for decoding, temperature, samples in (("greedy", 0.0, 1), ("sampled", 1.0, options.samples)):
        sampling = Sampling(temperature=temperature, rollouts=samples, seed=1, **TWO_TRIES)
        groups = sample_groups(model, tokenizer, problems, sampling)
        conversations = [
            (rollout.outcome, tokenizer.decode(rollout.response_ids).split(f"[{TRY_AGAIN}]"))
            for group in groups
            for rollout in group.rollouts
        ]
        yield table_row(step, decoding, try_shares(conversations))


def try_shares(conversations: Sequence[tuple[dict[str, float], list[str]]]) -> dict[str, float]:
    """The shares of conversations that are correct at each try, and that show their work."""
    mended = [outcome["correct"] for outcome, _ in conversations if not outcome["first_try"]]
    second_worked = [has_solution_step(turns[1]) for _, turns in conversations if len(turns) > 1]
    return {
        "first try": mean(outcome["first_try"] for outcome, _ in conversations),
        "last try": mean(outcome["correct"] for outcome, _ in conversations),
        "mended": mean(mended or [0.0]),
        "first worked": mean(has_solution_step(turns[0]) for _, turns in conversations),
        "second worked": mean(second_worked or [0.0]),
    }


def has_solution_step(turn: str) -> bool:
    return "=" in turn


def table_row(step: int, decoding: str, shares: dict[str, float]) -> dict[str, str]:
    """A line of the file, without arm and seed; a step's rollouts have only two shares."""
    names = ("first try", "last try", "mended", "first worked", "second worked")
    cells = {name: f"{shares[name]:.4f}" if name in shares else "" for name in names}
    return {"step": str(step), "answers": decoding} | cells


def draw(rows: Sequence[dict[str, str]], path: Path) -> None:
    """Left: correct at the first try, over training. Right: held-out problems, try by try."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    arms = [arm for arm in ARMS if any(row["arm"] == arm for row in rows)]
    for place, arm in enumerate(arms):
        steps = [row for row in rows if row["arm"] == arm and row["answers"] == "of the step"]
        for name, style in (("last try", "--"), ("first try", "-")):
            if name == "first try" or arm != "one try":
                curve = smoothed(steps, name)
                label = arm if name == "first try" else f"{arm}: after the second"
                left.plot(curve, style, color=COLORS[arm], label=label)
        ends = [row for row in rows if row["arm"] == arm and row["answers"] == "sampled"]
        last = max(int(row["step"]) for row in ends)
        for bar_group, (step, name) in enumerate(
            (step, name) for step in (0, last) for name in ("first try", "last try")
        ):
            values = [float(row[name]) for row in ends if int(row["step"]) == step]
            x = bar_group + 0.2 * (place - (len(arms) - 1) / 2)
            right.bar(x, mean(values), 0.18, color=COLORS[arm], alpha=0.6)
            right.plot([x] * len(values), values, "k.", markersize=4)
    left.set(title="Rollouts of training", xlabel="step", ylabel="share correct", ylim=(0, 1))
    left.legend(loc="lower right", fontsize=9)
    right.set(title="Held-out problems, temperature 1", ylabel="share correct", ylim=(0, 1))
    right.set_xticks(
        range(4), ["first try,\nbefore", "second\ngiven", "first try,\nafter", "second\ngiven"]
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(run_script(main))
