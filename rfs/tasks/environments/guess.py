"""Higher or lower: the model guesses a number and is told where to look next.

A plan that halves what is possible finds (2^k - 1) of the N numbers with at most k guesses: 63 of
64 with six. Guesses drawn uniformly from what is still possible find about half of them.
"""

import re

from reasoning_from_scratch.problems import Problem

ASKED = re.compile(r"number from 1 to (\d+)")


class Guess:
    """Answers a guess with higher or lower, until it is correct."""

    def __init__(self, problem: Problem) -> None:
        self.number, self.most = int(problem.answer), largest(problem)
        self.best = (self.most - 1).bit_length() or 1  # as many guesses as a plan needs
        self.guesses, self.found, self.legal = 0, False, True

    def reply(self, turn: str) -> str | None:
        self.guesses += 1
        guess = turn.strip()
        if not (guess.isascii() and guess.isdigit() and 1 <= int(guess) <= self.most):
            self.legal = False
            return None
        self.found = int(guess) == self.number
        if self.found:
            return None
        return "higher" if int(guess) < self.number else "lower"

    def rewards(self) -> dict[str, float]:
        """`correct`: found with as few guesses as a plan needs. `speed`: the fewer, the more."""
        in_time = self.found and self.guesses <= self.best
        speed = max(0.0, 1 - (self.guesses - 1) / (2 * self.best)) if self.found else 0.0
        return {"correct": float(in_time), "speed": speed, "legal": float(self.legal)}


def largest(problem: Problem) -> int:
    match = ASKED.search(problem.problem)
    if not match:
        raise ValueError(f"{problem.problem!r} names no number from 1 to N to guess")
    return int(match[1])
