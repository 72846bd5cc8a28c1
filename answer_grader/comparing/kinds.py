"""From the tree of an answer to the thing it is: things.py lists the kinds."""

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeGuard

from ..limits import NotReal, Undefined, Unparsed
from ..reading.trees import (
    Add,
    BaseNumeral,
    Braces,
    Brackets,
    Builder,
    Call,
    Const,
    Degrees,
    Div,
    Expression,
    Matrix,
    MinusPlus,
    Mul,
    Neg,
    Node,
    Num,
    PlusMinus,
    Quantity,
    Ratio,
    Relation,
    SetOperation,
    Several,
    Sym,
    TimeOfDay,
    Words,
    contains,
    name_of,
    symbols,
    with_signs,
    without_degrees,
)
from ..reading.units import CELSIUS, DEGREE, FAHRENHEIT
from ..values import Values, digits_for, is_real, minus, order, real_value
from .equality import ENOUGH, POINTS, Equality
from .regions import LINE, MINUS, PLUS, Cuts, complement, intersection, interval, single, union
from .same_units import units_agree
from .things import (
    Assignments,
    Equation,
    Inequality,
    Infinite,
    Items,
    Named,
    NumberSet,
    Point,
    Region,
    Table,
    Thing,
    Value,
)

FLIPPED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤", "≠": "≠"}
EQUALITY = {"=", "≡"}
SIGNS = (PlusMinus, MinusPlus)
NUMBERS = ("pi", "e", "i")
SCALES = {"C": CELSIUS, "F": FAHRENHEIT, "c": CELSIUS, "f": FAHRENHEIT}


