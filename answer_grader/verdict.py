"""The verdict on one answer."""

import re
from fractions import Fraction

from .comparing.comparison import same_answer
from .limits import MAX_CHARS, TooBig, Unparsed
from .reading.boxes import boxed_answer, last_box_start
from .reading.choices import bare_choice, labelled_choice
from .reading.statements import parse

GRADER_VERSION = "6"

PLAIN_NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?", re.ASCII)


class UnreadableTruth(ValueError):
    """The grader cannot read the answer of a data set."""


def answer_verdict(pred_text: str, gt_text: str) -> str:
    """ "correct", "wrong", "unparsed" (no answer that we can read) or "too big" (to decide)."""
    try:
        return decide(box_or_text(pred_text), box_or_text(gt_text))
    except Unparsed:
        return "unparsed"
    except (TooBig, RecursionError):
        return "too big"
    except Exception:  # a bug here must cost one verdict, not a training run of days
        return "unparsed"


def grade_answer(pred_text: str, gt_text: str) -> bool:
    """Whether two answers are the same. Never raises, never prints, keeps no state."""
    return answer_verdict(pred_text, gt_text) == "correct"


def box_or_text(text: str) -> str:
    """The contents of the last box; without any box, the text itself. Never both."""
    if last_box_start(text) < 0:
        return text.strip()
    boxed = boxed_answer(text)
    if boxed is None:
        raise Unparsed
    return boxed


def decide(pred: str, truth: str) -> str:
    if len(pred) > MAX_CHARS or len(truth) > MAX_CHARS:
        raise TooBig
    if not pred:
        raise Unparsed
    if pred == truth:
        return "correct"
    if PLAIN_NUMBER.fullmatch(pred) and PLAIN_NUMBER.fullmatch(truth):
        return "correct" if Fraction(pred) == Fraction(truth) else "wrong"
    if agree_as_choice(pred, truth) or agree_as_choice(truth, pred):
        return "correct"
    answer = parse(pred)
    try:
        expected = parse(truth)
    except Unparsed:
        return "wrong"
    return "correct" if same_answer(answer, expected) else "wrong"


def agree_as_choice(labelled: str, other: str) -> bool:
    """Whether both agree if (C) 12 may be read as the choice C or as 12."""
    choice = labelled_choice(labelled)
    if choice is None:
        return False
    letter = bare_choice(other)
    if letter is not None:
        return letter == choice.letter
    if choice.text is None:
        return False
    try:
        return same_answer(parse(choice.text), parse(other))
    except (Unparsed, TooBig):
        return False


def has_readable_answer(text: str) -> bool:
    """Whether a model's text has a box with an answer that we can read."""
    try:
        boxed = boxed_answer(text)
        return bool(boxed) and parse(boxed) is not None
    except (Unparsed, TooBig, RecursionError):
        return False


def check_truth(answer: str) -> str:
    """The answer of a data set, or an error: a truth that cannot be read grades nothing."""
    try:
        parse(box_or_text(answer))
    except (Unparsed, TooBig):
        raise UnreadableTruth(
            f"the answer {answer[:60]!r} cannot be read by the grader; correct it or drop the "
            "problem"
        ) from None
    return answer
