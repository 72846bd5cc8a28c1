"""A task of your own in 20 lines: problems, and what an answer to them is paid. Copy this file
and change it; `rfs train` reads its functions.

    rfs train --problems ch07/my_task.py:problems --reward ch07/my_task.py:reward --eval-every 20
"""

import random

from reasoning_from_scratch.grading import get_last_boxed


def problems(seed=0):
    """Training problems, one after another; it may go on for ever."""
    rng = random.Random(seed)
    while True:
        a, b, c = rng.randint(2, 60), rng.randint(2, 9), rng.randint(2, 40)
        yield {"problem": f"Compute {a} + {b} * {c}.", "answer": str(a + b * c)}


def test_problems():
    """Held-out problems, for --eval-every."""
    return problems(seed=1)


def reward(text, problem):
    """What an answer is paid: 1 for right, 0 for wrong, or anything between."""
    return 1.0 if get_last_boxed(text) == problem.answer else 0.0


if __name__ == "__main__":  # there is nothing to run here: say what this is, and show a problem
    print(__doc__, "The first problem:", next(problems()), sep="\n")
