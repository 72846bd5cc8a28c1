"""The value of a tree: an exact fraction as long as only fractions occur, else many digits.

    \\frac{1}{3}+0.5    Fraction(5, 6)
    \\sqrt{8}           2.828427..., with 400 binary digits or more
    x^2                at the point {x: 3/7}: Fraction(9, 49)

Is a difference between digits real, or only a rounding error? `Values.is_nothing` decides.
"""

import threading
from collections.abc import Callable
from fractions import Fraction
from hashlib import sha256
from math import comb, factorial, gcd, lcm, prod

from .limits import MAX_BITS, NotReal, TooBig, Undefined, Unparsed, Work
from .reading.trees import (
    Add,
    Call,
    Const,
    Degrees,
    Div,
    Mul,
    Neg,
    Node,
    Num,
    Pow,
    Root,
    Sym,
    Unknown,
    contains,
    rational,
    symbols,
)

BITS = 400
HUGE = 20_000  # a number beyond 2^HUGE is refused
MAX_FACTORIAL, MAX_CHOSEN = 1_200, 600
MAX_DEGREE = 1_000  # of a root
MAX_ARGUMENT = 10**30  # of a sine
GROWING = ("exp", "sinh", "cosh", "tanh")
IN_MPMATH = {  # our name of a function -> mpmath's
    name: name for name in "sin cos sinh cosh tanh exp floor ceil".split()
} | {f"arc{name}": f"a{name}" for name in "sin cos tan cot sec csc".split()}
QUOTIENTS = {
    "tan": ("sin", "cos"),
    "cot": ("cos", "sin"),
    "sec": (None, "cos"),
    "csc": (None, "sin"),
}
STEPS = ("floor", "ceil")

Point = dict[str, Fraction]
local = threading.local()


def arithmetic_of(bits: int):
    """mpmath's arithmetic with this many binary digits; each thread has its own."""
    if not hasattr(local, "mp"):
        from mpmath import MPContext

        local.mp = MPContext()
    local.mp.prec = bits
    return local.mp


