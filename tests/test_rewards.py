"""Rewards, and every way we could think of to be paid without having earned it."""

import pytest
from toy import score_parts

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.rewards import (
    END_THINK_TOKEN_ID,
    PARTS,
    THINK_TOKEN_ID,
    box_format,
    conditional_parts,
    correctness,
    format_parts,
    overlong_penalty,
    parse_weights,
    think_format,
    total_reward,
)

RIGHT = [
    "\\boxed{60}",
    "7 * 8 = 56, and 56 + 4 = 60.\n\\boxed{60}<|endoftext|>",
    "First I thought \\boxed{59}, but no: \\boxed{60}",  # the last one counts
    "\\boxed{\\frac{120}{2}}",
    "\\boxed{ 60 }",
    "\\boxed{60.0}",
]
UNPAID = [
    "",
    "   \n",
    "60",  # right, but not in a box
    "The answer is 60.",
    "\\boxed{}",
    "\\boxed{ }",
    "\\boxed{60",  # never closed
    "\\boxed",
    "boxed{60}",
    "\\boxed{61}",
    "\\boxed{60}\\boxed{61}",  # hedging: the last one counts
    "\\boxed{60} \\boxed{}",
    "\\boxed{59, 60, 61}",  # a list of guesses in one box
    "\\boxed{59 or 60}",
    "\\boxed{60 61}",
    "\\boxed{\\text{the right answer}}",
    "\\boxed{x}",
    "\\boxed{\\boxed{61}}",
    "<|endoftext|>",
]


@pytest.mark.parametrize("text", RIGHT)
def test_right_answers_are_paid(text):
    assert correctness(text, "60") == 1.0


@pytest.mark.parametrize("text", UNPAID)
def test_nothing_else_is_paid(text):
    assert correctness(text, "60") == 0.0


@pytest.mark.parametrize("answer", ["60", "x", "\\frac{1}{2}", "(1, 2)", "\\text{Monday}"])
@pytest.mark.parametrize("text", ["", "\\boxed{}", "\\boxed{ }", "\\boxed{\\text{}}", "\\boxed{?}"])
def test_an_empty_box_is_right_for_no_answer(text, answer):
    assert correctness(text, answer) == 0.0


@pytest.mark.parametrize(
    "text, finished, expected",
    [
        ("\\boxed{61}", True, 1.0),  # form only: right or wrong does not matter
        ("\\boxed{61}", False, 0.0),  # cut off
        ("\\boxed{}", True, 0.0),
        ("\\boxed{ }", True, 0.0),
        ("", True, 0.0),
        ("61", True, 0.0),
        ("\\boxed{61", True, 0.0),
        ("\\boxed{61} \\boxed{", True, 0.0),
        ("\\boxed{((((}", True, 0.0),  # not an answer
        ("\\boxed{1 + }", True, 0.0),
        ("\\boxed{\\frac{1}{2}}", True, 1.0),
    ],
)
def test_box_format(text, finished, expected):
    assert box_format(text, finished) == expected


S, E, A = THINK_TOKEN_ID, END_THINK_TOKEN_ID, 7


@pytest.mark.parametrize(
    "ids, expected",
    [
        ([S, A, E, A], 1.0),
        ([A, S, A, A, E, A, A], 1.0),
        ([], 0.0),
        ([A, A], 0.0),
        ([S, A, A], 0.0),  # never closed
        ([A, E, A], 0.0),  # never opened
        ([E, A, S, A], 0.0),  # the wrong way round
        ([S, E, A], 0.0),  # nothing thought
        ([S, A, E], 0.0),  # nothing answered
        ([S, A, E, S, A, E, A], 0.0),
        ([S, S, A, E, A], 0.0),
        ([S, A, E, E, A], 0.0),
    ],
)
def test_think_format(ids, expected):
    assert think_format(ids) == expected


def test_think_format_takes_other_models_ids():
    assert think_format([1, 5, 2, 5], start_id=1, end_id=2) == 1.0
    assert think_format([S, A, E, A], start_id=1, end_id=2) == 0.0


def test_documented_reward():
    """1[correct] + 0.1 * (1[format] - 1): four cases; right without form cannot occur."""
    weights = {"correct": 1.0, "unformatted": -0.1}
    cases = [
        ("\\boxed{60}", True, 1.0),
        ("\\boxed{60}", False, 0.9),
        ("\\boxed{61}", True, 0.0),
        ("61", True, -0.1),
    ]
    for text, finished, expected in cases:
        parts = score_parts(text, "60", finished, **weights)
        assert total_reward(parts, weights) == pytest.approx(expected)
        assert parts["unformatted"] == 1 - parts["format"]


def test_conditional_form_is_not_paid_for_nothing():
    weights = {"correct": 1.0, "format": 0.5}
    for text in UNPAID:
        parts = score_parts(text, "60", True)
        assert total_reward(parts, weights, conditional=True) == 0.0
    right = score_parts("\\boxed{60}", "60", True)
    assert total_reward(right, weights, conditional=True) == 1.5
    assert total_reward(right, weights) == 1.5
    # the unconditional form does pay a wrong answer: that is what is compared
    wrong = score_parts("\\boxed{61}", "60", True)
    assert total_reward(wrong, weights) == 0.5
    assert conditional_parts(wrong) == {"correct": 0.0, "format": 0.0}


def test_correct_and_format_are_always_measured():
    assert set(score_parts("", "60", True)) == {"correct", "format"}
    asked = ("correct", "wrong", "think", "unformatted")
    named = {"correct": 0.0, "wrong": 1.0} | format_parts("", True, [S, A, E, A], asked)
    assert set(named) == set(PARTS) and named["think"] == 1.0
    assert score_parts("", "60", True, correct=1.0, wrong=-1.0)["wrong"] == 1.0
    assert conditional_parts(named)["wrong"] == 1.0, "not a part about format"


@pytest.mark.parametrize(
    "length, expected", [(0, 0), (80, 0), (85, -0.25), (90, -0.5), (100, -1), (120, -1)]
)
def test_overlong_penalty(length, expected):
    assert overlong_penalty(length, max_new_tokens=100, cushion=20) == pytest.approx(expected)
    assert overlong_penalty(length, max_new_tokens=100, cushion=0) == 0.0


def test_weights_from_the_command_line():
    assert parse_weights(("correct=1", "format=0.1")) == {"correct": 1.0, "format": 0.1}
    for text in ("=1", "correct", "correct=", "correct=one", "correct=nan", "correct=inf"):
        with pytest.raises(UserError, match="write NAME=WEIGHT"):
            parse_weights((text,))
    with pytest.raises(UserError, match="at least correct=1"):
        parse_weights(())
    with pytest.raises(UserError, match="format has two weights"):
        parse_weights(("correct=1", "format=0.1", "format=0.2"))
