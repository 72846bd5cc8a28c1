"""Words that training made more or less frequent. No curve shows a change of style: a model may
start to use LaTeX, another language or an unexpected phrase."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from .run_files import RunFiles, read_all_rollouts

FEWEST_STEPS = 4  # with fewer, chance decides what differs
COMPARED_STEPS = 5  # steps at each end; in a short run a quarter of them
SHOWN_UNITS = 6  # that came, and as many that went
MIN_CHANGE = 0.1  # in share
MIN_AGREEMENT = 0.95  # of units such as \( and \), which occur in the same answers: one is shown
# A LaTeX command, a word, or a sign. Numbers belong to the problem.
_UNIT = re.compile(r"\\[A-Za-z]+|\\[^\w\s]|[^\W\d_]+|[^\w\s]")


@dataclass(frozen=True)
class Wording:
    """How many answers contain a word or a sign, and their mean reward at the end."""

    unit: str
    first: float  # share of the answers in the first steps
    last: float
    reward_with: float | None  # mean in the last steps; None if there are no such answers
    reward_without: float | None

    @property
    def change(self) -> float:
        return self.last - self.first


def wordings(run: RunFiles) -> list[Wording]:
    """Units that became more frequent, then those that became rarer, largest changes first."""
    paths = run.train_files
    if len(paths) < FEWEST_STEPS:
        return []
    few = min(COMPARED_STEPS, len(paths) // FEWEST_STEPS)
    first, last = _rewarded_rows(paths[:few]), _rewarded_rows(paths[-few:])
    if not first or not last:
        return []
    first_units, last_units = ([_units(row) for row in rows] for rows in (first, last))
    before, after = _unit_shares(first_units), _unit_shares(last_units)
    changes = {unit: after.get(unit, 0.0) - before.get(unit, 0.0) for unit in before | after}
    candidates = [unit for unit, change in changes.items() if abs(change) >= MIN_CHANGE]
    candidates.sort(key=lambda unit: (-abs(changes[unit]), -len(unit), unit))
    all_units, shown = [*first_units, *last_units], list[str]()
    for unit in candidates:
        same_side = [other for other in shown if (changes[other] > 0) == (changes[unit] > 0)]
        if len(same_side) < SHOWN_UNITS and not any(
            _agreement(unit, other, all_units) >= MIN_AGREEMENT for other in same_side
        ):
            shown.append(unit)
    shown.sort(key=lambda unit: changes[unit] <= 0)  # stable: the largest stay first
    rewards = [row["total_reward"] for row in last]
    return [
        Wording(
            unit,
            before.get(unit, 0.0),
            after.get(unit, 0.0),
            *_mean_rewards(unit, last_units, rewards),
        )
        for unit in shown
    ]


def _rewarded_rows(paths: Sequence[Path]) -> list[dict]:
    rows = read_all_rollouts(paths)
    return [row for row in rows if row["total_reward"] is not None]  # None was a NaN


def _units(row: dict) -> set[str]:
    """What the answer contains but its problem does not: those words are the model's own."""
    answer, problem = row["text"], row["steps"][0]["logs"]["problem"]
    return set(_UNIT.findall(answer)) - set(_UNIT.findall(problem))


def _unit_shares(answers: Sequence[set[str]]) -> dict[str, float]:
    """For each unit, the share of the answers that contain it."""
    counts = Counter(unit for units in answers for unit in units)
    return {unit: count / len(answers) for unit, count in counts.items()}


def _mean_rewards(
    unit: str, answers: Sequence[set[str]], rewards: Sequence[float]
) -> tuple[float | None, float | None]:
    """The mean reward of the answers with it, and of those without."""
    sides: dict[bool, list[float]] = {True: [], False: []}
    for units, reward in zip(answers, rewards, strict=True):
        sides[unit in units].append(reward)
    with_it, without = (fmean(side) if side else None for side in sides.values())
    return with_it, without


def _agreement(unit: str, other: str, answers: Sequence[set[str]]) -> float:
    """The share of answers that contain both, or neither."""
    return fmean((unit in units) == (other in units) for units in answers)
