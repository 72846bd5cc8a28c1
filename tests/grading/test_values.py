"""Exact arithmetic, held against evaluation with many digits and against known identities."""

from fractions import Fraction

import pytest

from reasoning_from_scratch.grading.limits import TooBig, Undefined, Work
from reasoning_from_scratch.grading.reading.statements import parse
from reasoning_from_scratch.grading.values.exact import ExactValues
from reasoning_from_scratch.grading.values.numeric import Numeric
from reasoning_from_scratch.grading.values.polynomials import factorized, integer_root

CONSTANTS = [
    r"\sqrt{8}+\frac{1}{\sqrt2}", r"\frac{1}{1+\sqrt2+\sqrt3}", r"(2-3i)^5", r"\sqrt{-12}",
    r"\cos\frac{\pi}{7}\cdot\cos\frac{2\pi}{7}", r"\tan 75^\circ", r"e^{i\pi/5}", r"\sqrt[3]{-54}",
    r"\left(\frac{16}{81}\right)^{-3/4}", r"\sqrt{5+2\sqrt6}", r"|1-\sqrt2|", r"\binom{10}{3}/7!",
    r"\pi^2 e^{-3}", r"2^{\frac12}\cdot 2^{\frac13}", r"\sqrt{\frac{2-\sqrt3}{2+\sqrt3}}",
]  # fmt: skip


@pytest.mark.parametrize("text", CONSTANTS)
def test_exact_value_is_the_value(text):
    """The polynomials that exact arithmetic makes of a tree, and the tree itself."""
    tree, work = parse(text).tree, Work(10**7)
    values, numeric = ExactValues(work), Numeric(300, work)
    top, bottom = (numeric.polynomial(values.ring, part) for part in values.form(tree))
    assert abs(top / bottom - numeric.tree(tree)) < 2.0**-250


ZERO = [
    r"\sqrt{5+2\sqrt6}-\sqrt2-\sqrt3",
    r"\sqrt[3]{2+\sqrt5}+\sqrt[3]{2-\sqrt5}-1",
    r"\cos\frac{\pi}{7}-\cos\frac{2\pi}{7}+\cos\frac{3\pi}{7}-\frac12",
    r"\sin 18^\circ-\frac{\sqrt5-1}{4}",
    r"\sqrt{3+\sqrt8}-1-\sqrt2",
]
NOT_ZERO = [
    r"\sqrt{5+2\sqrt6}-\sqrt2-\sqrt3-10^{-30}",
    r"\sqrt{10^{20}+1}-10^{10}-\frac{1}{2\cdot10^{10}}",  # 1.25 * 10^-31
    r"\pi\sqrt2-\sqrt{2}",
    r"\cos\frac{\pi}{7}-\cos\frac{\pi}{9}",
]


@pytest.mark.parametrize("text", ZERO + NOT_ZERO)
def test_zero_is_proved_or_refuted(text):
    values = ExactValues(Work(10**6))
    assert values.zero.is_zero(values.form(parse(text).tree).top) is (text in ZERO)


def test_sign_of_a_real_constant():
    signs = {r"\sqrt2+\sqrt3-\pi": 1, r"\sqrt{10}-\pi-1": -1, r"\sqrt8-2\sqrt2": 0, "1+i": None}
    for text, sign in signs.items():
        values = ExactValues(Work())
        assert values.zero.sign(values.form(parse(text).tree).top) == sign, text


def test_identities_with_letters():
    pairs = [
        (r"(x+1)^3", "x^3+3x^2+3x+1"),
        (r"\frac{x^2-1}{x-1}\cdot(x-1)", "x^2-1"),
        (r"2^{x+1}", r"2\cdot 2^x"),
        (r"\ln(x^2y)", r"2\ln x+\ln y"),
        (r"\sqrt{x^2}", "|x|"),
        (r"e^{2\ln x}", "x^2"),
        (r"\sin(-x)", r"-\sin x"),
    ]
    for left, right in pairs:
        values = ExactValues(Work())
        a, b = values.form(parse(left).tree), values.form(parse(right).tree)
        assert values.forms.minus(a, b).top == {}, (left, right)


def test_what_has_no_value():
    for text in ("1/0", r"\frac{1}{\sqrt{8}-2\sqrt2}", r"\ln 0", r"0^{-1}", r"\infty+1"):
        with pytest.raises(Undefined):
            ExactValues(Work()).form(parse(text).tree)
    with pytest.raises(TooBig):
        ExactValues(Work()).form(parse("9^{9^{9}}").tree)


def test_factors_and_roots_of_integers():
    for n in [*range(2, 2_000), 1_009**2, 10**12, 2**61 - 1, 1_000_003**6]:
        product = 1
        for prime, count in factorized(n):
            product *= prime**count
        assert product == n
    assert dict(factorized(1_000_003**6)) == {1_000_003: 6}
    for n in (0, 1, 7, 8, 9, 10**40, 10**40 - 1):
        for k in (2, 3, 5):
            root = integer_root(n, k)
            assert root**k <= n < (root + 1) ** k


def test_numbers_stay_exact():
    values = ExactValues(Work())
    form = values.form(parse("0.1+0.2").tree)
    assert values.forms.as_rational(form) == Fraction(3, 10)
