"""From the tree of an answer to the object that it denotes: math_objects.py lists the kinds."""

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
    sign_choices,
    symbol_names,
    without_degrees,
)
from ..reading.units import CELSIUS, DEGREE, FAHRENHEIT
from ..values import Evaluator, compare_reals, is_real, precision_for, real_value, subtract
from .equality import ENOUGH_POINTS, SAMPLE_VALUES, Equality
from .math_objects import (
    Assignments,
    Collection,
    Equation,
    Inequality,
    Infinity,
    MathObject,
    Named,
    NumberSet,
    Point,
    Region,
    Table,
    Value,
)
from .regions import (
    LINE,
    MINUS_INFINITY,
    PLUS_INFINITY,
    Cuts,
    complement,
    intersection,
    interval,
    single_point,
    union,
)
from .same_units import units_agree

FLIPPED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤", "≠": "≠"}
EQUALITY_SIGNS = {"=", "≡"}
PLUS_MINUS_SIGNS = (PlusMinus, MinusPlus)
NUMBER_CONSTANTS = ("pi", "e", "i")
TEMPERATURE_SCALES = {"C": CELSIUS, "F": FAHRENHEIT, "c": CELSIUS, "f": FAHRENHEIT}


class Interpreter:
    """Turns trees into objects."""

    def __init__(self, equality: Equality):
        self.equality = equality

    def interpret(self, tree: Node) -> MathObject:
        self.equality.budget.spend(3)
        match tree:
            case Expression():
                return self.interpret_expression(tree, ())
            case Quantity(value, units):
                if isinstance(value, Expression):
                    return self.interpret_expression(value, units)
                return self.interpret(value)  # (3, 4) cm is the point (3, 4)
            case Words() | TimeOfDay() | BaseNumeral() | Ratio():
                return tree
            case Relation():
                return self.interpret_relation(tree)
            case Several():
                return self.interpret_several(tree)
            case Braces(items):
                return self.collect([self.interpret(item) for item in items], True)
            case Brackets():
                return self.interpret_brackets(tree)
            case Matrix(rows):
                return Table(tuple(tuple(map(self.interpret, row)) for row in rows))
            case SetOperation():
                return self.interpret_set_operation(tree)
            case Builder(conditions):
                return self.interpret_set_builder(conditions)
        raise Unparsed

    # numbers and formulas

    def interpret_expression(self, tree: Node, units: tuple) -> MathObject:
        match tree:
            case Num() | Sym():
                return Value(tree, units)
            case Const(name) if name not in NUMBER_CONSTANTS:
                return interpret_constant(name)
            case Neg(Const("inf")):
                return Infinity(-1)
            case Add((left, Neg(Braces() | Brackets() | SetOperation() as right))):
                return self.interpret_set_operation(SetOperation("∖", left, right))  # A - {1}
        if contains(tree, (Matrix,)):
            return self.scaled_matrix(tree)
        if contains(tree, (Degrees,), outside_functions=True):
            tree, units = degrees_as_unit(tree, units)
        signed = sign_choices(tree)
        if len(signed) == 1:
            return Value(signed[0], units)
        return self.collect([Value(choice, units) for choice in signed], False)

    def scaled_matrix(self, tree: Node) -> MathObject:
        """A number times a matrix."""
        match tree:
            case Matrix():
                return self.interpret(tree)
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
                    return self.interpret(matrix.with_children(cells))
        raise Unparsed

    # lists, sets and brackets

    def interpret_several(self, tree: Several) -> MathObject:
        objects = [self.interpret(item) for item in tree.items]
        region = self.join_regions(tree.link, objects)
        if region is not None:
            return region
        if tree.link == "either" and self.all_same_value(objects):
            return objects[0]
        return self.collect(objects, False)

    def all_same_value(self, objects: list[MathObject]) -> bool:
        """3/5 or 0.6: the same value, written twice."""
        values = [obj.value if isinstance(obj, Named) else obj for obj in objects]
        trees = [value.tree for value in values if isinstance(value, Value) and not value.units]
        if len(trees) < len(values):
            return False
        return all(self.equality.equal(trees[0], tree) for tree in trees[1:])

    def collect(self, objects: list[MathObject], braces: bool) -> MathObject:
        """A list of objects or, with braces, a set. x = 1, y = 2 are assignments. Of one object
        without braces, the object itself."""
        flat: list[MathObject] = []
        for obj in objects:
            match obj:
                case Named(name, Collection(_, elements)):
                    flat += [Named(name, element) for element in elements]
                case Collection(False, elements):
                    flat += elements
                case _:
                    flat.append(obj)
        named = [(obj.name, obj.value) for obj in flat if isinstance(obj, Named)]
        if len(flat) > 1 and len(dict(named)) == len(flat):
            return Assignments(tuple(named))
        return flat[0] if len(flat) == 1 and not braces else Collection(braces, tuple(flat))

    def interpret_brackets(self, tree: Brackets) -> MathObject:
        rows = rows_of_matrix(tree)
        if rows is not None:
            return self.interpret(Matrix(rows))
        if any(contains(item, PLUS_MINUS_SIGNS) for item in tree.items):
            # (1, ±2) is two points
            signed = (point for point in sign_choices(tree) if isinstance(point, Brackets))
            return Collection(False, tuple(map(self.point_from_brackets, signed)))
        return self.point_from_brackets(tree)

    def point_from_brackets(self, tree: Brackets) -> Point:
        return Point(tree.opening, tree.closing, tuple(map(self.interpret, tree.items)))

    # sets of real numbers

    def as_region(self, obj: MathObject) -> Cuts | None:
        """The cuts of whatever can be read as a set of real numbers."""
        try:
            match obj:
                case Region(cuts):
                    return cuts
                case Named(_, inner):
                    return self.as_region(inner)
                case Point("(" | "[" as opening, ")" | "]" as closing, (low, high)):
                    ends = self.point_on_line(low), self.point_on_line(high)
                    return interval(ends[0], opening == "[", ends[1], closing == "]")
                case Collection(True, elements):
                    points = [single_point(self.point_on_line(element)) for element in elements]
                    return union(*points)
        except (Undefined, Unparsed):
            pass
        return None

    def point_on_line(self, obj: MathObject):
        match obj:
            case Infinity(sign):
                return PLUS_INFINITY if sign == 1 else MINUS_INFINITY
            case Value(tree):
                return real_value(tree, self.equality.budget)
        raise Undefined

    def interpret_set_operation(self, tree: SetOperation) -> MathObject:
        left, right = self.interpret(tree.left), self.interpret(tree.right)
        a, b = self.as_region(left), self.as_region(right)
        if a is None or b is None:
            raise Unparsed  # between letters the intervals may lie anywhere
        if tree.sign == "∪":
            return Region(union(a, b))
        return Region(intersection(a, complement(b) if tree.sign == "∖" else b))

    def interpret_set_builder(self, conditions: Sequence[Node]) -> MathObject:
        """{x | x > 0, x < 3}: all that fulfil the conditions."""
        alone = len(conditions) == 1
        obj = self.interpret(conditions[0] if alone else Several("both", tuple(conditions)))
        return obj.value if isinstance(obj, Named) else obj

    # what stands on both sides of =, <, ≤, ≈ and ∈: a named value, a region, an equation

    def interpret_relation(self, tree: Relation) -> MathObject:
        signs, sides = tree.signs, tree.sides
        if signs[-1] == "≈" and set(signs[:-1]) <= {"="}:
            if not self.could_be_rounded(sides[-2], sides[-1]):
                raise Undefined  # 18 = 17 is equal to nothing, itself included
            signs, sides = without_approximation(signs, sides)
            if not signs:
                return self.interpret(sides[0])
        if set(signs) <= EQUALITY_SIGNS and all(is_choice_letter(side) for side in sides):
            raise Unparsed  # B = C names two choices
        if set(signs) <= EQUALITY_SIGNS:
            return self.interpret_equation(sides)
        if signs == ("∈",):
            return self.interpret_membership(*sides)
        if set(signs) <= set(FLIPPED):
            return self.interpret_inequalities(signs, sides)
        raise Unparsed

    def could_be_rounded(self, left: Node, right: Node) -> bool:
        """Whether one can be the other, rounded: closer than 1 in 20."""
        if name_of(left) is not None:
            return True
        if not self.have_compatible_units((left, right)):
            return False
        a, b = (real_value(bare_expression(side), self.equality.budget) for side in (left, right))
        return compare_reals(20 * abs(subtract(a, b)), abs(a)) < 0

    def interpret_membership(self, left: Node, right: Node) -> MathObject:
        name = name_of(left)
        if name is None:
            raise Unparsed
        return Named(name, self.interpret(right))

    # equations

    def interpret_equation(self, sides: Sequence[Node]) -> MathObject:
        if len(sides) == 2 and name_of(sides[0]) is None and name_of(sides[1]) is not None:
            sides = sides[::-1]  # 5 = x
        name = name_of(sides[0])
        if name is not None and not any(letter_occurs(name, side) for side in sides[1:]):
            if self.all_equal(sides[1:]):
                return Named(name, self.interpret(sides[1]))
            raise Undefined  # 18 = 17 is equal to nothing, itself included
        if self.all_equal(sides):
            return self.interpret(sides[0])
        if len(sides) != 2 or not (symbol_names(sides[0]) or symbol_names(sides[1])):
            raise Undefined  # 18 = 17 is equal to nothing, itself included
        return Equation(bare_expression(sides[0]), bare_expression(sides[1]))

    def have_compatible_units(self, sides: Sequence[Node]) -> bool:
        units = [side.units for side in sides if isinstance(side, Quantity)]
        return all(units_agree(units[0], other) for other in units[1:])

    def all_equal(self, sides: Sequence[Node]) -> bool:
        if len(sides) == 1:
            return True
        if any(contains(side, PLUS_MINUS_SIGNS) for side in sides):
            return False
        trees = [without_units(side) for side in sides]
        if not self.have_compatible_units(sides):
            return False
        return all(
            isinstance(t, Expression) and self.equality.equal(trees[0], t) for t in trees[1:]
        )

    # inequalities

    def interpret_inequalities(self, signs: Sequence[str], sides: Sequence[Node]) -> MathObject:
        """0 < x < 3 is 0 < x and x < 3."""
        parts = [
            self.interpret_inequality(sign, bare_expression(left), bare_expression(right))
            for sign, left, right in zip(signs, sides, sides[1:], strict=False)
        ]
        if len(parts) == 1:
            return parts[0]
        return self.join_regions("both", parts) or Collection(False, tuple(parts))

    def join_regions(self, link: str, objects: Sequence[MathObject]) -> MathObject | None:
        """x < 2 or x > 3; x > 1 and x < 3. A comma means "and", unless nothing would be left."""
        names = {obj.name for obj in objects if isinstance(obj, Named)}
        regions = [obj.value for obj in objects if isinstance(obj, Named)]
        cuts = [region.cuts for region in regions if isinstance(region, Region)]
        if len(names) != 1 or len(cuts) != len(objects):
            return None
        combined = intersection(*cuts) if link != "either" else ()
        if link == "either" or (link == "list" and not combined):
            combined = union(*cuts)
        return Named(names.pop(), Region(combined))

    def interpret_inequality(self, sign: str, left: Node, right: Node) -> MathObject:
        """As a region where it is linear in one letter, else with < or ≤."""
        if sign in (">", "≥"):
            sign, left, right = FLIPPED[sign], right, left
        names = symbol_names(left) | symbol_names(right)
        if len(names) != 1:
            return Inequality(sign, left, right)
        (name,) = names
        if sign != "≠":
            for size, limit in ((left, right), (right, left)):
                if is_absolute_value(size) and not symbol_names(limit):
                    return self.absolute_value(sign, size.args[0], limit, size is left)
        if infinite_sign(left) or infinite_sign(right):
            return Named(name, Region(LINE))  # x < ∞
        cuts = self.solve_linear_inequality(sign, left, right, name)
        return Inequality(sign, left, right) if cuts is None else Named(name, Region(cuts))

    def absolute_value(self, sign: str, inner: Node, limit: Node, inside: bool) -> MathObject:
        """|u| < c is -c < u < c; c < |u| is u < -c or c < u."""
        low, high = Neg(limit), limit
        pairs = [(low, inner), (inner, high)] if inside else [(inner, low), (high, inner)]
        bounds = [self.interpret_inequality(sign, left, right) for left, right in pairs]
        combined = self.join_regions("both" if inside else "either", bounds)
        if combined is None:
            raise Unparsed
        return combined

    def solve_linear_inequality(self, sign: str, left: Node, right: Node, name: str) -> Cuts | None:
        """The solutions of left < right; None where the difference of the sides is not linear."""
        if any(has_divisor(name, side) for side in (left, right)):
            return None
        try:
            line = self.zero_and_direction(Add((left, Neg(right))), name)
        except (Undefined, NotReal):
            return None
        if line is None:
            return None
        zero, rising = line
        if sign == "≠":
            return complement(single_point(zero))
        if rising:
            return interval(MINUS_INFINITY, False, zero, sign == "≤")
        return interval(zero, sign == "≤", PLUS_INFINITY, False)

    def zero_and_direction(self, formula: Node, name: str) -> tuple | None:
        """Where a formula is zero and whether it rises, if its values lie on one line."""
        bits, points = precision_for(formula), []
        for x in SAMPLE_VALUES[: ENOUGH_POINTS + 2]:
            evaluator = Evaluator(self.equality.budget, {name: x}, bits=bits)
            y = evaluator.evaluate(formula)
            if not is_real(y):
                return None
            points.append((x, y.real))
        (x0, y0), (x1, y1) = points[:2]
        slope = subtract(y1, y0) / (x1 - x0)
        on_line = (
            evaluator.is_rounding_error(
                subtract(y, y0 + slope * (x - x0)),
                max(evaluator.log2_size(y), evaluator.log2_size(y0)),
            )
            for x, y in points
        )
        rising = compare_reals(y1, y0) * (1 if x1 > x0 else -1)
        if not rising or not all(on_line):
            return None
        return subtract(x0, y0 * (1 / slope)), rising > 0


