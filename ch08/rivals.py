"""Problems for the rivals of section 8.5, which ch07/regimes.py compares at the same cost.

What they take to prepare is part of their cost: 4 and 11 processor-seconds, of some 45.
"""

from dataclasses import replace

from reasoning_from_scratch.ch08 import judge
from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.run.own_policy import Policy
from reasoning_from_scratch.tasks.problem_sets import load_problems


def solved_sometimes() -> list[Problem]:
    """Of 96 problems those to which tiny-base gives correct and incorrect answers: 8 to each."""
    policy, asked = Policy.load("tiny-base", device="cpu"), load_problems("tiny")[-96:]
    groups = policy.sample(asked, TrainConfig(max_new_tokens=160), judge=judge)
    return [group.problem for group in groups if not group.uniform]


def teachers_answers() -> list[Problem]:
    """The correct ones of tiny-grpo's answers to 1,000 problems, as worked solutions."""
    teacher, asked = Policy.load("tiny-grpo", device="cpu"), load_problems("tiny")[-1000:]
    groups = teacher.sample(asked, TrainConfig(max_new_tokens=160, rollouts=1), judge=judge)
    return [
        replace(group.problem, solution=group.rollouts[0].text)
        for group in groups
        if group.rewards == [1.0]
    ]


def test_problems() -> list[Problem]:
    """What both are tested on."""
    return load_problems("tiny-test")
