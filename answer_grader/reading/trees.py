"""The tree of an answer: what reading makes of a text, and what values and comparing work on.

An Expression is a number or a formula. The other nodes put expressions together: lists, sets,
intervals, equations, quantities. Nodes are equal when they were read from the same notation, not
when they mean the same: that is decided in comparing/.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import TypeGuard

from ..limits import TooBig

MAX_SIGNS = 16  # ways of choosing the signs of one answer


@dataclass(frozen=True, slots=True)
class Node:
    @property
    def children(self) -> tuple["Node", ...]:
        """The nodes right below, in the order of the fields that hold them or tuples of them."""
        nodes: list[Node] = []
        fields: tuple[str, ...] = self.__match_args__  # of the node's own class
        for name in fields:
            value = getattr(self, name)
            if isinstance(value, Node):
                nodes.append(value)
            elif type(value) is tuple:
                nodes += [item for item in value if isinstance(item, Node)]
        return tuple(nodes)

    def with_children(self, children: Sequence["Node"]) -> "Node":
        """The same node over other children."""
        fields: tuple[str, ...] = self.__match_args__
        values, rest = [], iter(children)
        for name in fields:
            value = getattr(self, name)
            if isinstance(value, Node):
                value = next(rest)
            elif type(value) is tuple:
                value = tuple(next(rest) if isinstance(item, Node) else item for item in value)
            values.append(value)
        return type(self)(*values)


@dataclass(frozen=True, slots=True)
class Expression(Node):
    """A number or a formula."""


@dataclass(frozen=True, slots=True)
class Listed(Node):
    """Base of the nodes that have only a tuple of children."""

    items: tuple[Node, ...]


# ---- expressions


@dataclass(frozen=True, slots=True)
class Num(Expression):
    value: Fraction

    def __hash__(self):
        # The hash of a Fraction must agree with those of ints and floats, which takes time.
        return hash((self.value.numerator, self.value.denominator))


@dataclass(frozen=True, slots=True)
class Sym(Expression):
    name: str


@dataclass(frozen=True, slots=True)
class Const(Expression):
    """pi, e, i; inf; the sets empty, reals, integers, naturals, rationals, complexes."""

    name: str


class Add(Listed, Expression):
    __slots__ = ()


class Mul(Listed, Expression):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Div(Expression):
    top: Node
    bottom: Node


@dataclass(frozen=True, slots=True)
class Pow(Expression):
    base: Node
    exponent: Node


@dataclass(frozen=True, slots=True)
class Root(Expression):
    inner: Node
    degree: Node


@dataclass(frozen=True, slots=True)
class Wrapped(Expression):
    """Base of the expressions with one child."""

    inner: Node


class Neg(Wrapped):
    __slots__ = ()


class PlusMinus(Wrapped):
    __slots__ = ()


class MinusPlus(Wrapped):
    """The sign ∓: minus where every ± is plus."""

    __slots__ = ()


class Degrees(Wrapped):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Applied(Expression):
    """Base of the functions."""

    name: str
    args: tuple[Node, ...]


class Call(Applied):
    """A known function: sin, ln, gcd, fact, det."""

    __slots__ = ()


class Unknown(Applied):
    """A function that nobody has defined, as f in f(x), or a mark as the bar of a conjugate."""

    __slots__ = ()


# ---- nodes made of expressions


class Braces(Listed):
    """A set by its elements: {1, 2}."""

    __slots__ = ()


class Builder(Listed):
    """A set by its conditions: {x | x > 0, x < 3}."""

    __slots__ = ()


class Ratio(Listed):
    """3:4 or 1:2:3."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Brackets(Node):
    """A point, a vector, an interval: (1, 2], ⟨1, 2⟩. The brackets are "(", "[" or "⟨"."""

    opening: str
    closing: str
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Matrix(Node):
    rows: tuple[tuple[Node, ...], ...]

    @property
    def children(self):
        return tuple(cell for row in self.rows for cell in row)

    def with_children(self, children):
        width = len(self.rows[0])
        starts = range(0, len(children), width)
        return Matrix(tuple(tuple(children[i : i + width]) for i in starts))


