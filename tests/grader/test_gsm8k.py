"""The number after ####: as nanochat reads it."""

import pytest

from answer_grader.gsm8k import (
    expected_number,
    gsm8k_reward,
    number_after_hashes,
    without_thousands_commas,
)
from reasoning_from_scratch.problems import Problem


@pytest.mark.parametrize(
    "text, number",
    [
        ("48/2 = <<48/2=24.0>>24.0\n#### 24", "24"),
        ("#### 1,234", "1234"), ("#### -5 dollars", "-5"), ("#### 3.5", "3.5"),
        ("#### 7\n#### 8", "7"), ("####7", None), ("#### $7", None), ("\\boxed{7}", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_first_number_counts(text, number):
    assert number_after_hashes(text) == number


def test_it_is_compared_letter_by_letter():
    problem = Problem("x", "How many?", "24")
    rewards = [gsm8k_reward(f"#### {number}", problem) for number in ("24", "24.0", "24.", "42")]
    assert rewards == [1.0, 0.0, 0.0, 0.0]
    assert gsm8k_reward("24", problem) == gsm8k_reward("\\boxed{24}", problem) == 0.0
    assert gsm8k_reward("#### 1,000", Problem("x", "", "1000")) == 1.0


@pytest.mark.parametrize(
    "answer, expected",
    [
        ("24", "24"), ("+5", "5"), ("1.", "1"), ("-3", "-3"), ("1,000", "1000"), ("2.50", "2.50"),
        (" 7 ", "7"), (".5", ".5"), ("1/2", None), ("$5", None), ("x", None), ("", None),
        ("3,5", None),
    ],
)  # fmt: skip
def test_answers_that_can_stand_there(answer, expected):
    assert expected_number(answer) == expected
    problem = Problem("x", "How many?", answer)
    assert gsm8k_reward(f"#### {expected}", problem) == float(expected is not None)


def test_only_the_commas_of_thousands_are_left_out():
    for text in ("3,5", "(1,2)", "x,y", "1,2345", "0,5"):
        assert without_thousands_commas(text) == text
    assert without_thousands_commas("-1,234,567") == "-1234567"
