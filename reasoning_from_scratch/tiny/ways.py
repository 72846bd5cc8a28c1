"""Four styles of answer to a problem of the tiny world, and how to recognize each from the text.

    answer only   the answer and nothing else
    rough         every second solution step; the others are done in the head
    full          one line for each step
    checked       one line for each step, each checked: "Yes", or "No" and the correct number

A longer style costs more tokens and is correct more often. Pre-training shows all four, each for
every kind of problem; a run can find out which is best for which problem.
(checkpoints/four_ways.py writes these examples.)
"""

WAYS = ("answer only", "rough", "full", "checked")
ANSWER_TOKENS = 224  # the longest checked answer of eight steps is a little shorter


def way_of(text: str, steps: int) -> str:
    """The style in which this answer to a problem of `steps` steps is written."""
    lines = [line for line in text.splitlines() if "=" in line and "\\boxed" not in line]
    if not lines:
        return "answer only"
    if sum("? Yes" in line or "? No" in line for line in lines) * 2 > len(lines):
        return "checked"
    return "rough" if 2 * len(lines) <= steps + 1 and steps > 1 else "full"
