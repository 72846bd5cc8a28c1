"""The grammar of amounts: numbers with units, currency, ratios, times, numbers in a base."""

from fractions import Fraction

from .grammar import number
from .lexer import CURRENCY
from .limits import Unparsed
from .notation import Notation
from .units import add_unit_words, smaller_unit
from .words import UNITS

HALVES = {"am": "am", "pm": "pm", "noon": "pm", "midnight": "am"}


class Quantities(Notation):
    colon_ends = False  # inside a set a colon begins its condition

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
