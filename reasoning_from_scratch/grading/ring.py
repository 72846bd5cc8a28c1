"""Exact sums of products: polynomials with rational coefficients and rational exponents.

A polynomial is a dict {monomial: Fraction}; a monomial is a sorted tuple of (atom number,
exponent). What an atom is stands in Ring.atoms:
  ("prime", p) ("sym", x) ("const", "pi" | "e") ("i",) ("2cos", q) = 2 cos(q pi)
  ("root", polynomial) ("abs", atom) ("power", atom, monomial) ("fn", name, *forms)
Fractional powers of primes and whole powers of i, roots are reduced on multiplication, so that
two polynomials in independent atoms are equal exactly when their dicts are.
"""

from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm

from .limits import MAX_BITS, MAX_TERMS, TooBig, Undefined, Work

Monomial = tuple
Polynomial = dict
ONE = Fraction(1)
TRIAL_DIVISORS = [n for n in range(2, 1_000) if all(n % d for d in range(2, int(n**0.5) + 1))]


@lru_cache(maxsize=1_024)
def factorized(n: int) -> tuple:
    """Prime factors below 1000 with their exponents, then what is left as if it were prime."""
    factors = []
    for p in TRIAL_DIVISORS:
        if p * p > n:
            break
        count = 0
        while n % p == 0:
            n, count = n // p, count + 1
        if count:
            factors.append((p, count))
    if n > 1:
        factors.append(perfect_power(n))
    return tuple(factors)


def perfect_power(n: int) -> tuple[int, int]:
    """(r, k) with r ** k == n and k as large as 2 or 3 allow."""
    for k in (3, 2):
        r = integer_root(n, k)
        if r**k == n and r > 1:
            base, power = perfect_power(r)
            return base, power * k
    return n, 1


