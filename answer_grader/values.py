"""The value of a tree: an exact fraction as long as only fractions occur, else many digits.

    \\frac{1}{3}+0.5    Fraction(5, 6)
    \\sqrt{8}           2.828427..., with 400 binary digits or more
    x^2                at the point {x: 3/7}: Fraction(9, 49)

Is a difference between digits real, or a rounding error? `Evaluator.is_rounding_error` decides.
"""

import threading
from collections.abc import Callable
from fractions import Fraction
from hashlib import sha256
from math import comb, factorial, gcd, lcm, prod

from .limits import MAX_BITS, Budget, NotReal, TooBig, Undefined, Unparsed
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
    symbol_names,
)

BITS = 400
MAX_LOG2 = 20_000  # a number beyond 2^MAX_LOG2 is refused
MAX_FACTORIAL, MAX_CHOSEN = 1_200, 600
MAX_DEGREE = 1_000  # of a root
MAX_ARGUMENT = 10**30  # of a sine
FAST_GROWING = ("exp", "sinh", "cosh", "tanh")
MPMATH_NAMES = {  # our name of a function -> mpmath's
    name: name for name in "sin cos sinh cosh tanh exp floor ceil".split()
} | {f"arc{name}": f"a{name}" for name in "sin cos tan cot sec csc".split()}
QUOTIENTS = {
    "tan": ("sin", "cos"),
    "cot": ("cos", "sin"),
    "sec": (None, "cos"),
    "csc": (None, "sin"),
}
STEP_FUNCTIONS = ("floor", "ceil")

SamplePoint = dict[str, Fraction]  # a number for each letter
local = threading.local()


def mpmath_context(bits: int):
    """mpmath's arithmetic with this many binary digits; each thread has its own."""
    if not hasattr(local, "mp"):
        from mpmath import MPContext

        local.mp = MPContext()
    local.mp.prec = bits
    return local.mp


