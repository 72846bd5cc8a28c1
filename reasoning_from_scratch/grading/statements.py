"""The grammar's top: lists, relations, unions, sets, ratios, times, quantities and words.

Trees added here:
  ("list" | "both" | "either", *items) ("rel", ops, *sides) ("ratio", *items)
  ("union" | "meet" | "minus", a, b)
  ("clock", hour, minute, half) ("qty", value, units) ("words", key)
"""

import re
from fractions import Fraction
from typing import NamedTuple

from .grammar import END, number
from .lexer import CURRENCY, Token, tokenize
from .limits import MAX_CHARS, TooBig, Unparsed
from .notation import Notation
from .repeating import spell_out_repeating
from .units import add_unit_words, check_label, number_prefix, smaller_unit
from .words import MEANINGS, ORDINAL_WORDS, UNITS, number_from_words, phrase_key

RELATIONS = ("=", "<", ">", "≤", "≥", "≠", "≈", "∈", "≡")
SEPARATORS = (",", ";", "and", "or", "\\\\", "⇒")

INVERSE_OR_INDEX = {"'", "^", "_", "{", "}", "-", "1", "2", "3", "n"}
HALVES = {"am": "am", "pm": "pm", "noon": "pm", "midnight": "am"}
SEPARATOR_KINDS = {"or": "either", "and": "both"}


class Answer(NamedTuple):
    tree: tuple
    phrase: str | None  # the letters and digits of an answer that has nothing else


class Statements(Notation):
    colon_ends = False

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

    def ratio_sign(self) -> bool:
        if self.token.kind == "text":
            return self.token.value == "to"
        return self.sees(":") and not self.colon_ends

    def ratio(self, first: tuple) -> tuple:
        clock = self.clock() if self.sees(":") else None
        if clock is not None:
            return clock
        items = [first]
        while self.ratio_sign():
            self.take()
            items.append(self.expression())
        return ("ratio", *items)

    def clock(self) -> tuple | None:
        """3:30, 3:30 p.m.: an hour, a colon and two digits below 60."""
        hour, minute = self.tokens[self.at - 1], self.peek()
        if hour.kind != "num" or minute.kind != "num" or self.peek(2).value == ":":
            return None
        if not (hour.value.isdigit() and minute.value.isdigit() and len(minute.value) == 2):
            return None
        if len(hour.value) > 2 or int(hour.value) > 24 or int(minute.value) > 59:
            return None
        self.at += 2
        half = self.half_of_day()
        return ("clock", int(hour.value), int(minute.value), half)

    def half_of_day(self) -> str | None:
        if self.token.kind == "text":
            half = HALVES.get(self.token.value.lower())
            self.at += half is not None
            return half
        return None

    # quantities

    def quantity(self) -> tuple:
        start = self.at
        negative = self.sees("-") and self.peek().kind == "cmd"
        token = self.peek() if negative else self.token
        if token.kind == "cmd" and token.value in CURRENCY.values():
            self.at += 2 if negative else 1
            value = ("neg", self.expression()) if negative else self.expression()
            return self.with_units(value, {token.value: 1})
        self.at = start
        if token.kind == "text" and token.value in ("USD", "EUR") and not negative:
            self.take()
            return self.with_units(self.expression(), {UNITS[token.value]: 1})
        value = self.expression()
        special = self.after_number(start) if value[0] == "num" else None
        return special or self.compound(self.with_units(value, {}))

    def compound(self, first: tuple) -> tuple:
        """3 hours and 15 minutes, in the smaller unit."""
        while first[0] == "qty" and len(first[2]) == 1:
            joint = int(self.sees("and", ","))
            number_token, unit = self.peek(joint), self.peek(joint + 1)
            size = smaller_unit(first[2][0], unit.value) if unit.kind == "text" else None
            if number_token.kind != "num" or size is None:
                break
            self.at += joint
            second = self.with_units(number(self.take().value), {})
            if second[0] != "qty" or len(second[2]) != 1:
                raise Unparsed
            larger = ("mul", ("num", Fraction(size)), first[1])
            first = ("qty", ("add", larger, second[1]), second[2])
        return first

    def after_number(self, start: int) -> tuple | None:
        """3 p.m. and 101 base 2."""
        digits = self.tokens[start].value
        if self.at != start + 1 or not digits.isdigit():
            return None
        if len(digits) <= 2 and int(digits) <= 24:
            half = self.half_of_day()
            if half:
                return ("clock", int(digits), 0, half)
        opened = self.sees("(") and self.peek().value == "base"
        if opened:
            self.take()
        if self.token.value.lower() != "base":
            return None
        self.take()
        base = ("base", digits, self.base())
        if opened:
            self.expect(")")
        return base

    def with_units(self, value: tuple, units: dict) -> tuple:
        units = dict(units)
        sign = 1
        scale = 1
        while True:
            if self.accept("%"):
                units["percent"] = 1
            elif self.token.kind == "cmd" and self.token.value in CURRENCY.values():
                units[self.take().value] = 1
            elif self.token.kind == "cmd" and self.token.value == "frac":
                self.fraction_of_units(units)
            elif self.token.kind == "cmd" and self.token.value in ("pmod", "mod", "bmod"):
                self.take()
                units[f"mod {self.short_argument()}"] = 1
            elif self.sees("(") and self.peek().kind == "text":
                self.take()
                scale *= self.unit_text(units, sign)
                self.expect(")")
            elif self.token.kind == "text" and self.token.value != "to":
                scale *= self.unit_text(units, sign)
            elif units and self.sees("/", "*") and self.unit_follows():
                sign = -1 if self.take().value == "/" else 1
                if self.token.kind == "sym":
                    units[UNITS[self.take().value]] = sign
            else:
                break
        if scale != 1:
            value = ("mul", value, ("num", Fraction(scale)))
        return ("qty", value, tuple(sorted(units.items()))) if units else value

    def fraction_of_units(self, units: dict) -> None:
        self.take()
        for sign in (1, -1):
            self.expect("{")
            if self.token.kind != "text":
                raise Unparsed
            self.unit_text(units, sign)
            self.expect("}")

    def unit_follows(self) -> bool:
        token = self.peek()
        return token.kind == "text" or (token.kind == "sym" and token.value in UNITS)

    def unit_text(self, units: dict, sign: int) -> int:
        """Reads one text token into `units`; returns what the number is multiplied by."""
        last, scale = add_unit_words(self.take().value, units, sign)
        power = None
        if self.sees("^"):
            self.take()
            power = self.exponent()
        elif self.token.kind == "num" and not self.token.gap and self.token.value in ("2", "3"):
            power = number(self.take().value)
        if power is not None:
            if last is None or power == "ordinal":
                raise Unparsed
            negative = power[0] == "neg"
            power = power[1] if negative else power
            if power[0] != "num" or power[1].denominator != 1 or abs(power[1]) > 9:
                raise Unparsed
            units[last] = units[last] * int(power[1]) * (-1 if negative else 1)
        return scale

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
