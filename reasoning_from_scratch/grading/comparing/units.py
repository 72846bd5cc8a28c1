"""When the units of two answers can be the same."""

from ..reading.trees import Mul, Node, Num, Pow, Sym
from ..reading.units import CELSIUS, DEGREE, FAHRENHEIT, UNITS, Unit
from .things import Value

Units = tuple[tuple[Unit, int], ...]
UNIT = Unit("unit")


def units_agree(a: Units, b: Units) -> bool:
    """Whether two units can be the same: equal, one missing, or one a kind of the other."""
    if not a or not b or a == b:
        return True
    return is_kind_of(dict(a), dict(b)) or is_kind_of(dict(b), dict(a))


def is_kind_of(general: dict[Unit, int], special: dict[Unit, int]) -> bool:
    """Degrees may be of temperature, square units any measure squared."""
    if set(general) == {DEGREE}:
        return bool({CELSIUS, FAHRENHEIT} & set(special))
    if set(general) == {UNIT} and len(special) == 1:
        ((unit, power),) = special.items()
        return unit.kind != "noun" and power == general[UNIT]
    return False


def with_letter_unit(value: Value, units: Units) -> Value:
    """5 m beside 5 metres: the letter m of the product is that unit."""
    match value.tree:
        case Mul((*others, last)):
            letter, power = letter_power(last)
            if letter in UNITS and ((Unit(UNITS[letter]), power),) == units:
                return Value(Mul(tuple(others)) if len(others) > 1 else others[0], units)
    return value


def letter_power(tree: Node) -> tuple[str | None, int]:
    match tree:
        case Sym(name):
            return name, 1
        case Pow(Sym(name), Num(power)):
            return name, power
    return None, 0
