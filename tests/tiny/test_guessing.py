"""Numbers to guess: which are held out, and how the game is put to a model."""

from reasoning_from_scratch.environments.guess import largest
from reasoning_from_scratch.files.problem_sets import held_out, load_problems
from reasoning_from_scratch.problems import problem_prompt
from reasoning_from_scratch.tiny.guessing import MOST


def numbers(name: str) -> list[int]:
    return [int(problem.answer) for problem in load_problems(name)]


def test_every_number_is_on_one_side_and_nobody_trains_on_those_held_out():
    train, test = numbers("guess"), numbers(held_out("guess"))
    assert held_out("guess") == "guess-test" and len(test) == 8
    assert sorted(train + test) == list(range(1, MOST + 1))


def test_the_first_so_many():
    assert load_problems("guess", limit=3) == load_problems("guess")[:3]


def test_all_games_begin_alike():
    problems = load_problems("guess") + load_problems("guess-test")
    assert {problem_prompt(problem) for problem in problems} == {
        "I think of a number from 1 to 64. Guess.\n"
    }
    assert {largest(problem) for problem in problems} == {MOST}
