"""The mathematical objects that an answer can denote, in a form in which two can be compared.

Words, TimeOfDay, BaseNumeral and Ratio of the trees are such objects as they are. The elements of
lists, points and matrices are objects of any kind again.
"""

from dataclasses import dataclass

from ..reading.trees import BaseNumeral, Node, Ratio, TimeOfDay, Words


@dataclass(frozen=True, slots=True)
class Value:
    """A number or a formula, with units."""

    tree: Node
    units: tuple = ()


@dataclass(frozen=True, slots=True)
class Infinity:
    sign: int


@dataclass(frozen=True, slots=True)
class Collection:
    """A list, in no order; with braces a set."""

    braces: bool
    elements: tuple["MathObject", ...]


@dataclass(frozen=True, slots=True)
class Assignments:
    """x = 1, y = 2: pairs of a name and an object."""

    pairs: tuple[tuple[str, "MathObject"], ...]


@dataclass(frozen=True, slots=True)
class Point:
    """Objects in order in brackets: a point, a vector, or an interval between letters."""

    opening: str
    closing: str
    elements: tuple["MathObject", ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A matrix."""

    rows: tuple[tuple["MathObject", ...], ...]


@dataclass(frozen=True, slots=True)
class Region:
    """A set of real numbers, as the cuts of regions.py."""

    cuts: tuple


@dataclass(frozen=True, slots=True)
class NumberSet:
    """The integers, the rationals, ..."""

    name: str


@dataclass(frozen=True, slots=True)
class Named:
    """x = 5, x > 2, f(x) = x^2: an object with a name."""

    name: str
    value: "MathObject"


@dataclass(frozen=True, slots=True)
class Equation:
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Inequality:
    """With "<", "≤" or "≠"."""

    sign: str
    left: Node
    right: Node


MathObject = (
    Value
    | Infinity
    | Collection
    | Assignments
    | Point
    | Table
    | Region
    | NumberSet
    | Named
    | Equation
    | Inequality
    | Words
    | TimeOfDay
    | BaseNumeral
    | Ratio
)
