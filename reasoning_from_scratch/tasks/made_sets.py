"""Sets of problems that are made here and judged by rules of their own, not by the grader.

    gym:TASK        tasks of reasoning-gym                  gym_tasks.py
    instructions    "answer in exactly 8 words"             the room instructions/

Such a set is a module with two functions: problems(name, limit), and score(text, problem), which
says what an answer is worth. Its problems carry the set's name in `rules`, and in `facts`, as
plain text, what `score` must know. So they can be pickled, made again and judged anywhere.
"""

from types import ModuleType

from reasoning_from_scratch.tasks import gym_tasks, instructions

MADE_SETS = {"gym": gym_tasks, "instructions": instructions}
MADE_NAMES = ("instructions", "instructions@new-constraints", "gym:TASK")


def made_set(name: object) -> ModuleType | None:
    """The module that makes the set of this name; None for other sets."""
    return MADE_SETS.get(str(name).partition("@")[0].partition(":")[0])
