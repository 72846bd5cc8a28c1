"""Exact sums of products: polynomials with rational coefficients and rational exponents.

A polynomial is a dict {monomial: coefficient}. A monomial is a sorted tuple of pairs (number of
an atom, exponent); atoms.py says what atoms there are.

    3 sqrt(2) x^2 - 1    {((0, 1/2), (1, 2)): 3, (): -1}    where atom 0 is the prime 2, atom 1 is x

Whole powers of i, of roots and of primes are taken out on multiplication, so that two polynomials
in independent atoms are equal exactly when their dicts are.
"""

from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm

from ..limits import MAX_BITS, MAX_TERMS, TooBig, Undefined, Work
from .atoms import (
    AbsoluteAtom,
    Atom,
    ConstantAtom,
    FunctionAtom,
    ImaginaryAtom,
    PowerAtom,
    PrimeAtom,
    RootAtom,
    SymbolAtom,
)

Exponent = Fraction | int
Monomial = tuple[tuple[int, Exponent], ...]
Polynomial = dict[Monomial, Fraction]
ONE = Fraction(1)
REDUCIBLE = (PrimeAtom, ImaginaryAtom, RootAtom)
TRIAL_DIVISORS = [n for n in range(2, 1_000) if all(n % d for d in range(2, int(n**0.5) + 1))]


@lru_cache(maxsize=1_024)
def factorized(n: int) -> tuple[tuple[int, int], ...]:
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


def simple(exponent: Exponent) -> Exponent:
    """A whole exponent as an int, which is compared and hashed faster."""
    return exponent.numerator if exponent.denominator == 1 else exponent


class Ring:
    """The atoms that one comparison has met, and arithmetic over them."""

    def __init__(self, work: Work):
        self.work = work
        self.atoms: list[Atom] = []
        self.numbers: dict[Atom, int] = {}
        self.reducible: set[int] = set()  # atoms whose powers do not all stay as they are
        self.one: Polynomial = {(): ONE}

    def number_of(self, atom: Atom) -> int:
        number = self.numbers.get(atom)
        if number is None:
            number = self.numbers[atom] = len(self.atoms)
            self.atoms.append(atom)
            if isinstance(atom, REDUCIBLE):
                self.reducible.add(number)
        return number

    def generator(self, atom: Atom, exponent: Exponent = 1) -> Polynomial:
        """The atom itself as a polynomial, or a power of it."""
        return {((self.number_of(atom), exponent),): ONE}

    def constant(self, value: Fraction | int) -> Polynomial:
        value = value if isinstance(value, Fraction) else Fraction(value)
        return {(): self.work.number(value)} if value else {}

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

    def subtract(self, p: Polynomial, q: Polynomial) -> Polynomial:
        return self.add(p, self.scale(q, Fraction(-1)))

    def multiply(self, p: Polynomial, q: Polynomial) -> Polynomial:
        self.work.spend(4 + 6 * len(p) * len(q))
        total: Polynomial = {}
        pending = []  # terms that are still to be multiplied by what came out of a root
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
            return ONE, m1 or m2, []
        exponents = dict(m1)
        for number, exponent in m2:
            exponents[number] = exponents.get(number, 0) + exponent
        if self.reducible.isdisjoint(exponents):
            return ONE, tuple(sorted(x for x in exponents.items() if x[1])), []
        return self.reduced(exponents)

    def reduced(self, exponents: dict[int, Exponent]) -> tuple[Fraction, Monomial, list]:
        """Takes whole powers out of primes, of i and of roots."""
        self.work.spend(4 + 6 * len(exponents))
        factor, bases, kept = ONE, [], []
        for number, exponent in exponents.items():
            atom = self.atoms[number]
            if isinstance(atom, PrimeAtom):
                if not 0 < exponent < 1:
                    whole = exponent.__floor__()
                    factor *= self.work.power(Fraction(atom.value), whole)
                    exponent -= whole
            elif isinstance(atom, ImaginaryAtom):
                factor *= -1 if exponent % 4 >= 2 else 1
                exponent %= 2
            elif isinstance(atom, RootAtom) and exponent >= 1:
                whole = exponent.__floor__()
                bases.append((dict(atom.radicand), whole))
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
            return self.one, p
        ((monomial, coefficient),) = p.items()
        top, bottom = self.constant(1 / coefficient), self.constant(1)
        for number, exponent in monomial:
            atom = self.atoms[number]
            if isinstance(atom, RootAtom):  # 1/sqrt(u) is sqrt(u)/u
                top = self.multiply(top, {((number, simple(Fraction(1 - exponent))),): ONE})
                bottom = self.multiply(bottom, dict(atom.radicand))
            else:
                top = self.multiply(top, self.atom_power(number, -Fraction(exponent)))
        return top, bottom

    def atom_power(self, number: int, exponent: Fraction) -> Polynomial:
        """One atom to a rational power, reduced as in a product."""
        factor, monomial, _ = self.merge(((number, simple(exponent)),), ((number, 0),))
        return {monomial: factor}

    def without_negative_powers(self, p: Polynomial) -> Polynomial:
        """y - 6/x becomes x y - 6."""
        lowest: dict[int, Exponent] = {}
        for monomial in p:
            for number, exponent in monomial:
                lowest[number] = min(exponent, lowest.get(number, 0))
        factor = tuple(sorted((n, -e) for n, e in lowest.items() if e < 0))
        return self.multiply(p, {factor: ONE}) if factor else p

    # questions

    def kinds(self, p: Polynomial) -> set[type]:
        return {type(self.atoms[number]) for monomial in p for number, _ in monomial}

    def by_symbols(self, p: Polynomial) -> dict[Monomial, Polynomial]:
        """The algebraic coefficient of each product of symbols, pi and e."""
        free = (SymbolAtom, ConstantAtom)
        parts: dict[Monomial, Polynomial] = {}
        for monomial, coefficient in p.items():
            outside = tuple(x for x in monomial if isinstance(self.atoms[x[0]], free))
            inside = tuple(x for x in monomial if not isinstance(self.atoms[x[0]], free))
            parts.setdefault(outside, {})[inside] = coefficient
        return parts

    def is_constant(self, p: Polynomial) -> bool:
        """Whether no symbol occurs, however deep."""
        return not any(self.depends(number) for monomial in p for number, _ in monomial)

    def depends(self, number: int) -> bool:
        atom = self.atoms[number]
        if isinstance(atom, RootAtom):
            return not self.is_constant(dict(atom.radicand))
        return isinstance(atom, (SymbolAtom, AbsoluteAtom, PowerAtom, FunctionAtom))

    def content(self, p: Polynomial) -> Fraction:
        """The positive rational that leaves whole coefficients without a common factor."""
        top = gcd(*(c.numerator for c in p.values()))
        return Fraction(top, lcm(*(c.denominator for c in p.values())))

    def leading(self, p: Polynomial) -> Fraction:
        """The coefficient that decides which of p and -p is taken as positive."""
        return p[min(p)]
