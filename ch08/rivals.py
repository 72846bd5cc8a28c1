"""Problems for the rivals of section 8.5, which studies/regimes.py compares at the same cost.

Preparing them is part of the cost: on the machine on which the numbers of steps were set, it takes
4 and 11 of some 45 processor-seconds.
"""

from dataclasses import replace

from reasoning_from_scratch.ch08 import judge
from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.own_policy import Policy
from reasoning_from_scratch.problems import Problem
from rfs.tasks.problem_sets import load_problems


def solved_sometimes() -> list[Problem]:
    """Those of 96 problems that tiny-base answers both correctly and incorrectly in 8 tries."""
    policy, asked = Policy.load("tiny-base", device="cpu"), load_problems("tiny")[-96:]
    groups = policy.sample(asked, TrainConfig(max_new_tokens=160), judge=judge)
    return [group.problem for group in groups if not group.uniform]


def teachers_answers() -> list[Problem]:
    """tiny-grpo answers 1,000 problems; its correct answers serve as worked solutions."""
    teacher, asked = Policy.load("tiny-grpo", device="cpu"), load_problems("tiny")[-1000:]
    groups = teacher.sample(asked, TrainConfig(max_new_tokens=160, rollouts=1), judge=judge)
    return [
        replace(group.problem, solution=group.rollouts[0].text)
        for group in groups
        if group.rewards == [1.0]
    ]


def test_problems() -> list[Problem]:
    """The test set of both."""
    return load_problems("tiny-test")