class Values:
    """Values of trees at one point; without a point, only of trees that have no letters.

    At a point all numbers must stay real, unless `real` is False; otherwise NotReal is raised.
    """

    def __init__(self, work: Work, point: Point | None = None, real: bool = True, bits: int = BITS):
        self.work = work
        self.point = point
        self.stays_real = real and point is not None
        self.bits = bits
        self.cost = 1 + bits // 64  # of a sum or product
        self.cost_of_function = max(8 * self.cost, self.cost**2 // 4)

    @property
    def mp(self):
        return arithmetic_of(self.bits)

    def of(self, tree: Node):
        self.work.spend(4)
        read = READERS.get(type(tree))
        if read is None:
            raise Unparsed
        return self.checked(read(self, tree))

    # numbers

    def size(self, value) -> int:
        """log2 of a number, rounded up; very small for zero."""
        if not value:
            return -HUGE
        if isinstance(value, Fraction):
            return value.numerator.bit_length() - value.denominator.bit_length() + 1
        return self.mp.mag(value)

    def checked(self, value):
        if isinstance(value, Fraction):
            return self.work.number(value)
        self.work.spend(self.cost)
        if not self.mp.isfinite(value):
            raise Undefined
        if self.size(value) > HUGE:
            raise TooBig
        return value if value else Fraction(0)

    def is_nothing(self, difference, scale: int) -> bool:
        """Whether a difference between numbers of this size is only a rounding error."""
        if isinstance(difference, Fraction) or not difference:
            return not difference
        return self.size(difference) < scale - 3 * self.bits // 4

    def same(self, a, b) -> bool:
        return self.is_nothing(minus(a, b), max(self.size(a), self.size(b)))

    def snapped(self, value, scale: int | None = None):
        """The nearest whole number, if only a rounding error separates the value from it. Zero only
        if `scale` says how large the numbers were that the value came from."""
        if isinstance(value, Fraction) or self.size(value) > 64:
            return value
        whole = Fraction(int(self.mp.nint(value.real)))
        if not whole and scale is None:
            return value
        return whole if self.is_nothing(minus(value, whole), max(scale or 0, 0)) else value

    # sums, products, quotients

    def symbol(self, tree: Sym):
        if tree.name == "...":
            raise Unparsed  # 0 ... 9 is not a product
        if self.point is None:
            raise Undefined
        return self.point[tree.name]

    def constant(self, tree: Const):
        match tree.name:
            case "pi":
                return +self.mp.pi
            case "e":
                return +self.mp.e
            case "i":
                return self.mp.mpc(0, 1)
        raise Undefined  # an infinity, a set of numbers

    def sum(self, tree: Add):
        terms = [self.of(term) for term in tree.items]
        total = sum(terms, Fraction(0))
        if isinstance(total, Fraction):
            return total
        return Fraction(0) if self.is_nothing(total, max(map(self.size, terms))) else total

    def product(self, tree: Mul):
        product = Fraction(1)
        for factor in tree.items:
            product = self.checked(product * self.of(factor))
        return product

    def quotient(self, tree: Div):
        return self.divided(self.of(tree.top), self.of(tree.bottom))

    def divided(self, top, bottom):
        if not bottom:
            raise Undefined
        return top * (1 / bottom)

    def degrees(self, tree: Degrees):
        return self.of(tree.inner) * self.mp.pi / 180

    # powers

    def root(self, tree: Root):
        return self.power(self.of(tree.inner), self.divided(Fraction(1), self.of(tree.degree)))

    def power(self, base, exponent):
        """Odd roots of negative numbers are real, as in school."""
        self.refuse_huge(base, exponent)
        if not base:
            if exponent.real <= 0:
                raise Undefined
            return Fraction(0)
        if isinstance(exponent, Fraction):
            if exponent.denominator > MAX_DEGREE:
                raise TooBig
            if exponent.denominator == 1:
                return self.whole_power(base, int(exponent))
            if is_real(base) and base.real < 0 and exponent.denominator % 2:
                sign = -1 if exponent.numerator % 2 else 1
                return sign * self.power(-base.real, exponent)
        if self.stays_real and is_real(base) and base.real < 0:
            raise NotReal
        is_square_root = isinstance(exponent, Fraction) and exponent.denominator == 2
        self.work.spend(4 * self.cost if is_square_root else self.cost_of_function)
        return self.snapped(self.mp.power(self.number(base), self.number(exponent)))

    def whole_power(self, base, exponent: int):
        if isinstance(base, Fraction):
            return self.work.power(base, exponent)
        return base**exponent

    def refuse_huge(self, base, exponent) -> None:
        if base not in (0, 1, -1) and abs(exponent) * max(1, abs(self.size(base))) > HUGE:
            raise TooBig

    def number(self, value):
        """The value as one of mpmath's numbers."""
        return self.mp.convert(value)

    # functions

    def call(self, tree: Call):
        name, values = tree.name, [self.of(arg) for arg in tree.args]
        if name in STEPS and symbols(tree):
            return self.unknown(name, values)  # a few points say little about a step function
        if all(isinstance(value, Fraction) for value in values):
            exact = self.of_fractions(name, values)
            if exact is not None:
                return exact
        self.work.spend(self.cost_of_function)
        values = [self.number(value) for value in values]
        if name in ("ln", "log"):
            return self.logarithm(name, values)
        if name in ("max", "min") and all(is_real(value) for value in values):
            return {"max": max, "min": min}[name](value.real for value in values)
        if name == "binom" and len(values) == 2:
            return self.of_gamma(self.mp.binomial, values)
        if len(values) == 1:
            return self.of_one(name, values[0])
        return self.unknown(name, values)

    def of_one(self, name: str, value):
        if name == "abs":
            return abs(value)
        if name == "fact":
            return self.of_gamma(lambda n: self.mp.gamma(n + 1), [value])
        if name in QUOTIENTS:
            top, bottom = QUOTIENTS[name]
            dividend = self.of_one(top, value) if top else Fraction(1)
            return self.divided(dividend, self.of_one(bottom, value))
        if name not in IN_MPMATH:
            return self.unknown(name, [value])
        if abs(value) > (10**5 if name in GROWING else MAX_ARGUMENT):
            raise TooBig
        try:
            result = getattr(self.mp, IN_MPMATH[name])(value)
        except (ValueError, ZeroDivisionError):
            raise Undefined from None
        if self.stays_real and is_real(value) and not is_real(result):
            raise NotReal
        return self.snapped(result, self.size(value)) if name not in GROWING else result

    def logarithm(self, name: str, values: list):
        base = values[1] if len(values) == 2 else self.number(Fraction(10))
        if not values[0] or not base:
            raise Undefined
        if self.stays_real and any(is_real(value) and value.real < 0 for value in values):
            raise NotReal
        value = self.snapped(self.mp.log(values[0]), 0)
        if name == "ln" and len(values) == 1:
            return value
        return self.snapped(self.divided(value, self.snapped(self.mp.log(base), 0)))

    def of_gamma(self, function, values: list):
        if any(abs(value) > 1_000 or not is_real(value) for value in values):
            raise Undefined
        self.work.spend(12 * self.cost_of_function)
        try:
            return self.snapped(function(*values))
        except ValueError:
            raise Undefined from None

    def unknown(self, name: str, values: list) -> Fraction:
        """Stands in for an undefined function: equal arguments give the same random number, other
        arguments almost always another one."""
        self.work.spend(20)
        arguments = [self.mp.nstr(self.number(value), 40) for value in values]
        drawn = int.from_bytes(sha256(f"{name} {arguments}".encode()).digest()[:6], "big")
        return Fraction(drawn % 10_007, 101)

    def of_fractions(self, name: str, values: list[Fraction]) -> Fraction | None:
        """The exact value of a function of plain fractions; None if there is none."""
        match name, values:
            case "floor", [value]:
                return Fraction(value.__floor__())
            case "ceil", [value]:
                return Fraction(value.__ceil__())
            case "abs", [value]:
                return abs(value)
            case (("max" | "min"), _):
                return max(values) if name == "max" else min(values)
        if not values or any(value.denominator != 1 for value in values):
            return None
        return self.of_whole_numbers(name, [int(value) for value in values])

    def of_whole_numbers(self, name: str, values: list[int]) -> Fraction | None:
        match name, values:
            case (("fact" | "fact2"), [n]) if n >= 0:
                if n > MAX_FACTORIAL:
                    raise TooBig
                self.work.spend(n // 4)
                return Fraction(factorial(n) if name == "fact" else prod(range(n, 0, -2)))
            case "binom", [n, k]:
                return Fraction(self.binomial(n, k))
            case "gcd", _:
                return Fraction(gcd(*values))
            case "lcm", _:
                return Fraction(lcm(*values))
        return None

    def binomial(self, n: int, k: int) -> int:
        if not 0 <= k <= n:
            return 0
        chosen = min(k, n - k)
        if chosen > MAX_CHOSEN or n.bit_length() * chosen > MAX_BITS:
            raise TooBig
        self.work.spend(chosen)
        return comb(n, k)


READERS: dict[type[Node], Callable] = {
    Num: lambda values, tree: tree.value,
    Sym: Values.symbol,
    Const: Values.constant,
    Add: Values.sum,
    Mul: Values.product,
    Div: Values.quotient,
    Neg: lambda values, tree: -values.of(tree.inner),
    Degrees: Values.degrees,
    Pow: lambda values, tree: values.power(values.of(tree.base), values.of(tree.exponent)),
    Root: Values.root,
    Call: Values.call,
    Unknown: lambda values, tree: values.unknown(tree.name, [values.of(a) for a in tree.args]),
}


def real_value(tree: Node, work: Work):
    """The value of a constant if it is a real number; otherwise Undefined is raised."""
    if symbols(tree) or contains(tree, (Unknown,)):
        raise Undefined
    value = Values(work, bits=digits_for(tree)).of(tree)
    if isinstance(value, Fraction):
        return value
    if not is_real(value):
        raise Undefined
    return value.real


def order(a, b) -> int:
    """The sign of a - b, where both are real."""
    return 0 if Values(Work()).same(a, b) else 1 if minus(a, b) > 0 else -1


def minus(a, b):
    """a - b. mpmath cannot subtract its numbers from a Fraction, but it can add the two."""
    return a + -b


def is_real(value) -> bool:
    """Whether the imaginary part is zero, up to rounding."""
    return not value.imag or abs(value.imag) < abs(value.real) * 2.0**-100


def digits_for(*trees: Node) -> int:
    """How many binary digits we need to tell these trees apart: more than their longest number."""
    bits = BITS + 4 * max(map(longest_number, trees))
    if bits > HUGE:
        raise TooBig
    return bits


def longest_number(tree: Node) -> int:
    """Bits of the longest number in a tree, 10^{-80} included."""
    longest, stack = 0, [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Num):
            longest = max(longest, bits_of(node))
            continue
        if isinstance(node, Pow):
            longest = max(longest, bits_of(node.base) * abs(int(rational(node.exponent) or 0)))
        stack += node.children
    return longest


def bits_of(tree: Node) -> int:
    value = rational(tree) or Fraction(0)
    return max(value.numerator.bit_length(), value.denominator.bit_length())
