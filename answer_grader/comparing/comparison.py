"""Compares two answers: a rule for each pair of kinds of objects."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations

from ..limits import Budget, NotReal, Undefined, Unparsed
from ..reading.statements import Answer
from ..reading.trees import (
    Add,
    BaseNumeral,
    Const,
    Div,
    Mul,
    Neg,
    Node,
    Num,
    Ratio,
    Sym,
    TimeOfDay,
    Words,
    is_whole_number,
    symbol_names,
)
from .equality import Equality, as_single_fraction
from .interpreter import Interpreter
from .math_objects import (
    Assignments,
    Collection,
    Equation,
    Inequality,
    MathObject,
    Named,
    Point,
    Region,
    Table,
    Value,
)
from .regions import same_region
from .same_units import in_common_unit, units_agree, with_letter_unit

MAX_PAIRS = 2_500  # elements of one list times elements of the other
ROUND_OR_ANGLE = {("(", ")"), ("⟨", "⟩")}


def same_answer(a: Answer, b: Answer) -> bool:
    return Comparison(Budget()).same_answers(a, b)


class Comparison:
    """One comparison of two answers, with its own budget."""

    def __init__(self, budget: Budget):
        self.budget = budget
        self.equality = Equality(budget)
        self.interpreter = Interpreter(self.equality)

    def equal_formulas(self, a: Node, b: Node) -> bool:
        """Two expressions; an undefined one equals nothing."""
        try:
            return self.equality.equal(a, b)
        except (Undefined, NotReal, Unparsed):
            return False

    def same_answers(self, a: Answer, b: Answer) -> bool:
        if isinstance(a.tree, Words) and isinstance(b.tree, Words):
            return a.tree == b.tree
        for x, y in ((a, b), (b, a)):
            if isinstance(x.tree, BaseNumeral) and y.phrase == x.tree.digits.lower():
                return True  # A3_{16} and A3
        for x, y in ((a, b), (b, a)):
            if isinstance(x.tree, Words):
                return x.tree.key == y.phrase  # \text{AB} and AB
        if a.tree == b.tree:
            return True
        try:
            return self.same_objects(self.interpret(a.tree), self.interpret(b.tree))
        except (Undefined, NotReal, Unparsed):
            return False

    def interpret(self, tree: Node) -> MathObject:
        """{5} is 5, {(1, 2)} is (1, 2)."""
        obj = self.interpreter.interpret(tree)
        match obj:
            case Collection(True, (Value() | Point() | Named() as single,)):
                return single
        return obj

    def same_objects(self, a: MathObject, b: MathObject) -> bool:
        self.budget.spend(2)
        if compare := COMPARISONS.get((type(a), type(b))):
            return compare(self, a, b)
        if compare := COMPARISONS.get((type(b), type(a))):
            return compare(self, b, a)
        if isinstance(a, Named):
            return self.same_objects(a.value, b)
        if isinstance(b, Named):
            return self.same_objects(a, b.value)
        if isinstance(a, Region) or isinstance(b, Region):
            return self.same_as_regions(a, b)
        return type(a) is type(b) and a == b

    # numbers and formulas

    def same_values(self, a: Value, b: Value) -> bool:
        for bare, other in ((a, b), (b, a)):
            if other.units and not bare.units:
                bare = with_letter_unit(bare, other.units)
                if bare.units:
                    return self.equal_formulas(bare.tree, other.tree)
        if units_agree(a.units, b.units) and self.equal_formulas(a.tree, b.tree):
            return True
        converted = in_common_unit(a, b)
        return converted is not None and self.equal_formulas(*converted)

    def same_times(self, a: TimeOfDay, b: TimeOfDay) -> bool:
        """3:30 may lack its half of the day; 15:30 is 3:30 p.m."""
        if a.minute != b.minute:
            return False
        if (a.half is None) == (b.half is None):
            return hour_of_day(a) == hour_of_day(b)
        bare, full = (a, b) if a.half is None else (b, a)
        return bare.hour == full.hour or (bare.hour > 12 and bare.hour == hour_of_day(full))

    def time_equals_ratio(self, time: TimeOfDay, ratio: Ratio) -> bool:
        return is_ratio_too(time) and self.same_ratios(as_ratio(time), ratio)

    def time_equals_value(self, time: TimeOfDay, value: Value) -> bool:
        return is_ratio_too(time) and self.ratio_equals_value(as_ratio(time), value)

    def same_ratios(self, a: Ratio, b: Ratio) -> bool:
        """3:4 and 6:8: proportional. 0:0 would be proportional to every ratio, and is none."""
        if len(a.items) != len(b.items) or self.all_zero(a) or self.all_zero(b):
            return False
        pairs = zip(a.items, b.items, strict=True)
        return all(
            self.equal_formulas(Mul((x, other_y)), Mul((y, other_x)))
            for (x, other_x), (y, other_y) in combinations(pairs, 2)
        )

    def all_zero(self, ratio: Ratio) -> bool:
        return all(self.equal_formulas(item, Num(Fraction(0))) for item in ratio.items)

    def ratio_equals_value(self, ratio: Ratio, value: Value) -> bool:
        """3:4 and 3/4; a whole number is no ratio."""
        if is_whole_number(value.tree) or value.units or len(ratio.items) != 2:
            return False
        return self.equal_formulas(Div(*ratio.items), value.tree)

    def same_base_numerals(self, a: BaseNumeral, b: BaseNumeral) -> bool:
        return a.base == b.base and a.digits.lstrip("0") == b.digits.lstrip("0")

    def base_numeral_equals_value(self, numeral: BaseNumeral, value: Value) -> bool:
        """The digits without their base."""
        if not numeral.digits.isdigit() or value.units:
            return False
        return value.tree == Num(Fraction(int(numeral.digits)))

    def words_equal_value(self, words: Words, value: Value) -> bool:
        """The letter of a choice, once as text."""
        return isinstance(value.tree, (Sym, Const)) and value.tree.name.lower() == words.key

    # lists, points, matrices

    def same_collections(self, a: Collection, b: Collection) -> bool:
        """As multisets; as sets where both have braces."""
        left, right = a.elements, b.elements
        if len(left) * len(right) > MAX_PAIRS:
            return False
        if a.braces and b.braces:
            return self.contains_all(left, right) and self.contains_all(right, left)
        return self.same_multiset(left, right)

    def contains_all(self, left: Sequence[MathObject], right: Sequence[MathObject]) -> bool:
        """Whether each object on the right is on the left, too."""
        return all(any(self.same_objects(x, y) for x in left) for y in right)

    def same_multiset(self, left: Sequence[MathObject], right: Sequence[MathObject]) -> bool:
        """Whether both have the same objects equally often: each on the left takes one away on the
        right."""
        if len(left) != len(right):
            return False
        rest = list(right)
        for x in left:
            partner = next((i for i, y in enumerate(rest) if self.same_objects(x, y)), None)
            if partner is None:
                return False
            del rest[partner]
        return True

    def same_in_order(self, objects: Sequence[MathObject], others: Sequence[MathObject]) -> bool:
        return len(objects) == len(others) and all(map(self.same_objects, objects, others))

    def same_points(self, a: Point, b: Point) -> bool:
        brackets = {(a.opening, a.closing), (b.opening, b.closing)}
        same_brackets = len(brackets) == 1 or brackets <= ROUND_OR_ANGLE
        return same_brackets and self.same_in_order(a.elements, b.elements)

    def same_tables(self, a: Table, b: Table) -> bool:
        if len(a.rows) != len(b.rows):
            return False
        return all(map(self.same_in_order, a.rows, b.rows))

    def column_equals_point(self, table: Table, point: Point) -> bool:
        """A column, and the same vector as (1, 2) or ⟨1, 2⟩."""
        is_column = all(len(row) == 1 for row in table.rows)
        if not is_column or (point.opening, point.closing) not in ROUND_OR_ANGLE:
            return False
        return self.same_in_order([cell for (cell,) in table.rows], point.elements)

    # names, equations, inequalities

    def same_assignments(self, a: Assignments, b: Assignments) -> bool:
        left, right = dict(a.pairs), dict(b.pairs)
        if left.keys() != right.keys():
            return False
        return all(self.same_objects(left[name], right[name]) for name in left)

    def assignments_equal_point(self, assignments: Assignments, point: Point) -> bool:
        """x = 1, y = 2 and (1, 2), the letters in alphabetical order."""
        given = dict(assignments.pairs)
        objects = [given[name] for name in sorted(given)]
        is_round = (point.opening, point.closing) == ("(", ")")
        return is_round and self.same_in_order(objects, point.elements)

    def assignments_equal_named_point(self, assignments: Assignments, named: Named) -> bool:
        """x = 1, y = 2 and (x, y) = (1, 2)."""
        given = dict(assignments.pairs)
        names = named.name.strip("()").split(",")
        if not isinstance(named.value, Point) or sorted(names) != sorted(given):
            return False
        return self.same_in_order([given[name] for name in names], named.value.elements)

    def assignments_equal_items(self, assignments: Assignments, items: Collection) -> bool:
        """x = 1, y = 2 and the bare 1, 2 in the order written; x_1 = 1, x_2 = 2 and {1, 2}."""
        objects = [obj for _, obj in assignments.pairs]
        if not items.braces:
            return self.same_in_order(objects, items.elements)
        letters = {name.partition("_")[0] for name, _ in assignments.pairs}
        return len(letters) == 1 and self.same_multiset(objects, items.elements)

    def same_named(self, a: Named, b: Named) -> bool:
        if names_agree(a.name, b.name):
            return self.same_objects(a.value, b.value)
        if not (isinstance(a.value, Value) and isinstance(b.value, Value)):
            return False
        formulas = symbol_names(a.value.tree) and symbol_names(b.value.tree)
        return bool(formulas) and self.same_equations(
            as_equation(a.name, a.value), as_equation(b.name, b.value)
        )

    def equation_equals_named(self, equation: Equation, named: Named) -> bool:
        return isinstance(named.value, Value) and self.same_equations(
            equation, as_equation(named.name, named.value)
        )

    def same_equations(self, a: Equation, b: Equation) -> bool:
        """The same solutions for the same reason: the differences of their sides are multiples."""
        left, right = difference(a), difference(b)
        if self.equality.proportionality_sign(left, right) is not None:
            return True
        tops = as_single_fraction(left)[0], as_single_fraction(right)[0]
        return tops != (left, right) and self.equality.proportionality_sign(*tops) is not None

    def same_inequalities(self, a: Inequality, b: Inequality) -> bool:
        """The same where one is a positive multiple of the other; ≠ has no direction."""
        sign = self.equality.proportionality_sign(difference(a), difference(b))
        return a.sign == b.sign and (sign == 1 or (sign == -1 and a.sign == "≠"))

    # sets of real numbers

    def same_regions(self, a: Region, b: Region) -> bool:
        return same_region(a.cuts, b.cuts)

    def same_as_regions(self, a: MathObject, b: MathObject) -> bool:
        """An interval, an inequality, a union; single numbers only against a set of numbers."""
        left, right = self.interpreter.as_region(a), self.interpreter.as_region(b)
        return left is not None and right is not None and same_region(left, right)


# Either order of the two kinds; `same_objects` knows what to do with other pairs.
COMPARISONS: dict[tuple[type, type], Callable] = {
    (Value, Value): Comparison.same_values,
    (TimeOfDay, TimeOfDay): Comparison.same_times,
    (TimeOfDay, Ratio): Comparison.time_equals_ratio,
    (TimeOfDay, Value): Comparison.time_equals_value,
    (Ratio, Ratio): Comparison.same_ratios,
    (Ratio, Value): Comparison.ratio_equals_value,
    (BaseNumeral, BaseNumeral): Comparison.same_base_numerals,
    (BaseNumeral, Value): Comparison.base_numeral_equals_value,
    (Words, Value): Comparison.words_equal_value,
    (Collection, Collection): Comparison.same_collections,
    (Point, Point): Comparison.same_points,
    (Table, Table): Comparison.same_tables,
    (Table, Point): Comparison.column_equals_point,
    (Assignments, Assignments): Comparison.same_assignments,
    (Assignments, Point): Comparison.assignments_equal_point,
    (Assignments, Named): Comparison.assignments_equal_named_point,
    (Assignments, Collection): Comparison.assignments_equal_items,
    (Named, Named): Comparison.same_named,
    (Equation, Named): Comparison.equation_equals_named,
    (Equation, Equation): Comparison.same_equations,
    (Inequality, Inequality): Comparison.same_inequalities,
    (Region, Region): Comparison.same_regions,
}


def hour_of_day(time: TimeOfDay) -> int:
    """From 0 to 23; without its half of the day, as written."""
    if time.half is None:
        return time.hour
    return time.hour % 12 + (12 if time.half == "pm" else 0)


def is_ratio_too(time: TimeOfDay) -> bool:
    """3:12, but not 3:05."""
    return time.half is None and time.minute >= 10


def as_ratio(time: TimeOfDay) -> Ratio:
    return Ratio((Num(Fraction(time.hour)), Num(Fraction(time.minute))))


def names_agree(a: str, b: str) -> bool:
    """x and x; y and f(x)."""
    return a == b or ("y" in (a, b) and any(name.endswith("(x)") for name in (a, b)))


def as_equation(name: str, value: Value) -> Equation:
    return Equation(Sym(name), value.tree)


def difference(sides: Equation | Inequality) -> Node:
    return Add((sides.left, Neg(sides.right)))
