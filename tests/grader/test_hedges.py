"""Answers that name more than one value, or hide one behind another: none of them is paid."""

from pathlib import Path

import pytest

from answer_grader import get_last_boxed, grade_answer
from reasoning_from_scratch.rewards import correctness
from tests.grader.test_verdict import labelled_pairs

HEDGES = list(labelled_pairs(Path(__file__).with_name("hedges.txt")))


@pytest.mark.parametrize("text, truth, paid", HEDGES)
def test_hedges_are_not_paid_and_the_same_forms_are_where_they_say_one_thing(text, truth, paid):
    assert correctness(text, truth) == float(paid)
    assert grade_answer(text, truth) == paid


def test_a_box_in_a_box():
    assert get_last_boxed(r"\boxed{3 \boxed{4}}") == "3  {4}"
    assert get_last_boxed(r"\boxed{\boxed{4}}") == "4"
    assert get_last_boxed(r"\boxed{1} \boxed{2}") == "2"
    assert get_last_boxed(r"\boxed{\boxed{4}") == "4"
    assert get_last_boxed(r"\boxed{3} \phantom{\boxed{4}}") is None
