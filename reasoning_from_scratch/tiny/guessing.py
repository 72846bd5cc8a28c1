"""Numbers to guess: the problems of the game of higher or lower (environments/guess.py)."""

import random
from functools import cache

from reasoning_from_scratch.problems import Problem

MOST = 64  # the game of the sets "guess" and "guess-test"
HELD_OUT_NUMBERS = 8  # of these nobody is ever asked in training


def guess_problem(number: int, most: int = MOST) -> Problem:
    """The problem does not say the number: every game of this size begins alike."""
    text = f"I think of a number from 1 to {most}. Guess."
    return Problem(f"guess-{most}-{number}", text, str(number), prompt=f"{text}\n")


@cache
def guess_problems(split: str) -> tuple[Problem, ...]:
    """The numbers of a split, "train" or "test", in an order drawn once."""
    numbers = list(range(1, MOST + 1))
    random.Random("which numbers are held out").shuffle(numbers)
    cut = MOST - HELD_OUT_NUMBERS
    chosen = numbers[:cut] if split == "train" else numbers[cut:]
    return tuple(guess_problem(number) for number in chosen)
