"""Deciding exactly whether an algebraic constant is zero, and the sign of a real one.

A sum of products of roots with whole coefficients is an algebraic integer. If it is not zero, the
product of its conjugates is a whole number other than zero; each conjugate is at most u, the sum
of absolute values, and there are at most D of them, so it is at least u^-(D-1) in size. Evaluated
more precisely than that, "looks like zero" is a proof.
"""

from fractions import Fraction
from math import gcd, lcm, prod

from ..limits import MAX_BITS
from .atoms import (
    ConstantAtom,
    CosineAtom,
    FunctionAtom,
    ImaginaryAtom,
    PrimeAtom,
    RootAtom,
    SymbolAtom,
)
from .numeric import Numeric
from .polynomials import Polynomial, Ring

EXACT = {PrimeAtom, SymbolAtom, ConstantAtom, ImaginaryAtom}  # a sum of them is 0 only if empty
ALGEBRAIC = {PrimeAtom, ImaginaryAtom, RootAtom, CosineAtom}
COSINES = -1  # in place of an atom's number: all cosines together
SIGN_BITS = 300


class ZeroTest:
    def __init__(self, ring: Ring):
        self.ring = ring

    def is_zero(self, p: Polynomial) -> bool | None:
        """True or False where that is proved, None where these means do not decide."""
        if not p:
            return True
        kinds = self.ring.kinds(p)
        if kinds <= EXACT or (kinds <= EXACT | {FunctionAtom} and self.has_no_defined_function(p)):
            return False
        if not kinds <= EXACT | ALGEBRAIC or not self.roots_are_constant(p):
            return None
        verdicts = [self.is_zero_number(part) for part in self.ring.by_symbols(p).values()]
        return False if False in verdicts else (None if None in verdicts else True)

    def has_no_defined_function(self, p: Polynomial) -> bool:
        """Whether every function in p is an unknown one, as f in f(x)."""
        atoms = [self.ring.atoms[number] for monomial in p for number, _ in monomial]
        return not any(isinstance(atom, FunctionAtom) and atom.defined for atom in atoms)

    def is_zero_constant(self, p: Polynomial) -> bool:
        """Whether a divisor is certainly zero."""
        return not p or (self.ring.kinds(p) <= ALGEBRAIC and bool(self.is_zero(p)))

    def roots_are_constant(self, p: Polynomial) -> bool:
        atoms = (self.ring.atoms[n] for n in {n for monomial in p for n, _ in monomial})
        return all(self.is_algebraic(dict(a.radicand)) for a in atoms if isinstance(a, RootAtom))

    def is_algebraic(self, p: Polynomial) -> bool:
        return self.ring.kinds(p) <= ALGEBRAIC and self.roots_are_constant(p)

    def is_zero_number(self, p: Polynomial) -> bool | None:
        if self.ring.kinds(p) <= EXACT:
            return not p
        whole = self.ring.scale(p, 1 / self.ring.content(p))
        bits = self.size_bits(whole)
        if not self.looks_like_zero(whole, 60, bits):
            return False
        needed = (self.conjugates(whole) - 1) * bits + 16
        return self.looks_like_zero(whole, needed, bits) if needed <= MAX_BITS // 4 else None

    def looks_like_zero(self, p: Polynomial, needed: int, bits: int) -> bool:
        """|p| < 2^-needed, computed with enough digits more."""
        self.ring.work.spend(200 + needed)
        numeric = Numeric(2 * (needed + bits) + 100, self.ring.work)
        return abs(numeric.polynomial(self.ring, p)) < numeric.two_to(-needed)

    def size_bits(self, p: Polynomial) -> int:
        """log2 of a bound on all conjugates of a sum with whole coefficients, rounded up."""
        total = max(abs(c.numerator).bit_length() for c in p.values()) + len(p).bit_length()
        longest = 0
        for monomial in p:
            longest = max(longest, sum(self.atom_bits(n, Fraction(e)) for n, e in monomial))
        return total + longest

    def atom_bits(self, number: int, exponent: Fraction) -> int:
        atom = self.ring.atoms[number]
        if isinstance(atom, PrimeAtom):
            size = atom.value.bit_length()
        elif isinstance(atom, RootAtom):
            size = self.size_bits(dict(atom.radicand))
        else:
            size = 0 if isinstance(atom, ImaginaryAtom) else 1
        return (exponent * size).__ceil__()

    def conjugates(self, p: Polynomial) -> int:
        """At most so many: the product of the degrees of all radicals, cosines counted once."""
        degrees = self.degrees(p)
        turns = degrees.pop(COSINES, 1)
        return prod(degrees.values()) * sum(gcd(k, turns) == 1 for k in range(1, turns + 1))

    def degrees(self, p: Polynomial) -> dict[int, int]:
        """For each radical in p, however deep: how many values it could take."""
        found: dict[int, int] = {}
        for number, exponent in {x for monomial in p for x in monomial}:
            atom = self.ring.atoms[number]
            degree = Fraction(exponent).denominator
            if isinstance(atom, ImaginaryAtom):
                degree = 2
            elif isinstance(atom, CosineAtom):
                # all of them lie in the field of one root of unity
                number, degree = COSINES, atom.turn.denominator * 2
            elif isinstance(atom, RootAtom):
                for inner, count in self.degrees(dict(atom.radicand)).items():
                    found[inner] = lcm(found.get(inner, 1), count)
            found[number] = lcm(found.get(number, 1), degree)
        return found

    def sign(self, p: Polynomial) -> int | None:
        """1, 0 or -1 of a real constant; None where it is not real or not decided."""
        if set(p) <= {()}:
            value = p.get((), 0)
            return (value > 0) - (value < 0)
        if not self.ring.is_constant(p):
            return None
        if self.ring.kinds(p) <= ALGEBRAIC | {ConstantAtom} and self.is_zero(p):
            return 0
        self.ring.work.spend(200)
        value = Numeric(SIGN_BITS, self.ring.work).polynomial(self.ring, p)
        if abs(value.imag) > abs(value.real) * 2.0**-200:
            return None
        return 1 if value.real > 0 else -1
