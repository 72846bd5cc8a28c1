"""What stands on both sides of =, <, ≤, ≈ and ∈: a named value, a region, an equation."""

from collections.abc import Callable, Sequence

from ..limits import NotReal, Undefined, Unparsed
from ..reading.trees import (
    Add,
    Call,
    Const,
    Div,
    Expression,
    MinusPlus,
    Neg,
    Node,
    PlusMinus,
    Quantity,
    Relation,
    Sym,
    contains,
    name_of,
    symbols,
)
from ..values import Values, digits_for, is_real, minus, order, real_value
from .equality import ENOUGH, POINTS, Equality
from .regions import LINE, MINUS, PLUS, Cuts, complement, intersection, interval, single, union
from .things import Contradiction, Equation, Inequality, Items, Named, Region, Thing
from .units import units_agree

FLIPPED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤", "≠": "≠"}
EQUALITY = {"=", "≡"}


class Relations:
    """`equal` compares two expressions; `settle` says what kind of thing a side is."""

    def __init__(self, equality: Equality, settle: Callable[[Node], Thing]):
        self.equality = equality
        self.settle = settle

    def relation(self, tree: Relation) -> Thing:
        signs, sides = tree.signs, tree.sides
        if signs[-1] == "≈" and set(signs[:-1]) <= {"="}:
            if not self.near(sides[-2], sides[-1]):
                return Contradiction()
            signs, sides = without_approximation(signs, sides)
            if not signs:
                return self.settle(sides[0])
        if set(signs) <= EQUALITY and all(is_letter_of_choice(side) for side in sides):
            raise Unparsed  # B = C names two choices
        if set(signs) <= EQUALITY:
            return self.equalities(sides)
        if signs == ("∈",):
            return self.membership(*sides)
        if set(signs) <= set(FLIPPED):
            return self.inequalities(signs, sides)
        raise Unparsed

    def near(self, left: Node, right: Node) -> bool:
        """Whether one can be the other, rounded: closer than 1 in 20."""
        if name_of(left) is not None:
            return True
        if not self.same_units((left, right)):
            return False
        a, b = (real_value(plain(side), self.equality.work) for side in (left, right))
        return order(20 * abs(minus(a, b)), abs(a)) < 0

    def membership(self, left: Node, right: Node) -> Thing:
        name = name_of(left)
        if name is None:
            raise Unparsed
        return Named(name, self.settle(right))

    # equations

    def equalities(self, sides: Sequence[Node]) -> Thing:
        if len(sides) == 2 and name_of(sides[0]) is None and name_of(sides[1]) is not None:
            sides = sides[::-1]  # 5 = x
        name = name_of(sides[0])
        if name is not None and not any(occurs(name, side) for side in sides[1:]):
            if self.all_equal(sides[1:]):
                return Named(name, self.settle(sides[1]))
            return Contradiction()
        if self.all_equal(sides):
            return self.settle(sides[0])
        if len(sides) != 2 or not (symbols(sides[0]) or symbols(sides[1])):
            return Contradiction()
        return Equation(plain(sides[0]), plain(sides[1]))

    def same_units(self, sides: Sequence[Node]) -> bool:
        units = [side.units for side in sides if isinstance(side, Quantity)]
        return all(units_agree(units[0], other) for other in units[1:])

    def all_equal(self, sides: Sequence[Node]) -> bool:
        if len(sides) == 1:
            return True
        if any(contains(side, (PlusMinus, MinusPlus)) for side in sides):
            return False
        trees = [without_units(side) for side in sides]
        if not self.same_units(sides):
            return False
        return all(
            isinstance(t, Expression) and self.equality.equal(trees[0], t) for t in trees[1:]
        )

    # inequalities

    def inequalities(self, signs: Sequence[str], sides: Sequence[Node]) -> Thing:
        """0 < x < 3 is 0 < x and x < 3."""
        links = [
            self.inequality(sign, plain(left), plain(right))
            for sign, left, right in zip(signs, sides, sides[1:], strict=False)
        ]
        if len(links) == 1:
            return links[0]
        return self.joined("both", links) or Items(False, tuple(links))

    def joined(self, link: str, things: Sequence[Thing]) -> Thing | None:
        """x < 2 or x > 3; x > 1 and x < 3. A comma means "and", unless nothing would be left."""
        names = {thing.name for thing in things if isinstance(thing, Named)}
        regions = [thing.thing for thing in things if isinstance(thing, Named)]
        cuts = [region.cuts for region in regions if isinstance(region, Region)]
        if len(names) != 1 or len(cuts) != len(things):
            return None
        joined = intersection(*cuts) if link != "either" else ()
        if link == "either" or (link == "list" and not joined):
            joined = union(*cuts)
        return Named(names.pop(), Region(joined))

    def inequality(self, sign: str, left: Node, right: Node) -> Thing:
        """As a region where it is linear in one letter, else with < or ≤."""
        if sign in (">", "≥"):
            sign, left, right = FLIPPED[sign], right, left
        names = symbols(left) | symbols(right)
        if len(names) != 1:
            return Inequality(sign, left, right)
        (name,) = names
        if sign != "≠":
            for size, limit in ((left, right), (right, left)):
                if is_absolute_value(size) and not symbols(limit):
                    return self.absolute(sign, size.args[0], limit, size is left)
        if infinite_sign(left) or infinite_sign(right):
            return Named(name, Region(LINE))  # x < ∞
        cuts = self.linear(sign, left, right, name)
        return Inequality(sign, left, right) if cuts is None else Named(name, Region(cuts))

    def absolute(self, sign: str, inner: Node, limit: Node, inside: bool) -> Thing:
        """|u| < c is -c < u < c; c < |u| is u < -c or c < u."""
        low, high = Neg(limit), limit
        if inside:
            links = [self.inequality(sign, low, inner), self.inequality(sign, inner, high)]
        else:
            links = [self.inequality(sign, inner, low), self.inequality(sign, high, inner)]
        joined = self.joined("both" if inside else "either", links)
        if joined is None:
            raise Unparsed
        return joined

    def linear(self, sign: str, left: Node, right: Node, name: str) -> Cuts | None:
        """The solutions of left < right; None where the difference of the sides is not linear."""
        if any(has_divisor(name, side) for side in (left, right)):
            return None
        try:
            line = self.line(Add((left, Neg(right))), name)
        except (Undefined, NotReal):
            return None
        if line is None:
            return None
        place, rising = line
        if sign == "≠":
            return complement(single(place))
        if rising:
            return interval(MINUS, False, place, sign == "≤")
        return interval(place, sign == "≤", PLUS, False)

    def line(self, formula: Node, name: str) -> tuple | None:
        """Where a formula is zero and whether it rises, if its values lie on one line."""
        bits, found = digits_for(formula), []
        for x in POINTS[: ENOUGH + 2]:
            values = Values(self.equality.work, {name: x}, bits=bits)
            y = values.of(formula)
            if not is_real(y):
                return None
            found.append((x, y.real))
        (x0, y0), (x1, y1) = found[:2]
        slope = minus(y1, y0) / (x1 - x0)
        on_line = (
            values.is_nothing(minus(y, y0 + slope * (x - x0)), values.scale) for x, y in found
        )
        rising = order(y1, y0) * (1 if x1 > x0 else -1)
        if not rising or not all(on_line):
            return None
        return minus(x0, y0 * (1 / slope)), rising > 0


