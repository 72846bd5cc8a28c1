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
from regime_runs import lengths

from reasoning_from_scratch.errors import UserError, check_names
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.sampling import Sampling
from reasoning_from_scratch.text import aligned, spread
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
PLAIN = "no change"
ARMS = {
    PLAIN: {},
    "clip-higher": {"clip_high": 1.28},
    "KL 0.05": {"kl": "k3", "kl_coef": 0.05},
    "no spread": {"advantage": "mean"},
    "no length": {"aggregate": "constant"},
}
UPDATES = 4  # per step: with one, every ratio is 1 and the clip does nothing
LONGEST = 224  # tokens of an answer
STEPS, EVERY = 500, 25
ANSWERS, ASKED = 32, 100  # 32 answers to each of 100 held-out problems
SETS = {"short": "tiny-test", "long": "tiny-longer"}
MEANS = {"right": RIGHT, "entropy": ENTROPY, "tokens": TOKENS, "mixed": MIXED}
MEASURED = tuple(
    f"{length} {name}"
    for length in SETS
    for name in ("pass@1", "pass@8", "pass@32", "right tokens", "wrong tokens")
)
ENDS = (
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
                this = {"arm": arm, "lr": f"{options.lr:g}", "seed": str(seed)}
                replace_rows(options.out, this, run(options, arm, seed))
    picture = options.out.with_suffix(".png")
    rows = [row for row in read_table(options.out) if float(row["lr"]) == options.lr]
    if not rows:
        raise UserError(f"{options.out} has no run with --lr {options.lr:g} to draw")
    long_run_curves(rows, CURVES).savefig(picture, dpi=110)
    print(picture)


def run(options: Options, arm: str, seed: int) -> Iterator[dict[str, str]]:
    """Trains one run; yields a line per 25 steps."""
    name = f"{arm}-{options.lr:g}-{seed}".replace(" ", "_")
    config = configure(
        "grpo", model="tiny-base", problems=f"{HERE}:problems", steps=STEPS, lr=options.lr,
        seed=seed, num_substeps=UPDATES, max_new_tokens=LONGEST, device="cpu", preflight=False,
        num_groups_to_log=0, eval_every=0, save_every=STEPS // 2,
        log_path=str(options.folder / name), **ARMS[arm],
    )  # fmt: skip
    refuse_other_settings(config, "--folder")
    result = run_to_end(config).require_finished()
    for step in range(0, STEPS + 1, EVERY):
        before = result.rows[max(0, step - EVERY) : max(1, step)]  # at 0: the first step itself
        save = result.folder / "checkpoints" / f"{step:06d}"
        known = {} if step % (STEPS // 2) else measured(str(save) if step else "tiny-base")
        yield {"step": str(step)} | line(before, known)


def line(rows: Sequence[dict], known: dict[str, float]) -> dict[str, str]:
    """Means over these steps, and the figures of held-out answers, if known."""
    found = {
        name: fmean(row[key] for row in rows if row.get(key) is not None)
        for name, key in MEANS.items()
        if any(row.get(key) is not None for row in rows)
    } | known
    blank = dict.fromkeys((*MEANS, *MEASURED), "")
    return blank | {name: f"{value:.4f}" for name, value in found.items()}


def ends(rows: Sequence[Mapping[str, str]]) -> str:
    """A table of how each arm's runs ended: the mean of its seeds, with their range in parentheses.
    The first line is how all of them started."""

    def line(title: str, some: Sequence[Mapping[str, str]]) -> list[str]:
        return [title, *(with_range([float(row[name]) for row in some], name) for name in ENDS)]

    arms = dict.fromkeys(row["arm"] for row in rows)
    starts = [row for row in rows if row["step"] == "0" and row["arm"] == next(iter(arms))]
    lines = [["", *ENDS], line("before", starts)]
    for arm in arms:
        last = [row for row in rows if row["arm"] == arm and row["step"] == str(STEPS)]
        lines.append(line(arm, last))
    return "\n".join(aligned(lines))


def with_range(values: Sequence[float], name: str) -> str:
    """Mean, lowest and highest: shares in percent."""
    scale, digits = unit(name)
    return spread([scale * value for value in values], digits)


def unit(name: str) -> tuple[int, int]:
    """The factor and the number of decimal places with which a figure is printed."""
    return (100, 1) if "pass" in name else (1, 3) if name == "entropy" else (1, 1)


def against(rows: Sequence[Mapping[str, str]], arm: str, name: str) -> Effect:
    """The difference between an arm and "no change" at the end, paired by seed."""
    sides: dict[str, dict[int, float]] = {arm: {}, PLAIN: {}}
    for row in rows:
        if row["arm"] in sides and row["step"] == str(STEPS):
            sides[row["arm"]][int(row["seed"])] = float(row[name])
    return paired(sides[arm], sides[PLAIN])


def differences(rows: Sequence[Mapping[str, str]]) -> str:
    """A table of each arm's difference from "no change", with the standard error; in bold where the
    95% interval excludes 0. With three seeds it reaches 4.3 standard errors to each side."""
    lines = [["against no change", *ENDS]]
    for arm in [arm for arm in dict.fromkeys(row["arm"] for row in rows) if arm != PLAIN]:
        cells = []
        for name in ENDS:
            effect = against(rows, arm, name)
            scale, digits = unit(name)
            cell = f"{scale * effect.mean:+.{digits}f} ({scale * effect.error:.{digits}f})"
            cells.append(f"**{cell}**" if effect.sure else cell)
        lines.append([arm, *cells])
    return "\n".join(aligned(lines))


def problems() -> Iterable[Problem]:
    """Short and long ones in turn. The base model solves 7 in a thousand of the long ones."""
    short, longer = (load_problems(name) for name in ("tiny", "tiny-longer-train"))
    return chain.from_iterable(zip(short, longer, strict=True))


@cache
def measured(name: str) -> dict[str, float]:
    """A model's figures: 32 answers to each of 100 short and 100 long held-out problems."""
    model, tokenizer = load_model_and_tokenizer(name, "cpu")
    found: dict[str, float] = {}
    for length, name in SETS.items():
        asked = load_problems(name, limit=ASKED)
        result = evaluate(model, tokenizer, asked, Sampling(LONGEST, rollouts=ANSWERS))
        figures = {f"pass@{k}": result.pass_at[k] for k in (1, 8, 32)} | lengths(result)
        found |= {f"{length} {what}": value for what, value in figures.items()}
    return {name: found[name] for name in MEASURED if name in found}


if __name__ == "__main__":
    sys.exit(run_script(main))
