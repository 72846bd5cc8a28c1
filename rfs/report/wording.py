"""Words that training made more or less frequent. No curve shows a change of style: a model may
take to LaTeX, to another language or to a phrase that nobody asked for."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from .evals import read_rollouts
from .run_files import RunFiles

FEWEST_STEPS = 4  # with fewer, chance decides what differs
COMPARED = 5  # steps at each end; in a short run a quarter of them
SHOWN = 6  # that came, and as many that went
CHANGED = 0.1  # in share
ALIKE = 0.95  # two units that agree in so many answers, such as \( and \), say the same thing
# A LaTeX command, a word, or a sign. Numbers belong to the problem.
_UNIT = re.compile(r"\\[A-Za-z]+|\\[^\w\s]|[^\W\d_]+|[^\w\s]")


@dataclass(frozen=True)
class Wording:
    """How many answers contain a word or a sign, and what they earn at the end."""

    unit: str
    first: float  # share of the answers in the first steps
    last: float
    reward_with: float | None  # mean in the last steps; None if there are no such answers
    reward_without: float | None

    @property
    def change(self) -> float:
        return self.last - self.first


def wordings(run: RunFiles) -> list[Wording]:
    """What came, then what went, the largest change first."""
    paths = sorted(run.folder.glob("train_iteration_*_rollout_summaries.jsonl"))
    if run.supervised or len(paths) < FEWEST_STEPS:
        return []
    few = min(COMPARED, len(paths) // FEWEST_STEPS)
    first, last = _answers(paths[:few]), _answers(paths[-few:])
    if not first or not last:
        return []
    first_units, last_units = ([_units(row) for row in rows] for rows in (first, last))
    every = set().union(*first_units, *last_units)
    found = [_wording(unit, first_units, last_units, last) for unit in every]
    found = [one for one in found if abs(one.change) >= CHANGED]
    found.sort(key=lambda one: (-abs(one.change), -len(one.unit), one.unit))
    both, shown = [*first_units, *last_units], list[Wording]()
    for one in found:
        same_side = [other for other in shown if (other.change > 0) == (one.change > 0)]
        if len(same_side) < SHOWN and not any(
            _agreement(one.unit, other.unit, both) >= ALIKE for other in same_side
        ):
            shown.append(one)
    return sorted(shown, key=lambda one: one.change <= 0)  # stable: the largest stay first


def _answers(paths: Sequence[Path]) -> list[dict]:
    rows = [row for path in paths for row in read_rollouts(path)]
    return [row for row in rows if row["total_reward"] is not None]  # None is a NaN


def _units(row: dict) -> set[str]:
    """What the answer contains and its problem does not: a story's words are not the model's."""
    said, asked = row["text"], row["steps"][0]["logs"]["problem"]
    return set(_UNIT.findall(said)) - set(_UNIT.findall(asked))


def _wording(
    unit: str, first: list[set[str]], last: list[set[str]], rows: Sequence[dict]
) -> Wording:
    rewards: dict[bool, list[float]] = {True: [], False: []}
    for units, row in zip(last, rows, strict=True):
        rewards[unit in units].append(row["total_reward"])
    with_it, without = (fmean(some) if some else None for some in rewards.values())
    before, after = (fmean(unit in units for units in some) for some in (first, last))
    return Wording(unit, before, after, with_it, without)


def _agreement(one: str, other: str, answers: Sequence[set[str]]) -> float:
    """In how many answers both stand, or neither."""
    return fmean((one in units) == (other in units) for units in answers)
