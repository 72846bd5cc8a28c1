"""A study: one run for each arm, learning rate and seed, several side by side, none made twice.

    every = trials(arms, rates_of, range(3))        # arms x rates x seeds
    make(work, every, keep, jobs, tiny)             # keep(trial, result) as soon as one is done
    work(trial): whole_run(config) -> metrics       # goes on with a run that was killed

`rfs compare` is a study of recipes. In ch07/regimes.py an arm is any change of a run.
"""

import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.run.folder import RunFolder
from reasoning_from_scratch.run.jobs import jobs_for, side_by_side
from reasoning_from_scratch.run.options import resumed_config
from reasoning_from_scratch.run.start import TrainResult, train

Arm = TypeVar("Arm", bound=Hashable)  # what is compared; str() says its name
Result = TypeVar("Result")


@dataclass(frozen=True)
class Trial:
    """One run of a study."""

    arm: Hashable
    lr: float | None  # None: what suits the model
    seed: int

    def __str__(self) -> str:
        rate = "" if self.lr is None else f", lr {self.lr:g}"
        return f"{self.arm}{rate}, seed {self.seed}"


def trials(
    arms: Iterable[Arm], rates_of: Callable[[Arm, int], Sequence[float | None]], seeds: range
) -> list[Trial]:
    """Seed by seed, so that a study that is stopped early has whole seeds. `rates_of(arm, seed)`:
    the learning rates that an arm runs with."""
    arms = list(arms)
    return [Trial(arm, lr, s) for s in seeds for arm in arms for lr in rates_of(arm, s)]


def whole_run(config: TrainConfig) -> TrainResult:
    """A trial's run to its end; one that an earlier call began goes on from its last save."""
    if RunFolder(config.log_path).used():
        config = resumed_config(config.log_path)
    result = train(config, quiet=True)
    if result.stopped.startswith("interrupted"):
        raise KeyboardInterrupt
    return result


def make(
    work: Callable[[Trial], Result],
    every: Sequence[Trial],
    keep: Callable[[Trial, Result], str],
    jobs: int | None,
    tiny: bool,
) -> None:
    """Hands `keep` each trial and what `work` made of it, as soon as it is done. What `keep` says
    of it is printed. `jobs` and `tiny`: how many go side by side, see `jobs_for`."""
    count = jobs_for(jobs, len(every), tiny)
    try:
        for done, (trial, result) in enumerate(side_by_side(work, every, count), start=1):
            print(f"{done} of {len(every)}: {trial}: {keep(trial, result)}", flush=True)
    except KeyboardInterrupt:
        print("the same command goes on where it was", file=sys.stderr)
        raise


def last_third(rows: Sequence[dict]) -> Sequence[dict]:
    """Of the steps of a run, at least one: where its rollouts are looked at."""
    return rows[-max(1, len(rows) // 3) :]
