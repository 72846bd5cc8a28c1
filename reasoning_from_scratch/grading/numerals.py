"""Numbers as the lexer reads them: digits in groups, decimals, exponents, digits of a base."""

import re
from typing import NamedTuple

from .limits import MAX_TOKENS, TooBig, Unparsed


class Token(NamedTuple):
    kind: str  # num, sym, const, fn, text, cmd, op, begin, end
    value: str
    gap: bool = False  # a blank stands before it


NUMBER = re.compile(r"[0-9]+(?:\.(?![.])[0-9]*)?|\.[0-9]+")
GROUP = re.compile(
    r"(?:(?P<sure>\{,\}\s*|,\\!\s*|\\[,;:!]\s*,\s*|\\[,:; ]|(?<=[0-9])\\!)"
    r"|(?P<maybe>,)|(?P<blank> ))"
    r"(?P<digits>[0-9]{3})(?![0-9])"
)
EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,6})(?![0-9A-Za-z.])")
BASE_BEGINS = re.compile(
    r"\)?\s?_\s?(?:\{\s?)?(?:\(?[0-9]|\\(?:text|mathrm|mbox)\{|(?:two|three|eight|twelve|sixteen)\b)"
)
BASE_DIGITS = re.compile(r"[0-9A-Z]{1,60}")


class Numerals:
    """The state of the lexer, and its part for numbers."""

    def __init__(self, text: str):
        self.text = text
        self.position = 0
        self.tokens: list[Token] = []
        self.gap = False
        self.spliced = 0  # how many \\text commands had mathematics in them
        self.brackets = 0  # commas inside brackets never group digits

    def add(self, kind: str, value: str) -> None:
        if len(self.tokens) >= MAX_TOKENS:
            raise TooBig
        self.tokens.append(Token(kind, value, self.gap))
        self.gap = False

    def last(self, kind: str, *values: str) -> bool:
        """Whether the token before this place is of that kind (and value)."""
        if not self.tokens or self.tokens[-1].kind != kind:
            return False
        return not values or self.tokens[-1].value in values

    def base_digits(self) -> str | None:
        """A3 in A3_{16}: digits and capitals, up to a subscript that begins with a digit."""
        match = BASE_DIGITS.match(self.text, self.position)
        if match is None or not BASE_BEGINS.match(self.text, match.end()):
            return None
        return match.group() if any(c.isdigit() for c in match.group()) else None

    def number(self) -> None:
        base_digits = self.base_digits()
        match = NUMBER.match(self.text, self.position)
        if base_digits and (match is None or len(base_digits) > match.end() - self.position):
            self.position += len(base_digits)
            return self.add("num", base_digits)
        if match is None:
            return self.dots()
        digits, self.position = match.group(), match.end()
        if "." not in digits and len(digits) <= 3 and digits[0] != "0":
            digits += self.digit_groups()
            decimals = re.compile(r"\.[0-9]+").match(self.text, self.position)
            if decimals and "." not in digits:
                digits, self.position = digits + decimals.group(), decimals.end()
        exponent = EXPONENT.match(self.text, self.position)
        if exponent:
            digits, self.position = f"{digits}e{exponent.group(1)}", exponent.end()
        self.add("num", digits)

    def digit_groups(self) -> str:
        """The ,220 of 2,220 in any of its spellings; nothing unless every group has 3 digits."""
        digits, end = "", self.position
        while match := GROUP.match(self.text, end):
            if match["maybe"] and self.brackets:
                break
            digits, end = digits + match["digits"], match.end()
            if match["blank"] and (self.brackets or self.text[end : end + 1] in ("/", "\\")):
                return ""
        if re.compile(r",[0-9]").match(self.text, end):
            return ""  # 100,200,30 is a list
        self.position = end
        return digits

    def dots(self) -> None:
        if self.text.startswith("...", self.position):
            self.position += 3
            self.add("sym", "...")
        elif self.text[self.position + 1 :].strip(" .$\\)]}") == "" or self.last("text"):
            self.position += 1  # the full stop of a sentence
        else:
            raise Unparsed
