"""Long runs: what 500 steps do to entropy, pass@k and the length of answers, and what changes to
GRPO that were made for long runs do about it. The base model trains on short and long problems.

    uv run studies/long_runs.py
    uv run studies/long_runs.py --arms "no change" "KL 0.05" --seeds 0
    uv run studies/long_runs.py --picture-only

Each line of the CSV file is the mean over 25 steps and, where the run answered held-out problems,
has those figures, too. A run's lines are written when it is finished. A run takes eleven minutes on
one core, or seventeen with the KL term; all fifteen take three hours.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import fmean

from ch07_pictures import long_run_curves
from regime_runs import mean_lengths

from reasoning_from_scratch.errors import UserError, check_names
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.sampling import Sampling
from reasoning_from_scratch.text import align_table, mean_and_range
from rfs.commands.cli import run_script
from rfs.evaluation.evaluate import evaluate
from rfs.evaluation.paired import Effect, paired
from rfs.files.models import load_model_and_tokenizer
from rfs.files.tables import read_table, replace_rows
from rfs.report.metrics import ENTROPY, MIXED, RIGHT, TOKENS
from rfs.run.options import configure
from rfs.run.study import refuse_other_settings, run_to_end
from rfs.tasks.problem_sets import load_problems

HERE = Path(__file__).resolve()
BASELINE = "no change"
ARMS = {
    BASELINE: {},
    "clip-higher": {"clip_high": 1.28},
    "KL 0.05": {"kl": "k3", "kl_coef": 0.05},
    "no mean_and_range": {"advantage": "mean"},
    "no length": {"aggregate": "constant"},
}
UPDATES_PER_STEP = 4  # with one, every ratio is 1 and the clip does nothing
MAX_NEW_TOKENS = 224
STEPS, STEPS_PER_ROW = 500, 25
ANSWERS_PER_PROBLEM, PROBLEMS_PER_SET = 32, 100  # of the held-out sets
SETS = {"short": "tiny-test", "long": "tiny-longer"}
TRAINING_METRICS = {"right": RIGHT, "entropy": ENTROPY, "tokens": TOKENS, "mixed": MIXED}
HELD_OUT_METRICS = tuple(
    f"{length} {name}"
    for length in SETS
    for name in ("pass@1", "pass@8", "pass@32", "right tokens", "wrong tokens")
)
END_METRICS = (
    "entropy",
    "short pass@1",
    "short pass@32",
    "long pass@1",
    "long pass@32",
    "tokens",
    "long wrong tokens",
)
CURVES = {
    "right": "share of correct rollouts",
    "entropy": "entropy (nats per token)",
    "tokens": "tokens per answer",
    "long pass@1": "long problems, pass@1",
    "long pass@32": "long problems, pass@32",
    "long wrong tokens": "tokens of incorrect answers, longer problems",
}


@dataclass
class Options:
    arms: tuple[str, ...] = tuple(ARMS)
    """Make runs with these changes to GRPO."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Make a run of each arm with each of these seeds."""
    lr: float = 1e-4
    """Train all arms at this learning rate, and draw the runs that have it."""
    out: Path = Path("studies/long_runs.csv")
    """Write this file."""
    folder: Path = Path("runs/long")
    """Keep the runs, each with its report, in this folder."""
    picture_only: bool = False
    """Draw the picture from the file, and train nothing."""


def main(options: Options) -> None:
    check_names("arm", options.arms, ARMS)
    if not options.picture_only:
        for seed in options.seeds:
            for arm in options.arms:
                key = {"arm": arm, "lr": f"{options.lr:g}", "seed": str(seed)}
                replace_rows(options.out, key, train_and_measure(options, arm, seed))
    picture = options.out.with_suffix(".png")
    rows = [row for row in read_table(options.out) if float(row["lr"]) == options.lr]
    if not rows:
        raise UserError(f"{options.out} has no run with --lr {options.lr:g} to draw")
    long_run_curves(rows, CURVES).savefig(picture, dpi=110)
    print(picture)


