"""A second try: an incorrect answer may be corrected once."""

from reasoning_from_scratch.problems import Problem
from rfs.tasks.judge import reward_by_rules

TRY_AGAIN = "That is wrong. Try again."


class Retry:
    """Says once that an answer is wrong. The last answer is rewarded."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.try_rewards: list[float] = []

    def reply(self, turn: str) -> str | None:
        self.try_rewards.append(reward_by_rules(turn, self.problem))
        return TRY_AGAIN if len(self.try_rewards) == 1 and self.try_rewards[0] < 1 else None

    def rewards(self) -> dict[str, float]:
        """`correct`: the last answer; `first_try`: the first."""
        rewards = self.try_rewards or [0.0]
        return {"correct": rewards[-1], "first_try": rewards[0]}
