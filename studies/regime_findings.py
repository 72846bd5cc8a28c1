"""What the regimes found: runs with and without each method, seed by seed.

A regime is a question and a table of arms, each a change of the same run. `stored_rows` reads the
runs that regime_runs.py made, `findings` compares them, and the tables show the findings.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from reasoning_from_scratch.text import align_table
from reasoning_from_scratch.tiny.ways import WAYS
from rfs.evaluation.paired import Effect, best_rate, paired

# What is measured in each run, and its unit. "Held-out" means the test set of its problems.
OUTCOMES = {
    "greedy test": "correct of 200 problems of tiny-test, greedy decoding",
    "greedy longer": "correct of 200 problems of tiny-longer, greedy decoding",
    "tokens test": "tokens per greedy answer, tiny-test",
    "pass@1": "correct answers of 8 to each of 100 held-out problems, temperature 1",
    "pass@8": "of the same: problems with a correct answer among 8",
    "pass@64": "the same among 64, where a regime asks for it",
    "old answers": "nats per token by which the start's own answers have become less likely",
    "right tokens": "tokens per correct answer, of the same answers",
    "wrong tokens": "tokens per incorrect answer, of the same answers",
    **{way: f"answers in the style '{way}', of the same answers" for way in WAYS},
    "reward": "mean reward of the rollouts in the last third of the steps",
    "sampled": "correct rollouts in the last third of the steps",
    "entropy": "nats per token, in the last third of the steps",
    "mixed": "groups with correct and incorrect answers, in the last third of the steps",
    "tokens": "sampled in training, in all",
    "most wrong tokens": "longest held-out answer among the incorrect ones",
}


def unit_of(outcome: str) -> str:
    if outcome in ("entropy", "old answers"):
        return "nats per token"
    return "tokens" if "tokens" in outcome else "reward points" if outcome == "reward" else "share"


@dataclass(frozen=True)
class Regime:
    """A question, and the runs that answer it."""

    question: str
    arms: dict[str, dict[str, Any]]
    """By name: recipe and options that the arm changes. The first arm is without the method."""
    outcome: str
    """Column of OUTCOMES that decides."""
    common: dict[str, Any] = field(default_factory=dict)
    """Options of all arms."""
    lrs: tuple[float, ...] = (2e-4, 4e-4)
    arm_lrs: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Learning rates of arms that need larger or smaller ones."""
    lower_is_better: bool = False
    also: tuple[str, ...] = ()
    """Further columns to show."""
    chosen_by: str = "sampled"
    """Column whose largest mean chooses an arm's learning rate."""
    pairs: tuple[tuple[str, str], ...] = ()
    """(with, without); by default each other arm against the first."""
    samples: int = 8
    """Sampled answers to each held-out problem."""
    lag: int = 0
    """Every rollout is drawn by the policy of exactly this many updates ago. So the rollouts of a
    run's last third say nothing about its last updates, and a learning rate chosen by them
    ignores those updates."""

    def compared_pairs(self) -> Sequence[tuple[str, str]]:
        first, *others = self.arms
        return self.pairs or [(arm, first) for arm in others]

    def rates(self, arm: str) -> tuple[float, ...]:
        return self.arm_lrs.get(arm, self.lrs)


def stored_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of the file, with outcomes as numbers; a missing outcome is nan."""
    if not path.is_file():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        lines = [row for row in csv.DictReader(file) if row["stopped"] is not None]
    return [
        row
        | {name: float(row[name] or "nan") for name in ("lr", "seconds", *OUTCOMES)}
        | {"seed": int(row["seed"])}
        for row in lines
    ]


RateValues = dict[float, dict[int, float]]  # learning rate -> seed -> value

FIRST_CHOOSING = 100  # the first of the seeds that choose a learning rate
CLOSE_CALL_MARGIN = 0.005  # half a percentage point: a few runs cannot rank such rates


def is_choosing_seed(seed: int) -> bool:
    """Whether runs with this seed choose their arm's rate; the others are reported."""
    return seed >= FIRST_CHOOSING


def values_of(rows: Sequence[dict], regime: str, arm: str, column: str) -> RateValues:
    """The values of the reported runs."""
    return values_where(rows, regime, arm, column, choosing=False)


def rate_values(rows: Sequence[dict], regime: str, arm: str, column: str) -> RateValues:
    """The values of the runs that choose the rate, which are separate runs. If an arm has none (it
    may have just one rate), the reported runs also made the choice."""
    choosing_values = values_where(rows, regime, arm, column, choosing=True)
    return choosing_values or values_of(rows, regime, arm, column)


