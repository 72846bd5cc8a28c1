"""A second try: an incorrect answer may be corrected once."""

from reasoning_from_scratch.problems import Problem
from rfs.tasks.judge import reward_by_rules

TRY_AGAIN = "That is wrong. Try again."


class Retry:
    """Says once that an answer is wrong. The last answer is rewarded."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.right: list[float] = []

    def reply(self, turn: str) -> str | None:
        self.right.append(reward_by_rules(turn, self.problem))
        return TRY_AGAIN if len(self.right) == 1 and self.right[0] < 1 else None

    def rewards(self) -> dict[str, float]:
        """`correct`: the last answer; `first_try`: the first."""
        tries = self.right or [0.0]
        return {"correct": tries[-1], "first_try": tries[0]}
