"""Regions of the number line, and the sizes of units."""

import itertools
from fractions import Fraction

import pytest

from answer_grader.comparing import regions
from answer_grader.comparing.same_units import dimensions_and_size
from answer_grader.limits import Undefined
from answer_grader.reading.units import SIZES, UNITS, Unit

POINTS = [Fraction(n, 2) for n in range(-1, 10)]  # the ends 0 ... 4, between and outside them


def members(cuts: regions.Cuts) -> set[Fraction]:
    """Which of the points lie in a region: those with an odd number of cuts before them."""

    def before(cut, point):
        return cut.point < point or (cut.point == point and cut.side == 0)

    return {point for point in POINTS if sum(before(cut, point) for cut in cuts) % 2}


def test_regions_against_their_members():
    ends = [Fraction(n) for n in range(5)]
    intervals = [
        regions.interval(ends[a], left, ends[b], right)
        for a, b in itertools.combinations(range(5), 2)
        for left in (True, False)
        for right in (True, False)
    ] + [regions.single_point(ends[2]), regions.LINE]
    for a in intervals:
        assert members(regions.complement(a)) == set(POINTS) - members(a)
        for b in intervals:
            assert members(regions.union(a, b)) == members(a) | members(b)
            assert members(regions.intersection(a, b)) == members(a) & members(b)
            b_adds_nothing = members(b) <= members(a)
            assert regions.same_region(regions.union(a, b), a) == b_adds_nothing


def test_an_interval_that_is_none():
    one, two = Fraction(1), Fraction(2)
    for bad in (
        (two, True, one, True),
        (one, True, one, False),
        (regions.MINUS_INFINITY, True, one, True),
    ):
        with pytest.raises(Undefined):
            regions.interval(*bad)


def test_units_with_a_size():
    assert set(SIZES) <= set(UNITS.values())
    assert dimensions_and_size(((Unit("hour"), -1), (Unit("km"), 1)))[1] == Fraction(1000, 3600)
