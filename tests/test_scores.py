"""Scores: pass@k, intervals, majority vote."""

import itertools
import math

import pytest

from reasoning_from_scratch import scores
from rfs.evaluation.evaluate import pass_at_k, wilson_interval


def test_pass_at_k_is_the_share_of_draws_with_a_right_answer():
    for n in range(1, 8):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            answers = [True] * c + [False] * (n - c)
            draws = list(itertools.combinations(answers, k))
            expected = sum(map(any, draws)) / len(draws)
            assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_of_many_samples_stays_exact():
    assert pass_at_k(10_000, 1, 100) == pytest.approx(0.01, abs=1e-12)
    assert pass_at_k(10_000, 5_000, 64) == pytest.approx(1.0)
    assert pass_at_k(10**6, 1, 1) == 10**-6  # to the last digit


@pytest.mark.parametrize("n, c, k", [(3, 4, 1), (3, -1, 1), (3, 1, 0), (3, 1, 4)])
def test_pass_at_k_refuses_what_has_no_meaning(n, c, k):
    with pytest.raises(ValueError, match="pass@k"):
        pass_at_k(n, c, k)


@pytest.mark.parametrize("total", [1, 2, 10, 500])
def test_the_interval_holds_the_shares_that_are_within_1_96_standard_errors(total):
    """Wilson's bounds solve |p - share| = z * sqrt(p (1 - p) / n): check it at both bounds."""
    for correct in {0, 1, total // 3, total}:
        share = correct / total
        for bound in wilson_interval(correct, total):
            error = 1.959964 * math.sqrt(bound * (1 - bound) / total)
            assert abs(bound - share) == pytest.approx(error, abs=1e-7)


def test_the_interval_of_a_published_example():
    low, high = wilson_interval(8, 10)  # Brown, Cai, DasGupta 2001, the standard formula
    assert (low, high) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson_interval(0, 20)[0] == 0.0 and wilson_interval(20, 20)[1] == 1.0


def vote(*answers, truth="7"):
    rows = [
        {"extracted": a, "parsed": a.isdigit() or "/" in a, "correct": a in (truth, "14/2")}
        for a in answers
    ]
    return scores.majority_share(rows)


def test_no_vote_where_nobody_knows_what_was_read():
    """A verifier or an environment judged: the texts cannot be compared."""
    rows = [
        {"correct": n < 2, "extracted": f"text {n}", "parsed": True, "reward": float(n < 2)}
        | {"tokens": 5, "stopped": True}
        for n in range(3)
    ]
    result = scores.score_rows(rows, 3, 1.0)
    assert result.majority is None and "majority" not in result.report()


def test_majority_vote():
    assert vote("7", "7", "8") == 1.0
    assert vote("7", "8", "8") == 0.0
    assert vote("7", "14/2", "8", "8", "9") == 0.5  # equal answers vote together: 2 against 2
    assert vote("7", "14/2", "7", "8", "8") == 1.0
    assert vote("7", "junk", "junk", "junk") == 1.0  # what cannot be read has no vote
    assert vote("junk", "") == 0.0
    assert vote("1", "2", "7") == pytest.approx(1 / 3)
