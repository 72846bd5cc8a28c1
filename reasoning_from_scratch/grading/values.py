"""Trees to exact values: each a fraction of two polynomials of ring.py."""

from fractions import Fraction
from math import comb, factorial, gcd, lcm

from .functions import Functions
from .limits import TooBig, Undefined, Unparsed, Work
from .ring import Polynomial, factorized, frozen, simple

Form = tuple  # (numerator, denominator)
NOT_REAL = ("inf", "empty", "reals", "integers", "naturals", "rationals", "complexes")


class Values(Functions):
    """One comparison's exact arithmetic."""

    def __init__(self, work: Work):
        super().__init__(work)
        self.known: dict[tuple, Form] = {}

    def form(self, tree: tuple) -> Form:
        """The exact value of an expression's tree."""
        if tree in self.known:
            return self.known[tree]
        self.work.spend(4)
        visit = getattr(self, "on_" + tree[0], None)
        if visit is None:
            raise Unparsed
        value = self.known[tree] = visit(*tree[1:])
        return value

    def on_num(self, value: Fraction) -> Form:
        return self.rational(value)

    def on_sym(self, name: str) -> Form:
        return self.whole(self.generator("sym", name))

    def on_const(self, name: str) -> Form:
        if name in NOT_REAL:
            raise Undefined
        return self.whole(self.generator("i") if name == "i" else self.generator("const", name))

    def on_add(self, *terms: tuple) -> Form:
        total = self.form(terms[0])
        for term in terms[1:]:
            total = self.plus(total, self.form(term))
        return total

    def on_mul(self, *factors: tuple) -> Form:
        total = self.form(factors[0])
        for factor in factors[1:]:
            total = self.times(total, self.form(factor))
        return total

    def on_div(self, top: tuple, bottom: tuple) -> Form:
        return self.times(self.form(top), self.reciprocal(self.form(bottom)))

    def on_neg(self, tree: tuple) -> Form:
        return self.negative(self.form(tree))

    def on_deg(self, tree: tuple) -> Form:
        pi = self.whole(self.generator("const", "pi"))
        return self.times(self.form(tree), self.times(pi, self.rational(Fraction(1, 180))))

    def on_pow(self, base: tuple, exponent: tuple) -> Form:
        return self.raised(self.form(base), self.form(exponent))

    def on_root(self, tree: tuple, degree: tuple) -> Form:
        return self.raised(self.form(tree), self.reciprocal(self.form(degree)))

    def on_fn(self, name: str, *args: tuple) -> Form:
        return self.apply(name, [self.form(arg) for arg in args])

    # powers

    def raised(self, base: Form, exponent: Form) -> Form:
        q = self.as_rational(exponent)
        if q is None:
            return self.symbolic_power(base, exponent)
        if q <= 0 and not base[0]:
            raise Undefined
        if q.denominator != 1:
            base = self.root(base, q.denominator)
        return self.whole_power(base, q.numerator)

    def whole_power(self, base: Form, n: int) -> Form:
        if n < 0:
            base, n = self.reciprocal(base), -n
        top, bottom = base
        if len(top) == 1 and bottom == self.constant(1):
            return self.monomial_power(top, n)
        return self.power(top, n), self.power(bottom, n)

    def monomial_power(self, p: Polynomial, n: int) -> Form:
        """c * x^a * ... to the n, without multiplying n times."""
        ((monomial, coefficient),) = p.items()
        result = self.whole(self.constant(self.work.power(coefficient, n)))
        for number, exponent in monomial:
            if self.atoms[number][0] == "root":
                value = self.power({((number, exponent),): Fraction(1)}, n)
            else:
                value = self.atom_power(number, Fraction(exponent) * n)
            result = self.times(result, self.whole(value))
        return result

    def root(self, base: Form, k: int) -> Form:
        """The real root where there is one, else the principal one."""
        if k > 1_000:
            raise TooBig
        top, bottom = base
        if not top:
            return base
        if bottom != self.constant(1):
            if not (self.is_constant(top) and self.is_constant(bottom)):
                return self.opaque("root", [base, self.rational(Fraction(k))])
            top = self.multiply(top, self.power(bottom, k - 1))
            if k % 2 == 0 and self.sign(bottom) != 1:
                return self.opaque("root", [base, self.rational(Fraction(k))])
        value = self.monomial_root(top, k) if len(top) == 1 else self.sum_root(top, k)
        return self.times(value, self.reciprocal(self.whole(bottom)))

    def sum_root(self, p: Polynomial, k: int) -> Form:
        content = self.content(p)
        primitive = self.scale(p, 1 / content)
        outside = self.monomial_root(self.constant(content), k)
        constant = self.is_constant(p)
        sign = self.sign(p) if constant else (-1 if k % 2 and self.leading(p) < 0 else 1)
        if sign == 0:
            return self.whole({})
        if sign == -1:
            if k % 2 == 0 and k != 2:
                return self.opaque("root", [self.whole(p), self.rational(Fraction(k))])
            primitive = self.scale(primitive, Fraction(-1))
            unit = self.generator("i") if k == 2 else self.constant(-1)
            outside = self.times(outside, self.whole(unit))
        inside = self.generator("root", frozen(primitive), exponent=Fraction(1, k))
        return self.times(outside, self.whole(inside))

    def leading(self, p: Polynomial) -> Fraction:
        return p[min(p)]

    def monomial_root(self, p: Polynomial, k: int) -> Form:
        ((monomial, coefficient),) = p.items()
        if coefficient < 0 and k % 2 == 0 and (k != 2 or not self.is_positive(monomial)):
            return self.opaque("root", [self.whole(p), self.rational(Fraction(k))])
        value = self.rational_root(abs(coefficient), k)
        if coefficient < 0:
            unit = self.generator("i") if k == 2 else self.constant(-1)
            value = self.times(value, self.whole(unit))
        for number, exponent in monomial:
            value = self.times(value, self.atom_root(number, Fraction(exponent), k))
        return value

    def is_positive(self, monomial: tuple) -> bool:
        return all(self.atoms[number][0] in ("prime", "const") for number, _ in monomial)

    def rational_root(self, value: Fraction, k: int) -> Form:
        """Of a positive rational: a product of fractional powers of primes."""
        result = self.rational(Fraction(1, value.denominator))
        inside = self.work.number(Fraction(value.numerator * value.denominator ** (k - 1)))
        self.work.spend(40)
        for p, count in factorized(inside.numerator):
            power = self.atom_power(self.atom("prime", p), Fraction(count, k))
            result = self.times(result, self.whole(power))
        return result

    def atom_root(self, number: int, exponent: Fraction, k: int) -> Form:
        """(x^2)^(1/2) is |x|, (x^4)^(1/2) is x^2, (x^3)^(1/2) is x^(3/2)."""
        kind = self.atoms[number][0]
        result = exponent / k
        if kind == "i" or (kind == "2cos" and k % 2 == 0):
            term = {((number, simple(exponent)),): Fraction(1)}
            return self.opaque("root", [self.whole(term), self.rational(Fraction(k))])
        needs_abs = kind not in ("prime", "const", "abs", "root") and k % 2 == 0
        if needs_abs and exponent.denominator == 1 and exponent % 2 == 0 and result % 2 != 0:
            return self.whole(self.generator("abs", number, exponent=simple(result)))
        if kind == "root":
            return self.whole({((number, simple(result)),): Fraction(1)})
        return self.whole(self.atom_power(number, result))

    def symbolic_power(self, base: Form, exponent: Form) -> Form:
        """a^(2x+1) is a (a^x)^2: one atom for each term of the exponent."""
        (top, bottom), (terms, divisor) = base, exponent
        if len(top) != 1 or bottom != self.constant(1) or divisor != self.constant(1):
            return self.opaque("power", [base, exponent])
        ((monomial, coefficient),) = top.items()
        if coefficient <= 0 or any(self.atoms[n][0] == "i" for n, _ in monomial):
            return self.opaque("power", [base, exponent])
        factors = list(monomial)
        for value, sign in ((coefficient.numerator, 1), (coefficient.denominator, -1)):
            factors += [(self.atom("prime", p), sign * count) for p, count in factorized(value)]
        result = self.rational(Fraction(1))
        for number, count in factors:
            for term, factor in terms.items():
                power = self.one_power(number, term, factor * Fraction(count))
                result = self.times(result, power)
        return result

    def one_power(self, number: int, term: tuple, factor: Fraction) -> Form:
        if not term:
            return self.raised(self.whole({((number, 1),): Fraction(1)}), self.rational(factor))
        if self.atoms[number] == ("const", "e"):
            special = self.exponential(term, factor)
            if special is not None:
                return special
        return self.whole(self.generator("power", number, term, exponent=simple(factor)))

    # functions of rational numbers

    def exact_function(self, name: str, values: list[Fraction]) -> Fraction | None:
        whole = [v.numerator for v in values if v.denominator == 1]
        if name in ("floor", "ceil") and len(values) == 1:
            return Fraction(values[0].__floor__() if name == "floor" else values[0].__ceil__())
        if name in ("max", "min"):
            return max(values) if name == "max" else min(values)
        if len(whole) != len(values) or not values:
            return None
        if name == "fact" and len(whole) == 1 and whole[0] >= 0:
            return self.factorial(whole[0], 1)
        if name == "fact2" and len(whole) == 1 and whole[0] >= 0:
            return self.factorial(whole[0], 2)
        if name == "binom" and len(whole) == 2:
            return self.binomial(*whole)
        if name in ("gcd", "lcm"):
            return self.work.number(Fraction((gcd if name == "gcd" else lcm)(*whole)))
        return None

    def factorial(self, n: int, step: int) -> Fraction:
        if n > 1_200:
            raise TooBig
        self.work.spend(n // 4)
        if step == 1:
            return self.work.number(Fraction(factorial(n)))
        product = 1
        for k in range(n, 0, -2):
            product *= k
        return self.work.number(Fraction(product))

    def binomial(self, n: int, k: int) -> Fraction:
        if not 0 <= k <= n:
            return Fraction(0)
        if min(k, n - k) > 600 or n.bit_length() * min(k, n - k) > 12_000:
            raise TooBig
        self.work.spend(min(k, n - k))
        return self.work.number(Fraction(comb(n, k)))
