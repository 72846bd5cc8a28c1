"""Tokens: the list that the lexer fills, and the place in it while a tree is read."""

from collections.abc import Callable
from typing import NamedTuple

from ..limits import MAX_DEPTH, MAX_TOKENS, TooBig, Unparsed
from .trees import Node


class Token(NamedTuple):
    kind: str  # num, sym, const, fn, text, cmd, op, begin, end
    value: str
    gap: bool = False  # a blank stands before it


END = Token("end", "")


class Tokens:
    """The tokens so far. `gap` says that a blank has come since the last of them."""

    def __init__(self) -> None:
        self.items: list[Token] = []
        self.gap = False

    def add(self, kind: str, value: str) -> None:
        if len(self.items) >= MAX_TOKENS:
            raise TooBig
        self.items.append(Token(kind, value, self.gap))
        self.gap = False

    def last_is(self, kind: str, *values: str) -> bool:
        """Whether the last token is of that kind and, if any are given, has one of the values."""
        if not self.items or self.items[-1].kind != kind:
            return False
        return not values or self.items[-1].value in values


class Rules(NamedTuple):
    """The two rules of the grammar that brackets need from the files above them."""

    expression: Callable[["Cursor"], Node]  # expressions.py
    statement: Callable[["Cursor"], Node]  # statements.py


class Cursor:
    def __init__(self, tokens: list[Token], rules: Rules):
        self.tokens = [*tokens, END]  # the cursor never passes END
        self.rules = rules
        self.position = 0
        self.depth = 0
        self.bars = 0  # how many |...| are open
        self.colon_ends = False  # inside a set a colon begins its condition

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def peek(self, ahead: int = 1) -> Token:
        position = self.position + ahead
        return self.tokens[position] if position < len(self.tokens) else END

    def take(self) -> Token:
        token = self.tokens[self.position]
        self.position += token is not END
        return token

    def sees(self, *values: str) -> bool:
        """Whether one of these signs comes next."""
        token = self.tokens[self.position]
        return token.kind == "op" and token.value in values

    def accept(self, *values: str) -> str | None:
        """Takes the next token if it is one of these signs."""
        token = self.tokens[self.position]
        if token.kind != "op" or token.value not in values:
            return None
        self.position += 1
        return token.value

    def expect(self, *values: str) -> None:
        if not self.accept(*values):
            raise Unparsed

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooBig

    def leave(self) -> None:
        self.depth -= 1

    def at_union_sign(self) -> bool:
        """The U of (0,1)U(2,3): between two brackets that belong to intervals."""
        before = self.tokens[self.position - 1].value if self.position else ""
        is_u = self.token.kind == "sym" and self.token.value == "U"
        return is_u and before in (")", "]") and self.peek().value in ("(", "[")
