"""pass@k curves: the mean by hand, the band by how often it holds the truth."""

import math

import pytest
import torch

from reasoning_from_scratch.sampling import stream_key, uniform_at
from reasoning_from_scratch.scores import pass_at_k, score_rows
from rfs.evaluation.pass_curves import curve_with_band, pass_rates, pass_table, shown_ks


def result_of(*problems):
    """An evaluation in which problem i was answered rightly where problems[i] has a 1."""
    rows = [
        {"correct": letter == "1", "tokens": 1, "stopped": True, "parsed": False}
        for problem in problems
        for letter in problem
    ]
    return score_rows(rows, len(problems[0]), 0.0)


def test_a_row_per_problem_whose_mean_is_the_evaluations_own():
    result = result_of("0110", "0000", "1111", "0001")
    rates = pass_rates(result)
    by_hand = [[pass_at_k(4, c, k) for k in (1, 2, 3, 4)] for c in (2, 0, 4, 1)]
    assert rates.tolist() == by_hand
    assert curve_with_band(rates).mean == pytest.approx(list(result.pass_at.values()))


def test_the_band_holds_the_truth_19_times_in_20():
    """A made-up world where p, the chance of solving a problem, is u^2 with u uniform in (0, 1).

    Its pass@k is known: 1 minus the integral of (1 - u^2)^k, which is 2/3 * 4/5 * ... 2k/(2k+1).
    """
    count, samples, worlds = 80, 16, 400
    truth = [1 - math.prod(2 * i / (2 * i + 1) for i in range(1, k + 1)) for k in (1, 4, 16)]
    by_count = torch.tensor(
        [[pass_at_k(samples, c, k) for k in (1, 4, 16)] for c in range(samples + 1)],
        dtype=torch.float64,
    )
    held = torch.zeros(3)
    for world in range(worlds):
        places = torch.arange(count)
        chance = uniform_at(stream_key(world, 1, 0, 0), places) ** 2
        draws = uniform_at(stream_key(world, 2, 0, 0), torch.arange(count * samples))
        right = (draws.view(count, samples) < chance[:, None]).sum(1)
        drawn = curve_with_band(by_count[right], seed=world)
        ends = zip(drawn.low, truth, drawn.high, strict=True)
        held += torch.tensor([low <= true <= high for low, true, high in ends])
    # 0.95 has a standard error of 0.011 here; a band of 80 problems is a little too narrow.
    assert all(0.91 <= share <= 0.98 for share in (held / worlds).tolist()), held / worlds


def test_a_difference_is_resampled_by_pairs():
    """Two models that differ by the same on every problem differ by it for certain."""
    base = torch.tensor([[0.1], [0.5], [0.9], [0.2]], dtype=torch.float64)
    lines = pass_table({"a": base, "b": base + 0.05}).splitlines()
    assert lines[0] == "| k | a | b | b minus a |"
    assert lines[2].endswith("| +5.0 (+5.0 to +5.0) |")
    assert lines[2].startswith("| 1 | 42.5% (")


@pytest.mark.parametrize(
    "largest, ks", [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (64, [1, 2, 4, 8, 16, 32, 64])]
)
def test_the_ks_that_are_shown(largest, ks):
    assert shown_ks(largest) == ks
