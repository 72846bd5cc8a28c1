"""Numbers to guess: which there are, and how the game is put to a model."""

from reasoning_from_scratch.problems import problem_prompt
from reasoning_from_scratch.tiny.guessing import MOST
from rfs.tasks.environments.guess import largest_number
from rfs.tasks.problem_sets import held_out, load_problems, training_problems


def test_every_number_is_asked_once():
    numbers = [int(problem.answer) for problem in load_problems("guess")]
    assert sorted(numbers) == list(range(1, MOST + 1)) != numbers


def test_none_is_kept_aside_for_no_answer_is_in_a_problem():
    assert held_out("guess") == "guess"
    assert training_problems("guess") == load_problems("guess")


def test_all_games_begin_alike():
    problems = load_problems("guess")
    assert {problem_prompt(problem) for problem in problems} == {
        "I think of a number from 1 to 64. Guess.\n"
    }
    assert {largest_number(problem) for problem in problems} == {MOST}
