"""Does it help? Differences seed by seed, with their confidence intervals."""

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
    def half_width(self) -> float:
        """Half the width of its 95% interval; nan for one seed."""
        return self.error * T95[min(self.seeds, len(T95) + 1) - 2] if self.seeds > 1 else math.nan

    @property
    def is_significant(self) -> bool:
        """Whether the 95% interval excludes 0."""
        return abs(self.mean) > self.half_width


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Effect:
    """Ours minus theirs. A seed fixes the problems, so what they do to both cancels."""
    shared_seeds = sorted(ours.keys() & theirs.keys())
    if not shared_seeds:
        return Effect(math.nan, math.nan, 0)
    differences = [ours[seed] - theirs[seed] for seed in shared_seeds]
    return Effect(fmean(differences), standard_error(differences), len(shared_seeds))


def standard_error(values: Sequence[float]) -> float:
    """The standard error of the mean; nan for a single value, which has no spread, and where a
    value is missing."""
    if len(values) < 2 or any(map(math.isnan, values)):
        return math.nan
    return stdev(values) / math.sqrt(len(values))


def best_rate(accuracies: Mapping[float, Mapping[int, float]]) -> float:
    """The learning rate with the highest mean; each rate has an accuracy per seed.

    The worst rate is dropped first, by the seeds that all rates have, then the worst of the rest.
    So a rate that one seed tried is judged by that seed, and two that five seeds tried by all five.
    A rate at which a run diverged (its accuracy is nan) is chosen only if all rates did.
    """
    remaining = dict(accuracies)
    while len(remaining) > 1:
        means = rate_means(remaining)
        worst = min(reversed(means), key=lambda rate: (not math.isnan(means[rate]), means[rate]))
        del remaining[worst]
    return next(iter(remaining))


def rate_means(values: Mapping[float, Mapping[int, float]]) -> dict[float, float]:
    """Each learning rate's mean over the seeds that all rates have (or else over its own)."""
    shared = set.intersection(*map(set, values.values())) if values else set()
    return {
        rate: fmean(by_seed[seed] for seed in shared or by_seed) for rate, by_seed in values.items()
    }
