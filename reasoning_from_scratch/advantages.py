"""Advantages: how much better a rollout did than the others of its group.

A group is the G rollouts of one problem. Its own rewards are the baseline, so no
value network is needed. When all rewards of a group are equal there is nothing to
prefer, so every kind returns exact zeros, not numbers that are merely small.
"""

from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

EPSILON = 1e-4  # keeps tiny differences in a nearly uniform group from becoming huge


def mean_centered(rewards: Tensor) -> Tensor:
    """r - mean(r)."""
    if torch.all(rewards == rewards[0]):
        return torch.zeros_like(rewards)  # the mean of three times 0.1 may not be 0.1
    return rewards - rewards.mean()


def zscore(rewards: Tensor, epsilon: float = EPSILON) -> Tensor:
    """(r - mean(r)) / (std(r) + epsilon); std divides by G - 1."""
    if torch.all(rewards == rewards[0]):
        return torch.zeros_like(rewards)
    return (rewards - rewards.mean()) / (rewards.std() + epsilon)


def leave_one_out(rewards: Tensor) -> Tensor:
    """r minus the mean of the *other* rewards, which makes the baseline independent of r."""
    num_rollouts = rewards.numel()
    return mean_centered(rewards) * (num_rollouts / (num_rollouts - 1))


def maxrl(rewards: Tensor) -> Tensor:
    """(r - mean(r)) / mean(r), for rewards of at least 0; all zero where the mean is.

    With rewards of 0 and 1, the gradient approaches that of log p instead of p as the number of
    rollouts grows, where p is the probability of a correct answer: the gradient of p times 1 / p.
    A problem solved once in a hundred times is pushed as hard, in log p, as one solved half the
    time.
    """
    if torch.all(rewards == rewards[0]):
        return torch.zeros_like(rewards)
    return (rewards - rewards.mean()) / rewards.mean()


def most_varied(rewards: Sequence[float], count: int) -> list[int]:
    """The places of the `count` rewards that together have the largest variance, in order.

    PODS (2025, arXiv:2504.13818) trains on these rollouts of a group alone. They are always some of
    the lowest rewards and some of the highest, because a reward from the middle could be moved to
    one of the two ends without making the variance smaller. So the rewards are sorted once, and
    there are count + 1 ways to take from the ends. With rewards of 0 and 1 and an even count, half
    of each are kept, or all of the rarer kind.

    Nothing is left to chance: of equal rewards, earlier rollouts count as lower, and of equally
    good ways the one with the most low rewards is taken.
    """
    ranked = sorted(range(len(rewards)), key=lambda place: (rewards[place], place))
    values = [Fraction(rewards[place]) for place in ranked]  # exact: rounding must not break ties
    total, squares = sum(values[:count]), sum(value**2 for value in values[:count])
    variances = [count * squares - total**2]  # times count^2, with 0, 1, ... of the highest
    for low, high in zip(values[count - 1 :: -1], values[::-1], strict=False):
        total, squares = total + high - low, squares + high**2 - low**2  # the highest of the low go
        variances.append(count * squares - total**2)
    num_highest = variances.index(max(variances))
    return sorted(ranked[: count - num_highest] + ranked[len(ranked) - num_highest :])


KINDS = {
    "zscore": zscore,
    "mean": mean_centered,
    "leave-one-out": leave_one_out,
    "maxrl": maxrl,
}


def advantages(rewards: Tensor, kind: str = "zscore") -> Tensor:
    """Advantages (G,) of one group's rewards (G,)."""
    if kind not in KINDS:
        raise ValueError(f"unknown advantage {kind!r}; choose one of {', '.join(KINDS)}")
    if rewards.dim() != 1 or rewards.numel() < 2:
        raise ValueError(
            f"an advantage compares at least 2 rollouts of one problem, got {tuple(rewards.shape)}"
        )
    return KINDS[kind](rewards)


def per_part_advantages(parts: dict[str, Tensor], weights: dict[str, float]) -> Tensor:
    """GDPO: z-score each reward part (G,) by itself, then add the weighted z-scores.

    The z-score of the sum gives (1 correct, 0 format) and (0 correct, 1 format) the same
    advantage; part by part, the rarer part gets the larger advantage.
    Follow it with `normalize_batch` over all groups of the step.
    """
    scored = (weight * advantages(parts[name], "zscore") for name, weight in weights.items())
    return sum(scored, torch.zeros(()))


def normalize_batch(step_advantages: Tensor) -> Tensor:
    """GDPO's last stage: advantages (B,) of the whole step to mean 0 and standard deviation 1."""
    if step_advantages.numel() < 2:
        return torch.zeros_like(step_advantages)
    return zscore(step_advantages)
