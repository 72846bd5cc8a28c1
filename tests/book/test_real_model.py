"""The script that trains SmolLM2: its problems, and what it pays."""

import pytest
import real_model


def asked_numbers(problem):
    first, sign, second, _ = problem.problem.split()
    return sign, *sorted((int(first), int(second)))


def test_no_held_out_problem_is_trained_on_not_even_turned_around():
    trained, aside = real_model.split_problems()
    assert not {asked_numbers(one) for one in trained} & {asked_numbers(one) for one in aside}
    assert len(aside) == 3 * real_model.HELD_OUT
    for kind in real_model.SIGNS:
        assert sum(one.type == kind for one in aside) == real_model.HELD_OUT


def test_answers_are_those_of_arithmetic():
    for one in sum(real_model.split_problems(), []):
        assert eval(one.problem.removesuffix("=")) == int(one.answer) >= 0


@pytest.mark.parametrize("text, paid", [(" 37", 1), ("37", 1), ("37.", 0), ("37 or 38", 0)])
def test_only_the_number_is_paid(text, paid):
    thirty_seven = real_model.make_problem("sums", 13, 24)
    assert real_model.reward(text, thirty_seven) == paid
