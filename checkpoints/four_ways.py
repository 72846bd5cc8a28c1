"""How pre-training writes the answer to a problem in each of the four styles of tiny/ways.py."""

import random
import re
from collections.abc import Iterator, Sequence

from reasoning_from_scratch.tiny.world import WORKED_START

SLIPS = 0.35  # of a checked solution's lines first get an incorrect result
_RESULT = re.compile(r"(.*= )(\S+)")

# A piece of an answer: its text, and what it is for training.
#   plain    learned
#   result   the result of a line: learned, but pre-training may blur it
#   slip     an incorrect result: read, never learned, so the model learns to correct slips, not to
#            make them
#   guess    the immediate answer to a problem of several steps: never learned either, because
#            nobody sees it immediately; what the model writes there is its own guess
Piece = tuple[str, str]


def written(lines: Sequence[str], answer: str, way: str, rng: random.Random) -> Iterator[Piece]:
    """The answer to a problem with these solution lines, in one of the styles."""
    if way == "answer only":
        yield "\n\\boxed{", "plain"
        yield answer, "guess" if len(lines) > 1 else "plain"
        yield "}", "plain"
        return
    yield f" {WORKED_START}", "plain"
    for line in lines[::-1][::2][::-1] if way == "rough" else lines:
        start, result = _RESULT.fullmatch(line).groups()
        yield start, "plain"
        if way != "checked":
            yield result, "result"
        elif rng.random() < SLIPS:
            yield slip(result, rng), "slip"
            yield f"? No, {result}", "plain"
        else:
            yield result, "result"
            yield "? Yes", "plain"
        yield "\n", "plain"
    yield f"\\boxed{{{answer}}}", "plain"


def slip(result: str, rng: random.Random) -> str:
    """A number or fraction with one digit changed."""
    place = rng.choice([i for i, char in enumerate(result) if char.isdigit()])
    other = rng.choice([digit for digit in "0123456789" if digit != result[place]])
    return result[:place] + other + result[place + 1 :]
