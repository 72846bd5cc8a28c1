"""Paired differences, their errors and intervals, against numbers made by hand."""

import math

import pytest

from rfs.evaluation.paired import Effect, best_rate, paired, standard_error


def test_differences_seed_by_seed():
    """Seeds differ by 0.5, methods by 0.1 or 0.2: what the seeds do cancels."""
    effect = paired({0: 0.2, 1: 0.7, 2: 0.9}, {0: 0.1, 1: 0.5, 7: 0.0})
    assert effect.mean == pytest.approx(0.15) and effect.seeds == 2
    assert effect.error == pytest.approx(0.05)  # stdev 0.1 / sqrt(2), over sqrt(2)
    assert effect.half_width == pytest.approx(0.05 * 12.71) and not effect.is_significant


def test_one_seed_says_nothing_of_its_spread():
    effect = paired({0: 0.9}, {0: 0.1})
    assert effect.mean == pytest.approx(0.8) and math.isnan(effect.error)
    assert not effect.is_significant
    assert paired({0: 1.0}, {1: 1.0}).seeds == 0


def test_the_interval_is_students():
    five = Effect(mean=0.28, error=0.1, seeds=5)
    assert five.half_width == pytest.approx(0.278) and five.is_significant
    assert not Effect(mean=-0.27, error=0.1, seeds=5).is_significant
    assert Effect(mean=-0.28, error=0.1, seeds=5).is_significant  # a loss is as sure as a gain
    # Never narrower than for 11.
    assert Effect(0.0, 0.1, seeds=100).half_width == pytest.approx(0.223)


def test_standard_error():
    assert standard_error([1.0, 2.0, 3.0]) == pytest.approx(1 / math.sqrt(3))
    assert math.isnan(standard_error([1.0]))
    assert math.isnan(standard_error([math.nan, math.nan]))  # runs that diverged


def test_a_rate_that_diverged_is_the_last_choice():
    values = {1e-4: {0: 0.5, 1: 0.6}, 2e-4: {0: 0.9, 1: math.nan}, 5e-5: {0: 0.4, 1: 0.4}}
    assert best_rate(values) == 1e-4
    assert best_rate({2e-4: {0: math.nan}}) == 2e-4


def test_rates_are_judged_by_as_many_seeds_as_they_share():
    """The first seed alone likes 4e-3 best; of the two that more seeds tried, 2e-3 is better."""
    by_one_seed = {1e-3: {0: 0.74}, 2e-3: {0: 0.811}, 4e-3: {0: 0.812}}
    assert best_rate(by_one_seed) == 4e-3
    by_three = {
        1e-3: {0: 0.74},
        2e-3: {0: 0.811, 1: 0.81, 2: 0.82},
        4e-3: {0: 0.812, 1: 0.67, 2: 0.7},
    }
    assert best_rate(by_three) == 2e-3
    assert best_rate({1e-4: {0: 0.5}, 2e-4: {0: 0.5}}) == 1e-4  # of equals the first
