"""Quotients of polynomials, and arithmetic with them."""

from fractions import Fraction
from typing import NamedTuple

from ..limits import Undefined
from .atoms import FunctionAtom
from .polynomials import Polynomial, Ring, frozen
from .zero import ZeroTest


class Form(NamedTuple):
    top: Polynomial
    bottom: Polynomial


class Forms:
    def __init__(self, ring: Ring, zero: ZeroTest):
        self.ring = ring
        self.zero = zero

    def whole(self, p: Polynomial) -> Form:
        return Form(p, self.ring.one)

    def rational(self, value: Fraction | int) -> Form:
        return self.whole(self.ring.constant(value))

    def is_whole(self, a: Form) -> bool:
        return a.bottom == self.ring.one

    def as_rational(self, a: Form) -> Fraction | None:
        if not self.is_whole(a) or set(a.top) - {()}:
            return None
        return a.top.get((), Fraction(0))

    def is_constant(self, a: Form) -> bool:
        return self.ring.is_constant(a.top) and self.ring.is_constant(a.bottom)

    def plus(self, a: Form, b: Form) -> Form:
        if a.bottom == b.bottom:
            return Form(self.ring.add(a.top, b.top), a.bottom)
        multiply = self.ring.multiply
        top = self.ring.add(multiply(a.top, b.bottom), multiply(b.top, a.bottom))
        return Form(top, multiply(a.bottom, b.bottom))

    def times(self, a: Form, b: Form) -> Form:
        if a.top == b.bottom and len(a.top) > 1:
            return Form(b.top, a.bottom)
        if b.top == a.bottom and len(b.top) > 1:
            return Form(a.top, b.bottom)
        if self.is_whole(a):
            bottom = b.bottom
        elif self.is_whole(b):
            bottom = a.bottom
        else:
            bottom = self.ring.multiply(a.bottom, b.bottom)
        return Form(self.ring.multiply(a.top, b.top), bottom)

    def negative(self, a: Form) -> Form:
        return Form(self.ring.scale(a.top, Fraction(-1)), a.bottom)

    def minus(self, a: Form, b: Form) -> Form:
        return self.plus(a, self.negative(b))

    def reciprocal(self, a: Form) -> Form:
        if self.zero.is_zero_constant(a.top):
            raise Undefined
        top, bottom = self.ring.inverse(a.top)
        return Form(self.ring.multiply(top, a.bottom), bottom)

    def divided(self, a: Form, b: Form) -> Form:
        return self.times(a, self.reciprocal(b))

    def function(self, name: str, args: list[Form], defined: bool = True) -> Form:
        """A function that stays as it is: an atom of its own."""
        key = tuple((frozen(arg.top), frozen(arg.bottom)) for arg in args)
        return self.whole(self.ring.generator(FunctionAtom(name, key, defined)))