class Evaluator:
    """Computes values of trees at one point; without a point, only of trees that have no letters.

    At a point all numbers must stay real, unless `real` is False; otherwise NotReal is raised.
    """

    def __init__(
        self, budget: Budget, point: SamplePoint | None = None, real: bool = True, bits: int = BITS
    ):
        self.budget = budget
        self.point = point
        self.real_only = real and point is not None
        self.bits = bits
        self.cost = 1 + bits // 64  # of a sum or product
        self.cost_of_function = max(8 * self.cost, self.cost**2 // 4)

    @property
    def mp(self):
        return mpmath_context(self.bits)

    def evaluate(self, tree: Node):
        self.budget.spend(4)
        rule = EVALUATION_RULES.get(type(tree))
        if rule is None:
            raise Unparsed
        return self.checked(rule(self, tree))

    # numbers

    def log2_size(self, value) -> int:
        """log2 of a number, rounded up; very small for zero."""
        if not value:
            return -MAX_LOG2
        if isinstance(value, Fraction):
            return value.numerator.bit_length() - value.denominator.bit_length() + 1
        return self.mp.mag(value)

    def checked(self, value):
        if isinstance(value, Fraction):
            return self.budget.charge(value)
        self.budget.spend(self.cost)
        if not self.mp.isfinite(value):
            raise Undefined
        if self.log2_size(value) > MAX_LOG2:
            raise TooBig
        return value if value else Fraction(0)

    def is_rounding_error(self, difference, scale: int) -> bool:
        """Whether a difference between numbers of this size is only a rounding error."""
        if isinstance(difference, Fraction) or not difference:
            return not difference
        return self.log2_size(difference) < scale - 3 * self.bits // 4

    def equal(self, a, b) -> bool:
        return self.is_rounding_error(subtract(a, b), max(self.log2_size(a), self.log2_size(b)))

    def snapped(self, value, scale: int | None = None):
        """The nearest whole number, if only a rounding error separates the value from it. Zero only
        if `scale` says how large the numbers were that the value came from."""
        if isinstance(value, Fraction) or self.log2_size(value) > 64:
            return value
        whole = Fraction(int(self.mp.nint(value.real)))
        if not whole and scale is None:
            return value
        is_whole = self.is_rounding_error(subtract(value, whole), max(scale or 0, 0))
        return whole if is_whole else value

    # sums, products, quotients

    def evaluate_symbol(self, tree: Sym):
        if tree.name == "...":
            raise Unparsed  # 0 ... 9 is not a product
        if self.point is None:
            raise Undefined
        return self.point[tree.name]

    def evaluate_constant(self, tree: Const):
        match tree.name:
            case "pi":
                return +self.mp.pi
            case "e":
                return +self.mp.e
            case "i":
                return self.mp.mpc(0, 1)
        raise Undefined  # an infinity, a set of numbers

    def evaluate_sum(self, tree: Add):
        terms = [self.evaluate(term) for term in tree.items]
        total = sum(terms, Fraction(0))
        if isinstance(total, Fraction):
            return total
        largest = max(map(self.log2_size, terms))
        return Fraction(0) if self.is_rounding_error(total, largest) else total

    def evaluate_product(self, tree: Mul):
        product = Fraction(1)
        for factor in tree.items:
            product = self.checked(product * self.evaluate(factor))
        return product

    def evaluate_quotient(self, tree: Div):
        return self.divide(self.evaluate(tree.top), self.evaluate(tree.bottom))

    def divide(self, top, bottom):
        if not bottom:
            raise Undefined
        return top * (1 / bottom)

    def evaluate_degrees(self, tree: Degrees):
        return self.evaluate(tree.inner) * self.mp.pi / 180

    # powers

    def evaluate_root(self, tree: Root):
        return self.power(
            self.evaluate(tree.inner), self.divide(Fraction(1), self.evaluate(tree.degree))
        )

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
                return self.integer_power(base, int(exponent))
            if is_real(base) and base.real < 0 and exponent.denominator % 2:
                sign = -1 if exponent.numerator % 2 else 1
                return sign * self.power(-base.real, exponent)
        if self.real_only and is_real(base) and base.real < 0:
            raise NotReal
        is_square_root = isinstance(exponent, Fraction) and exponent.denominator == 2
        self.budget.spend(4 * self.cost if is_square_root else self.cost_of_function)
        return self.snapped(self.mp.power(self.to_mpmath(base), self.to_mpmath(exponent)))

    def integer_power(self, base, exponent: int):
        if isinstance(base, Fraction):
            return self.budget.power(base, exponent)
        return base**exponent

    def refuse_huge(self, base, exponent) -> None:
        if base not in (0, 1, -1) and abs(exponent) * max(1, abs(self.log2_size(base))) > MAX_LOG2:
            raise TooBig

    def to_mpmath(self, value):
        """The value as one of mpmath's numbers."""
        return self.mp.convert(value)

    # functions

    def evaluate_call(self, tree: Call):
        name, values = tree.name, [self.evaluate(arg) for arg in tree.args]
        if name in STEP_FUNCTIONS and symbol_names(tree):  # a few points say little about these
            return self.unknown_function(name, values)
        if all(isinstance(value, Fraction) for value in values):
            exact = self.exact_function(name, values)
            if exact is not None:
                return exact
        self.budget.spend(self.cost_of_function)
        values = [self.to_mpmath(value) for value in values]
        if name in ("ln", "log"):
            return self.logarithm(name, values)
        if name in ("max", "min") and all(is_real(value) for value in values):
            return {"max": max, "min": min}[name](value.real for value in values)
        if name == "binom" and len(values) == 2:
            return self.gamma_function(self.mp.binomial, values)
        if len(values) == 1:
            return self.unary_function(name, values[0])
        return self.unknown_function(name, values)

    def unary_function(self, name: str, value):
        if name == "abs":
            return abs(value)
        if name == "fact":
            return self.gamma_function(lambda n: self.mp.gamma(n + 1), [value])
        if name in QUOTIENTS:
            top, bottom = QUOTIENTS[name]
            dividend = self.unary_function(top, value) if top else Fraction(1)
            return self.divide(dividend, self.unary_function(bottom, value))
        if name not in MPMATH_NAMES:
            return self.unknown_function(name, [value])
        if abs(value) > (10**5 if name in FAST_GROWING else MAX_ARGUMENT):
            raise TooBig
        try:
            result = getattr(self.mp, MPMATH_NAMES[name])(value)
        except (ValueError, ZeroDivisionError):
            raise Undefined from None
        if self.real_only and is_real(value) and not is_real(result):
            raise NotReal
        return result if name in FAST_GROWING else self.snapped(result, self.log2_size(value))

    def logarithm(self, name: str, values: list):
        base = values[1] if len(values) == 2 else self.to_mpmath(Fraction(10))
        if not values[0] or not base:
            raise Undefined
        if self.real_only and any(is_real(value) and value.real < 0 for value in values):
            raise NotReal
        value = self.snapped(self.mp.log(values[0]), 0)
        if name == "ln" and len(values) == 1:
            return value
        return self.snapped(self.divide(value, self.snapped(self.mp.log(base), 0)))

    def gamma_function(self, function, values: list):
        if any(abs(value) > 1_000 or not is_real(value) for value in values):
            raise Undefined
        self.budget.spend(12 * self.cost_of_function)
        try:
            return self.snapped(function(*values))
        except ValueError:
            raise Undefined from None

    def unknown_function(self, name: str, values: list) -> Fraction:
        """A value for an undefined function: equal arguments give the same random number, other
        arguments almost always another one."""
        self.budget.spend(20)
        arguments = [self.mp.nstr(self.to_mpmath(value), 40) for value in values]
        pseudorandom = int.from_bytes(sha256(f"{name} {arguments}".encode()).digest()[:6], "big")
        return Fraction(pseudorandom % 10_007, 101)

    def exact_function(self, name: str, values: list[Fraction]) -> Fraction | None:
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
        return self.exact_integer_function(name, [int(value) for value in values])

    def exact_integer_function(self, name: str, values: list[int]) -> Fraction | None:
        match name, values:
            case (("fact" | "fact2"), [n]) if n >= 0:
                if n > MAX_FACTORIAL:
                    raise TooBig
                self.budget.spend(n // 4)
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
        self.budget.spend(chosen)
        return comb(n, k)


EVALUATION_RULES: dict[type[Node], Callable] = {
    Num: lambda self, tree: tree.value,
    Sym: Evaluator.evaluate_symbol,
    Const: Evaluator.evaluate_constant,
    Add: Evaluator.evaluate_sum,
    Mul: Evaluator.evaluate_product,
    Div: Evaluator.evaluate_quotient,
    Neg: lambda self, tree: -self.evaluate(tree.inner),
    Degrees: Evaluator.evaluate_degrees,
    Pow: lambda self, tree: self.power(self.evaluate(tree.base), self.evaluate(tree.exponent)),
    Root: Evaluator.evaluate_root,
    Call: Evaluator.evaluate_call,
    Unknown: lambda self, tree: self.unknown_function(
        tree.name, [self.evaluate(a) for a in tree.args]
    ),
}


def real_value(tree: Node, budget: Budget):
    """The value of a constant if it is a real number; otherwise Undefined is raised."""
    if symbol_names(tree) or contains(tree, (Unknown,)):
        raise Undefined
    value = Evaluator(budget, bits=precision_for(tree)).evaluate(tree)
    if isinstance(value, Fraction):
        return value
    if not is_real(value):
        raise Undefined
    return value.real


def compare_reals(a, b) -> int:
    """The sign of a - b, where both are real."""
    return 0 if Evaluator(Budget()).equal(a, b) else 1 if subtract(a, b) > 0 else -1


def subtract(a, b):
    """a - b. mpmath cannot subtract its numbers from a Fraction, but it can add the two."""
    return a + -b


def is_real(value) -> bool:
    """Whether the imaginary part is zero, up to rounding."""
    return not value.imag or abs(value.imag) < abs(value.real) * 2.0**-100


def precision_for(*trees: Node) -> int:
    """How many binary digits we need to tell these trees apart: more than their longest number."""
    bits = BITS + 4 * max(map(bits_of_longest_number, trees))
    if bits > MAX_LOG2:
        raise TooBig
    return bits


def bits_of_longest_number(tree: Node) -> int:
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
