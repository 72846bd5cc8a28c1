"""Units and other words beside a number."""

from .limits import Unparsed
from .words import (
    BEFORE_VALUES,
    CHANGES_MEANING,
    ORDINAL_ENDINGS,
    SCALES,
    UNITS,
    number_from_words,
    singular,
)

POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
COMPOUND = {"mph": {"mile": 1, "hour": -1}, "kph": {"km": 1, "hour": -1}}
SMALLER = {
    ("week", "day"): 7, ("day", "hour"): 24, ("hour", "minute"): 60, ("minute", "second"): 60,
    ("yard", "foot"): 3, ("foot", "inch"): 12, ("lb", "oz"): 16, ("km", "m"): 1_000,
    ("m", "cm"): 100, ("dollar", "cent"): 100, ("year", "month"): 12,
}  # fmt: skip
AFTER = {"squared": 2, "cubed": 3}
REMARKS = {"is", "are", "answer", "total", "exactly", "only", "result", "final", "value", "ans"}


def unit_name(word: str) -> str | None:
    return UNITS.get(word) or UNITS.get(word.lower())


def add_unit_words(text: str, units: dict, sign: int) -> tuple[str | None, int]:
    """Adds the units of "square inches" or "miles per hour" to `units` (name -> exponent).

    Returns the last unit, which a superscript may follow, and what "million" multiplies by.
    """
    power, last, scale, others = 1, None, 1, []
    for word in text.replace("/", " per ").split():
        lower = word.lower()
        name = unit_name(word)
        if lower in SCALES and last is None and not others:
            scale *= SCALES[lower]
        elif lower in POWERS:
            power = POWERS[lower]
        elif lower in AFTER and last:
            units[last] *= AFTER[lower]
        elif lower in ("per", "a", "an") and (units or others):
            sign = -1
        elif name and not others:
            for part, exponent in COMPOUND.get(name, {name: 1}).items():
                units[part] = units.get(part, 0) + sign * power * exponent
            last, power = name, 1
        elif lower not in ORDINAL_ENDINGS and (others or lower not in ("of", "a", "an")):
            others.append(lower)
    add_noun(others, units)
    if "celsius" in units or "fahrenheit" in units:
        units.pop("degree", None)
    return last, scale


def smaller_unit(unit: tuple[str, int], word: str) -> int | None:
    """60 for hours and minutes: how many of the second make one of the first."""
    return SMALLER.get((unit[0], unit_name(word))) if unit[1] == 1 else None


def add_noun(words: list[str], units: dict) -> None:
    """One or two other words name what is counted; more are a remark."""
    if any(word in CHANGES_MEANING for word in words):
        raise Unparsed
    if words and len(words) <= 3 and not any(word in REMARKS for word in words) and not units:
        units[f"noun {singular(words[-1])}"] = 1


def check_label(label: str, colon: bool) -> None:
    """Refuses words before a number, unless they only lead up to it: "the answer is"."""
    words = label.lower().split()
    if any(word in CHANGES_MEANING for word in words):
        raise Unparsed
    if not colon and words[-1] not in BEFORE_VALUES:
        raise Unparsed


def number_prefix(text: str) -> tuple[int | None, str]:
    """ "five apples" -> (5, "apples"); (None, text) where no number in words comes first."""
    words = text.split()
    for count in range(min(len(words), 8), 0, -1):
        value = number_from_words(" ".join(words[:count]))
        if value is not None and words[count - 1].lower() != "and":
            return value, " ".join(words[count:])
    return None, text


def with_letter_unit(value: tuple, units: tuple) -> tuple:
    """5 m beside 5 metres: the letter m of the product is that unit."""
    tree = value[1]
    last = tree[-1] if tree[0] == "mul" else tree
    letter, power = last, 1
    if last[0] == "pow" and last[2][0] == "num":
        letter, power = last[1], last[2][1]
    if tree[0] != "mul" or letter[0] != "sym" or ((UNITS.get(letter[1]), power),) != units:
        return value
    return ("value", ("mul", *tree[1:-1]) if len(tree) > 3 else tree[1], units)


def units_agree(a: tuple, b: tuple) -> bool:
    """Whether two units can be the same: equal, one missing, or one a kind of the other."""
    left, right = dict(a), dict(b)
    if not left or not right or left == right:
        return True
    temperatures = {"celsius", "fahrenheit"}
    for one, other in ((left, right), (right, left)):
        if set(one) == {"degree"} and set(other) & temperatures:
            return True
        if set(one) == {"unit"} and len(other) == 1:
            ((name, power),) = other.items()
            return not name.startswith("noun") and power == one["unit"]
        if all(name.startswith("noun") for name in one) and set(other) <= {"percent", "dollar"}:
            return True
    return False
