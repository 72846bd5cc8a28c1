"""Sines and cosines: exact for the rational multiples of pi, else functions that stay."""

from fractions import Fraction

from ..limits import TooBig
from .atoms import ConstantAtom, CosineAtom, PrimeAtom
from .forms import Form, Forms

HALF_TURN_COSINES = {  # cos(q pi) as a + b sqrt(c), for q in [0, 1/2]
    Fraction(0): (1, 0, 1),
    Fraction(1, 6): (0, Fraction(1, 2), 3),
    Fraction(1, 5): (Fraction(1, 4), Fraction(1, 4), 5),
    Fraction(1, 4): (0, Fraction(1, 2), 2),
    Fraction(1, 3): (Fraction(1, 2), 0, 1),
    Fraction(2, 5): (Fraction(-1, 4), Fraction(1, 4), 5),
    Fraction(1, 2): (0, 0, 1),
}
MAX_TURN = 360  # denominators of angles that are taken as exact


class Angles:
    def __init__(self, forms: Forms):
        self.forms = forms
        self.ring = forms.ring

    def cos(self, angle: Form) -> Form:
        turn = self.multiple_of_pi(angle)
        if turn is not None:
            return self.cosine_of_turn(turn)
        return self.forms.function("cos", [self.without_sign(angle)[0]])

    def sin(self, angle: Form) -> Form:
        turn = self.multiple_of_pi(angle)
        if turn is not None:
            return self.cosine_of_turn(Fraction(1, 2) - turn)
        positive, sign = self.without_sign(angle)
        sine = self.forms.function("sin", [positive])
        return self.forms.times(sine, self.forms.rational(sign))

    def without_sign(self, angle: Form) -> tuple[Form, int]:
        negative = bool(angle.top) and self.ring.leading(angle.top) < 0
        return (self.forms.negative(angle), -1) if negative else (angle, 1)

    def multiple_of_pi(self, angle: Form) -> Fraction | None:
        """q where the angle is q pi with a small denominator."""
        if not self.forms.is_whole(angle) or len(angle.top) > 1:
            return None
        if not angle.top:
            return Fraction(0)
        ((monomial, q),) = angle.top.items()
        if monomial != ((self.ring.number_of(ConstantAtom("pi")), 1),):
            return None
        if q.numerator.bit_length() > 64:
            raise TooBig
        return q if q.denominator <= MAX_TURN else None

    def cosine_of_turn(self, q: Fraction) -> Form:
        """cos(q pi), brought to q in [0, 1/2]."""
        q = q % 2
        q = 2 - q if q > 1 else q
        sign = -1 if q > Fraction(1, 2) else 1
        q = 1 - q if q > Fraction(1, 2) else q
        ring = self.ring
        if q not in HALF_TURN_COSINES:
            cosine = ring.generator(CosineAtom(q))
            return self.forms.whole(ring.scale(cosine, Fraction(sign, 2)))
        a, b, c = HALF_TURN_COSINES[q]
        value = ring.constant(a)
        if b:
            root = ring.atom_power(ring.number_of(PrimeAtom(c)), Fraction(1, 2))
            value = ring.add(value, ring.scale(root, Fraction(b)))
        return self.forms.whole(ring.scale(value, Fraction(sign)))
