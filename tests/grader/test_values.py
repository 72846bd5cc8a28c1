"""Values of trees: exact where they can be, else in hundreds of digits."""

from fractions import Fraction

import pytest

from answer_grader.limits import Budget, NotReal, TooBig, Undefined, Unparsed
from answer_grader.reading.statements import parse
from answer_grader.values import Evaluator, compare_reals, real_value
from reasoning_from_scratch.ch03 import equality_check

ZERO = [
    r"\sqrt{5+2\sqrt6}-\sqrt2-\sqrt3",
    r"\sqrt[3]{2+\sqrt5}+\sqrt[3]{2-\sqrt5}-1",
    r"\cos\frac{\pi}{7}-\cos\frac{2\pi}{7}+\cos\frac{3\pi}{7}-\frac12",
    r"\sin 18^\circ-\frac{\sqrt5-1}{4}",
    r"\sqrt{3+\sqrt8}-1-\sqrt2",
    r"\frac{1}{1+\sqrt2+\sqrt3}-\frac{2+\sqrt2-\sqrt6}{4}",
    r"(2-3i)^5-(122+597i)",
    r"\left(\frac{16}{81}\right)^{-3/4}-\frac{27}{8}",
    r"\sqrt[3]{-54}+3\sqrt[3]{2}",
    r"e^{i\pi/3}-\frac{1+i\sqrt3}{2}",
]
NOT_ZERO = [
    r"\sqrt{5+2\sqrt6}-\sqrt2-\sqrt3-10^{-30}",
    r"\sqrt{10^{20}+1}-10^{10}-\frac{1}{2\cdot10^{10}}",  # 1.25 * 10^-31
    r"\pi\sqrt2-\sqrt{2}",
    r"\cos\frac{\pi}{7}-\cos\frac{\pi}{9}",
    r"\sqrt2+10^{-400}-\sqrt2",
    r"1+e^{-1000}-1",
    r"\sqrt{2}\cdot 10^{-9^{3}}",
    r"\frac{\sqrt2}{1000!}",
    r"\exp(-1000)",
]


def value(text: str, **point: int):
    letters = {name: Fraction(number) for name, number in point.items()}
    return Evaluator(Budget(), letters or None).evaluate(parse(text).tree)


@pytest.mark.parametrize("text", ZERO + NOT_ZERO)
def test_zero_is_told_from_almost_zero(text):
    assert equality_check(text, "0") is (text in ZERO)


def test_fractions_stay_exact():
    assert value("0.1+0.2") == Fraction(3, 10)
    assert value(r"\frac{x^2-1}{x+1}", x=4) == 3
    assert value(r"\binom{10}{3}/7!") == Fraction(120, 5040)
    for whole in (r"\sqrt{16}", r"\log_2 16", r"4\sin 90^\circ", r"\sqrt[3]{64}"):
        assert value(whole) == Fraction(4), whole


def test_order_of_real_constants():
    signs = {r"\sqrt2+\sqrt3-\pi": 1, r"\sqrt{10}-\pi-1": -1, r"\sqrt8-2\sqrt2": 0}
    for text, sign in signs.items():
        assert compare_reals(real_value(parse(text).tree, Budget()), Fraction(0)) == sign, text
    for text in ("1+i", "x", "f(2)"):
        with pytest.raises(Undefined):
            real_value(parse(text).tree, Budget())


IDENTITIES = [
    (r"(x+1)^3", "x^3+3x^2+3x+1"),
    (r"\frac{x^2-1}{x-1}\cdot(x-1)", "x^2-1"),
    (r"2^{x+1}", r"2\cdot 2^x"),
    (r"\ln(x^2y)", r"2\ln x+\ln y"),
    (r"\sqrt{x^2}", "|x|"),
    (r"e^{2\ln x}", "x^2"),
    (r"\sin(-x)", r"-\sin x"),
    (r"\frac{(n+1)!}{n!}", "n+1"),
    (r"2f(2x)", "f(x+x)+f(2x)"),
    (r"\sqrt{-x^2-1}", r"i\sqrt{x^2+1}"),  # real at no point
    (r"\sqrt{x-30}", r"\frac{x-30}{\sqrt{x-30}}"),  # real at few of them
]
NO_IDENTITIES = [
    (r"\sqrt{x^2}", "x"),
    (r"\lfloor x+1 \rfloor", r"x+1"),
    ("f(x)", "g(x)"),
    ("f(x+1)", "f(x)+1"),
    (r"\sin x", r"x-\frac{x^3}{6}"),
    (r"x^{2}+10^{-50}", "x^2"),
]


@pytest.mark.parametrize("left, right", IDENTITIES + NO_IDENTITIES)
def test_identities_with_letters(left, right):
    assert equality_check(left, right) is ((left, right) in IDENTITIES)


def test_what_has_no_value():
    undefined = ["1/0", r"\frac{1}{\sqrt{8}-2\sqrt2}", r"\ln 0", r"0^{-1}", r"\infty+1", "x"]
    for text in [*undefined, r"\tan 90^\circ", r"\log_1 2"]:
        with pytest.raises(Undefined):
            value(text)
    with pytest.raises(TooBig):
        value("9^{9^{9}}")
    with pytest.raises(NotReal):
        value(r"\sqrt{x}", x=-2)
    with pytest.raises(Unparsed):
        value(r"0 \ldots 9")
