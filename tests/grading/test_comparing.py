"""What two trees have in common: regions, units, times, equations."""

import itertools
from fractions import Fraction

import pytest

from reasoning_from_scratch.grading import answer_verdict
from reasoning_from_scratch.grading.comparing.regions import (
    LINE,
    MINUS,
    Cuts,
    complement,
    intersection,
    interval,
    same_region,
    single,
    union,
)
from reasoning_from_scratch.grading.comparing.same_units import size_of
from reasoning_from_scratch.grading.limits import Undefined
from reasoning_from_scratch.grading.reading.units import SIZES, UNITS, Unit

POINTS = [Fraction(n, 2) for n in range(-1, 10)]  # the ends 0 ... 4, between and outside them


def members(cuts: Cuts) -> set[Fraction]:
    """Which of the points lie in a region: those with an odd number of cuts before them."""

    def before(cut, point):
        return cut.place < point or (cut.place == point and cut.side == 0)

    return {point for point in POINTS if sum(before(cut, point) for cut in cuts) % 2}


def test_regions_against_their_members():
    ends = [Fraction(n) for n in range(5)]
    intervals = [
        interval(ends[a], left, ends[b], right)
        for a, b in itertools.combinations(range(5), 2)
        for left in (True, False)
        for right in (True, False)
    ] + [single(ends[2]), LINE]
    for a in intervals:
        assert members(complement(a)) == set(POINTS) - members(a)
        for b in intervals:
            assert members(union(a, b)) == members(a) | members(b)
            assert members(intersection(a, b)) == members(a) & members(b)
            assert same_region(union(a, b), a) == (members(a) | members(b) == members(a))


def test_an_interval_that_is_none():
    one, two = Fraction(1), Fraction(2)
    for bad in ((two, True, one, True), (one, True, one, False), (MINUS, True, one, True)):
        with pytest.raises(Undefined):
            interval(*bad)


def correct(pred: str, truth: str) -> bool:
    assert answer_verdict(pred, truth) == answer_verdict(truth, pred)
    return answer_verdict(pred, truth) == "correct"


def test_units_are_converted():
    assert set(SIZES) <= set(UNITS.values())
    assert size_of(((Unit("hour"), -1), (Unit("km"), 1)))[1] == Fraction(1000, 3600)
    assert correct("120 mm", "12 cm") and not correct("12 mm", "12 cm")
    assert correct("350 cents", r"\$3.50") and not correct("3.50 cents", r"\$3.50")
    assert correct("1.5 hours", "90 minutes") and not correct("1.5", "90 minutes")
    assert correct("36 km/h", r"10\text{ m/s}") and not correct("36 km/h", r"36\text{ m/s}")
    assert correct(r"1\text{ m}^2", r"10000\text{ cm}^2") and not correct("1 m^2", "100 cm^2")
    assert not correct("12 years", "1 dozen") and not correct("1 kg", "1000 cm")


def test_degrees_and_radians():
    assert correct(r"\frac{\pi}{3}", r"60^\circ") and correct("60", r"60^\circ")
    assert not correct("1", r"60^\circ") and not correct(r"\frac{\pi}{3}", "60")


def test_times():
    assert correct("15:30", "3:30 p.m.") and correct("3:30", "3:30 p.m.")
    assert not correct("3:30 a.m.", "3:30 p.m.") and not correct("3:03", "3:30")
    assert correct("12:00 noon", "12 p.m.") and not correct("12 a.m.", "12 p.m.")


def test_and_or_and_a_comma_between_inequalities():
    union = r"(-\infty,2)\cup(5,\infty)"
    assert correct(r"x<2\text{ or }x>5", union) and correct("x<2, x>5", union)
    assert not correct(r"x<2\text{ and }x>5", union)
    assert correct(r"x>2\text{ and }x<5", "(2,5)") and correct("x>2, x<5", "(2,5)")


def test_equations_and_names():
    assert correct("y=2x-3", "4x-2y-6=0") and not correct("y=2x-3", "4x-2y+6=0")
    assert correct("x_1=2, x_2=3", r"\{3, 2\}") and not correct("a=2, b=3", r"\{3, 2\}")
    assert correct("f(x)=x+1", "y=x+1") and not correct("x=y+1", "y=x+1")


def test_columns_and_points():
    column = r"\begin{pmatrix} 2 \\ -5 \end{pmatrix}"
    assert correct("(2,-5)", column) and correct(r"\langle 2,-5\rangle", column)
    assert not correct("(-5,2)", column) and not correct("[2,-5]", column)
    assert not correct(r"\begin{pmatrix} 2 & -5 \end{pmatrix}", column)
