"""Higher or lower: the model guesses a number and is told where to look next.

A plan that halves what is possible finds (2^k - 1) of the N numbers with at most k guesses: 63 of
64 with six. Guesses drawn uniformly from what is still possible find about half of them.
"""

import re
from collections.abc import Sequence

from reasoning_from_scratch.problems import Problem

ASKED = re.compile(r"number from 1 to (\d+)")


class Guess:
    """Answers a guess with higher or lower, until it is right."""

    def __init__(self, problem: Problem) -> None:
        self.number, self.most = int(problem.answer), largest(problem)
        self.best = self.most.bit_length() - 1 or 1  # as many guesses as a plan needs
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
    found = ASKED.search(problem.problem)
    if not found:
        raise ValueError(f"{problem.problem!r} names no number from 1 to N to guess")
    return int(found[1])


def uniform_play(most: int) -> list[float]:
    """Exactly, for k = 0, 1, 2, ...: the share of numbers that are found within k guesses, each
    drawn uniformly from what is still possible; until all are found."""
    # odds[n][j]: with n numbers possible, the chance to need exactly j guesses, all being alike.
    odds: list[list[float]] = [[0.0], [0.0, 1.0]]
    for size in range(2, most + 1):
        row = [0.0] * (size + 1)
        row[1] = 1 / size
        for guess in range(size):  # below it are `guess` numbers, above it the rest
            for rest in (guess, size - 1 - guess):
                for needed, chance in enumerate(odds[rest]):
                    if needed:
                        row[needed + 1] += chance * rest / size / size
        odds.append(row)
    shares, total = [], 0.0
    for chance in odds[most]:
        total += chance
        shares.append(total)
    return shares


def best_play(most: int) -> list[float]:
    """The same for a plan that halves what is possible."""
    shares = [min(1.0, (2**k - 1) / most) for k in range(most.bit_length() + 1)]
    return shares


def middle_third(low: int, high: int, guess: int) -> bool:
    """Whether a guess lies in the middle third of the numbers that are possible."""
    size = high - low + 1
    return low + size / 3 - 0.5 <= guess <= high - size / 3 + 0.5


def possible_after(guesses: Sequence[int], number: int, most: int) -> tuple[int, int]:
    """The numbers that are still possible after some guesses, the first and the last."""
    below = [guess for guess in guesses if guess < number]
    above = [guess for guess in guesses if guess > number]
    return max(below, default=0) + 1, min(above, default=most + 1) - 1
