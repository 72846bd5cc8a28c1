"""The grammar's top: lists, relations, unions, sets, ratios, times, quantities and words.

Trees added here:
  ("list" | "both" | "either", *items) ("rel", ops, *sides) ("ratio", *items)
  ("union" | "meet" | "minus", a, b)
  ("clock", hour, minute, half) ("qty", value, units) ("words", key)
"""

import re
from fractions import Fraction
from typing import NamedTuple

from .grammar import END
from .lexer import Token, tokenize
from .limits import MAX_CHARS, TooBig, Unparsed
from .quantities import Quantities
from .repeating import spell_out_repeating
from .units import add_unit_words, check_label, number_prefix
from .words import MEANINGS, ORDINAL_WORDS, number_from_words, phrase_key

RELATIONS = ("=", "<", ">", "≤", "≥", "≠", "≈", "∈", "≡")
SEPARATORS = (",", ";", "and", "or", "\\\\", "⇒")

INVERSE_OR_INDEX = {"'", "^", "_", "{", "}", "-", "1", "2", "3", "n"}
SEPARATOR_KINDS = {"or": "either", "and": "both"}


class Answer(NamedTuple):
    tree: tuple
    phrase: str | None  # the letters and digits of an answer that has nothing else


class Statements(Quantities):
    def answer(self) -> tuple:
        """The whole text: one statement, or several between commas, "and" and "or"."""
        items, separators = [], set()
        while True:
            while self.sees(*SEPARATORS):
                separators.add(self.take().value)
            if self.token is END:
                break
            items.append(self.statement())
            if self.token is not END and not self.sees(*SEPARATORS):
                raise Unparsed
        if not items or "⇒" in separators:
            raise Unparsed
        kind = next((SEPARATOR_KINDS[s] for s in ("or", "and") if s in separators), "list")
        return items[0] if len(items) == 1 else (kind, *items)

    def statement(self) -> tuple:
        self.accept("=")
        if self.token.kind == "text":
            words = self.words()
            if words is not None:
                return words
        sides, ops = [self.definition() or self.combination()], []
        while self.sees(*RELATIONS):
            ops.append(self.take().value)
            sides.append(self.combination())
        return sides[0] if not ops else ("rel", tuple(ops), *sides)

    def definition(self) -> tuple | None:
        """h(x) of h(x) = ..., which elsewhere is a product; \\text{Area} of \\text{Area} = ..."""
        if self.token.kind == "text" and self.peek().value in RELATIONS:
            return ("sym", f'"{phrase_key(self.take().value)}"')
        if self.token.kind != "sym" or self.peek().value not in ("(", "'", "^", "_"):
            return None
        end = self.at + 1
        while end < len(self.tokens) and self.tokens[end].value in INVERSE_OR_INDEX:
            end += 1
        if end >= len(self.tokens) or self.tokens[end].value != "(":
            return None
        while end < len(self.tokens) and self.tokens[end].value != ")":
            end += 1
        after = self.tokens[end + 1] if end + 1 < len(self.tokens) else END
        if after.value != "=" or end - self.at > 12:
            return None
        name = "".join(token.value for token in self.tokens[self.at : end + 1])
        self.at = end + 1
        return ("sym", name)

    def words(self) -> tuple | None:
        """A word answer, a number in words, or a label that is dropped (then None)."""
        following = self.peek()
        if self.token.value in ("USD", "EUR") and following.kind == "num":
            return None
        if following.kind == "op" and following.value in RELATIONS:
            return None  # \text{Area} = 5 names what is equal
        if self.token.value.lower() in ("minus", "negative") and following.kind == "num":
            self.tokens[self.at] = Token("op", "-")
            return None
        text = self.take().value
        if self.token is END or self.sees(*SEPARATORS, ")", "S}", "}", ">)", "]"):
            return meaning_of(text)
        if self.token.kind == "text" or self.sees("%", "/", "^", "-"):
            raise Unparsed
        value, rest = number_prefix(text)
        if value is not None:
            raise Unparsed
        check_label(rest, bool(self.accept(":")))
        return None

    # sets of reals, ratios

    def combination(self) -> tuple:
        value = self.quantity()
        while True:
            if op := self.accept("∪", "∩", "∖"):
                value = ({"∪": "union", "∩": "meet", "∖": "minus"}[op], value, self.quantity())
            elif self.union_sign():
                self.take()
                value = ("union", value, self.quantity())
            elif self.ratio_sign():
                value = self.ratio(value)
            else:
                return value

    # elements of brackets

    def element(self) -> tuple:
        return self.statement()

    def set_braces(self) -> tuple:
        if self.accept("S}"):
            return ("const", "empty")
        if self.token.kind == "begin":
            value = self.primary()
            self.accept("S}")
            return value
        self.enter()
        self.bars += 1  # so that a bar or colon ends the element: {x | x > 0}
        colon_ends, self.colon_ends = self.colon_ends, True
        items = [self.statement()]
        self.bars -= 1
        self.colon_ends = colon_ends
        builder = bool(self.accept("mid", "|", ":"))
        if builder:
            items = [self.statement()]
        while self.accept(",", ";"):
            items.append(self.statement())
        self.expect("S}")
        self.depth -= 1
        if builder:
            return ("builder", *items)
        return ("set", *items)


def meaning_of(text: str) -> tuple:
    """What words say: an object of mathematics, a number, else the words themselves."""
    key = phrase_key(text)
    sign, _, amount = key.partition(" ")
    if sign in ("minus", "negative") and number_from_words(amount) is not None:
        return ("num", Fraction(-number_from_words(amount)))
    if key in ORDINAL_WORDS:
        return ("num", Fraction(ORDINAL_WORDS[key]))
    option = re.fullmatch(r"(?:option|choice|answer) ([a-z])", key)
    if option:
        return ("words", option[1])
    if key in MEANINGS:
        return Statements(tokenize(MEANINGS[key])).answer()
    value, rest = number_prefix(text)
    if value is not None:
        units: dict = {}
        scale = add_unit_words(rest, units, 1)[1] if rest else 1
        tree = ("num", Fraction(value * scale))
        return ("qty", tree, tuple(sorted(units.items()))) if units else tree
    if not key:
        raise Unparsed
    return ("words", key)


COMMANDS = re.compile(r"\\[A-Za-z]+\*?|\\.|[{}$]")


def phrase_of(text: str) -> str | None:
    """The words of a text without its commands, if it has letters at all."""
    key = phrase_key(COMMANDS.sub(" ", text))
    return key if any(c.isalpha() for c in key) else None


def as_phrase(text: str, tokens: list[Token]) -> tuple:
    """What the grammar cannot read is a phrase, if it has a word in it."""
    key = phrase_of(text)
    if key is None or not any(t.kind == "text" and len(t.value) > 1 for t in tokens):
        raise Unparsed
    return meaning_of(key)


def parse(text: str) -> Answer:
    """The answer a text gives. Raises Unparsed or TooBig."""
    if len(text) > MAX_CHARS:
        raise TooBig
    tokens = tokenize(spell_out_repeating(text))
    if not tokens:
        raise Unparsed
    try:
        tree = Statements(list(tokens)).answer()
    except Unparsed:
        tree = as_phrase(text, tokens)
    plain = COMMANDS.sub(" ", text)
    only_letters = all(c.isalnum() or c in " .,;:()-'" for c in plain)
    return Answer(tree, phrase_of(text) if only_letters else None)
