"""Higher or lower: what is said to a guess, and what a game is paid."""

import pytest

from reasoning_from_scratch.tiny.guessing import guess_problem
from rfs.tasks.environments.guess import Guess


def played(number, *turns):
    """What is said to each turn, and what is paid; of 64 numbers a plan finds each with 6."""
    game = Guess(guess_problem(number))
    return [game.reply(turn) for turn in turns], game.rewards()


def test_a_guess_is_told_where_to_look():
    said, paid = played(40, "32", " 48\n", "40")
    assert said == ["higher", "lower", None]
    assert paid == {"correct": 1.0, "speed": 1 - 2 / 12, "legal": 1.0}


@pytest.mark.parametrize("turn", ["0", "65", "", "-3", "3.0", "higher", "32 or 33", "٣٢"])
def test_what_is_no_number_from_1_to_64_ends_the_game(turn):
    said, paid = played(40, "1", turn)
    assert said == ["higher", None]
    assert paid == {"correct": 0.0, "speed": 0.0, "legal": 0.0}


@pytest.mark.parametrize("most", [1, 2, 3, 7, 8, 9, 63, 64, 65, 100, 127, 128])
def test_a_plan_finds_all_numbers_but_one_in_time(most):
    best = Guess(guess_problem(1, most)).guesses_needed
    assert 2**best - 1 >= most - 1  # a plan finds so many with at most that many guesses
    assert best == 1 or 2 ** (best - 1) - 1 < most - 1


@pytest.mark.parametrize(
    "guesses, correct, speed", [(1, 1.0, 1.0), (6, 1.0, 7 / 12), (7, 0.0, 0.5)]
)
def test_only_as_many_guesses_as_a_plan_needs_are_in_time(guesses, correct, speed):
    _, paid = played(40, *map(str, range(41 - guesses, 41)))
    assert (paid["correct"], paid["speed"]) == (correct, pytest.approx(speed))
