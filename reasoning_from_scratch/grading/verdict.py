"""The verdict on one answer."""

import re
from fractions import Fraction

from ..errors import UserError
from .equal import Comparison
from .extract import get_last_boxed, last_box
from .limits import MAX_CHARS, TooBig, Unparsed
from .statements import Answer, parse

GRADER_VERSION = "1"

PLAIN_NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?", re.ASCII)
LABELLED = re.compile(r"(?:\(([A-Ja-j])\)|([A-Ja-j])(?:[.)]|:(?=\s)))\s*(\S.*)?", re.DOTALL)
BARE_CHOICE = re.compile(r"\(?([A-J])[).]?")
SEPARATOR = re.compile(r"[,;/&+*^=<>-]|and\b|or\b|\\(?:cdot|times|pm|cup)")
STYLES = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|textit|boldsymbol)(?![A-Za-z])|[{}$~]")


def boxed_or_whole(text: str) -> str:
    """What stands in the last box; without any box, the text itself. No call reads both."""
    if last_box(text) < 0:
        return text.strip()
    boxed = get_last_boxed(text)
    if boxed is None:
        raise Unparsed
    return boxed


def judge(pred_text: str, gt_text: str) -> str:
    """ "correct", "wrong", "unparsed" (no answer that we can read) or "too big" (to decide)."""
    try:
        return decide(boxed_or_whole(pred_text), boxed_or_whole(gt_text))
    except Unparsed:
        return "unparsed"
    except (TooBig, RecursionError):
        return "too big"
    except Exception:  # a bug here must cost one verdict, not a training run of days
        return "unparsed"


def grade_answer(pred_text: str, gt_text: str) -> bool:
    """Whether two answers are the same. Never raises, never prints, keeps no state."""
    return judge(pred_text, gt_text) == "correct"


def decide(pred: str, truth: str) -> str:
    if len(pred) > MAX_CHARS or len(truth) > MAX_CHARS:
        raise TooBig
    if not pred:
        raise Unparsed
    if pred == truth:
        return "correct"
    if PLAIN_NUMBER.fullmatch(pred) and PLAIN_NUMBER.fullmatch(truth):
        return "correct" if Fraction(pred) == Fraction(truth) else "wrong"
    labelled = by_label(pred, truth) or by_label(truth, pred)
    if labelled:
        return "correct"
    answer = parse(pred)
    try:
        expected = parse(truth)
    except Unparsed:
        return "wrong"
    return "correct" if same_answer(answer, expected) else "wrong"


def same_answer(a: Answer, b: Answer) -> bool:
    return Comparison().answers(a, b)


def by_label(labelled: str, other: str) -> bool:
    """(C) 12 is the choice C, and 12."""
    match = LABELLED.fullmatch(STYLES.sub(" ", labelled).strip())
    if match is None:
        return False
    letter, rest = match[1] or match[2], match[3]
    if rest and (SEPARATOR.match(rest) or BARE_CHOICE.fullmatch(rest)):
        return False  # (A), (B) are two choices
    bare = BARE_CHOICE.fullmatch(STYLES.sub("", other).strip())
    if bare:
        return letter == bare[1]
    return rest is not None and grade_rest(rest, labelled, other)


def grade_rest(rest: str, labelled: str, other: str) -> bool:
    start = labelled.find(rest)
    if start < 0:
        return False
    try:
        return same_answer(parse(rest), parse(other))
    except (Unparsed, TooBig):
        return False


def parses(text: str) -> bool:
    """Whether a model's text has a box with an answer that we can read."""
    try:
        boxed = get_last_boxed(text)
        return bool(boxed) and parse(boxed) is not None
    except (Unparsed, TooBig, RecursionError):
        return False


def check_truth(answer: str) -> str:
    """The answer of a data set, or an error: a truth that cannot be read grades nothing."""
    try:
        parse(boxed_or_whole(answer))
    except (Unparsed, TooBig):
        raise UserError(
            f"the answer {answer[:60]!r} cannot be read by the grader; correct it or leave the "
            "problem out"
        ) from None
    return answer
