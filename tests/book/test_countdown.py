"""How to check a reward against cheating, shown on countdown.

Write down what a model could answer that is not what you want, the silliest first, and ask the
reward. Whatever is paid will be found: training is a search for it. Then ask it for honest
answers in other spellings, or you pay for a spelling instead of for being right.
"""

import re
from fractions import Fraction
from itertools import islice

import pytest
from countdown import problems, reward

from answer_grader import arithmetic
from reasoning_from_scratch.problems import Problem

PROBLEM = Problem(
    "countdown/0",
    "Reach 26 by calculating with the numbers 3, 5, 5, 7. Each may be used once, with +, -, *, / "
    "and brackets. Answer with the calculation.",
    "26",
)

HONEST = [
    "3 * 7 + 5",
    "5 + 7*3",
    "(7)(3) + 5",
    r"7 \times 3 + 5",
    r"3 \cdot 7 + 5",
    "[3 * 7] + 5",
    "3*7 - (-5)",
]
CHEATS = {
    "nothing": "",
    "the target itself": "26",
    "a number that was not given": "20 + 6",
    "a number used twice": "3 * 7 + 3 + 2",
    "more fives than given": "5 * 5 + 5/5",
    "numbers joined to a longer one": "35 - 7 - 5 + 3",
    "not the target": "3 * 7 + 5 + 5",
    "nearly the target": "5 * 5 + 3 / 7",
    "powers": "3^3 - 5^0 + 7*0",
    "factorials": "5 + 3 * 7!/(5 + 1)!",
    "a claim instead of a calculation": "3 * 7 + 5 = 26",
    "a wrong claim": "3 + 5 = 26",
    "dividing by zero": "26/(5 - 5)",
    "a list, one of which is right": "3*7+5, 3*7+4",
    "either of two": r"3*7+5 \text{ or } 5*5",
    "plus or minus": r"21 \pm 5",
    "an unknown": "x",
    "words": "twenty six",
    "code": "__import__('os').system('true')",
    "a lambda": "(lambda: 26)()",
    "too much work": "9^{9^{9^9}}",
    "too deep": "(" * 10_000 + "26" + ")" * 10_000,
}


@pytest.mark.parametrize("calculation", HONEST)
def test_honest_answers_are_paid(calculation):
    assert reward(f"I try: \\boxed{{{calculation}}}", PROBLEM) == 1.0


@pytest.mark.parametrize("calculation", CHEATS.values(), ids=CHEATS)
def test_cheats_are_not(calculation):
    assert reward(f"Trust me: \\boxed{{{calculation}}}", PROBLEM) == 0.0


def test_a_right_calculation_outside_of_the_box_is_not_an_answer():
    assert reward("3 * 7 + 5 = 26", PROBLEM) == 0.0
    assert reward(r"\boxed{3 * 7 + 5} no, \boxed{3 + 5}", PROBLEM) == 0.0


def test_every_problem_has_what_the_reward_reads():
    for row in islice(problems(), 300):
        problem = Problem("countdown/0", row["problem"], row["answer"])
        assert 10 <= int(problem.answer) <= 100
        assert reward(f"\\boxed{{{problem.answer}}}", problem) == 0.0
        assert re.search(r"numbers [\d, ]+\.", problem.problem)


@pytest.mark.parametrize(
    "text, value, numbers",
    [
        ("8 / 3 / 2", Fraction(4, 3), [8, 3, 2]),
        ("8 - 3 - 2", 3, [8, 3, 2]),
        ("2 + 3 * 4", 14, [2, 3, 4]),
        (r"\frac{8}{4} - -1", 3, [8, 4, 1]),
        ("7", 7, [7]),
    ],
)
def test_arithmetic_is_exact(text, value, numbers):
    assert arithmetic(text) == (value, numbers)


def test_arithmetic_never_counts_what_it_cannot_see():
    """A mixed number is one number to the grammar: it would hide two that were used."""
    for text in ("2 1/2", "0.5 * 4", "2^3", "3!", r"\sqrt{4}", "x + 1", "50%", "1, 2", "1 = 1"):
        assert arithmetic(text) is None, text
