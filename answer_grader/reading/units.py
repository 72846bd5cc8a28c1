"""Units and other words beside a number."""

from fractions import Fraction
from typing import NamedTuple

from ..limits import Unparsed
from .number_words import SCALES, number_from_words
from .words import BEFORE_VALUES, CHANGES_MEANING, ORDINAL_ENDINGS, REMARKS


class Unit(NamedTuple):
    """What a number counts: a measure (cm), a noun (apple) or the modulus of a remainder."""

    name: str
    kind: str = "measure"


DEGREE = Unit("degree")
PERCENT = Unit("percent")
RADIAN = Unit("radian")
CELSIUS, FAHRENHEIT = Unit("celsius"), Unit("fahrenheit")

# Each group is one unit; the first name is the one it is compared by.
UNIT_GROUPS = """
mm millimeter millimeters millimetre millimetres
cm centimeter centimeters centimetre centimetres
dm decimeter decimeters
m meter meters metre metres
km kilometer kilometers kilometre kilometres kms
inch inches in
foot feet ft
yard yards yd yds
mile miles mi
unit units
mg milligram milligrams
g gram grams gm gms
kg kilogram kilograms kgs kilo kilos
lb pound pounds lbs
oz ounce ounces
ton tons tonne tonnes
second seconds sec secs s
minute minutes min mins
hour hours hr hrs h
day days
week weeks
month months
year years yr yrs
ml milliliter milliliters millilitre millilitres mL
liter liters litre litres L
gallon gallons gal
quart quarts qt
pint pints
cup cups
acre acres
hectare hectares
dollar dollars USD usd buck bucks
cent cents
euro euros EUR
gbp
yen
rupee rupees
degree degrees deg degs
radian radians rad rads
celsius
fahrenheit
kelvin
percent percents percentage
mph
kph
newton newtons N
joule joules J
watt watts W
volt volts V
hertz Hz
pascal pascals Pa
mole moles mol
bit bits
byte bytes
"""
UNITS = {
    name: names[0]
    for names in (line.split() for line in UNIT_GROUPS.split("\n") if line)
    for name in names
}
# Plain letters count as a unit only under these names: 5cm is one, 5m is a product.
BARE_UNITS = {name for name in UNITS if len(name) >= 2} - {"rad", "mol"}
AFTER_VALUES = BARE_UNITS | {"sq", "cu", "per"}

POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
POWERS_AFTER = {"squared": 2, "cubed": 3}
COMPOUND_UNITS = {"mph": {"mile": 1, "hour": -1}, "kph": {"km": 1, "hour": -1}}
# What a measure is of, and how much of it one unit is. Months are of no fixed length in days.
SIZES = {
    name: (kind, Fraction(size))
    for kind, *entries in (
        line.split()
        for line in """
        length mm=0.001 cm=0.01 dm=0.1 m=1 km=1000 inch=0.0254 foot=0.3048 yard=0.9144 mile=1609.344
        mass mg=0.001 g=1 kg=1000 oz=28.349523125 lb=453.59237
        time second=1 minute=60 hour=3600 day=86400 week=604800
        months month=1 year=12
        volume ml=0.001 liter=1
        volume cup=0.2365882365 pint=0.473176473 quart=0.946352946 gallon=3.785411784
        money dollar=1 cent=0.01
        data bit=1 byte=8
        """.strip().split("\n")
    )
    for name, size in (entry.split("=") for entry in entries)
}


def unit_name(word: str) -> str | None:
    return UNITS.get(word) or UNITS.get(word.lower())


class UnitList:
    """The units beside one number, as they are read: each with its power.

    `sign` is -1 after "per" and "/". `scale` is what "million" multiplies the number by.
    """

    def __init__(self) -> None:
        self.powers: dict[Unit, int] = {}
        self.scale = 1
        self.sign = 1

    def __bool__(self) -> bool:
        return bool(self.powers)

    def as_tuple(self) -> tuple[tuple[Unit, int], ...]:
        return tuple(sorted(self.powers.items()))

    def set(self, unit: Unit, power: int = 1) -> None:
        self.powers[unit] = power

    def read(self, text: str) -> Unit | None:
        """Adds "square inches" or "miles per hour"; returns the last unit, which a superscript
        may follow."""
        power, last, sign = 1, None, self.sign
        noun_words: list[str] = []
        for word in text.replace("/", " per ").split():
            lower = word.lower()
            name = unit_name(word)
            if lower in SCALES and last is None and not noun_words:
                self.scale *= SCALES[lower]
            elif lower in SCALES:
                raise Unparsed  # 12 cm million
            elif lower in POWERS:
                power = POWERS[lower]
            elif lower in POWERS_AFTER and last:
                self.raise_last(last, POWERS_AFTER[lower])
            elif lower in ("per", "a", "an") and (self.powers or noun_words):
                sign = -1
            elif name and not noun_words:
                for part, exponent in COMPOUND_UNITS.get(name, {name: 1}).items():
                    unit = Unit(part)
                    self.powers[unit] = self.powers.get(unit, 0) + sign * power * exponent
                last, power = Unit(name), 1
            elif lower not in ORDINAL_ENDINGS and (noun_words or lower not in ("of", "a", "an")):
                noun_words.append(lower)
        self.add_noun(noun_words)
        if CELSIUS in self.powers or FAHRENHEIT in self.powers:
            self.powers.pop(DEGREE, None)
        return last

    def add_noun(self, words: list[str]) -> None:
        """Up to three other words name what is counted; more are a remark."""
        if any(word in CHANGES_MEANING for word in words):
            raise Unparsed
        is_noun = 0 < len(words) <= 3 and REMARKS.isdisjoint(words)
        if is_noun and not self.powers:
            self.powers[Unit(singular(words[-1]), "noun")] = 1

    def raise_last(self, unit: Unit, power: int) -> None:
        """The superscript of \\text{cm}^2."""
        if unit not in self.powers:
            raise Unparsed  # the square of a mile per hour
        self.powers[unit] *= power


def units_in_larger(unit: Unit, word: str) -> Fraction | None:
    """How many of the smaller unit `word` make one `unit`: 60 minutes an hour."""
    kind, size = SIZES.get(unit.name, ("", Fraction(0)))
    other_kind, other_size = SIZES.get(unit_name(word), ("?", Fraction(0)))
    return size / other_size if kind == other_kind and size > other_size else None


def check_label(label: str, colon: bool) -> None:
    """Refuses words before a number, unless they only lead up to it: "the answer is"."""
    words = label.lower().split()
    if any(word in CHANGES_MEANING for word in words):
        raise Unparsed
    if not colon and words[-1] not in BEFORE_VALUES:
        raise Unparsed


def split_number_prefix(text: str) -> tuple[int | None, str]:
    """ "five apples" -> (5, "apples"); (None, text) where no number in words comes first."""
    words = text.split()
    for count in range(min(len(words), 8), 0, -1):
        value = number_from_words(" ".join(words[:count]))
        if value is not None and words[count - 1].lower() != "and":
            return value, " ".join(words[count:])
    return None, text


def singular(noun: str) -> str:
    """Good enough to tell apples from oranges and not from an apple."""
    for ending, replacement in (("ies", "y"), ("ches", "ch"), ("shes", "sh"), ("xes", "x")):
        if noun.endswith(ending) and len(noun) > 4:
            return noun[: -len(ending)] + replacement
    return noun[:-1] if noun.endswith("s") and not noun.endswith("ss") and len(noun) > 3 else noun
