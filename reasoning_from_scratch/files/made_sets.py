"""Sets of problems that are made here and judged by rules of their own, not by the grader.

    gym:TASK        tasks of reasoning-gym                  gym_tasks.py
    instructions    "answer in exactly 8 words"             the room instructions/

Such a set is a module with two functions: problems(name, limit), and score(text, problem), which
says what an answer is worth. Its problems carry the set's name in `judge`, and in `facts`, as
plain text, what `score` must know. So they can be pickled, made again and judged anywhere.
"""

from collections.abc import Callable
from functools import cache, partial
from types import ModuleType

from reasoning_from_scratch import instructions
from reasoning_from_scratch.config import Rewards
from reasoning_from_scratch.errors import unknown_name
from reasoning_from_scratch.files import gym_tasks
from reasoning_from_scratch.files.own_task import Verifier, own_function
from reasoning_from_scratch.problems import Problem

MADE_SETS = {"gym": gym_tasks, "instructions": instructions}
MADE_NAMES = ("instructions", "instructions@new-constraints", "gym:TASK")


def made_set(name: object) -> ModuleType | None:
    """The module that makes the set of this name; None for other sets."""
    return MADE_SETS.get(str(name).partition("@")[0].partition(":")[0])


@cache
def set_verifier(judge: str) -> Verifier:
    """The rules of a set, called as a verifier of one's own is: with a limit of time, and what
    they raise is a failure of that answer."""
    if judge not in MADE_SETS:
        raise unknown_name("set with rules of its own", judge, MADE_SETS)
    return Verifier(MADE_SETS[judge].score)


def verifier_for(problem: Problem, own: Verifier | None = None) -> Verifier | None:
    """Who judges the answers to a problem: a verifier of one's own, else the rules of the
    problem's set; None means the grader."""
    return own or (set_verifier(problem.judge) if problem.judge else None)


def verdict(text: str, problem: Problem, own: Verifier | None = None) -> tuple[float, str] | None:
    """What an answer is paid, and how its judge failed or ""; None: it is the grader's."""
    verifier = verifier_for(problem, own)
    return verifier(text, problem) if verifier else None


Verdict = Callable[[str, Problem], tuple[float, str] | None]  # verdict(text, problem), as below


def own_verifier(name: str | None) -> Verifier | None:
    """The verifier that --reward names, if it names one."""
    return Verifier(own_function(name), source=name) if name else None


def verdict_of(config: Rewards) -> Verdict:
    """`verdict` with the verifier that --reward names, if it names one."""
    return partial(verdict, own=own_verifier(config.reward))


def judge_of(config: Rewards):
    """How groups get their rewards: with --reward from that verifier, else from the rules of a
    problem's set, else from the grader."""
    from reasoning_from_scratch.rollouts import reward_groups  # late: it loads the grader

    return partial(reward_groups, verifier=verdict_of(config))
