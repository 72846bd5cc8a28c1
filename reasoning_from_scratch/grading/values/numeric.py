"""Evaluation with many digits, of trees at points and of polynomials."""

from fractions import Fraction

from ..limits import NotReal, TooBig, Undefined, Unparsed, Work
from ..reading.trees import (
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
    rational,
)
from .atoms import Atom, ConstantAtom, CosineAtom, ImaginaryAtom, PrimeAtom, RootAtom
from .polynomials import Polynomial, Ring

HUGE = 20_000  # a number beyond 2^HUGE is not followed further
GROWING = ("exp", "sinh", "cosh", "tanh")
IN_MPMATH = {  # our name of a function -> the name of mpmath
    name: name for name in "sin cos tan cot sec csc sinh cosh tanh exp floor ceil".split()
} | {f"arc{name}": f"a{name}" for name in "sin cos tan cot sec csc".split()}


class Numeric:
    """Arithmetic with `bits` binary digits. Each object has a context of its own, so that threads
    do not share a precision. With a `point`, symbols have values and all numbers stay real."""

    def __init__(self, bits: int, work: Work, point: dict[str, Fraction] | None = None):
        from mpmath import MPContext

        self.mp = MPContext()
        self.mp.prec = bits
        self.cost = 1 + bits // 64
        self.work = work
        self.point = point
        self.largest = self.mp.mpf(0)  # of everything met on the way: the scale of rounding errors

    def two_to(self, exponent: int):
        return self.mp.ldexp(self.mp.mpf(1), exponent)

    def number(self, value: Fraction):
        return self.mp.mpf(value.numerator) / value.denominator

    def checked(self, value):
        size = abs(value)
        if not self.mp.isfinite(size):
            raise Undefined
        if size and self.mp.mag(size) > HUGE:
            raise TooBig
        self.largest = max(self.largest, size)
        return value

    # trees

    def tree(self, tree: Node):
        self.work.spend(2 + self.cost)
        read = READERS.get(type(tree))
        if read is None:
            raise Unparsed
        return self.checked(read(self, tree))

    def sum(self, tree: Add):
        return sum(map(self.tree, tree.items), self.mp.mpf(0))

    def symbol(self, tree: Sym):
        if self.point is None:
            raise Undefined
        return self.number(self.point[tree.name])

    def constant(self, name: str):
        match name:
            case "pi":
                return +self.mp.pi
            case "e":
                return +self.mp.e
            case "i":
                return self.mp.mpc(0, 1)
        raise Undefined

    def product(self, tree: Mul):
        product = self.mp.mpf(1)
        for factor in tree.items:
            product = self.checked(product * self.tree(factor))
        return product

    def quotient(self, tree: Div):
        divisor = self.tree(tree.bottom)
        if not divisor:
            raise Undefined
        return self.tree(tree.top) / divisor

    def root(self, tree: Root):
        return self.power(self.tree(tree.inner), Div(Num(Fraction(1)), tree.degree))

    def power(self, base, exponent: Node):
        """Odd roots of negative numbers are real, as in school."""
        q = rational(exponent)
        if q is not None and q.denominator == 1:
            self.refuse_huge(base, q)
            if not base and q <= 0:
                raise Undefined
            return base ** int(q)
        if q is not None and q.denominator % 2 and is_real(base) and base.real < 0:
            return self.power(-base.real, Num(q)) * (-1) ** (q.numerator % 2)
        value = self.tree(exponent)
        if not base:
            if value.real <= 0:
                raise Undefined
            return self.mp.mpf(0)
        self.refuse_huge(base, value)
        if self.point is not None and is_real(base) and base.real < 0:
            raise NotReal
        return self.mp.power(base, value)

    def refuse_huge(self, base, exponent) -> None:
        if base and abs(exponent) * max(1, abs(self.mp.mag(base))) > HUGE:
            raise TooBig

    # functions

    def call(self, tree: Call):
        name, values = tree.name, [self.tree(arg) for arg in tree.args]
        self.work.spend(20 * self.cost)
        if name in ("ln", "log"):
            return self.logarithm(name, values)
        if name == "abs" and len(values) == 1:
            return abs(values[0])
        if name in ("max", "min") and all(is_real(v) for v in values):
            return max(v.real for v in values) if name == "max" else min(v.real for v in values)
        if name in IN_MPMATH and len(values) == 1:
            return self.function(name, values[0])
        if name == "fact" and len(values) == 1:
            return self.of_gamma(lambda n: self.mp.gamma(n + 1), values)
        if name == "binom" and len(values) == 2:
            return self.of_gamma(self.mp.binomial, values)
        raise Unparsed

    def function(self, name: str, value):
        if abs(value) > self.mp.mpf(10) ** (5 if name in GROWING else 30):
            raise TooBig
        try:
            result = getattr(self.mp, IN_MPMATH[name])(value)
        except (ValueError, ZeroDivisionError):
            raise Undefined from None
        if self.point is not None and is_real(value) and not is_real(result):
            raise NotReal
        return result

    def logarithm(self, name: str, values: list):
        base = values[1] if len(values) == 2 else self.mp.mpf(10)
        if not values[0] or not base or base == 1:
            raise Undefined
        if self.point is not None and any(v.real < 0 and is_real(v) for v in values):
            raise NotReal
        value = self.mp.log(values[0])
        return value if name == "ln" and len(values) == 1 else value / self.mp.log(base)

    def of_gamma(self, function, values: list):
        if any(abs(v) > 1_000 or not is_real(v) for v in values):
            raise Undefined
        self.work.spend(100 * self.cost)
        try:
            return function(*values)
        except ValueError:
            raise Undefined from None

    # polynomials

    def polynomial(self, ring: Ring, p: Polynomial):
        total = self.mp.mpc(0)
        for monomial, coefficient in p.items():
            product = self.mp.mpc(self.number(coefficient))
            for number, exponent in monomial:
                self.work.spend(self.cost)
                value = self.atom(ring, ring.atoms[number])
                if exponent.denominator == 1:
                    product *= value ** int(exponent)
                else:
                    product *= self.atom_root(value, exponent)
            total += product
        return total

    def atom_root(self, value, exponent: Fraction):
        negative = is_real(value) and value.real < 0
        if negative and exponent.denominator % 2:
            root = self.mp.power(-value.real, self.number(exponent))
            return root if exponent.numerator % 2 == 0 else -root
        return self.mp.power(value, self.number(exponent))

    def atom(self, ring: Ring, atom: Atom):
        match atom:
            case PrimeAtom(value):
                return self.mp.mpc(value)
            case ImaginaryAtom():
                return self.mp.mpc(0, 1)
            case ConstantAtom(name):
                return self.mp.mpc(self.constant(name))
            case CosineAtom(turn):
                return self.mp.mpc(2 * self.mp.cos(self.mp.pi * self.number(turn)))
            case RootAtom(radicand):
                return self.polynomial(ring, dict(radicand))
        raise Undefined


READERS = {
    Num: lambda numeric, tree: numeric.number(tree.value),
    Sym: Numeric.symbol,
    Const: lambda numeric, tree: numeric.constant(tree.name),
    Add: Numeric.sum,
    Mul: Numeric.product,
    Div: Numeric.quotient,
    Neg: lambda numeric, tree: -numeric.tree(tree.inner),
    Degrees: lambda numeric, tree: numeric.tree(tree.inner) * numeric.mp.pi / 180,
    Pow: lambda numeric, tree: numeric.power(numeric.tree(tree.base), tree.exponent),
    Root: Numeric.root,
    Call: Numeric.call,
}


def is_real(value) -> bool:
    """Whether the imaginary part is zero, up to rounding."""
    return not value.imag or abs(value.imag) < abs(value.real) * 2.0**-100
