"""Words that training made more or less frequent. No curve shows a change of style: a model may
take to LaTeX, to another language or to a phrase that nobody asked for."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from .run_files import RunFiles, rollouts_in

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
    paths = run.train_files
    if len(paths) < FEWEST_STEPS:
        return []
    few = min(COMPARED, len(paths) // FEWEST_STEPS)
    first, last = _answers(paths[:few]), _answers(paths[-few:])
    if not first or not last:
        return []
    first_units, last_units = ([_units(row) for row in rows] for rows in (first, last))
    before, after = _shares(first_units), _shares(last_units)
    changes = {unit: after.get(unit, 0.0) - before.get(unit, 0.0) for unit in before | after}
    found = [unit for unit, change in changes.items() if abs(change) >= CHANGED]
    found.sort(key=lambda unit: (-abs(changes[unit]), -len(unit), unit))
    both, shown = [*first_units, *last_units], list[str]()
    for unit in found:
        same_side = [other for other in shown if (changes[other] > 0) == (changes[unit] > 0)]
        if len(same_side) < SHOWN and not any(
            _agreement(unit, other, both) >= ALIKE for other in same_side
        ):
            shown.append(unit)
    shown.sort(key=lambda unit: changes[unit] <= 0)  # stable: the largest stay first
    rewards = [row["total_reward"] for row in last]
    return [
        Wording(
            unit,
            before.get(unit, 0.0),
            after.get(unit, 0.0),
            *_rewards(unit, last_units, rewards),
        )
        for unit in shown
    ]


def _answers(paths: Sequence[Path]) -> list[dict]:
    return [row for row in rollouts_in(paths) if row["total_reward"] is not None]  # None is a NaN


def _units(row: dict) -> set[str]:
    """What the answer contains and its problem does not: a story's words are not the model's."""
    said, asked = row["text"], row["steps"][0]["logs"]["problem"]
    return set(_UNIT.findall(said)) - set(_UNIT.findall(asked))


def _shares(answers: Sequence[set[str]]) -> dict[str, float]:
    """For each unit, the share of the answers that contain it."""
    counts = Counter(unit for units in answers for unit in units)
    return {unit: count / len(answers) for unit, count in counts.items()}


def _rewards(
    unit: str, answers: Sequence[set[str]], rewards: Sequence[float]
) -> tuple[float | None, float | None]:
    """The mean reward of the answers with it, and of those without."""
    sides: dict[bool, list[float]] = {True: [], False: []}
    for units, reward in zip(answers, rewards, strict=True):
        sides[unit in units].append(reward)
    with_it, without = (fmean(some) if some else None for some in sides.values())
    return with_it, without


def _agreement(one: str, other: str, answers: Sequence[set[str]]) -> float:
    """In how many answers both stand, or neither."""
    return fmean((one in units) == (other in units) for units in answers)
