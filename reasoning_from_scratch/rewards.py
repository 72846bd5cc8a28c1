"""Rewards that a program can check: is the answer correct, and does it have the right format?

Each part is 0 or 1; your own verifier or environment may give a fraction. The reward of a rollout
is their weighted sum. An incorrect answer can have the right format (a box with nonsense in it is a
box), so `conditional` counts the parts about format only if the answer is correct.
"""

import math
from collections.abc import Iterable, Sequence

from answer_grader import get_last_boxed, grade_answer, has_readable_answer
from reasoning_from_scratch.errors import UserError

THINK_TOKEN_ID = 151667  # <think>
END_THINK_TOKEN_ID = 151668  # </think>

PARTS = {
    "correct": "the last \\boxed{} has the correct answer",
    "wrong": "1 - correct: with correct=1 wrong=-1 the reward is +1 or -1, as in DAPO",
    "format": "the answer ended by itself and its last \\boxed{} can be read",
    "unformatted": "1 - format: with a negative weight, a missing format costs",
    "think": "one <think>...</think> with text in it, and an answer after it",
}
FORMAT_PARTS = tuple(name for name in PARTS if name not in ("correct", "wrong"))


def correctness(text: str, answer: str) -> float:
    """1.0 if the last \\boxed{} has the correct answer; text outside of boxes does not count."""
    boxed = get_last_boxed(text)
    if boxed is None or not boxed.strip():
        return 0.0
    return float(grade_answer(text, answer))


def box_format(text: str, finished: bool) -> float:
    """1.0 if the model stopped by itself and its last \\boxed{} can be read as an answer."""
    return float(finished and has_readable_answer(text))


def think_format(
    response_ids: Sequence[int],
    start_id: int = THINK_TOKEN_ID,
    end_id: int = END_THINK_TOKEN_ID,
) -> float:
    """1.0 for exactly one <think>, then text, exactly one </think>, then an answer.

    It looks at token ids: the letters "<think>" typed out are other tokens and don't count.
    """
    ids = list(response_ids)
    if ids.count(start_id) != 1 or ids.count(end_id) != 1:
        return 0.0
    start, end = ids.index(start_id), ids.index(end_id)
    return float(start + 1 < end < len(ids) - 1)


def format_parts(
    text: str,
    finished: bool,
    response_ids: Sequence[int] = (),
    names: Iterable[str] = (),
    think_ids: tuple[int, int] = (THINK_TOKEN_ID, END_THINK_TOKEN_ID),
) -> dict[str, float]:
    """The format parts, whether the answer is correct or not: `format`, and others if named."""
    formatted = box_format(text, finished)
    parts = {"format": formatted}
    if "unformatted" in names:
        parts["unformatted"] = 1.0 - formatted
    if "think" in names:
        parts["think"] = think_format(response_ids, *think_ids)
    return parts


def conditional_parts(parts: dict[str, float]) -> dict[str, float]:
    """The same parts, with the format parts set to 0 if the answer is incorrect."""
    correct = parts["correct"]
    return {
        name: value * correct if name in FORMAT_PARTS else value for name, value in parts.items()
    }


def total_reward(
    parts: dict[str, float], weights: dict[str, float], conditional: bool = False
) -> float:
    """The weighted sum. {"correct": 1, "unformatted": -0.1} is 1[correct] + 0.1 (1[format] - 1)."""
    if conditional:
        parts = conditional_parts(parts)
    return sum(weight * parts[name] for name, weight in weights.items())


def overlong_penalty(length: int, max_new_tokens: int, cushion: int) -> float:
    """DAPO's soft penalty: 0, but over the last `cushion` tokens it falls linearly to -1.

    Without it, a cut-off answer gets the same reward as any incorrect one; with it, the reward
    warns of the limit before it is reached.
    """
    if cushion <= 0:
        return 0.0
    return max(-1.0, min(0.0, (max_new_tokens - cushion - length) / cushion))


def parse_weights(reward_parts: Sequence[str]) -> dict[str, float]:
    """("correct=1", "format=0.1") -> {"correct": 1.0, "format": 0.1}."""
    if not reward_parts:
        raise UserError("no reward part: at least correct=1 is needed")
    weights: dict[str, float] = {}
    for name, weight in map(_parse_weight, reward_parts):
        if name in weights:
            raise UserError(f"reward part {name} has two weights: drop one of them")
        weights[name] = weight
    return weights


def _parse_weight(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")  # which names are known depends on other options
    try:
        weight = float(number)
    except ValueError:
        weight = math.nan
    if not name or not math.isfinite(weight):
        raise UserError(f"reward part {text!r}: write NAME=WEIGHT, as in correct=1")
    return name, weight