def interpret_constant(name: str) -> MathObject:
    match name:
        case "inf":
            return Infinity(1)
        case "empty":
            return Collection(True, ())
        case "reals":
            return Region(LINE)
    return NumberSet(name)


def degrees_as_unit(tree: Node, units: tuple) -> tuple[Node, tuple]:
    """5^\\circ is 5 with the unit degree; 5^\\circ C is a temperature."""
    match tree:
        case Mul((Degrees(inner), Sym("C" | "F" as letter))):
            return inner, ((TEMPERATURE_SCALES[letter], 1),)
    for unit, _ in units:
        if unit.kind == "noun" and unit.name in TEMPERATURE_SCALES:
            return without_degrees(tree), ((TEMPERATURE_SCALES[unit.name], 1),)
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


def bare_expression(tree: Node) -> Node:
    """A side without its units; Unparsed unless it is an expression."""
    tree = without_units(tree)
    if not isinstance(tree, Expression):
        raise Unparsed
    return tree


def without_approximation(signs: tuple, sides: tuple) -> tuple[tuple, tuple]:
    """\\sqrt{2} ≈ 1.41 says \\sqrt{2}; x ≈ 1.41 says x = 1.41."""
    if name_of(sides[-2]) is not None and len(sides) == 2:
        return ("=",), sides
    return signs[:-1], sides[:-1]


def letter_occurs(name: str, tree: Node) -> bool:
    """Whether a letter, with or without an index, is in the tree."""
    return (len(name) == 1 or name[1:2] == "_") and name in symbol_names(tree)


def has_divisor(name: str, tree: Node) -> bool:
    """Whether a formula divides by something with this letter in it."""
    if isinstance(tree, Div) and name in symbol_names(tree.bottom):
        return True
    return any(has_divisor(name, child) for child in tree.children)


def is_choice_letter(tree: Node) -> bool:
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
