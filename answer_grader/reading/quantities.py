"""The grammar of amounts: numbers with units, currency, ratios, times, numbers in a base."""

from fractions import Fraction

from ..limits import Unparsed
from .expressions import (
    MODULI,
    base_numeral,
    base_of_numeral,
    decimal,
    exponent,
    expression,
    short_argument,
    take_ordinal_ending,
)
from .latex_commands import CURRENCY
from .tokens import Cursor
from .trees import (
    Add,
    Mul,
    Neg,
    Node,
    Num,
    Quantity,
    Ratio,
    Sym,
    TimeOfDay,
    is_whole_number,
)
from .units import PERCENT, UNITS, Unit, UnitList, units_in_larger

HALVES_OF_DAY = {"am": "am", "pm": "pm", "noon": "pm", "midnight": "am"}
CURRENCIES = set(CURRENCY.values())
CURRENCY_WORDS = ("USD", "EUR")
MAX_POWER = 9  # of a unit


# ---- ratios and times


def at_ratio_sign(c: Cursor) -> bool:
    if c.token.kind == "text":
        return c.token.value == "to"
    return c.sees(":") and not c.colon_ends


def ratio(c: Cursor, first: Node) -> Node:
    """3:4, 3 to 4, and the times that look so."""
    time = time_of_day(c) if c.sees(":") and isinstance(first, Num) else None
    if time is not None:
        return time
    parts = [first]
    while at_ratio_sign(c):
        c.take()
        parts.append(expression(c))
    return Ratio(tuple(parts))


def time_of_day(c: Cursor) -> TimeOfDay | None:
    """3:30, 3:30 p.m.: an hour, a colon and two digits below 60."""
    hour, minute = c.tokens[c.position - 1], c.peek()
    if hour.kind != "num" or minute.kind != "num" or c.peek(2).value == ":":
        return None
    minutes = minute.value.rstrip(".")  # a full stop may follow
    if not (hour.value.isdigit() and minutes.isdigit() and len(minutes) == 2):
        return None
    if len(hour.value) > 2 or int(hour.value) > 24 or int(minutes) > 59:
        return None
    c.position += 2
    return TimeOfDay(int(hour.value), int(minutes), take_half_of_day(c))


def take_half_of_day(c: Cursor) -> str | None:
    half = HALVES_OF_DAY.get(c.token.value.lower()) if c.token.kind == "text" else None
    c.position += half is not None
    return half


# ---- quantities


def quantity(c: Cursor) -> Node:
    """An expression with what stands beside it: a currency, units, a base, a half of the day."""
    start = c.position
    currency = take_currency(c)
    if currency is not None:
        negative, unit = currency
        value = expression(c)
        units = UnitList()
        units.set(unit)
        return with_units(c, Neg(value) if negative else value, units)
    value = expression(c)
    special = time_or_base(c, start) if isinstance(value, Num) else None
    return special or compound_quantity(c, with_units(c, value, UnitList()))


def take_currency(c: Cursor) -> tuple[bool, Unit] | None:
    """Takes $, -$, USD before a number: whether it is negative, and the currency."""
    negative = c.sees("-") and c.peek().kind == "cmd"
    token = c.peek() if negative else c.token
    if token.kind == "cmd" and token.value in CURRENCIES:
        c.position += 2 if negative else 1
        return negative, Unit(token.value)
    if token.kind == "text" and token.value in CURRENCY_WORDS:
        c.take()
        return False, Unit(UNITS[token.value])
    return None


def compound_quantity(c: Cursor, first: Node) -> Node:
    """3 hours and 15 minutes, in the smaller unit."""
    while isinstance(first, Quantity) and len(first.units) == 1:
        ((unit, power),) = first.units
        joint = int(c.sees("and", ","))
        amount, word = c.peek(joint), c.peek(joint + 1)
        size = units_in_larger(unit, word.value) if word.kind == "text" and power == 1 else None
        if amount.kind != "num" or size is None:
            break
        c.position += joint
        second = with_units(c, decimal(c.take().value), UnitList())
        if not isinstance(second, Quantity) or len(second.units) != 1:
            raise Unparsed
        larger = Mul((Num(size), first.value))
        first = Quantity(Add((larger, second.value)), second.units)
    return first


def time_or_base(c: Cursor, start: int) -> Node | None:
    """3 p.m. and 101 base 2."""
    digits = c.tokens[start].value
    if c.position != start + 1 or not digits.isdigit():
        return None
    if len(digits) <= 2 and int(digits) <= 24:
        half = take_half_of_day(c)
        if half:
            return TimeOfDay(int(digits), 0, half)
    in_brackets = c.sees("(") and c.peek().value == "base"
    c.position += in_brackets
    if c.token.value.lower() != "base":
        return None
    c.take()
    base = base_of_numeral(c)
    if in_brackets:
        c.expect(")")
    return base_numeral(digits, base)


def with_units(c: Cursor, value: Node, units: UnitList) -> Node:
    while take_unit(c, units):
        pass
    if units.scale != 1:
        value = Mul((value, Num(Fraction(units.scale))))
    if isinstance(value, Sym) and any(unit.kind == "noun" for unit in units.powers):
        raise Unparsed  # C \text{ B} names two choices
    return Quantity(value, units.as_tuple()) if units else value


def take_unit(c: Cursor, units: UnitList) -> bool:
    """Takes the next unit, if what comes next is one."""
    token = c.token
    if c.accept("%"):
        units.set(PERCENT)
    elif token.kind == "cmd" and token.value in CURRENCIES:
        units.set(Unit(c.take().value))
    elif token.kind == "cmd" and token.value == "frac":
        take_unit_fraction(c, units)
    elif token.kind == "cmd" and token.value in MODULI:
        c.take()
        units.set(modulus(short_argument(c)))
    elif c.sees("(") and c.peek().kind == "text":
        c.take()
        take_unit_text(c, units)
        c.expect(")")
    elif token.kind == "text" and token.value != "to":
        take_unit_text(c, units)
    elif units and c.sees("/", "*") and unit_follows(c):
        units.sign = -1 if c.take().value == "/" else 1
        if c.token.kind == "sym":
            units.set(Unit(UNITS[c.take().value]), units.sign)
    else:
        return False
    return True


def modulus(tree: Node) -> Unit:
    return Unit(str(tree.value if isinstance(tree, Num) else tree), "modulus")


def take_unit_fraction(c: Cursor, units: UnitList) -> None:
    """\\frac{\\text{m}}{\\text{s}}"""
    c.take()
    before = units.sign
    for units.sign in (1, -1):
        c.expect("{")
        if c.token.kind != "text":
            raise Unparsed
        take_unit_text(c, units)
        c.expect("}")
    units.sign = before


def unit_follows(c: Cursor) -> bool:
    token = c.peek()
    return token.kind == "text" or (token.kind == "sym" and token.value in UNITS)


def take_unit_text(c: Cursor, units: UnitList) -> None:
    """One text token, and the superscript that may follow it."""
    last = units.read(c.take().value)
    power: Node | None = None
    if c.accept("^"):
        if take_ordinal_ending(c):
            raise Unparsed
        power = exponent(c)
    elif c.token.kind == "num" and not c.token.gap and c.token.value in ("2", "3"):
        power = decimal(c.take().value)  # cm2
    if power is None:
        return
    sign = 1
    if isinstance(power, Neg):
        sign, power = -1, power.inner
    if last is None or not is_whole_number(power) or abs(power.value) > MAX_POWER:
        raise Unparsed
    units.raise_last(last, sign * int(power.value))