def without_units(tree: Node) -> Node:
    return tree.value if isinstance(tree, Quantity) else tree


def plain(tree: Node) -> Node:
    """An expression without its units."""
    tree = without_units(tree)
    if not isinstance(tree, Expression):
        raise Unparsed
    return tree


def without_approximation(signs: tuple, sides: tuple) -> tuple[tuple, tuple]:
    """\\sqrt{2} ≈ 1.41 says \\sqrt{2}; x ≈ 1.41 says x = 1.41."""
    if name_of(sides[-2]) is not None and len(sides) == 2:
        return ("=",), sides
    return signs[:-1], sides[:-1]


def occurs(name: str, tree: Node) -> bool:
    """Whether a letter, with or without an index, is in the tree."""
    return (len(name) == 1 or name[1:2] == "_") and name in symbols(tree)


def has_divisor(name: str, tree: Node) -> bool:
    """Whether a formula divides by something with this letter in it."""
    if isinstance(tree, Div) and name in symbols(tree.bottom):
        return True
    return any(has_divisor(name, child) for child in tree.children)


def is_letter_of_choice(tree: Node) -> bool:
    return isinstance(tree, Sym) and tree.name in "ABCDEFGHIJ"


def is_absolute_value(tree: Node) -> bool:
    return isinstance(tree, Call) and tree.name == "abs"


def infinite_sign(tree: Node) -> int:
    """1 for an infinity, -1 for its negative, 0 for anything else."""
    match tree:
        case Const("inf"):
            return 1
        case Neg(Const("inf")):
            return -1
    return 0
