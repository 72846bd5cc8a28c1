"""Does it help? Differences seed by seed, and how sure they are."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

# Student's t: so many standard errors on each side hold 95%, for 1, 2, 3, ... seeds less one.
# With few seeds the standard error is itself a guess, so the interval is wider than 1.96.
T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)


@dataclass(frozen=True)
class Effect:
    """A mean difference over the seeds that both have."""

    mean: float
    error: float  # standard error of the mean; nan for one seed
    seeds: int

    @property
    def half(self) -> float:
        """Half the width of its 95% interval; nan for one seed."""
        return self.error * T95[min(self.seeds, len(T95) + 1) - 2] if self.seeds > 1 else math.nan

    @property
    def sure(self) -> bool:
        """Whether the 95% interval excludes 0."""
        return abs(self.mean) > self.half


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Effect:
    """Ours minus theirs. A seed fixes the problems, so what they do to both cancels."""
    both = sorted(ours.keys() & theirs.keys())
    if not both:
        return Effect(math.nan, math.nan, 0)
    differences = [ours[seed] - theirs[seed] for seed in both]
    return Effect(fmean(differences), standard_error(differences), len(both))


def standard_error(values: Sequence[float]) -> float:
    """Of the mean; nan for a single value, which says nothing about its own spread, and where a
    value is missing."""
    if len(values) < 2 or any(map(math.isnan, values)):
        return math.nan
    return stdev(values) / math.sqrt(len(values))


def best_rate(values: Mapping[float, Mapping[int, float]]) -> float:
    """Of learning rates, each with a value per seed: the one with the highest mean.

    The worst goes first, by the seeds that all of them have, then the worst of the rest. So a rate
    that one seed tried is judged by that seed, and two that five seeds tried by all five. A rate at
    which a run has no value (it diverged) is taken only where all are so.
    """
    rest = dict(values)
    while len(rest) > 1:
        means = rate_means(rest)
        del rest[min(reversed(means), key=lambda rate: (not math.isnan(means[rate]), means[rate]))]
    return next(iter(rest))


def rate_means(values: Mapping[float, Mapping[int, float]]) -> dict[float, float]:
    """Of each learning rate the mean over the seeds that all rates have (or else over its own)."""
    shared = set.intersection(*map(set, values.values())) if values else set()
    return {rate: fmean(of[seed] for seed in shared or of) for rate, of in values.items()}