def close_call_rates(
    rows: Sequence[dict], name: str, arm: str, column: str, seeds: range
) -> list[float]:
    """The two best rates of an arm by its runs with these seeds, if they are nearly equal."""
    values = values_where(rows, name, arm, column, choosing=True)
    means = {
        rate: fmean(by_seed[seed] for seed in seeds)
        for rate, by_seed in values.items()
        if not any(math.isnan(by_seed.get(seed, math.nan)) for seed in seeds)
    }
    best = sorted(means, key=lambda rate: means[rate])[-2:]
    return best if len(best) == 2 and means[best[1]] - means[best[0]] < CLOSE_CALL_MARGIN else []


def values_where(
    rows: Sequence[dict], regime: str, arm: str, column: str, choosing: bool
) -> RateValues:
    values: RateValues = {}
    for row in rows:
        is_arm = (row["regime"], row["arm"]) == (regime, arm)
        if is_arm and is_choosing_seed(row["seed"]) is choosing:
            values.setdefault(row["lr"], {})[row["seed"]] = row.get(column, math.nan)
    return values


def chosen_rates(name: str, regime: Regime, rows: Sequence[dict]) -> dict[str, float]:
    """The best learning rate of each arm that has a run at it."""
    values = {arm: rate_values(rows, name, arm, regime.chosen_by) for arm in regime.arms}
    best = {arm: best_rate(by_rate) for arm, by_rate in values.items() if by_rate}
    return {
        arm: rate
        for arm, rate in best.items()
        if rate in values_of(rows, name, arm, regime.chosen_by)
    }


@dataclass(frozen=True)
class Choice:
    """How the learning rate of some arms was chosen."""

    rate: float
    tried: tuple[float, ...]  # the smallest first
    seeds: int  # that ran both at this rate and at the second best
    separate_seeds: bool  # these seeds are not among the reported ones

    @property
    def edge(self) -> str:
        """Whether it is the "highest" or the "lowest" of the rates tried; "" for neither."""
        ends = {self.tried[0]: "lowest", self.tried[-1]: "highest"}
        return ends.get(self.rate, "")

    def __str__(self) -> str:
        among = f"of {len(self.tried)} tried"
        place = f"the {self.edge} {among}" if self.edge else f"inside the range {among}"
        beyond = {
            "highest": ", so a higher one may do better",
            "lowest": ", so a lower one may do better",
        }
        other = "other " if self.separate_seeds else ""
        seeds = f"one {other}seed" if self.seeds == 1 else f"{self.seeds} {other}seeds"
        return f"{short_rate(self.rate)}, {place}{beyond.get(self.edge, '')}; chosen by {seeds}"


def arms_by_choice(name: str, regime: Regime, rows: Sequence[dict]) -> dict[Choice, list[str]]:
    """The arms of each choice. An arm with a single rate had no choice."""
    arms: dict[Choice, list[str]] = {}
    for arm, rate in chosen_rates(name, regime, rows).items():
        values = rate_values(rows, name, arm, regime.chosen_by)
        others = {lr: by_seed for lr, by_seed in values.items() if lr != rate}
        if others:
            common_seeds = values[rate].keys() & others[best_rate(others)].keys()
            separate = any(map(is_choosing_seed, common_seeds))
            choice = Choice(rate, tuple(sorted(values)), len(common_seeds), separate)
            arms.setdefault(choice, []).append(arm)
    return arms


@dataclass(frozen=True)
class Contrast:
    """One outcome of two arms, each at its best rate."""

    regime: str
    ours: str
    theirs: str
    outcome: str
    with_it: dict[int, float]
    """By seed, as is `without`; only the seeds that both have."""
    without: dict[int, float]
    rates: tuple[float, float]
    decides: bool
    """Whether it is the outcome that the regime asks for; the others are shown beside it."""
    lower_is_better: bool

    @property
    def effect(self) -> Effect:
        return paired(self.with_it, self.without)

    @property
    def verdict(self) -> str:
        """What the 95% interval of the difference lets us say."""
        effect = self.effect
        if math.isnan(effect.half_width):
            return "too few seeds" if effect.seeds < 2 else "a run has no value"
        if not effect.is_significant:
            return "no difference seen"
        if not self.decides:
            return "higher" if effect.mean > 0 else "lower"
        return "helps" if (effect.mean < 0) == self.lower_is_better else "hurts"


def findings(regimes: Mapping[str, Regime], rows: Sequence[dict]) -> list[Contrast]:
    """For each pair the deciding outcome first, then the others that are shown. A pair is skipped
    while one of its arms has no run."""
    contrasts = []
    for name, regime in regimes.items():
        best = chosen_rates(name, regime, rows)
        for pair in regime.compared_pairs():
            if not best.keys() >= set(pair):
                continue
            rates = best[pair[0]], best[pair[1]]
            for column in (regime.outcome, *regime.also):
                ours, theirs = (
                    values_of(rows, name, arm, column)[lr]
                    for arm, lr in zip(pair, rates, strict=True)
                )
                common_seeds = sorted(ours.keys() & theirs.keys())
                sides = [{seed: side[seed] for seed in common_seeds} for side in (ours, theirs)]
                decides = column == regime.outcome
                contrasts.append(
                    Contrast(name, *pair, column, *sides, rates, decides, regime.lower_is_better)
                )
    return contrasts