def integer_root(n: int, k: int) -> int:
    """The largest r with r ** k <= n, by Newton's method on integers."""
    if n < 2:
        return n
    r = 1 << -(-n.bit_length() // k)
    while True:
        smaller = ((k - 1) * r + n // r ** (k - 1)) // k
        if smaller >= r:
            return r
        r = smaller


def frozen(p: Polynomial) -> frozenset:
    return frozenset(p.items())


def simple(exponent: Fraction) -> Fraction | int:
    return exponent.numerator if exponent.denominator == 1 else exponent


class Ring:
    """The atoms that one comparison has met, and arithmetic over them."""

    def __init__(self, work: Work):
        self.work = work
        self.atoms: list[tuple] = []
        self.numbers: dict[tuple, int] = {}
        self.reducible: set[int] = set()  # atoms whose powers do not all stay as they are

    def atom(self, *description) -> int:
        number = self.numbers.get(description)
        if number is None:
            number = self.numbers[description] = len(self.atoms)
            self.atoms.append(description)
            if description[0] in ("prime", "i", "root"):
                self.reducible.add(number)
        return number

    def generator(self, *description, exponent: Fraction | int = 1) -> Polynomial:
        return {((self.atom(*description), exponent),): Fraction(1)}

    def constant(self, value: Fraction | int) -> Polynomial:
        return {(): self.work.number(Fraction(value))} if value else {}

    def add(self, p: Polynomial, q: Polynomial) -> Polynomial:
        self.work.spend(1 + len(q))
        total = dict(p)
        for monomial, coefficient in q.items():
            value = total.get(monomial, 0) + coefficient
            if value:
                total[monomial] = self.work.number(value)
            else:
                del total[monomial]
        if len(total) > MAX_TERMS:
            raise TooBig
        return total

    def scale(self, p: Polynomial, factor: Fraction) -> Polynomial:
        self.work.spend(len(p))
        return {m: self.work.number(c * factor) for m, c in p.items()} if factor else {}

    def multiply(self, p: Polynomial, q: Polynomial) -> Polynomial:
        self.work.spend(4 + 6 * len(p) * len(q))
        total: Polynomial = {}
        pending = []
        for m1, c1 in p.items():
            for m2, c2 in q.items():
                factor, monomial, bases = self.merge(m1, m2)
                value = c1 * c2 if factor is ONE else c1 * c2 * factor
                if bases:
                    pending.append(({monomial: value}, bases))
                elif monomial in total:
                    total[monomial] += value
                else:
                    total[monomial] = value
        total = {m: self.work.number(c) for m, c in total.items() if c}
        for term, bases in pending:
            for base, exponent in bases:
                term = self.multiply(term, self.power(base, exponent))
            total = self.add(total, term)
        if len(total) > MAX_TERMS:
            raise TooBig
        return total

    def merge(self, m1: Monomial, m2: Monomial) -> tuple[Fraction, Monomial, list]:
        """The product of two monomials: a rational factor, a monomial, and polynomials to a
        whole power where a root came to be whole."""
        if not m1 or not m2:
            return ONE, m1 or m2, ()
        exponents = dict(m1)
        for number, exponent in m2:
            exponents[number] = exponents.get(number, 0) + exponent
        if self.reducible.isdisjoint(exponents):
            return ONE, tuple(sorted(x for x in exponents.items() if x[1])), ()
        return self.reduced(exponents)

    def reduced(self, exponents: dict) -> tuple[Fraction, Monomial, list]:
        """Takes whole powers out of primes, of i and of roots."""
        self.work.spend(4 + 6 * len(exponents))
        factor, bases, kept = Fraction(1), [], []
        for number, exponent in exponents.items():
            kind = self.atoms[number][0]
            if kind == "prime" and not 0 < exponent < 1:
                whole = exponent.__floor__()
                factor *= self.work.power(Fraction(self.atoms[number][1]), whole)
                exponent -= whole
            elif kind == "i":
                factor *= -1 if exponent % 4 >= 2 else 1
                exponent %= 2
            elif kind == "root" and exponent >= 1:
                whole = exponent.__floor__()
                bases.append((dict(self.atoms[number][1]), whole))
                exponent -= whole
            if exponent:
                kept.append((number, exponent))
        return factor, tuple(sorted(kept)), bases

    def power(self, p: Polynomial, n: int) -> Polynomial:
        """p ** n for whole n >= 0."""
        if n > MAX_BITS and len(p) > 0:
            raise TooBig
        if len(p) > 1 and n > MAX_TERMS:
            raise TooBig
        result, square = self.constant(1), p
        while n:
            if n & 1:
                result = self.multiply(result, square)
            n >>= 1
            if n:
                square = self.multiply(square, square)
        return result

    def inverse(self, p: Polynomial) -> tuple[Polynomial, Polynomial]:
        """1/p as numerator and denominator; a single term becomes negative exponents."""
        if not p:
            raise Undefined
        if len(p) > 1:
            return self.constant(1), p
        ((monomial, coefficient),) = p.items()
        top, bottom = self.constant(1 / coefficient), self.constant(1)
        for number, exponent in monomial:
            if self.atoms[number][0] == "root":
                top = self.multiply(top, {((number, simple(Fraction(1 - exponent))),): Fraction(1)})
                bottom = self.multiply(bottom, dict(self.atoms[number][1]))
            else:
                top = self.multiply(top, self.atom_power(number, -Fraction(exponent)))
        return top, bottom

    def atom_power(self, number: int, exponent: Fraction) -> Polynomial:
        """One atom to a rational power, reduced as in a product."""
        factor, monomial, _ = self.merge(((number, simple(exponent)),), ((number, 0),))
        return {monomial: factor}

    def without_negative_powers(self, p: Polynomial) -> Polynomial:
        """y - 6/x becomes x y - 6."""
        lowest: dict[int, Fraction] = {}
        for monomial in p:
            for number, exponent in monomial:
                lowest[number] = min(exponent, lowest.get(number, 0))
        factor = tuple(sorted((n, -e) for n, e in lowest.items() if e < 0))
        return self.multiply(p, {factor: ONE}) if factor else p

    def kinds(self, p: Polynomial) -> set[str]:
        return {self.atoms[number][0] for monomial in p for number, _ in monomial}

    def is_constant(self, p: Polynomial) -> bool:
        """Whether no symbol occurs, however deep."""
        return not any(self.depends(number) for monomial in p for number, _ in monomial)

    def depends(self, number: int) -> bool:
        atom = self.atoms[number]
        if atom[0] == "sym":
            return True
        if atom[0] == "root":
            return not self.is_constant(dict(atom[1]))
        return atom[0] in ("abs", "power", "fn")

    def content(self, p: Polynomial) -> Fraction:
        """The positive rational that leaves whole coefficients without a common factor."""
        top = gcd(*(c.numerator for c in p.values()))
        return Fraction(top, lcm(*(c.denominator for c in p.values())))
