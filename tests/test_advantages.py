"""Advantages by hand, and uniform groups that are zero exactly."""

from itertools import combinations
from statistics import pvariance

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reasoning_from_scratch.advantages import (
    EPSILON,
    KINDS,
    advantages,
    most_varied,
    normalize_batch,
    per_part_advantages,
)

REWARDS = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0])  # mean 0.6, sample variance 0.3


@pytest.mark.parametrize(
    "kind, high, low",
    [
        ("zscore", 0.4 / (0.3**0.5 + EPSILON), -0.6 / (0.3**0.5 + EPSILON)),
        ("mean", 0.4, -0.6),
        ("leave-one-out", 1 - 2 / 4, 0 - 3 / 4),
        ("maxrl", 1 / 0.6 - 1, -1.0),
    ],
)
def test_by_hand(kind, high, low):
    expected = torch.tensor([high, low, low, high, high])
    torch.testing.assert_close(advantages(REWARDS, kind), expected)


@given(
    kind=st.sampled_from(sorted(KINDS)),
    reward=st.floats(-10, 10, width=32),
    size=st.integers(2, 33),
)
def test_a_uniform_group_is_exactly_zero(kind, reward, size):
    """The mean of n equal floats need not be that float, and zscore would divide by 1e-4."""
    assert advantages(torch.full((size,), reward), kind).tolist() == [0.0] * size


@given(
    kind=st.sampled_from(sorted(set(KINDS) - {"maxrl"})),
    rewards=st.lists(st.sampled_from([0.0, 0.1, 0.9, 1.0, 1.1, -0.1]), min_size=2, max_size=16),
)
def test_sum_is_zero_order_is_kept_and_a_shift_changes_nothing(kind, rewards):
    rewards = torch.tensor(rewards, dtype=torch.float64)
    result = advantages(rewards, kind)
    assert float(result.sum()) == pytest.approx(0, abs=1e-9)
    better = rewards[:, None] > rewards[None, :] + 1e-9
    assert (result[:, None] > result[None, :])[better].all()
    torch.testing.assert_close(advantages(rewards + 1, kind), result, rtol=1e-9, atol=1e-9)


def test_errors_say_what_is_wrong():
    with pytest.raises(ValueError, match="median"):
        advantages(REWARDS, "median")
    for bad in (torch.tensor([1.0]), torch.ones(2, 2), torch.tensor([])):
        with pytest.raises(ValueError, match="at least 2"):
            advantages(bad)


def test_per_part_tells_apart_what_the_sum_does_not():
    """Three rollouts with total 1, for different reasons: only part by part they differ."""
    parts = {
        "correct": torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0]),
        "format": torch.tensor([0.0, 1.0, 1.0, 1.0, 0.0]),
    }
    total = parts["correct"] + parts["format"]
    summed = advantages(total, "zscore")
    assert summed[0] == summed[1]
    apart = per_part_advantages(parts, {"correct": 1.0, "format": 1.0})
    assert apart[0] > apart[1] > apart[4]  # the rare part is worth more
    by_hand = advantages(parts["correct"]) + 0.5 * advantages(parts["format"])
    torch.testing.assert_close(per_part_advantages(parts, {"correct": 1, "format": 0.5}), by_hand)


def test_normalize_batch():
    result = normalize_batch(torch.tensor([3.0, -1.0, 5.0, 0.5]))
    assert float(result.mean()) == pytest.approx(0, abs=1e-6)
    assert float(result.std()) == pytest.approx(1, abs=1e-3)
    assert normalize_batch(torch.zeros(4)).tolist() == [0.0] * 4
    assert normalize_batch(torch.ones(1)).tolist() == [0.0]


@given(
    rewards=st.lists(st.sampled_from([-1.0, 0.0, 0.1, 0.5, 0.9, 1.0, 1.1]), min_size=2, max_size=9),
    data=st.data(),
)
def test_no_other_subset_varies_more(rewards, data):
    count = data.draw(st.integers(2, len(rewards)))
    kept = most_varied(rewards, count)
    assert kept == sorted(set(kept)) and len(kept) == count
    best = max(pvariance(subset) for subset in combinations(rewards, count))
    assert pvariance([rewards[place] for place in kept]) == best


@pytest.mark.parametrize(
    "rewards, count, kept",
    [
        ([0, 1, 0, 0, 1, 0, 1, 0], 4, [0, 2, 4, 6]),  # half of each
        ([0, 0, 0, 0, 1, 0, 0, 0], 4, [0, 1, 2, 4]),  # the only correct one, and three others
        ([0, 0, 1, 1, 1], 3, [0, 1, 2]),  # two of one kind, one of the other: the low ones
        ([0.5, 0.0, 1.0, 0.5], 2, [1, 2]),  # never one from the middle
        ([0.0, 0.9, 1.0, 1.1, 1.2], 3, [0, 3, 4]),  # not two of the lowest
        ([0.3] * 5, 2, [0, 1]),  # nothing to choose by: always the same ones
    ],
)
def test_what_is_kept_of_a_group_by_hand(rewards, count, kept):
    assert most_varied(rewards, count) == kept
