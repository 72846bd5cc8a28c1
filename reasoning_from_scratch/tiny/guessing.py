"""Numbers to guess: the problems of the game of higher or lower (tasks/environments/guess.py)."""

import random

from reasoning_from_scratch.problems import Problem

MOST = 64  # the game of the set "guess"
# A turn is a number and the end of the turn; an answer holds all turns and replies of a long game.
TOKENS = {"max_turn_tokens": 4, "max_new_tokens": 96}


def guess_problem(number: int, most: int = MOST) -> Problem:
    """The problem does not reveal the number: every game of this size begins alike."""
    text = f"I think of a number from 1 to {most}. Guess."
    return Problem(f"guess-{most}-{number}", text, str(number), prompt=f"{text}\n")


def guess_problems(most: int = MOST) -> list[Problem]:
    """Every number once, in an order drawn once."""
    numbers = list(range(1, most + 1))
    random.Random("which numbers are held out").shuffle(numbers)
    return [guess_problem(number, most) for number in numbers]