class Kinds:
    """Settles trees."""

    def __init__(self, equality: Equality):
        self.equality = equality

    def settle(self, tree: Node) -> Thing:
        self.equality.work.spend(3)
        match tree:
            case Expression():
                return self.expression(tree, ())
            case Quantity(value, units):
                # (3, 4) cm is the point (3, 4)
                is_one = isinstance(value, Expression)
                return self.expression(value, units) if is_one else self.settle(value)
            case Words() | TimeOfDay() | BaseNumeral() | Ratio():
                return tree
            case Relation():
                return self.relation(tree)
            case Several():
                return self.several(tree)
            case Braces(items):
                return self.unordered([self.settle(item) for item in items], True)
            case Brackets():
                return self.bracketed(tree)
            case Matrix(rows):
                return Table(tuple(tuple(map(self.settle, row)) for row in rows))
            case SetOperation():
                return self.set_operation(tree)
            case Builder(conditions):
                return self.built(conditions)
        raise Unparsed

    # numbers and formulas

    def expression(self, tree: Node, units: tuple) -> Thing:
        match tree:
            case Num() | Sym():
                return Value(tree, units)
            case Const(name) if name not in NUMBERS:
                return constant_set(name)
            case Neg(Const("inf")):
                return Infinite(-1)
            case Add((left, Neg(Braces() | Brackets() | SetOperation() as right))):
                return self.set_operation(SetOperation("∖", left, right))  # A - {1}
        if contains(tree, (Matrix,)):
            return self.scaled_matrix(tree)
        if contains(tree, (Degrees,), outside_functions=True):
            tree, units = degrees(tree, units)
        signed = with_signs(tree)
        if len(signed) == 1:
            return Value(signed[0], units)
        return self.unordered([Value(one, units) for one in signed], False)

    def scaled_matrix(self, tree: Node) -> Thing:
        """A number times a matrix."""
        match tree:
            case Matrix():
                return self.settle(tree)
            case Neg(inner):
                return self.scaled_matrix(Mul((Num(Fraction(-1)), inner)))
            case Div(top, bottom):
                return self.scaled_matrix(Mul((Div(Num(Fraction(1)), bottom), top)))
            case Mul(factors):
                matrices = [factor for factor in factors if isinstance(factor, Matrix)]
                numbers = tuple(factor for factor in factors if not isinstance(factor, Matrix))
                if len(matrices) == 1 and not any(contains(n, (Matrix,)) for n in numbers):
                    (matrix,) = matrices
                    cells = [Mul((*numbers, cell)) for cell in matrix.children]
                    return self.settle(matrix.rebuilt(cells))
        raise Unparsed

    # lists, sets and brackets

    def several(self, tree: Several) -> Thing:
        things = [self.settle(item) for item in tree.items]
        region = self.joined(tree.link, things)
        if region is not None:
            return region
        if tree.link == "either" and self.one_value(things):
            return things[0]
        return self.unordered(things, False)

    def one_value(self, things: list[Thing]) -> bool:
        """3/5 or 0.6: the same value, said twice."""
        values = [thing.thing if isinstance(thing, Named) else thing for thing in things]
        trees = [value.tree for value in values if isinstance(value, Value) and not value.units]
        if len(trees) < len(values):
            return False
        return all(self.equality.equal(trees[0], tree) for tree in trees[1:])

    def unordered(self, things: list[Thing], braces: bool) -> Thing:
        """A list of things; x = 1, y = 2 are assignments; of one thing without braces, itself."""
        flat: list[Thing] = []
        for thing in things:
            match thing:
                case Named(name, Items(_, inner)):
                    flat += [Named(name, one) for one in inner]
                case Items(False, inner):
                    flat += inner
                case _:
                    flat.append(thing)
        named = [(thing.name, thing.thing) for thing in flat if isinstance(thing, Named)]
        if len(flat) > 1 and len(dict(named)) == len(flat):
            return Assignments(tuple(named))
        return flat[0] if len(flat) == 1 and not braces else Items(braces, tuple(flat))

    def bracketed(self, tree: Brackets) -> Thing:
        rows = rows_of_matrix(tree)
        if rows is not None:
            return self.settle(Matrix(rows))
        if any(contains(item, SIGNS) for item in tree.items):
            # (1, ±2) is two points
            signed = (one for one in with_signs(tree) if isinstance(one, Brackets))
            return Items(False, tuple(map(self.point, signed)))
        return self.point(tree)

    def point(self, tree: Brackets) -> Point:
        return Point(tree.opening, tree.closing, tuple(map(self.settle, tree.items)))

    # sets of real numbers

    def region_of(self, thing: Thing) -> Cuts | None:
        """The cuts of whatever can be read as a set of real numbers."""
        try:
            match thing:
                case Region(cuts):
                    return cuts
                case Named(_, inner):
                    return self.region_of(inner)
                case Point("(" | "[" as opening, ")" | "]" as closing, (low, high)):
                    ends = self.place(low), self.place(high)
                    return interval(ends[0], opening == "[", ends[1], closing == "]")
                case Items(True, things):
                    points = [single(self.place(one)) for one in things]
                    return union(*points)
        except (Undefined, Unparsed):
            pass
        return None

    def place(self, thing: Thing):
        match thing:
            case Infinite(sign):
                return PLUS if sign == 1 else MINUS
            case Value(tree):
                return real_value(tree, self.equality.work)
        raise Undefined

    def set_operation(self, tree: SetOperation) -> Thing:
        left, right = self.settle(tree.left), self.settle(tree.right)
        a, b = self.region_of(left), self.region_of(right)
        if a is None or b is None:
            raise Unparsed  # between letters the intervals may lie anywhere
        if tree.sign == "∪":
            return Region(union(a, b))
        return Region(intersection(a, complement(b) if tree.sign == "∖" else b))

    def built(self, conditions: Sequence[Node]) -> Thing:
        """{x | x > 0, x < 3}: all that fulfil the conditions."""
        alone = len(conditions) == 1
        thing = self.settle(conditions[0] if alone else Several("both", tuple(conditions)))
        return thing.thing if isinstance(thing, Named) else thing

    # what stands on both sides of =, <, ≤, ≈ and ∈: a named value, a region, an equation

    def relation(self, tree: Relation) -> Thing:
        signs, sides = tree.signs, tree.sides
        if signs[-1] == "≈" and set(signs[:-1]) <= {"="}:
            if not self.near(sides[-2], sides[-1]):
                raise Undefined  # 18 = 17 is equal to nothing, itself included
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
            raise Undefined  # 18 = 17 is equal to nothing, itself included
        if self.all_equal(sides):
            return self.settle(sides[0])
        if len(sides) != 2 or not (symbols(sides[0]) or symbols(sides[1])):
            raise Undefined  # 18 = 17 is equal to nothing, itself included
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
        bits, points = digits_for(formula), []
        for x in POINTS[: ENOUGH + 2]:
            values = Values(self.equality.work, {name: x}, bits=bits)
            y = values.of(formula)
            if not is_real(y):
                return None
            points.append((x, y.real))
        (x0, y0), (x1, y1) = points[:2]
        slope = minus(y1, y0) / (x1 - x0)
        on_line = (
            values.is_nothing(minus(y, y0 + slope * (x - x0)), max(values.size(y), values.size(y0)))
            for x, y in points
        )
        rising = order(y1, y0) * (1 if x1 > x0 else -1)
        if not rising or not all(on_line):
            return None
        return minus(x0, y0 * (1 / slope)), rising > 0


def constant_set(name: str) -> Thing:
    match name:
        case "inf":
            return Infinite(1)
        case "empty":
            return Items(True, ())
        case "reals":
            return Region(LINE)
    return NumberSet(name)


def degrees(tree: Node, units: tuple) -> tuple[Node, tuple]:
    """5^\\circ is 5 with the unit degree; 5^\\circ C is a temperature."""
    match tree:
        case Mul((Degrees(inner), Sym("C" | "F" as letter))):
            return inner, ((SCALES[letter], 1),)
    for unit, _ in units:
        if unit.kind == "noun" and unit.name in SCALES:
            return without_degrees(tree), ((SCALES[unit.name], 1),)
    return without_degrees(tree), units or ((DEGREE, 1),)


def rows_of_matrix(tree: Brackets) -> tuple | None:
    """[[1, 2], [3, 4]] is a matrix."""
    rows = [item for item in tree.items if isinstance(item, Brackets)]
    square = all((row.opening, row.closing) == ("[", "]") for row in rows)
    if tree.opening != "[" or not square or len(rows) != len(tree.items):
        return None
    if len({len(row.items) for row in rows}) != 1:
        return None
    return tuple(row.items for row in rows)


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


def is_absolute_value(tree: Node) -> TypeGuard[Call]:
    return isinstance(tree, Call) and tree.name == "abs"


def infinite_sign(tree: Node) -> int:
    """1 for an infinity, -1 for its negative, 0 for anything else."""
    match tree:
        case Const("inf"):
            return 1
        case Neg(Const("inf")):
            return -1
    return 0
