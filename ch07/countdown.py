"""Countdown: reach a target with some given numbers. The answer is a calculation, not a number.

    rfs train --model base --problems ch07/countdown.py:problems \\
        --reward ch07/countdown.py:reward --eval-every 20

A verifier that ran `eval(answer)` would run whatever a model writes. This one reads the answer
with the grader's grammar and works it out in exact fractions.
"""

import random
import re
from collections import Counter

from answer_grader import arithmetic, get_last_boxed


def problems(seed=0):
    """Each has a solution, because the target is computed from its numbers."""
    rng = random.Random(seed)
    while True:
        numbers = [rng.randint(1, 25) for _ in range(rng.choice((3, 4)))]
        target, rest = numbers[0], numbers[1:]
        for number in rest:
            target = rng.choice((target + number, target - number, target * number))
        given = ", ".join(map(str, sorted(numbers)))
        if 10 <= target <= 100 and target not in numbers:
            yield {
                "problem": f"Reach {target} by calculating with the numbers {given}. Each may be "
                "used once, with +, -, *, / and brackets. Answer with the calculation.",
                "answer": str(target),
            }


def test_problems():
    return problems(seed=1)


def reward(text, problem):
    """1 for a calculation that comes to the target and uses no number more often than given."""
    calculation = arithmetic(get_last_boxed(text) or "")
    if calculation is None:
        return 0.0
    value, used = calculation
    given = re.search(r"numbers ([\d, ]+)\.", problem.problem)[1]
    allowed = Counter(int(number) for number in given.split(", "))
    return float(value == int(problem.answer) and Counter(used) <= allowed)


if __name__ == "__main__":  # there is nothing to run here: say what this is, and show a problem
    print(__doc__, "The first problem:", next(problems()), sep="\n")
