"""Functions of forms by name: logarithms, angles, absolute values; others stay as they are."""

from fractions import Fraction

from ..limits import Undefined
from .angles import Angles
from .atoms import AbsoluteAtom, ConstantAtom, PowerAtom, PrimeAtom
from .forms import Form, Forms
from .polynomials import ONE, Exponent, factorized
from .powers import NEVER_NEGATIVE, Powers
from .whole_numbers import rational_function


class Functions:
    def __init__(self, forms: Forms, angles: Angles, powers: Powers):
        self.forms = forms
        self.ring = forms.ring
        self.angles = angles
        self.powers = powers

    def apply(self, name: str, args: list[Form]) -> Form:
        rationals = [self.forms.as_rational(arg) for arg in args]
        if None not in rationals:
            exact = rational_function(self.ring.work, name, rationals)
            if exact is not None:
                return self.forms.rational(exact)
        if len(args) == 1 and name in OF_ONE:
            return OF_ONE[name](self, args[0])
        if name == "log" and len(args) == 2:
            return self.log(*args)
        return self.forms.function(name, args)

    def exp(self, arg: Form) -> Form:
        return self.powers.raised(self.forms.whole(self.ring.generator(ConstantAtom("e"))), arg)

    def tan(self, angle: Form) -> Form:
        return self.forms.times(self.angles.sin(angle), self.sec(angle))

    def cot(self, angle: Form) -> Form:
        return self.forms.times(self.angles.cos(angle), self.csc(angle))

    def sec(self, angle: Form) -> Form:
        return self.forms.reciprocal(self.angles.cos(angle))

    def csc(self, angle: Form) -> Form:
        return self.forms.reciprocal(self.angles.sin(angle))

    def absolute(self, arg: Form) -> Form:
        top, bottom = arg
        if self.forms.is_constant(arg):
            sign = self.forms.zero.sign(self.ring.multiply(top, bottom))
            if sign is None:
                return self.forms.function("abs", [arg])
            return self.forms.times(arg, self.forms.rational(sign))
        if len(top) > 1 or len(bottom) > 1:
            positive = self.forms.negative(arg) if self.ring.leading(top) < 0 else arg
            return self.forms.function("abs", [positive])
        ((monomial, coefficient),) = top.items()
        result = self.forms.rational(abs(coefficient))
        for number, exponent in monomial:
            term = self.ring.generator(self.absolute_atom(number, exponent), exponent)
            result = self.forms.times(result, self.forms.whole(term))
        return result

    def absolute_atom(self, number: int, exponent: Exponent):
        """x where x^exponent cannot be negative, else |x|."""
        atom = self.ring.atoms[number]
        even = Fraction(exponent).denominator == 1 and exponent % 2 == 0
        return atom if even or isinstance(atom, NEVER_NEGATIVE) else AbsoluteAtom(number)

    # logarithms

    def log(self, arg: Form, base: Form | None = None) -> Form:
        base = self.forms.rational(10) if base is None else base
        return self.forms.divided(self.ln(arg), self.ln(base))

    def ln(self, arg: Form) -> Form:
        """Of products: a sum over their factors."""
        top, bottom = arg
        if not top:
            raise Undefined
        if len(bottom) > 1:
            return self.forms.minus(
                self.ln(self.forms.whole(top)), self.ln(self.forms.whole(bottom))
            )
        if len(top) > 1:
            return self.forms.function("ln", [self.forms.whole(top)])
        ((monomial, coefficient),) = top.items()
        if coefficient < 0:
            return self.forms.function("ln", [arg])
        result = self.forms.rational(0)
        for value, sign in ((coefficient.numerator, 1), (coefficient.denominator, -1)):
            self.ring.work.spend(40)
            for p, count in factorized(value):
                prime = self.ring.number_of(PrimeAtom(p))
                result = self.forms.plus(result, self.ln_of_atom(prime, sign * count))
        for number, exponent in monomial:
            result = self.forms.plus(result, self.ln_of_atom(number, exponent))
        return result

    def ln_of_atom(self, number: int, factor: Exponent) -> Form:
        """The logarithm of one atom, times a factor."""
        atom = self.ring.atoms[number]
        if atom == ConstantAtom("e"):
            return self.forms.rational(factor)
        if isinstance(atom, PowerAtom):
            exponent = self.forms.whole({atom.exponent: Fraction(factor)})
            return self.forms.times(self.ln_of_atom(atom.base, 1), exponent)
        argument = self.forms.whole({((number, 1),): ONE})
        return self.forms.times(
            self.forms.function("ln", [argument]), self.forms.rational(Fraction(factor))
        )


OF_ONE = {
    "ln": Functions.ln,
    "log": Functions.log,
    "exp": Functions.exp,
    "abs": Functions.absolute,
    "sin": lambda functions, angle: functions.angles.sin(angle),
    "cos": lambda functions, angle: functions.angles.cos(angle),
    "tan": Functions.tan,
    "cot": Functions.cot,
    "sec": Functions.sec,
    "csc": Functions.csc,
}
