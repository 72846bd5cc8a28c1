"""Numbers as the lexer reads them: digits in groups, decimals, exponents, digits of a base; and
repeating decimals, rewritten as fractions before the lexer sees them."""

import re

from ..limits import Unparsed
from .number_words import NUMBER_WORDS

# NUMBER, GROUP, ... below are matched at a position; nothing here searches.
NUMBER = re.compile(r"[0-9]+(?:\.(?![.])[0-9]*)?|\.[0-9]+")
GROUP = re.compile(
    r"(?:(?P<sure>\{,\}\s*|,\\!\s*|\\[,;:!]\s*,\s*|\\[,:; ]|(?<=[0-9])\\!)"
    r"|(?P<maybe>,)|(?P<blank> ))"
    r"(?P<digits>[0-9]{3})(?![0-9])"
)
COMMA_DIGIT = re.compile(r",[0-9]")
DECIMALS = re.compile(r"\.[0-9]+")
EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,6})(?![0-9A-Za-z.])")
BASE_BEGINS = re.compile(
    r"\)?\s?_\s?(?:\{\s?)?(?:\(?[0-9]|\\(?:text|mathrm|mbox)\{|(?:"
    + "|".join(NUMBER_WORDS)
    + r")\b)"
)
BASE_DIGITS = re.compile(r"[0-9A-Z]{1,60}")
MARKED_DECIMAL = re.compile(
    r"((?<![0-9.])[0-9]{1,40}|(?<![0-9.})\w]))\.([0-9]{0,40})\s?"
    r"(?:\\(?:overline|bar|dot)\s?(?:\{\s?([0-9]{1,40})\s?\}|([0-9]))|\(([0-9]{1,40})\)(?!\s?[_^]))(?![0-9])"
)
DOTTED_DECIMAL = re.compile(
    r"((?<![0-9.])[0-9]{1,40}|(?<![0-9.})\w]))\.([0-9]{1,60})\s?(?:\.\.\.|…|\\[lc]?dots(?![A-Za-z])|\\dotsc)"
)


def base_digits(text: str, start: int) -> str | None:
    """A3 in A3_{16}: digits and capitals, up to a subscript that begins with a digit."""
    match = BASE_DIGITS.match(text, start)
    if match is None or not BASE_BEGINS.match(text, match.end()):
        return None
    return match.group() if any(c.isdigit() for c in match.group()) else None


def read_numeral(text: str, start: int, in_brackets: bool) -> tuple[str, int] | None:
    """The number that begins here, without what separates its groups, and where it ends."""
    of_base = base_digits(text, start)
    match = NUMBER.match(text, start)
    if of_base and (match is None or len(of_base) > match.end() - start):
        return of_base, start + len(of_base)
    if match is None:
        return None
    digits, end = match.group(), match.end()
    if "." not in digits and len(digits) <= 3 and digits[0] != "0":
        groups, end = digit_groups(text, end, in_brackets)
        digits += groups
        if decimals := DECIMALS.match(text, end):
            digits, end = digits + decimals.group(), decimals.end()
    if exponent := EXPONENT.match(text, end):
        digits, end = f"{digits}e{exponent.group(1)}", exponent.end()
    return digits, end


def digit_groups(text: str, start: int, in_brackets: bool) -> tuple[str, int]:
    """The ,220 of 2,220 in any of its spellings; nothing unless every group has 3 digits.

    In brackets a comma separates elements, and never groups digits.
    """
    digits, end = "", start
    while match := GROUP.match(text, end):
        if match["maybe"] and in_brackets:
            break
        digits, end = digits + match["digits"], match.end()
        if match["blank"] and (in_brackets or text[end : end + 1] in ("/", "\\")):
            return "", start  # 2 220/7 is a mixed number
    if COMMA_DIGIT.match(text, end):
        return "", start  # 100,200,30 is a list
    return digits, end


# ---- repeating decimals


def as_fraction(integer_part: str, fixed: str, block: str) -> str:
    bottom = (10 ** len(block) - 1) * 10 ** len(fixed)
    top = int((integer_part or "0") + fixed + block) - int((integer_part or "0") + fixed)
    return rf"\left(\frac{{{top}}}{{{bottom}}}\right)"


def repeating_block(digits: str) -> tuple[str, str] | None:
    """0.1666... -> ("1", "6"): the shortest block that the digits end with, often enough."""
    for size in range(1, len(digits) // 2 + 1):
        block, times = digits[-size:], 1
        while digits.endswith(block * (times + 1)):
            times += 1
        if times >= (3 if size <= 2 else 2):
            return digits[: len(digits) - size * times], block
    return None


def dotted_as_fraction(match: re.Match) -> str:
    digits_and_block = repeating_block(match[2])
    if digits_and_block is None:
        raise Unparsed  # 3.14159... says that it is not exact, and not what it is
    return as_fraction(match[1], *digits_and_block)


def repeating_as_fractions(text: str) -> str:
    """0.\\overline{3}, 0.(3) and 0.333... as fractions."""
    if "." not in text:
        return text
    text = MARKED_DECIMAL.sub(lambda m: as_fraction(m[1], m[2], m[3] or m[4] or m[5]), text)
    return DOTTED_DECIMAL.sub(dotted_as_fraction, text)
