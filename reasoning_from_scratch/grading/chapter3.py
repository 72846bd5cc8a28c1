"""The chapter's names for the parts of grading, on strings."""

import re

from .comparing.comparison import same_answer
from .limits import MAX_CHARS, TooBig, Unparsed
from .reading.statements import parse
from .verdict import grade_answer

STYLE = re.compile(r"\\(?:text|mathrm|textbf|mbox|mathbf|boxed|displaystyle)(?![A-Za-z])")
LIGHT = (
    (re.compile(r"\\left(?![a-z])|\\right(?![a-z])|\\[,;:! ]|\\[()\[\]]|[$~]"), " "),
    (re.compile(r"\^\s*\\circ|\^\s*\{\s*\\circ\s*\}|°"), ""),
    (re.compile(r"\\[dt]frac(?![a-z])"), r"\\frac"),
    (re.compile(r"\\frac\s*\{([^{}]{0,200})\}\s*\{([^{}]{0,200})\}"), r"(\1)/(\2)"),
    (re.compile(r"\\sqrt\s*\{([^{}]{0,200})\}"), r"sqrt(\1)"),
    (re.compile(r"\\cdot|\\times"), "*"),
    (re.compile(r"\^"), "**"),
    (re.compile(r"(?<=[0-9])\{?,\}?(?=[0-9]{3}(?![0-9]))"), ""),
)


def normalize_text(text: str | None) -> str:
    """A plain spelling of an answer, for showing; grading reads the text itself."""
    if not text or len(text) > MAX_CHARS:
        return ""
    text = STYLE.sub("", text.strip())
    for pattern, replacement in LIGHT:
        text = pattern.sub(replacement, text)
    return re.sub(r"\s+", " ", text.replace("{", "").replace("}", "")).strip().lower()


def equality_check(expr_gtruth: str, expr_pred: str) -> bool:
    """Whether two expressions have the same value."""
    if expr_gtruth == expr_pred:
        return True
    try:
        return same_answer(parse(expr_gtruth), parse(expr_pred))
    except (Unparsed, TooBig):
        return False


def split_into_parts(text: str) -> list[str]:
    """The elements of "(a, b)" or "[a, b]"; any other text is its own only part."""
    if not text:
        return []
    inner = text[1:-1]
    if len(text) < 2 or text[0] not in "([" or text[-1] not in ")]" or "," not in inner:
        return [text]
    parts, depth, start = [], 0, 0
    for at, char in enumerate(inner):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            parts.append(inner[start:at].strip())
            start = at + 1
    parts.append(inner[start:].strip())
    return parts if all(parts) else [text]


def run_demos_table(tests: list[tuple[str, str, str, bool]]) -> None:
    """Grades rows of (name, prediction, truth, expected) and prints them as a table."""
    header = ("Test", "Expect", "Got", "Status")
    rows = []
    for name, prediction, truth, expected in tests:
        got = grade_answer(prediction, truth)
        rows.append((name, str(expected), str(got), "PASS" if got == expected else "FAIL"))
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(4)]
    for row in [header, *rows]:
        print(" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    passed = sum(row[3] == "PASS" for row in rows)
    print(f"\nPassed {passed}/{len(rows)}")