@dataclass(frozen=True, slots=True)
class Several(Node):
    """Statements between commas ("list"), with "and" ("both") or with "or" ("either")."""

    link: str
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Relation(Node):
    """1 < x ≤ 2 has the signs "<", "≤" and three sides."""

    signs: tuple[str, ...]
    sides: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class SetOperation(Node):
    """A union ("∪"), an intersection ("∩") or a difference ("∖")."""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Quantity(Node):
    """A value with units, which are pairs of a Unit and its power."""

    value: Node
    units: tuple


@dataclass(frozen=True, slots=True)
class TimeOfDay(Node):
    """A time of the day; `half` is "am", "pm" or, where none is named, None."""

    hour: int
    minute: int
    half: str | None


@dataclass(frozen=True, slots=True)
class BaseNumeral(Node):
    """Digits with a base: 101_2."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Words(Node):
    """An answer in words, in the form in which words.py compares them."""

    key: str


# ---- questions about trees, and rewriting them


def contains(tree: Node, kinds: tuple[type, ...], outside_functions: bool = False) -> bool:
    """Whether a node of one of these kinds is in the tree."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, kinds):
            return True
        if not (outside_functions and isinstance(node, Applied)):
            stack += node.children
    return False


def symbol_names(tree: Node) -> set[str]:
    """The names of all symbols."""
    names, stack = set(), [tree]
    while stack:
        node = stack.pop()
        if type(node) is Sym:
            names.add(node.name)
        elif type(node) is not Num:
            stack += node.children
    return names


def rational(tree: Node) -> Fraction | None:
    """The value of a tree of plain numbers, None for any other."""
    match tree:
        case Num(value):
            return value
        case Neg(inner):
            value = rational(inner)
            return None if value is None else -value
        case Div(top, bottom):
            a, b = rational(top), rational(bottom)
            return a / b if a is not None and b else None
    return None


def is_whole_number(tree: Node) -> TypeGuard[Num]:
    return isinstance(tree, Num) and tree.value.denominator == 1


def without_degrees(tree: Node) -> Node:
    if isinstance(tree, Degrees):
        return without_degrees(tree.inner)
    if isinstance(tree, Applied) or not contains(tree, (Degrees,)):
        return tree
    return tree.with_children([without_degrees(child) for child in tree.children])


def sign_choices(tree: Node) -> list[Node]:
    """The trees that a tree with plus-minus signs stands for. Each ± is free, unless there is a ∓,
    which ties all of them together."""
    count = number_of_signs(tree)
    if count == 0:
        return [tree]
    if contains(tree, (MinusPlus,)):
        choices = [(1,) * count, (-1,) * count]
    elif 2**count > MAX_SIGNS:
        raise TooBig
    else:
        choices = list(product((1, -1), repeat=count))
    return [with_chosen_signs(tree, iter(signs)) for signs in choices]


def number_of_signs(tree: Node) -> int:
    return isinstance(tree, (PlusMinus, MinusPlus)) + sum(map(number_of_signs, tree.children))


def with_chosen_signs(tree: Node, signs: Iterator[int]) -> Node:
    """The tree with one sign for each ±, and its opposite for each ∓."""
    if not isinstance(tree, (PlusMinus, MinusPlus)):
        return tree.with_children([with_chosen_signs(child, signs) for child in tree.children])
    minus = (next(signs) == 1) == isinstance(tree, MinusPlus)
    inner = with_chosen_signs(tree.inner, signs)
    return Neg(inner) if minus else inner


def name_of(tree: Node) -> str | None:
    """What may stand left of "= 5" and be left out: x, f(x), x_1, AB, angle ABC, (x, y)."""
    match tree:
        case Sym(name):
            return name
        case Unknown(name):
            return f"{name}({','.join(sorted(symbol_names(tree)))})"
        case Call("abs", (inner,)):
            name = name_of(inner)  # |AB| is a length as AB is, |x| is not x
            return name if name and len(name) > 1 else None
        case Div(Mul((Sym("d"), Sym(top))), Mul((Sym("d"), Sym(bottom)))):
            return f"d{top}/d{bottom}"
        case Mul(items) | Brackets(items=items):
            names = [item.name for item in items if isinstance(item, Sym)]
            if len(names) == len(items):
                return name_of_product(names) if type(tree) is Mul else f"({','.join(names)})"
    return None


def name_of_product(names: list[str]) -> str | None:
    """Points written together, AB; the measure of an angle, m∠ABC."""
    if len(names) == 2 and names[0] == "m" and names[1].startswith("angle"):
        return names[1]
    return "".join(names) if all(len(n) == 1 and n.isupper() for n in names) else None
