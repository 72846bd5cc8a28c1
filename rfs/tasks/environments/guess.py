"""Higher or lower: the model guesses a number and is told where to look next.

The best plan halves what is possible. It finds (2^k - 1) of the N numbers with at most k guesses:
63 of 64 with six. Guesses drawn uniformly from what is still possible find about half of them.
"""

import re

from reasoning_from_scratch.problems import Problem

RANGE = re.compile(r"number from 1 to (\d+)")


class Guess:
    """Answers a guess with higher or lower, until it is correct."""

    def __init__(self, problem: Problem) -> None:
        self.number, self.largest = int(problem.answer), largest_number(problem)
        self.guesses_needed = (self.largest - 1).bit_length() or 1  # with the best plan
        self.guesses, self.solved, self.legal = 0, False, True

    def reply(self, turn: str) -> str | None:
        self.guesses += 1
        guess = turn.strip()
        if not (guess.isascii() and guess.isdigit() and 1 <= int(guess) <= self.largest):
            self.legal = False
            return None
        self.solved = int(guess) == self.number
        if self.solved:
            return None
        return "higher" if int(guess) < self.number else "lower"

    def rewards(self) -> dict[str, float]:
        """`correct`: found within the guesses of the best plan. `speed`: more for fewer guesses."""
        in_time = self.solved and self.guesses <= self.guesses_needed
        speed = max(0.0, 1 - (self.guesses - 1) / (2 * self.guesses_needed)) if self.solved else 0.0
        return {"correct": float(in_time), "speed": speed, "legal": float(self.legal)}


def largest_number(problem: Problem) -> int:
    match = RANGE.search(problem.problem)
    if not match:
        raise ValueError(f"{problem.problem!r} names no number from 1 to N to guess")
    return int(match[1])
