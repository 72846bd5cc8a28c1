"""What the products of polynomials.py are made of. Two atoms are one where they are equal here."""

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class PrimeAtom:
    value: int


@dataclass(frozen=True, slots=True)
class SymbolAtom:
    name: str


@dataclass(frozen=True, slots=True)
class ConstantAtom:
    name: str  # pi or e


@dataclass(frozen=True, slots=True)
class ImaginaryAtom:
    pass


@dataclass(frozen=True, slots=True)
class CosineAtom:
    """2 cos(turn pi), which is an algebraic integer."""

    turn: Fraction


@dataclass(frozen=True, slots=True)
class RootAtom:
    """A sum that stands under a root; which root is the exponent of the atom."""

    radicand: frozenset  # of the items of a polynomial


@dataclass(frozen=True, slots=True)
class AbsoluteAtom:
    atom: int  # the number of another atom


@dataclass(frozen=True, slots=True)
class PowerAtom:
    """An atom to a power with symbols in it: 2^x."""

    base: int  # the number of another atom
    exponent: tuple  # a monomial


@dataclass(frozen=True, slots=True)
class FunctionAtom:
    """A function that stays as it is. Of one that is `defined` (sin), two calls may be related in
    ways that are not known here; of the f in f(x) they are not."""

    name: str
    args: tuple  # numerators and denominators as frozensets
    defined: bool = True


Atom = (
    PrimeAtom
    | SymbolAtom
    | ConstantAtom
    | ImaginaryAtom
    | CosineAtom
    | RootAtom
    | AbsoluteAtom
    | PowerAtom
    | FunctionAtom
)