# ---- the tables


def findings_table(contrasts: Sequence[Contrast]) -> str:
    """Method x regime x (difference, its standard error, verdict; with, without, seeds, rates): a
    narrow page cuts off the right end. A single regime is shown without its name."""
    head = ["with", "without", "outcome", "difference", "s.e.", "verdict"]
    lines = [["regime", *head, "with it", "without it", "seeds", "rates"]]
    for contrast in contrasts:
        names = ("", "", "")
        if contrast.decides:
            names = (contrast.regime, contrast.ours, contrast.theirs)
        with_it, without, difference, error, seeds = contrast_cells(contrast)
        rates = " / ".join(dict.fromkeys(short_rate(lr) for lr in contrast.rates))
        difference_cells = (difference, error, contrast.verdict)
        lines.append([*names, contrast.outcome, *difference_cells, with_it, without, seeds, rates])
    if len({contrast.regime for contrast in contrasts}) == 1:
        lines = [line[1:] for line in lines]
    caption = (
        "Each arm at its best rate. Differences seed by seed; s.e.: their standard error. Verdict: "
        "whether the 95% interval of the difference (Student's t) excludes 0, and on which side."
    )
    return "\n".join([caption, "", *align_table(lines), ""])


def short_rate(lr: float) -> str:
    """The learning rate in the form 2e-4."""
    number, power = f"{lr:e}".split("e")
    return f"{float(number):g}e{int(power)}" if lr else "0"


def verdicts_table(contrasts: Sequence[Contrast]) -> str:
    """The deciding outcomes alone, for a README."""
    head = ["regime", "with", "against", "decided by", "with it", "without", "difference", "s.e."]
    lines = [[*head, "seeds", "verdict"]]
    for contrast in contrasts:
        if contrast.decides:
            names = [f"`{contrast.regime}`", contrast.ours, contrast.theirs, contrast.outcome]
            lines.append([*names, *contrast_cells(contrast), contrast.verdict])
    return "\n".join(align_table(lines))


def one_line_table(regimes: Mapping[str, Regime], rows: Sequence[dict]) -> str:
    """A line for each regime: all differences in its deciding outcome, and their verdict. If no
    difference is seen and an arm's best rate is the highest or the lowest tried, the verdict is
    "undecided"."""
    lines = [["question", "decided by", "difference (s.e.)", "learning rate at an edge", "verdict"]]
    for name, regime in regimes.items():
        deciding = [contrast for contrast in findings({name: regime}, rows) if contrast.decides]
        if not deciding:  # no reported runs yet
            continue
        differences = [f"{contrast.ours}: {difference_in_unit(contrast)}" for contrast in deciding]
        chosen = arms_by_choice(name, regime, rows)
        edge_count = sum(len(arms) for choice, arms in chosen.items() if choice.edge)
        edges = f"{edge_count} of {sum(map(len, chosen.values()))} arms"
        sure = [f"{one.ours} {one.verdict}" for one in deciding if one.effect.is_significant]
        verdict = "; ".join(sure) or ("undecided" if edge_count else "no difference seen")
        against = f"{regime.question} (Against *{deciding[0].theirs}*.)"
        lines.append([against, regime.outcome, "<br>".join(differences), edges, verdict])
    return "\n".join(align_table(lines))


def difference_in_unit(contrast: Contrast) -> str:
    """The difference and its standard error; shares in percentage points."""
    mean, error = contrast.effect.mean, contrast.effect.error
    unit = unit_of(contrast.outcome)
    if unit == "share":
        return f"{100 * mean:+.1f} ({100 * error:.1f}) percentage points"
    return (
        f"{mean:+.1f} ({error:.1f}) {unit}"
        if unit == "tokens"
        else f"{mean:+.3f} ({error:.3f}) {unit}"
    )


def contrast_cells(contrast: Contrast) -> list[str]:
    effect = contrast.effect
    sides = (contrast.with_it, contrast.without)
    means = [format_number(fmean(side.values()) if side else math.nan) for side in sides]
    return [*means, format_signed(effect.mean), format_number(effect.error), str(effect.seeds)]


def format_number(value: float) -> str:
    if math.isnan(value):
        return "-"
    if abs(value) < 10:
        return f"{value:.3f}"
    return f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"


def format_signed(value: float) -> str:
    return format_number(value) if math.isnan(value) or value <= 0 else f"+{format_number(value)}"
