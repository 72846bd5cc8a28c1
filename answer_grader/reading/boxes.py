"""Finding the answer in a model's text: the last box, or by choice the last number."""

import re
from typing import NamedTuple

MAX_BOX = 20_000  # a box that has not closed by then is treated as one that never does
MAX_NESTED = 40  # boxes in one another, or linked by "or"

BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
UNBRACED_END = re.compile(r"[$\s]|\\[)\]]")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
# A brace, with the command before it where that is a box or hides what follows.
OPENING = re.compile(r"\\(boxed|fbox|[hv]?phantom)\s*\{|\\.|[{}]", re.DOTALL)
# Between two boxes that are one answer: \boxed{3}$ or $\boxed{4}.
LINK = re.compile(r"(?:[\s$~,;]|\\[,;:! ()\[\]]|\\q?quad|\\text\s*\{|\}|\b(?:and|or)\b)*")
LINKING_WORD = re.compile(r"(?<!\\)[,;]|and|or")
NUMBER = re.compile(
    r"[-−]?(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+/[0-9]+|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?:[eE][+-]?[0-9]+)?"
)


class Box(NamedTuple):
    start: int  # of its command
    end: int  # after its closing brace
    content: str


def last_box_start(text: str) -> int:
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
    """The content of the last box, its blanks included; None if there is no box or its braces do
    not close.

    A box in a box is no answer of its own: \\boxed{3 \\boxed{4}} says 3 and 4.
    """
    box = last_visible_box(text)
    return box and unwrap_boxes(box.content)


def boxed_answer(text: str) -> str | None:
    """The content of the last box, together with the boxes beside it: an answer that names two
    values is not just the second one."""
    box = last_visible_box(text)
    if box is None or not box.content.strip():
        return None
    contents = [unwrap_boxes(box.content).strip()]
    while len(contents) < MAX_NESTED and text.find("box", 0, box.start) >= 0:
        before = last_visible_box(text[: box.start])
        if before is None or not are_linked(text[before.end : box.start]):
            break
        box = before
        contents.append(unwrap_boxes(box.content).strip())
    return r" \text{ or } ".join(dict.fromkeys(reversed(contents)))


def are_linked(between: str) -> bool:
    """Whether boxes with this text between them are one answer: a comma, "or", blanks."""
    if len(between) > 60 or not LINK.fullmatch(between):
        return False
    return "\n" not in between or bool(LINKING_WORD.search(between))


def last_visible_box(text: str) -> Box | None:
    """The last box, or the outermost one that it stands in; None where a \\phantom hides it."""
    start = last_box_start(text)
    box = box_at(text, start) if start >= 0 else None
    earlier = (text.rfind(name, 0, max(start, 0)) for name in ("\\boxed", "\\fbox", "phantom"))
    if box is None or max(earlier) < 0:
        return box
    enclosing_boxes = [match for match in enclosing_braces(text, box) if match[1]]
    if any("phantom" in match[1] for match in enclosing_boxes):
        return None
    return box_at(text, enclosing_boxes[0].start()) if enclosing_boxes else box


def enclosing_braces(text: str, box: Box) -> list[re.Match]:
    """The braces that open before a box and close after it, the outermost first."""
    open_braces: list[re.Match] = []
    for match in OPENING.finditer(text, max(0, box.start - MAX_BOX), box.start):
        if match.group().endswith("{") and match.group() != r"\{":
            open_braces.append(match)
        elif match.group() == "}" and open_braces:
            open_braces.pop()
    depth, closed = 0, 0
    for match in BRACE.finditer(text, box.end, box.end + MAX_BOX):
        depth += (match.group() == "{") - (match.group() == "}")
        closed = max(closed, -depth)
    return open_braces[-closed:] if closed else []


def box_at(text: str, start: int) -> Box | None:
    """The box that begins here, if its braces close; `\\boxed 5` needs none."""
    position = BOX.match(text, start).end()
    while position < len(text) and text[position] in " \t":
        position += 1
    if text.startswith("{", position):
        end = closing_brace(text, position)
        return Box(start, end + 1, text[position + 1 : end]) if end >= 0 else None
    end = end_of_unbraced(text, position)
    return Box(start, end, text[position:end].strip()) if end > position else None


def end_of_unbraced(text: str, position: int) -> int:
    """The first blank, line end or end of math that no brace encloses; 0 if a brace stays open."""
    stop = position
    window = min(len(text), position + MAX_BOX)
    while stop < window and not UNBRACED_END.match(text, stop):
        stop = closing_brace(text, stop) + 1 if text[stop] == "{" else stop + 1
        if stop == 0:
            return 0
    return stop


def unwrap_boxes(content: str) -> str:
    """\\boxed{4} as 4; boxes that do not hold all of it lose their commands."""
    if "box" not in content:
        return content
    content = content.strip()
    for _ in range(MAX_NESTED):
        box = box_at(content, 0) if BOX.match(content) else None
        if box is None or box.end < len(content):
            break
        content = box.content.strip()
    return BOX.sub(" ", content).strip()


def last_number(text: str) -> str | None:
    """The last number in the text; looks only at the 200 characters before the last digit."""
    end = max(text.rfind(digit) for digit in "0123456789") + 1
    if end == 0:
        return None
    start = max(0, end - 200)
    last = None
    for match in NUMBER.finditer(text, start, end):
        last = match.group()
    return last


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


def judged_part(text: str, fallback: str | None = None) -> str:
    """The part of an answer that is judged: its last box, with those beside it; without a box, what
    `fallback` names, as in extract_final_candidate."""
    boxed = boxed_answer(text.strip())
    return extract_final_candidate(text, fallback) if boxed is None else boxed.strip().strip("$ ")
