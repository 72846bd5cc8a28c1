"""Repeating decimals, rewritten as fractions before the lexer sees them."""

import re

from ..limits import Unparsed

MARKED = re.compile(
    r"((?<![0-9.])[0-9]{1,40}|(?<![0-9.})\w]))\.([0-9]{0,40})\s?"
    r"(?:\\(?:overline|bar|dot)\s?(?:\{\s?([0-9]{1,40})\s?\}|([0-9]))|\(([0-9]{1,40})\)(?!\s?[_^]))(?![0-9])"
)
DOTTED = re.compile(
    r"((?<![0-9.])[0-9]{1,40}|(?<![0-9.})\w]))\.([0-9]{1,60})\s?(?:\.\.\.|…|\\[lc]?dots(?![A-Za-z])|\\dotsc)"
)


def as_fraction(whole: str, fixed: str, block: str) -> str:
    bottom = (10 ** len(block) - 1) * 10 ** len(fixed)
    top = int((whole or "0") + fixed + block) - int((whole or "0") + fixed)
    return rf"\left(\frac{{{top}}}{{{bottom}}}\right)"


def block_of(digits: str) -> tuple[str, str] | None:
    """0.1666... -> ("1", "6"): the shortest block that the digits end with, often enough."""
    for size in range(1, len(digits) // 2 + 1):
        block, times = digits[-size:], 1
        while digits.endswith(block * (times + 1)):
            times += 1
        if times >= (3 if size <= 2 else 2):
            return digits[: len(digits) - size * times], block
    return None


def from_dots(match: re.Match) -> str:
    found = block_of(match[2])
    if found is None:
        raise Unparsed  # 3.14159... says that it is not exact, and not what it is
    return as_fraction(match[1], *found)


def spell_out_repeating(text: str) -> str:
    """0.\\overline{3}, 0.(3) and 0.333... as fractions."""
    if "." not in text:
        return text
    text = MARKED.sub(lambda m: as_fraction(m[1], m[2], m[3] or m[4] or m[5]), text)
    return DOTTED.sub(from_dots, text)
