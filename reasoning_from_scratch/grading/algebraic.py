"""Deciding exactly whether an algebraic constant is zero, and the sign of a real one.

A sum of products of roots with whole coefficients is an algebraic integer. If it is not zero, the
product of its conjugates is a whole number other than zero; each conjugate is at most u, the sum
of absolute values, and there are at most D of them, so it is at least u^-(D-1) in size. Evaluated
more precisely than that, "looks like zero" is a proof.
"""

from fractions import Fraction
from math import gcd, lcm, prod

from .limits import MAX_BITS
from .ring import Polynomial, Ring

EXACT = {"prime", "sym", "const", "i"}  # independent atoms: a sum of them is zero only if empty
COSINES = -1  # stands for all cosines together
ALGEBRAIC = {"prime", "i", "root", "2cos"}


class Algebraic(Ring):
    def is_zero(self, p: Polynomial) -> bool | None:
        """True or False where that is proved, None where these means do not decide."""
        if not p:
            return True
        kinds = self.kinds(p)
        if kinds <= EXACT or (kinds <= EXACT | {"fn"} and self.uninterpreted(p)):
            return False
        if not kinds <= EXACT | ALGEBRAIC or not self.roots_are_constant(p):
            return None
        verdicts = [self.is_zero_number(part) for part in self.by_symbols(p).values()]
        return False if False in verdicts else (None if None in verdicts else True)

    def uninterpreted(self, p: Polynomial) -> bool:
        """Whether every function in p is an unknown one, as f in f(x)."""
        atoms = [self.atoms[number] for monomial in p for number, _ in monomial]
        return all(atom[1].startswith("@") for atom in atoms if atom[0] == "fn")

    def is_zero_constant(self, p: Polynomial) -> bool:
        """Whether a divisor is certainly zero."""
        return not p or (self.kinds(p) <= ALGEBRAIC and bool(self.is_zero(p)))

    def roots_are_constant(self, p: Polynomial) -> bool:
        roots = {n for m in p for n, _ in m if self.atoms[n][0] == "root"}
        return all(self.is_algebraic(dict(self.atoms[n][1])) for n in roots)

    def is_algebraic(self, p: Polynomial) -> bool:
        return self.kinds(p) <= ALGEBRAIC and self.roots_are_constant(p)

    def by_symbols(self, p: Polynomial) -> dict[tuple, Polynomial]:
        """The algebraic coefficient of each product of symbols, pi and e."""
        parts: dict[tuple, Polynomial] = {}
        for monomial, coefficient in p.items():
            free = tuple(x for x in monomial if self.atoms[x[0]][0] in ("sym", "const"))
            rest = tuple(x for x in monomial if self.atoms[x[0]][0] not in ("sym", "const"))
            parts.setdefault(free, {})[rest] = coefficient
        return parts

    def is_zero_number(self, p: Polynomial) -> bool | None:
        if self.kinds(p) <= EXACT:
            return not p
        whole = self.scale(p, 1 / self.content(p))
        bits = self.size_bits(whole)
        if not self.looks_like_zero(whole, 60, bits):
            return False
        needed = (self.conjugates(whole) - 1) * bits + 16
        return self.looks_like_zero(whole, needed, bits) if needed <= MAX_BITS // 4 else None

    def looks_like_zero(self, p: Polynomial, needed: int, bits: int) -> bool:
        """|p| < 2^-needed, computed with enough digits more."""
        from .numeric import Numeric

        self.work.spend(200 + needed)
        numeric = Numeric(2 * (needed + bits) + 100, self.work)
        return abs(numeric.polynomial(self, p)) < numeric.two_to(-needed)

    def size_bits(self, p: Polynomial) -> int:
        """log2 of a bound on all conjugates of a sum with whole coefficients, rounded up."""
        total = max(abs(c.numerator).bit_length() for c in p.values()) + len(p).bit_length()
        longest = 0
        for monomial in p:
            longest = max(longest, sum(self.atom_bits(n, Fraction(e)) for n, e in monomial))
        return total + longest

    def atom_bits(self, number: int, exponent: Fraction) -> int:
        atom = self.atoms[number]
        if atom[0] == "i":
            return 0
        if atom[0] == "2cos":
            return (exponent * 1).__ceil__()
        size = atom[1].bit_length() if atom[0] == "prime" else self.size_bits(dict(atom[1]))
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
            atom = self.atoms[number]
            degree = Fraction(exponent).denominator
            if atom[0] == "i":
                degree = 2
            elif atom[0] == "2cos":
                # all of them lie in the field of one root of unity
                number, degree = COSINES, atom[1].denominator * 2
            elif atom[0] == "root":
                for inner, count in self.degrees(dict(atom[1])).items():
                    found[inner] = lcm(found.get(inner, 1), count)
            found[number] = lcm(found.get(number, 1), degree)
        return found

    def sign(self, p: Polynomial) -> int | None:
        """1, 0 or -1 of a real constant; None where it is not real or not decided."""
        from .numeric import Numeric

        if set(p) <= {()}:
            value = p.get((), 0)
            return (value > 0) - (value < 0)
        if not self.is_constant(p):
            return None
        if self.kinds(p) <= ALGEBRAIC | {"const"} and self.is_zero(p):
            return 0
        self.work.spend(200)
        value = Numeric(300, self.work).polynomial(self, p)
        if abs(value.imag) > abs(value.real) * 2.0**-200:
            return None
        return 1 if value.real > 0 else -1
