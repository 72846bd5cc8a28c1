"""From text to tree: boxes, tokens, the grammar, words."""

from fractions import Fraction

import pytest

from answer_grader import extract_final_candidate, get_last_boxed, grade_answer
from answer_grader.limits import Unparsed
from answer_grader.reading import trees
from answer_grader.reading.choices import Choice, bare_choice, labelled_choice
from answer_grader.reading.number_words import (
    fraction_from_words,
    number_from_words,
)
from answer_grader.reading.statements import parse
from answer_grader.reading.units import Unit


def num(value: int | str) -> trees.Num:
    return trees.Num(Fraction(value))


x = trees.Sym("x")
ONE, TWO, THREE = num(1), num(2), num(3)


def test_the_last_box():
    assert get_last_boxed(r"\boxed{1} \boxed{\frac{2}{3}}") == r"\frac{2}{3}"
    assert get_last_boxed(r"\fbox{7}") == "7"
    assert get_last_boxed(r"\boxed 5$ and 6") == "5"
    for blanks in (" ", "  ", "\t "):  # TeX skips them, and without braces boxes what comes next
        assert get_last_boxed(f"so \\boxed{blanks}x") == "x"
        assert get_last_boxed(f"so \\boxed{blanks}{{x + 1}}") == "x + 1"
    assert get_last_boxed(r"$\boxed\frac{1}{2}$") == r"\frac{1}{2}"
    assert get_last_boxed(r"\boxed{\{1,2\}}") == r"\{1,2\}"
    assert get_last_boxed(r"\boxed{\left\{1,2\right.}") == r"\left\{1,2\right."
    assert get_last_boxed("nothing") is None
    assert get_last_boxed(r"\boxed{1} \boxed{2") is None


def test_final_candidate_and_its_fallbacks():
    assert extract_final_candidate(r"x \boxed{42} 7") == "42"
    assert extract_final_candidate("first 3, then -1,234.5 apples") == "-1,234.5"
    assert grade_answer(extract_final_candidate("so it is −5."), "-5")
    assert extract_final_candidate("none here") == "none here"
    assert extract_final_candidate("none here", fallback="number_only") == ""
    assert extract_final_candidate("a 5", fallback="number_only") == "5"
    assert extract_final_candidate("a 5", fallback=None) == ""
    assert extract_final_candidate("") == ""


def test_choices():
    assert labelled_choice("(C) 12") == Choice("C", "12")
    assert labelled_choice(r"\text{(B)}") == Choice("B", None)
    assert labelled_choice("(A), (B)") is None and labelled_choice("C+1") is None
    assert bare_choice(r"\textbf{(D)}") == "D" and bare_choice("DE") is None


# One of each shape: what the grammar reads is seen in the verdicts on pairs/.
TREES = {
    "2x+1": trees.Add((trees.Mul((TWO, x)), ONE)),
    r"1\frac{2}{3}": num("5/3"),
    "(2,220)": trees.Brackets("(", ")", (TWO, num(220))),
    r"\sin^{-1} x": trees.Call("arcsin", (x,)),
    "f(x)": trees.Unknown("f", (x,)),
    "101_2": trees.BaseNumeral("101", 2),
    r"\{x \mid x > 1\}": trees.Builder((trees.Relation((">",), (x, ONE)),)),
    "1 < x <= 2": trees.Relation(("<", "≤"), (ONE, x, TWO)),
    r"1 \text{ or } 2": trees.Several("either", (ONE, TWO)),
    "1 and 2": trees.Several("both", (ONE, TWO)),
    "3:30 p.m.": trees.TimeOfDay(3, 30, "pm"),
    r"5\text{ km/h}": trees.Quantity(num(5), ((Unit("hour"), -1), (Unit("km"), 1))),
    r"3 \pmod{7}": trees.Quantity(THREE, ((Unit("7", "modulus"), 1),)),
    r"\begin{pmatrix} 1 & 2 \\ 3 & x \end{pmatrix}": trees.Matrix(((ONE, TWO), (THREE, x))),
    r"\phantom{-}1": ONE,
    r"\phantom -1": ONE,
    r"2 \hphantom{\alpha} + 1": trees.Add((TWO, ONE)),
    r"\vphantom\alpha x": x,
    "h(x) = x": trees.Relation(("=",), (trees.Sym("h(x)"), x)),
}


@pytest.mark.parametrize("text", TREES)
def test_what_is_read(text):
    assert parse(text).tree == TREES[text]


@pytest.mark.parametrize("text", ["", "3 4", "1+", r"\frac{1}{", "x^{2}^3", "3.14159...", "5 ≈"])
def test_what_is_not_read(text):
    with pytest.raises(Unparsed):
        parse(text)


def test_a_remark_that_changes_the_number_makes_a_phrase():
    assert parse("about 5").tree == trees.Words("about 5")
    assert parse(r"5\text{ less than twice } x").tree == trees.Words("5 less than twice x")


def test_names_left_of_an_equals_sign():
    names = {"x": "x", "f(x)": "f(x)", "AB": "AB", "|AB|": "AB", "(x,y)": "(x,y)"}
    names |= {r"\frac{dy}{dx}": "dy/dx", r"m\angle ABC": "angleABC", "|x|": None, "xy": None}
    assert {text: trees.name_of(parse(text).tree) for text in names} == names


def test_numbers_in_words():
    assert number_from_words("three hundred and five") == 305
    assert number_from_words("two million one") == 2_000_001
    assert number_from_words("and") is None and number_from_words("five apples") is None
    fractions = {
        "half": "1/2",
        "one third": "1/3",
        "a quarter": "1/4",
        "three-fourths": "3/4",
        "eleven twelfths": "11/12",
        "two and a half": "5/2",
        "five and three quarters": "23/4",
        "nine hundredths": "9/100",
    }
    for words, value in fractions.items():
        assert fraction_from_words(words) == Fraction(value), words
    for words in ("twenty third", "third", "one thirds", "some thirds", "and a half", ""):
        assert fraction_from_words(words) is None, words
