"""From the tree of an answer to the thing it is: things.py lists the kinds."""

from collections.abc import Sequence
from fractions import Fraction

from ..limits import Undefined, Unparsed
from ..reading.trees import (
    Add,
    BaseNumeral,
    Braces,
    Brackets,
    Builder,
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
    with_signs,
    without_degrees,
)
from ..reading.units import CELSIUS, DEGREE, FAHRENHEIT
from ..values import real_value
from .equality import Equality
from .regions import LINE, MINUS, PLUS, Cuts, complement, intersection, interval, single, union
from .relations import Relations
from .things import (
    Assignments,
    Infinite,
    Items,
    Named,
    NumberSet,
    Pieces,
    Point,
    Region,
    Table,
    Thing,
    Value,
)

SIGNS = (PlusMinus, MinusPlus)
NUMBERS = ("pi", "e", "i")
SCALES = {"C": CELSIUS, "F": FAHRENHEIT, "c": CELSIUS, "f": FAHRENHEIT}


class Kinds:
    """Settles trees."""

    def __init__(self, equality: Equality):
        self.equality = equality
        self.relations = Relations(equality, self.settle)

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
                return self.relations.relation(tree)
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
        region = self.relations.joined(tree.link, things)
        if region is not None:
            return region
        if tree.link == "either" and self.one_value(things):
            return things[0]
        return self.unordered(things, False)

    def one_value(self, things: list[Thing]) -> bool:
        """3/5 or 0.6: the same value, said twice."""
        values = [thing.thing if isinstance(thing, Named) else thing for thing in things]
        if any(not isinstance(value, Value) or value.units for value in values):
            return False
        return all(self.equality.equal(values[0].tree, value.tree) for value in values[1:])

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
            return Items(False, tuple(self.point(one) for one in with_signs(tree)))
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
        """Of intervals between letters, a bag of pieces."""
        left, right = self.settle(tree.left), self.settle(tree.right)
        a, b = self.region_of(left), self.region_of(right)
        if a is None or b is None:
            return pieces(tree.sign, left, right)
        if tree.sign == "∪":
            return Region(union(a, b))
        return Region(intersection(a, complement(b) if tree.sign == "∖" else b))

    def built(self, conditions: Sequence[Node]) -> Thing:
        """{x | x > 0, x < 3}: all that fulfil the conditions."""
        alone = len(conditions) == 1
        thing = self.settle(conditions[0] if alone else Several("both", tuple(conditions)))
        return thing.thing if isinstance(thing, Named) else thing


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


def pieces(sign: str, left: Thing, right: Thing) -> Pieces:
    """A ∪ B ∪ C is one bag of three; a difference has its order."""
    found: list[Thing] = []
    for thing in (left, right):
        nested = isinstance(thing, Pieces) and thing.sign == sign != "∖"
        found += thing.things if nested else (thing,)
    return Pieces(sign, tuple(found))
