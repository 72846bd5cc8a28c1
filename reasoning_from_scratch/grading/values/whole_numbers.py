"""Functions of plain rational numbers: factorials, binomials, gcd, floor, max."""

from collections.abc import Callable
from fractions import Fraction
from math import comb, factorial, gcd, lcm, prod

from ..limits import MAX_BITS, TooBig, Work

MAX_FACTORIAL = 1_200
MAX_CHOSEN = 600


def factorial_by_steps(work: Work, n: int, step: int) -> int:
    """n! for step 1, n!! for step 2."""
    if n > MAX_FACTORIAL:
        raise TooBig
    work.spend(n // 4)
    return factorial(n) if step == 1 else prod(range(n, 0, -2))


def binomial(work: Work, n: int, k: int) -> int:
    if not 0 <= k <= n:
        return 0
    chosen = min(k, n - k)
    if chosen > MAX_CHOSEN or n.bit_length() * chosen > MAX_BITS:
        raise TooBig
    work.spend(chosen)
    return comb(n, k)


def rational_function(work: Work, name: str, values: list[Fraction]) -> Fraction | None:
    """The exact value of a function of rational numbers, None where there is no such value."""
    if name in OF_RATIONALS:
        return OF_RATIONALS[name](values)
    if not values or any(v.denominator != 1 for v in values):
        return None
    found = whole_function(work, name, [v.numerator for v in values])
    return None if found is None else work.number(Fraction(found))


def whole_function(work: Work, name: str, values: list[int]) -> int | None:
    match name, values:
        case "fact", [n] if n >= 0:
            return factorial_by_steps(work, n, 1)
        case "fact2", [n] if n >= 0:
            return factorial_by_steps(work, n, 2)
        case "binom", [n, k]:
            return binomial(work, n, k)
        case "gcd", _:
            return gcd(*values)
        case "lcm", _:
            return lcm(*values)
    return None


def of_one(rounding: Callable[[Fraction], int]) -> Callable[[list[Fraction]], Fraction | None]:
    return lambda values: Fraction(rounding(values[0])) if len(values) == 1 else None


OF_RATIONALS = {
    "floor": of_one(Fraction.__floor__),
    "ceil": of_one(Fraction.__ceil__),
    "max": max,
    "min": min,
}
