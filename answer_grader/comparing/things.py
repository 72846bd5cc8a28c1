"""The kinds of things that an answer can be, in a form in which two of a kind can be compared.

Words, TimeOfDay, BaseNumeral and Ratio of the trees are such things as they are. The things in
lists, points and matrices are of any kind again.
"""

from dataclasses import dataclass

from ..reading.trees import BaseNumeral, Node, Ratio, TimeOfDay, Words


@dataclass(frozen=True, slots=True)
class Value:
    """A number or a formula, with units."""

    tree: Node
    units: tuple = ()


@dataclass(frozen=True, slots=True)
class Infinite:
    sign: int


@dataclass(frozen=True, slots=True)
class Items:
    """A list, in no order; with braces a set."""

    braces: bool
    things: tuple["Thing", ...]


@dataclass(frozen=True, slots=True)
class Assignments:
    """x = 1, y = 2: pairs of a name and a thing."""

    pairs: tuple[tuple[str, "Thing"], ...]


@dataclass(frozen=True, slots=True)
class Point:
    """Things in order in brackets: a point, a vector, or an interval between letters."""

    opening: str
    closing: str
    things: tuple["Thing", ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A matrix."""

    rows: tuple[tuple["Thing", ...], ...]


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
    """x = 5, x > 2, f(x) = x^2: a thing and what it is called."""

    name: str
    thing: "Thing"


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


Thing = (
    Value
    | Infinite
    | Items
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
