"""Finding the answer in a model's text: the last box, or by choice the last number."""

import re

MAX_BOX = 20_000  # a box that has not closed by then is treated as one that never does

BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
UNBRACED_END = re.compile(r"[$\s]|\\[)\]]")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
NUMBER = re.compile(
    r"-?(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+/[0-9]+|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?:[eE][+-]?[0-9]+)?"
)


def last_box(text: str) -> int:
    """Where the last \\boxed or \\fbox begins, -1 if there is none."""
    end = len(text)
    while True:
        start = max(text.rfind("\\boxed", 0, end), text.rfind("\\fbox", 0, end))
        if start < 0 or BOX.match(text, start):
            return start
        end = start


def closing_brace(text: str, start: int) -> int:
    """The index of the brace that closes the one at `start`, -1 if none does within the limit."""
    depth = 0
    for match in BRACE.finditer(text, start, start + MAX_BOX):
        if match.group() == "{":
            depth += 1
        elif match.group() == "}":
            depth -= 1
            if depth == 0:
                return match.start()
    return -1


def get_last_boxed(text: str) -> str | None:
    """What stands in the last box; None if there is no box or its braces do not close."""
    start = last_box(text)
    if start < 0:
        return None
    position = BOX.match(text, start).end()
    while position < len(text) and text[position] in " \t":
        position += 1
    if text.startswith("{", position):
        end = closing_brace(text, position)
        return text[position + 1 : end].strip() if end >= 0 else None
    return unbraced(text, position)


def unbraced(text: str, position: int) -> str | None:
    """`\\boxed 5`: up to the first blank, line end or end of math that no brace encloses."""
    stop = position
    window = min(len(text), position + MAX_BOX)
    while stop < window and not UNBRACED_END.match(text, stop):
        stop = closing_brace(text, stop) + 1 if text[stop] == "{" else stop + 1
        if stop == 0:
            return None
    return text[position:stop].strip() or None


def last_number(text: str) -> str | None:
    """The last number in the text; looks only at the 200 characters before the last digit."""
    end = max(text.rfind(digit) for digit in "0123456789") + 1
    if end == 0:
        return None
    start = max(0, end - 200)
    found = None
    for match in NUMBER.finditer(text, start, end):
        found = match.group()
    return found


def extract_final_candidate(text: str, fallback: str | None = "number_then_full") -> str:
    """The last box; without one, what `fallback` names.

    "number_then_full": the last number, else the whole text. "number_only": the last number,
    else nothing. None: nothing.
    """
    if not text:
        return ""
    boxed = get_last_boxed(text.strip())
    if boxed is not None:
        return boxed.strip().strip("$ ")
    number = last_number(text) if fallback in ("number_then_full", "number_only") else None
    if number is not None:
        return number
    return text if fallback == "number_then_full" else ""
