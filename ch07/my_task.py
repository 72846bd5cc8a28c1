"""A task of your own in a few lines: problems, the reward of an answer, and something else to
measure. Copy this file and change it; `rfs train` reads its functions.

    rfs train --problems ch07/my_task.py:problems --reward ch07/my_task.py:reward --eval-every 20
"""

import random

from answer_grader import extract_final_candidate
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.sampling import greedy
from rfs.evaluation.evaluate import evaluate


def problems(seed=0):
    """Training problems, one after another; the function may go on forever."""
    rng = random.Random(seed)
    while True:
        a, b, c = rng.randint(2, 60), rng.randint(2, 9), rng.randint(2, 40)
        yield {"problem": f"Compute {a} + {b} * {c}.", "answer": str(a + b * c)}


def test_problems():
    """Held-out problems, for --eval-every."""
    return problems(seed=1)


def reward(text, problem):
    """The reward of an answer: 1 if correct, 0 if not, or anything between."""
    return 1.0 if extract_final_candidate(text, fallback=None) == problem.answer else 0.0


def larger(model, tokenizer):
    """For --evaluators: anything else that you want to know about the model. Here: can it do the
    same with a first number that is in no training problem?"""
    asked = [Problem(f"larger/{a}", f"Compute {a} + 7 * 30.", str(a + 210)) for a in range(61, 81)]
    result = evaluate(model, tokenizer, asked, greedy(64))
    return {"right": result.accuracy, "tokens": result.mean_length}


if __name__ == "__main__":  # there is nothing to run here: say what this is, and show a problem
    print(__doc__, "The first problem:", next(problems()), sep="\n")
