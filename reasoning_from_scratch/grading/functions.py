"""Logarithms, angles, absolute values and functions that stay as they are, on exact values."""

from fractions import Fraction

from .algebraic import Algebraic
from .limits import TooBig, Undefined
from .ring import Polynomial, factorized, frozen

HALF_TURN_COSINES = {  # cos(q pi) as a + b sqrt(c), for q in [0, 1/2]
    Fraction(0): (1, 0, 1),
    Fraction(1, 6): (0, Fraction(1, 2), 3),
    Fraction(1, 5): (Fraction(1, 4), Fraction(1, 4), 5),
    Fraction(1, 4): (0, Fraction(1, 2), 2),
    Fraction(1, 3): (Fraction(1, 2), 0, 1),
    Fraction(2, 5): (Fraction(-1, 4), Fraction(1, 4), 5),
    Fraction(1, 2): (0, 0, 1),
}
QUOTIENTS = {  # as numerator and denominator in sin and cos
    "tan": ("sin", "cos"),
    "cot": ("cos", "sin"),
    "sec": (None, "cos"),
    "csc": (None, "sin"),
}
MAX_TURN = 360  # denominators of angles that are taken as exact


class Functions(Algebraic):
    """Forms and functions of forms; values.py has the rest of the tree."""

    def whole(self, p: Polynomial) -> tuple:
        return p, self.constant(1)

    def rational(self, value: Fraction) -> tuple:
        return self.whole(self.constant(value))

    def plus(self, a: tuple, b: tuple) -> tuple:
        if a[1] == b[1]:
            return self.add(a[0], b[0]), a[1]
        top = self.add(self.multiply(a[0], b[1]), self.multiply(b[0], a[1]))
        return top, self.multiply(a[1], b[1])

    def times(self, a: tuple, b: tuple) -> tuple:
        one = self.constant(1)
        if a[0] == b[1] and len(a[0]) > 1:
            return b[0], a[1]
        if b[0] == a[1] and len(b[0]) > 1:
            return a[0], b[1]
        bottom = self.multiply(a[1], b[1]) if a[1] != one and b[1] != one else None
        if bottom is None:
            bottom = b[1] if a[1] == one else a[1]
        return self.multiply(a[0], b[0]), bottom

    def negative(self, a: tuple) -> tuple:
        return self.scale(a[0], Fraction(-1)), a[1]

    def reciprocal(self, a: tuple) -> tuple:
        if self.is_zero_constant(a[0]):
            raise Undefined
        top, bottom = self.inverse(a[0])
        return self.multiply(top, a[1]), bottom

    def as_rational(self, a: tuple) -> Fraction | None:
        if a[1] != self.constant(1) or set(a[0]) - {()}:
            return None
        return a[0].get((), Fraction(0))

    def opaque(self, name: str, args: list[tuple]) -> tuple:
        key = tuple((frozen(top), frozen(bottom)) for top, bottom in args)
        return self.whole(self.generator("fn", name, *key))

    # functions by name

    def apply(self, name: str, args: list[tuple]) -> tuple:
        rationals = [self.as_rational(arg) for arg in args]
        if None not in rationals:
            exact = self.exact_function(name, rationals)
            if exact is not None:
                return self.rational(exact)
        if name in ("ln", "log", "exp", "abs") or name in ("sin", "cos") or name in QUOTIENTS:
            if len(args) == 1 or (name == "log" and len(args) == 2):
                return getattr(self, name, self.ratio_of)(*args, *self.extra(name))
        return self.opaque(name, args)

    def extra(self, name: str) -> list:
        return [name] if name in QUOTIENTS else []

    def ratio_of(self, arg: tuple, name: str) -> tuple:
        top, bottom = QUOTIENTS[name]
        divided = self.reciprocal(getattr(self, bottom)(arg))
        return divided if top is None else self.times(getattr(self, top)(arg), divided)

    def exp(self, arg: tuple) -> tuple:
        return self.raised(self.whole(self.generator("const", "e")), arg)

    def abs(self, arg: tuple) -> tuple:
        top, bottom = arg
        if self.is_constant(top) and self.is_constant(bottom):
            sign = self.sign(self.multiply(top, bottom))
            return (
                self.opaque("abs", [arg])
                if sign is None
                else self.times(arg, self.rational(Fraction(sign)))
            )
        if len(top) > 1 or len(bottom) > 1:
            negated = self.negative(arg) if self.leading(top) < 0 else arg
            return self.opaque("abs", [negated])
        ((monomial, coefficient),) = top.items()
        result = self.rational(abs(coefficient))
        for number, exponent in monomial:
            even = Fraction(exponent).denominator == 1 and exponent % 2 == 0
            positive = self.atoms[number][0] in ("prime", "const", "abs", "root")
            term = (
                self.generator(*self.atoms[number], exponent=exponent)
                if even or positive
                else self.generator("abs", number, exponent=exponent)
            )
            result = self.times(result, self.whole(term))
        return result

    # logarithms

    def log(self, arg: tuple, base: tuple | None = None) -> tuple:
        base = self.rational(Fraction(10)) if base is None else base
        return self.times(self.ln(arg), self.reciprocal(self.ln(base)))

    def ln(self, arg: tuple) -> tuple:
        """Of products: a sum over their factors."""
        top, bottom = arg
        if not top:
            raise Undefined
        if len(bottom) > 1:
            return self.plus(self.ln(self.whole(top)), self.negative(self.ln(self.whole(bottom))))
        if len(top) > 1:
            return self.opaque("ln", [self.whole(top)])
        ((monomial, coefficient),) = top.items()
        if coefficient < 0:
            return self.opaque("ln", [arg])
        result = self.rational(Fraction(0))
        for value, sign in ((coefficient.numerator, 1), (coefficient.denominator, -1)):
            self.work.spend(40)
            for p, count in factorized(value):
                result = self.plus(result, self.ln_atom(self.atom("prime", p), sign * count))
        for number, exponent in monomial:
            result = self.plus(result, self.ln_atom(number, exponent))
        return result

    def ln_atom(self, number: int, factor: Fraction | int) -> tuple:
        if self.atoms[number] == ("const", "e"):
            return self.rational(Fraction(factor))
        if self.atoms[number][0] == "power":
            _, base, term = self.atoms[number]
            inner = self.times(self.ln_atom(base, 1), self.whole({term: Fraction(factor)}))
            return inner
        argument = self.whole({((number, 1),): Fraction(1)})
        return self.times(self.opaque("ln", [argument]), self.rational(Fraction(factor)))

    def exponential(self, term: tuple, factor: Fraction) -> tuple | None:
        """e to a multiple of i pi is a root of unity; e to a multiple of ln a is a power of a."""
        kinds = [self.atoms[number] for number, _ in term]
        if len(term) == 2 and ("i",) in kinds and ("const", "pi") in kinds:
            if all(exponent == 1 for _, exponent in term):
                turn = self.scale({((self.atom("const", "pi"), 1),): Fraction(1)}, factor)
                angle = self.whole(turn)
                i = self.whole(self.generator("i"))
                return self.plus(self.cos(angle), self.times(i, self.sin(angle)))
        if len(term) == 1 and term[0][1] == 1 and kinds[0][:2] == ("fn", "ln"):
            top, bottom = kinds[0][2]
            return self.raised((dict(top), dict(bottom)), self.rational(factor))
        return None

    # angles

    def cos(self, arg: tuple) -> tuple:
        turn = self.multiple_of_pi(arg)
        if turn is not None:
            return self.cosine_of_turn(turn)
        return self.opaque("cos", [self.without_sign(arg)[0]])

    def sin(self, arg: tuple) -> tuple:
        turn = self.multiple_of_pi(arg)
        if turn is not None:
            return self.cosine_of_turn(Fraction(1, 2) - turn)
        positive, sign = self.without_sign(arg)
        return self.times(self.opaque("sin", [positive]), self.rational(Fraction(sign)))

    def without_sign(self, arg: tuple) -> tuple[tuple, int]:
        negative = bool(arg[0]) and self.leading(arg[0]) < 0
        return (self.negative(arg), -1) if negative else (arg, 1)

    def multiple_of_pi(self, arg: tuple) -> Fraction | None:
        """q where the argument is q pi with a small denominator."""
        top, bottom = arg
        if bottom != self.constant(1) or len(top) > 1:
            return None
        if not top:
            return Fraction(0)
        ((monomial, q),) = top.items()
        if monomial != ((self.atom("const", "pi"), 1),):
            return None
        if q.numerator.bit_length() > 64:
            raise TooBig
        return q if q.denominator <= MAX_TURN else None

    def cosine_of_turn(self, q: Fraction) -> tuple:
        q = q % 2
        q = 2 - q if q > 1 else q
        sign = -1 if q > Fraction(1, 2) else 1
        q = 1 - q if q > Fraction(1, 2) else q
        if q not in HALF_TURN_COSINES:
            term = self.generator("2cos", q)
            return self.whole(self.scale(term, Fraction(sign, 2)))
        a, b, c = HALF_TURN_COSINES[q]
        value = self.constant(a)
        if b:
            root = self.atom_power(self.atom("prime", c), Fraction(1, 2))
            value = self.add(value, self.scale(root, Fraction(b)))
        return self.whole(self.scale(value, Fraction(sign)))
