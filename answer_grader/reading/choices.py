"""Answers to multiple choice: the letter, the text of the choice, or both, as in (C) 12."""

import re
from typing import NamedTuple

LABEL = r"(?:\(([A-Ja-j])\)|([A-Ja-j])(?:[.)]|:(?=\s)))"
LABELLED = re.compile(LABEL + r"\s*(\S.*)?", re.DOTALL)
BARE = re.compile(r"\(?([A-J])[).]?")
SEPARATOR = re.compile(r"[,;/&+*^=<>-]|and\b|or\b|\\(?:cdot|times|pm|cup)")
# With one of these, the text is not a choice: the letter of another choice, or a remark on it.
NOT_A_CHOICE = re.compile(
    r"\([A-Ja-j]\)|(?<![A-Za-z\\])[A-J](?:[.)]|\s*$)"
    r"|^(?:is|does|if|but|unless|except|instead|rather|otherwise)(?:n't)?\b"
)
STYLE = r"\\(?:text|textbf|textrm|mathrm|mathbf|textit|boldsymbol)(?![A-Za-z])|[{}$~]"
STYLES = re.compile(STYLE)
BEGINNING = re.compile(rf"(?:{STYLE}|\s)*{LABEL}")


class Choice(NamedTuple):
    letter: str
    text: str | None  # the text after the letter


def labelled_choice(answer: str) -> Choice | None:
    """ "(C) 12" -> C and 12; None for what is no choice, or several: (A), (B)."""
    match = LABELLED.fullmatch(STYLES.sub(" ", answer).strip())
    if match is None:
        return None
    rest = match[3]
    if rest and (SEPARATOR.match(rest) or NOT_A_CHOICE.search(rest)):
        return None
    return Choice(match[1] or match[2], after_label(answer) if rest else None)


def after_label(answer: str) -> str:
    """The \\frac{1}{2} of \\textbf{(B)} \\frac{1}{2}: without a brace that was opened before it."""
    text, depth = "", 0
    for char in answer[BEGINNING.match(answer).end() :]:
        depth += (char == "{") - (char == "}")
        text += char if depth >= 0 else ""
        depth = max(depth, 0)
    return text.strip("$~ \n\t")


def bare_choice(answer: str) -> str | None:
    """The letter of an answer that is a letter alone."""
    match = BARE.fullmatch(STYLES.sub("", answer).strip())
    return match[1] if match else None
