"""When the units of two answers can be the same."""

from fractions import Fraction

from ..reading.trees import Const, Degrees, Mul, Node, Num, Pow, Sym, contains
from ..reading.units import CELSIUS, DEGREE, FAHRENHEIT, RADIAN, SIZES, UNITS, Unit
from .math_objects import Value

Units = tuple[tuple[Unit, int], ...]
GENERIC_UNIT = Unit("unit")


def units_agree(a: Units, b: Units) -> bool:
    """Whether two units can be the same: equal, one missing, or one a kind of the other."""
    if not a or not b or a == b:
        return True
    return is_kind_of(dict(a), dict(b)) or is_kind_of(dict(b), dict(a))


def is_kind_of(general: dict[Unit, int], special: dict[Unit, int]) -> bool:
    """Degrees may be of temperature, square units any measure squared."""
    if set(general) == {DEGREE}:
        return bool({CELSIUS, FAHRENHEIT} & set(special))
    if set(general) == {GENERIC_UNIT} and len(special) == 1:
        ((unit, power),) = special.items()
        return unit.kind != "noun" and power == general[GENERIC_UNIT]
    return False


def dimensions_and_size(units: Units) -> tuple[dict[str, int], Fraction] | None:
    """What is measured, with its powers, and how much of it one such unit is: a km per hour is
    1000/3600 of length per time. None where a unit has no fixed size."""
    powers: dict[str, int] = {}
    total = Fraction(1)
    for unit, power in units:
        if unit.kind != "measure" or unit.name not in SIZES:
            return None
        kind, size = SIZES[unit.name]
        powers[kind] = powers.get(kind, 0) + power
        total *= size**power
    return powers, total


def in_common_unit(a: Value, b: Value) -> tuple[Node, Node] | None:
    """Both numbers as they are in one unit, where they measure the same: 120 mm and 12 cm.
    An angle in degrees may stand beside one in radians, if that is a multiple of pi."""
    left, right = dimensions_and_size(a.units), dimensions_and_size(b.units)
    if left is not None and right is not None and left[0] == right[0]:
        return Mul((Num(left[1]), a.tree)), Mul((Num(right[1]), b.tree))
    for degrees, radians in ((a, b), (b, a)):
        if degrees.units == ((DEGREE, 1),) and radians.units in ((), ((RADIAN, 1),)):
            if contains(radians.tree, (Const,)):
                return Degrees(degrees.tree), radians.tree
    return None


def with_letter_unit(value: Value, units: Units) -> Value:
    """5 m beside 5 metres: the letter m of the product is that unit."""
    match value.tree:
        case Mul((*others, last)):
            letter, power = letter_power(last)
            if letter in UNITS and ((Unit(UNITS[letter]), power),) == units:
                return Value(Mul(tuple(others)) if len(others) > 1 else others[0], units)
    return value


def letter_power(tree: Node) -> tuple[str | None, Fraction | int]:
    match tree:
        case Sym(name):
            return name, 1
        case Pow(Sym(name), Num(power)):
            return name, power
    return None, 0
