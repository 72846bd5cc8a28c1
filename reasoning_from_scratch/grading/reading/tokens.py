"""Tokens, and the list that the lexer fills with them."""

from typing import NamedTuple

from ..limits import MAX_TOKENS, TooBig


class Token(NamedTuple):
    kind: str  # num, sym, const, fn, text, cmd, op, begin, end
    value: str
    gap: bool = False  # a blank stands before it


END = Token("end", "")


class Tokens:
    """The tokens so far. `gap` says that a blank has come since the last of them."""

    def __init__(self):
        self.found: list[Token] = []
        self.gap = False

    def add(self, kind: str, value: str) -> None:
        if len(self.found) >= MAX_TOKENS:
            raise TooBig
        self.found.append(Token(kind, value, self.gap))
        self.gap = False

    def last(self, kind: str, *values: str) -> bool:
        """Whether the last token is of that kind and, if any are given, has one of the values."""
        if not self.found or self.found[-1].kind != kind:
            return False
        return not values or self.found[-1].value in values
