"""Powers and roots of forms: whole, rational and with symbols in the exponent."""

from fractions import Fraction

from ..limits import TooBig, Undefined
from .angles import Angles
from .atoms import (
    AbsoluteAtom,
    ConstantAtom,
    CosineAtom,
    FunctionAtom,
    ImaginaryAtom,
    PowerAtom,
    PrimeAtom,
    RootAtom,
)
from .forms import Form, Forms
from .polynomials import ONE, Monomial, Polynomial, factorized, frozen, simple

MAX_DEGREE = 1_000  # of a root
NEVER_NEGATIVE = (PrimeAtom, ConstantAtom, AbsoluteAtom, RootAtom)


class Powers:
    def __init__(self, forms: Forms, angles: Angles):
        self.forms = forms
        self.angles = angles
        self.ring = forms.ring
        self.zero = forms.zero

    def raised(self, base: Form, exponent: Form) -> Form:
        q = self.forms.as_rational(exponent)
        if q is None:
            return self.symbolic_power(base, exponent)
        if q <= 0 and not base.top:
            raise Undefined
        if q.denominator != 1:
            base = self.root(base, q.denominator)
        return self.whole_power(base, q.numerator)

    def whole_power(self, base: Form, n: int) -> Form:
        if n < 0:
            base, n = self.forms.reciprocal(base), -n
        if len(base.top) == 1 and self.forms.is_whole(base):
            return self.monomial_power(base.top, n)
        return Form(self.ring.power(base.top, n), self.ring.power(base.bottom, n))

    def monomial_power(self, p: Polynomial, n: int) -> Form:
        """c * x^a * ... to the n, without multiplying n times."""
        ((monomial, coefficient),) = p.items()
        result = self.forms.rational(self.ring.work.power(coefficient, n))
        for number, exponent in monomial:
            if isinstance(self.ring.atoms[number], RootAtom):
                value = self.ring.power({((number, exponent),): ONE}, n)
            else:
                value = self.ring.atom_power(number, Fraction(exponent) * n)
            result = self.forms.times(result, self.forms.whole(value))
        return result

    # roots

    def root(self, base: Form, k: int) -> Form:
        """The real root where there is one, else the principal one."""
        if k > MAX_DEGREE:
            raise TooBig
        top, bottom = base
        if not top:
            return base
        if not self.forms.is_whole(base):
            # (a/b)^(1/k) is (a b^(k-1))^(1/k) / b
            if not self.forms.is_constant(base):
                return self.root_as_it_is(base, k)
            top = self.ring.multiply(top, self.ring.power(bottom, k - 1))
            if k % 2 == 0 and self.zero.sign(bottom) != 1:
                return self.root_as_it_is(base, k)
        value = self.monomial_root(top, k) if len(top) == 1 else self.sum_root(top, k)
        return self.forms.divided(value, self.forms.whole(bottom))

    def root_as_it_is(self, base: Form, k: int) -> Form:
        return self.forms.function("root", [base, self.forms.rational(k)])

    def sum_root(self, p: Polynomial, k: int) -> Form:
        content = self.ring.content(p)
        primitive = self.ring.scale(p, 1 / content)
        outside = self.monomial_root(self.ring.constant(content), k)
        if self.ring.is_constant(p):
            sign = self.zero.sign(p)
        else:
            sign = -1 if k % 2 and self.ring.leading(p) < 0 else 1
        if sign == 0:
            return self.forms.whole({})
        if sign == -1:
            if k % 2 == 0 and k != 2:
                return self.root_as_it_is(self.forms.whole(p), k)
            primitive = self.ring.scale(primitive, Fraction(-1))
            outside = self.forms.times(outside, self.root_of_minus_one(k))
        inside = self.ring.generator(RootAtom(frozen(primitive)), Fraction(1, k))
        return self.forms.times(outside, self.forms.whole(inside))

    def root_of_minus_one(self, k: int) -> Form:
        """The square root, or a root of odd degree."""
        if k == 2:
            return self.forms.whole(self.ring.generator(ImaginaryAtom()))
        return self.forms.rational(-1)

    def monomial_root(self, p: Polynomial, k: int) -> Form:
        ((monomial, coefficient),) = p.items()
        if coefficient < 0 and k % 2 == 0 and (k != 2 or not self.is_positive(monomial)):
            return self.root_as_it_is(self.forms.whole(p), k)
        value = self.rational_root(abs(coefficient), k)
        if coefficient < 0:
            value = self.forms.times(value, self.root_of_minus_one(k))
        for number, exponent in monomial:
            value = self.forms.times(value, self.atom_root(number, Fraction(exponent), k))
        return value

    def is_positive(self, monomial: Monomial) -> bool:
        atoms = (self.ring.atoms[number] for number, _ in monomial)
        return all(isinstance(atom, (PrimeAtom, ConstantAtom)) for atom in atoms)

    def rational_root(self, value: Fraction, k: int) -> Form:
        """Of a positive rational: a product of fractional powers of primes."""
        work = self.ring.work
        result = self.forms.rational(Fraction(1, value.denominator))
        inside = work.number(Fraction(value.numerator * value.denominator ** (k - 1)))
        work.spend(40)
        for p, count in factorized(inside.numerator):
            power = self.ring.atom_power(self.ring.number_of(PrimeAtom(p)), Fraction(count, k))
            result = self.forms.times(result, self.forms.whole(power))
        return result

    def atom_root(self, number: int, exponent: Fraction, k: int) -> Form:
        """(x^2)^(1/2) is |x|, (x^4)^(1/2) is x^2, (x^3)^(1/2) is x^(3/2)."""
        atom = self.ring.atoms[number]
        result = exponent / k
        if isinstance(atom, ImaginaryAtom) or (isinstance(atom, CosineAtom) and k % 2 == 0):
            return self.root_as_it_is(self.forms.whole({((number, simple(exponent)),): ONE}), k)
        if isinstance(atom, RootAtom):
            return self.forms.whole({((number, simple(result)),): ONE})
        may_be_negative = k % 2 == 0 and not isinstance(atom, NEVER_NEGATIVE)
        even = exponent.denominator == 1 and exponent % 2 == 0
        if may_be_negative and even and result % 2 != 0:
            absolute = self.ring.generator(AbsoluteAtom(number), simple(result))
            return self.forms.whole(absolute)
        return self.forms.whole(self.ring.atom_power(number, result))

    # symbols in the exponent

    def symbolic_power(self, base: Form, exponent: Form) -> Form:
        """a^(2x+1) is a (a^x)^2: one atom for each term of the exponent."""
        plain = len(base.top) == 1 and self.forms.is_whole(base) and self.forms.is_whole(exponent)
        if not plain:
            return self.forms.function("power", [base, exponent])
        ((monomial, coefficient),) = base.top.items()
        has_i = any(isinstance(self.ring.atoms[n], ImaginaryAtom) for n, _ in monomial)
        if coefficient <= 0 or has_i:
            return self.forms.function("power", [base, exponent])
        factors = list(monomial)
        for value, sign in ((coefficient.numerator, 1), (coefficient.denominator, -1)):
            for p, count in factorized(value):
                factors.append((self.ring.number_of(PrimeAtom(p)), sign * count))
        result = self.forms.rational(1)
        for number, count in factors:
            for term, factor in exponent.top.items():
                power = self.one_power(number, term, factor * Fraction(count))
                result = self.forms.times(result, power)
        return result

    def one_power(self, number: int, term: Monomial, factor: Fraction) -> Form:
        """One atom to the power of one term of an exponent, times a factor."""
        if not term:
            base = self.forms.whole({((number, 1),): ONE})
            return self.raised(base, self.forms.rational(factor))
        if self.ring.atoms[number] == ConstantAtom("e"):
            special = self.exponential(term, factor)
            if special is not None:
                return special
        power = self.ring.generator(PowerAtom(number, term), simple(factor))
        return self.forms.whole(power)

    def exponential(self, term: Monomial, factor: Fraction) -> Form | None:
        """e to a multiple of i pi is a root of unity; e to a multiple of ln a is a power of a."""
        atoms = [self.ring.atoms[number] for number, _ in term]
        first_powers = all(exponent == 1 for _, exponent in term)
        if len(term) == 2 and first_powers and {*atoms} == {ImaginaryAtom(), ConstantAtom("pi")}:
            pi = self.ring.generator(ConstantAtom("pi"))
            angle = self.forms.whole(self.ring.scale(pi, factor))
            i = self.forms.whole(self.ring.generator(ImaginaryAtom()))
            sine = self.forms.times(i, self.angles.sin(angle))
            return self.forms.plus(self.angles.cos(angle), sine)
        if len(term) == 1 and first_powers:
            match atoms[0]:
                case FunctionAtom("ln", ((top, bottom),)):
                    base = Form(dict(top), dict(bottom))
                    return self.raised(base, self.forms.rational(factor))
        return None
