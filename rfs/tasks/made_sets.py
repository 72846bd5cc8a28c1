"""Problem sets that are made here and judged by rules of their own, not by the grader.

    gym:TASK        tasks of reasoning-gym                  gym_tasks.py
    instructions    "answer in exactly 8 words"             the folder instructions/

Such a set is a module with two functions: problems(name, limit), and score(text, problem), which
returns the reward of an answer. Each problem has the set's name in `rules` and whatever `score`
needs as plain text in `facts`. So problems can be pickled, made again and judged anywhere.
"""

from types import ModuleType

from rfs.tasks import gym_tasks, instructions

MADE_SETS = {"gym": gym_tasks, "instructions": instructions}
MADE_NAMES = ("instructions", "instructions@new-constraints", "gym:TASK")


def made_set(name: object) -> ModuleType | None:
    """The module that makes the set with this name; None if the set is not made here."""
    return MADE_SETS.get(str(name).partition("@")[0].partition(":")[0])