def train_and_measure(options: Options, arm: str, seed: int) -> Iterator[dict[str, str]]:
    """Trains one run; yields a row for each 25 steps."""
    name = f"{arm}-{options.lr:g}-{seed}".replace(" ", "_")
    config = configure(
        "grpo", model="tiny-base", problems=f"{HERE}:problems", steps=STEPS, lr=options.lr,
        seed=seed, num_substeps=UPDATES_PER_STEP, max_new_tokens=MAX_NEW_TOKENS, device="cpu",
        preflight=False, num_groups_to_log=0, eval_every=0, save_every=STEPS // 2,
        log_path=str(options.folder / name), **ARMS[arm],
    )  # fmt: skip
    refuse_other_settings(config, "--folder")
    result = run_to_end(config).require_finished()
    for step in range(0, STEPS + 1, STEPS_PER_ROW):
        first = max(0, step - STEPS_PER_ROW)
        rows = result.rows[first : max(1, step)]  # at step 0, those of the first step
        save = result.folder / "checkpoints" / f"{step:06d}"
        held_out = {} if step % (STEPS // 2) else measure(str(save) if step else "tiny-base")
        yield {"step": str(step)} | table_row(rows, held_out)


def table_row(rows: Sequence[dict], held_out: dict[str, float]) -> dict[str, str]:
    """The means over these steps, with the metrics of held-out answers, if measured."""
    metrics = {
        name: fmean(row[key] for row in rows if row.get(key) is not None)
        for name, key in TRAINING_METRICS.items()
        if any(row.get(key) is not None for row in rows)
    } | held_out
    blank = dict.fromkeys((*TRAINING_METRICS, *HELD_OUT_METRICS), "")
    return blank | {name: f"{value:.4f}" for name, value in metrics.items()}


def end_table(rows: Sequence[Mapping[str, str]]) -> str:
    """A table of how each arm's runs ended: the mean of its seeds, with their range in parentheses.
    The first line is how all of them started."""

    def line(title: str, arm_rows: Sequence[Mapping[str, str]]) -> list[str]:
        return [
            title,
            *(with_range([float(row[name]) for row in arm_rows], name) for name in END_METRICS),
        ]

    arms = dict.fromkeys(row["arm"] for row in rows)
    starts = [row for row in rows if row["step"] == "0" and row["arm"] == next(iter(arms))]
    lines = [["", *END_METRICS], line("before", starts)]
    for arm in arms:
        last = [row for row in rows if row["arm"] == arm and row["step"] == str(STEPS)]
        lines.append(line(arm, last))
    return "\n".join(align_table(lines))


def with_range(values: Sequence[float], name: str) -> str:
    """Mean, lowest and highest: shares in percent."""
    scale, digits = scale_and_digits(name)
    return mean_and_range([scale * value for value in values], digits)


def scale_and_digits(name: str) -> tuple[int, int]:
    """The factor and the number of decimal places with which a metric is printed."""
    return (100, 1) if "pass" in name else (1, 3) if name == "entropy" else (1, 1)


def end_difference(rows: Sequence[Mapping[str, str]], arm: str, metric: str) -> Effect:
    """The difference between an arm and "no change" at the end, paired by seed."""
    values: dict[str, dict[int, float]] = {arm: {}, BASELINE: {}}
    for row in rows:
        if row["arm"] in values and row["step"] == str(STEPS):
            values[row["arm"]][int(row["seed"])] = float(row[metric])
    return paired(values[arm], values[BASELINE])


def difference_table(rows: Sequence[Mapping[str, str]]) -> str:
    """A table of each arm's difference from "no change", with the standard error; in bold where the
    95% interval excludes 0. With three seeds it reaches 4.3 standard errors to each side."""
    lines = [["against no change", *END_METRICS]]
    for arm in [arm for arm in dict.fromkeys(row["arm"] for row in rows) if arm != BASELINE]:
        cells = []
        for name in END_METRICS:
            effect = end_difference(rows, arm, name)
            scale, digits = scale_and_digits(name)
            cell = f"{scale * effect.mean:+.{digits}f} ({scale * effect.error:.{digits}f})"
            cells.append(f"**{cell}**" if effect.is_significant else cell)
        lines.append([arm, *cells])
    return "\n".join(align_table(lines))


def problems() -> Iterable[Problem]:
    """Short and long ones in turn. The base model solves 7 in a thousand of the long ones."""
    short, longer = (load_problems(name) for name in ("tiny", "tiny-longer-train"))
    return chain.from_iterable(zip(short, longer, strict=True))


@cache
def measure(model_name: str) -> dict[str, float]:
    """The metrics of 32 answers to each of 100 short and 100 long held-out problems."""
    model, tokenizer = load_model_and_tokenizer(model_name, "cpu")
    metrics: dict[str, float] = {}
    sampling = Sampling(MAX_NEW_TOKENS, rollouts=ANSWERS_PER_PROBLEM)
    for length, set_name in SETS.items():
        problems = load_problems(set_name, limit=PROBLEMS_PER_SET)
        result = evaluate(model, tokenizer, problems, sampling)
        length_metrics = {f"pass@{k}": result.pass_at[k] for k in (1, 8, 32)} | mean_lengths(result)
        metrics |= {f"{length} {metric}": value for metric, value in length_metrics.items()}
    return {name: metrics[name] for name in HELD_OUT_METRICS if name in metrics}


if __name__ == "__main__":
    sys.exit(run_script(main))
