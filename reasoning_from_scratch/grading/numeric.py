"""Evaluation with many digits, of trees at points and of polynomials of ring.py."""

from fractions import Fraction

from .limits import TooBig, Undefined, Unparsed, Work

HUGE = 20_000  # a number beyond 2^HUGE is not followed further
FUNCTIONS = {
    name: name
    for name in "sin cos tan cot sec csc sinh cosh tanh exp floor ceil".split()
} | {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot", "arcsec": "asec",
     "arccsc": "acsc"}  # fmt: skip


class NotReal(Exception):
    """A root or logarithm left the real numbers at this point."""


class Numeric:
    """Arithmetic with `bits` binary digits. Each object has a context of its own, so that threads
    do not share a precision."""

    def __init__(self, bits: int, work: Work, point: dict | None = None):
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

    def tree(self, tree: tuple):
        self.work.spend(2 + self.cost)
        visit = getattr(self, "on_" + tree[0], None)
        if visit is None:
            raise Unparsed
        return self.checked(visit(*tree[1:]))

    def on_num(self, value: Fraction):
        return self.number(value)

    def on_sym(self, name: str):
        if self.point is None:
            raise Undefined
        return self.number(self.point[name])

    def on_const(self, name: str):
        if name not in ("pi", "e", "i"):
            raise Undefined
        return {"pi": +self.mp.pi, "e": +self.mp.e, "i": self.mp.mpc(0, 1)}[name]

    def on_add(self, *terms: tuple):
        return sum((self.tree(term) for term in terms), self.mp.mpf(0))

    def on_mul(self, *factors: tuple):
        product = self.mp.mpf(1)
        for factor in factors:
            product = self.checked(product * self.tree(factor))
        return product

    def on_div(self, top: tuple, bottom: tuple):
        divisor = self.tree(bottom)
        if not divisor:
            raise Undefined
        return self.tree(top) / divisor

    def on_neg(self, tree: tuple):
        return -self.tree(tree)

    def on_deg(self, tree: tuple):
        return self.tree(tree) * self.mp.pi / 180

    def on_root(self, tree: tuple, degree: tuple):
        return self.power(self.tree(tree), ("div", ("num", Fraction(1)), degree))

    def on_pow(self, base: tuple, exponent: tuple):
        return self.power(self.tree(base), exponent)

    def power(self, base, exponent: tuple):
        """Odd roots of negative numbers are real, as in school."""
        q = rational(exponent)
        if q is not None and q.denominator == 1:
            self.refuse_huge(base, q)
            if not base and q <= 0:
                raise Undefined
            return base ** int(q)
        if q is not None and q.denominator % 2 and real(base) and base.real < 0:
            return self.power(-base.real, ("num", q)) * (-1) ** (q.numerator % 2)
        value = self.tree(exponent)
        if not base:
            if value.real <= 0:
                raise Undefined
            return self.mp.mpf(0)
        self.refuse_huge(base, value)
        if self.point is not None and real(base) and base.real < 0:
            raise NotReal
        return self.mp.power(base, value)

    def refuse_huge(self, base, exponent) -> None:
        if base and abs(exponent) * max(1, abs(self.mp.mag(base))) > HUGE:
            raise TooBig

    def on_fn(self, name: str, *args: tuple):
        values = [self.tree(arg) for arg in args]
        self.work.spend(20 * self.cost)
        if name in ("ln", "log"):
            return self.logarithm(name, values)
        if name == "abs" and len(values) == 1:
            return abs(values[0])
        if name in ("max", "min") and all(real(v) for v in values):
            return max(v.real for v in values) if name == "max" else min(v.real for v in values)
        if name in FUNCTIONS and len(values) == 1:
            return self.function(name, values[0])
        if name in ("fact", "binom"):
            return self.gamma_function(name, values)
        raise Unparsed

    def function(self, name: str, value):
        if abs(value) > self.mp.mpf(10) ** (5 if name in ("exp", "sinh", "cosh", "tanh") else 30):
            raise TooBig
        try:
            result = getattr(self.mp, FUNCTIONS[name])(value)
        except (ValueError, ZeroDivisionError):
            raise Undefined from None
        if self.point is not None and real(value) and not real(result):
            raise NotReal
        return result

    def logarithm(self, name: str, values: list):
        base = values[1] if len(values) == 2 else self.mp.mpf(10)
        if not values[0] or not base or base == 1:
            raise Undefined
        if self.point is not None and any(v.real < 0 and real(v) for v in values):
            raise NotReal
        value = self.mp.log(values[0])
        return value if name == "ln" and len(values) == 1 else value / self.mp.log(base)

    def gamma_function(self, name: str, values: list):
        if any(abs(v) > 1_000 or not real(v) for v in values):
            raise Undefined
        self.work.spend(100 * self.cost)
        if len(values) != (1 if name == "fact" else 2):
            raise Unparsed
        try:
            return self.mp.binomial(*values) if name == "binom" else self.mp.gamma(values[0] + 1)
        except ValueError:
            raise Undefined from None

    # polynomials

    def polynomial(self, ring, p: dict):
        total = self.mp.mpc(0)
        for monomial, coefficient in p.items():
            product = self.mp.mpc(self.number(coefficient))
            for number, exponent in monomial:
                self.work.spend(self.cost)
                value = self.atom(ring, number)
                if exponent.denominator == 1:
                    product *= value ** int(exponent)
                else:
                    product *= self.atom_root(value, exponent)
            total += product
        return total

    def atom_root(self, value, exponent: Fraction):
        negative = real(value) and value.real < 0
        if negative and exponent.denominator % 2:
            root = self.mp.power(-value.real, self.number(exponent))
            return root if exponent.numerator % 2 == 0 else -root
        return self.mp.power(value, self.number(exponent))

    def atom(self, ring, number: int):
        atom = ring.atoms[number]
        if atom[0] == "prime":
            return self.mp.mpc(atom[1])
        if atom[0] == "i":
            return self.mp.mpc(0, 1)
        if atom[0] == "const":
            return self.mp.mpc(self.on_const(atom[1]))
        if atom[0] == "2cos":
            return self.mp.mpc(2 * self.mp.cos(self.mp.pi * self.number(atom[1])))
        if atom[0] == "root":
            return self.polynomial(ring, dict(atom[1]))
        raise Undefined


def real(value) -> bool:
    """Whether the imaginary part is zero, up to rounding."""
    return not value.imag or abs(value.imag) < abs(value.real) * 2.0**-100


def rational(tree: tuple) -> Fraction | None:
    """The value of a tree of plain numbers, None for any other."""
    if tree[0] == "num":
        return tree[1]
    parts = [rational(part) for part in tree[1:]] if tree[0] in ("neg", "div") else [None]
    if None in parts:
        return None
    if tree[0] == "neg":
        return -parts[0]
    return parts[0] / parts[1] if parts[1] else None
