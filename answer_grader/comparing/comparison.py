"""Comparison of two answers by kind."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations

from ..limits import NotReal, Undefined, Unparsed, Work
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
    symbols,
)
from .equality import Equality, over_common
from .kinds import Kinds
from .regions import same_region
from .same_units import in_one_unit, units_agree, with_letter_unit
from .things import (
    Assignments,
    Equation,
    Inequality,
    Items,
    Named,
    Point,
    Region,
    Table,
    Thing,
    Value,
)

MAX_PAIRS = 2_500  # elements of one list times elements of the other
ROUND_OR_ANGLE = {("(", ")"), ("⟨", "⟩")}


def same_answer(a: Answer, b: Answer) -> bool:
    return Comparison(Work()).answers(a, b)


class Comparison:
    """One comparison of two answers, with its own budget."""

    def __init__(self, work: Work):
        self.work = work
        self.equality = Equality(work)
        self.kinds = Kinds(self.equality)

    def equal(self, a: Node, b: Node) -> bool:
        """Two expressions; an undefined one equals nothing."""
        try:
            return self.equality.equal(a, b)
        except (Undefined, NotReal, Unparsed):
            return False

    def answers(self, a: Answer, b: Answer) -> bool:
        if isinstance(a.tree, Words) and isinstance(b.tree, Words):
            return a.tree == b.tree
        for one, other in ((a, b), (b, a)):
            if isinstance(one.tree, BaseNumeral) and other.phrase == one.tree.digits.lower():
                return True  # A3_{16} and A3
        for one, other in ((a, b), (b, a)):
            if isinstance(one.tree, Words):
                return one.tree.key == other.phrase  # \text{AB} and AB
        if a.tree == b.tree:
            return True
        try:
            return self.same(self.settled(a.tree), self.settled(b.tree))
        except (Undefined, NotReal, Unparsed):
            return False

    def settled(self, tree: Node) -> Thing:
        """{5} is 5, {(1, 2)} is (1, 2)."""
        thing = self.kinds.settle(tree)
        match thing:
            case Items(True, (Value() | Point() | Named() as single,)):
                return single
        return thing

    def same(self, a: Thing, b: Thing) -> bool:
        self.work.spend(2)
        if compare := COMPARED_BY.get((type(a), type(b))):
            return compare(self, a, b)
        if compare := COMPARED_BY.get((type(b), type(a))):
            return compare(self, b, a)
        if isinstance(a, Named):
            return self.same(a.thing, b)
        if isinstance(b, Named):
            return self.same(a, b.thing)
        if isinstance(a, Region) or isinstance(b, Region):
            return self.as_regions(a, b)
        return type(a) is type(b) and a == b

    # numbers and formulas

    def values(self, a: Value, b: Value) -> bool:
        for plain, other in ((a, b), (b, a)):
            if other.units and not plain.units:
                plain = with_letter_unit(plain, other.units)
                if plain.units:
                    return self.equal(plain.tree, other.tree)
        if units_agree(a.units, b.units) and self.equal(a.tree, b.tree):
            return True
        converted = in_one_unit(a, b)
        return converted is not None and self.equal(*converted)

    def clocks(self, a: TimeOfDay, b: TimeOfDay) -> bool:
        """3:30 may lack its half of the day; 15:30 is 3:30 p.m."""
        if a.minute != b.minute:
            return False
        if (a.half is None) == (b.half is None):
            return hour_of_day(a) == hour_of_day(b)
        bare, full = (a, b) if a.half is None else (b, a)
        return bare.hour == full.hour or (bare.hour > 12 and bare.hour == hour_of_day(full))

    def clock_and_ratio(self, clock: TimeOfDay, ratio: Ratio) -> bool:
        return is_ratio_too(clock) and self.ratios(as_ratio(clock), ratio)

    def clock_and_value(self, clock: TimeOfDay, value: Value) -> bool:
        return is_ratio_too(clock) and self.ratio_and_value(as_ratio(clock), value)

    def ratios(self, a: Ratio, b: Ratio) -> bool:
        """3:4 and 6:8: proportional. 0:0 would be proportional to every ratio, and is none."""
        if len(a.items) != len(b.items) or self.all_zero(a) or self.all_zero(b):
            return False
        pairs = zip(a.items, b.items, strict=True)
        return all(
            self.equal(Mul((x, other_y)), Mul((y, other_x)))
            for (x, other_x), (y, other_y) in combinations(pairs, 2)
        )

    def all_zero(self, ratio: Ratio) -> bool:
        return all(self.equal(item, Num(Fraction(0))) for item in ratio.items)

    def ratio_and_value(self, ratio: Ratio, value: Value) -> bool:
        """3:4 and 3/4; a whole number is no ratio."""
        if is_whole_number(value.tree) or value.units or len(ratio.items) != 2:
            return False
        return self.equal(Div(*ratio.items), value.tree)

    def base_numerals(self, a: BaseNumeral, b: BaseNumeral) -> bool:
        return a.base == b.base and a.digits.lstrip("0") == b.digits.lstrip("0")

    def base_numeral_and_value(self, numeral: BaseNumeral, value: Value) -> bool:
        """The digits without their base."""
        if not numeral.digits.isdigit() or value.units:
            return False
        return value.tree == Num(Fraction(int(numeral.digits)))

    def words_and_value(self, words: Words, value: Value) -> bool:
        """The letter of a choice, once as text."""
        return isinstance(value.tree, (Sym, Const)) and value.tree.name.lower() == words.key

    # lists, points, matrices

    def items(self, a: Items, b: Items) -> bool:
        """As bags; as sets where both have braces."""
        left, right = a.things, b.things
        if len(left) * len(right) > MAX_PAIRS:
            return False
        if a.braces and b.braces:
            return self.covers(left, right) and self.covers(right, left)
        return self.matches(left, right)

    def covers(self, left: Sequence[Thing], right: Sequence[Thing]) -> bool:
        """Whether each thing on the right is on the left."""
        return all(any(self.same(x, y) for x in left) for y in right)

    def matches(self, left: Sequence[Thing], right: Sequence[Thing]) -> bool:
        """Whether they are the same bag: each thing on the left takes one away on the right."""
        if len(left) != len(right):
            return False
        rest = list(right)
        for x in left:
            partner = next((i for i, y in enumerate(rest) if self.same(x, y)), None)
            if partner is None:
                return False
            del rest[partner]
        return True

    def in_order(self, things: Sequence[Thing], others: Sequence[Thing]) -> bool:
        return len(things) == len(others) and all(map(self.same, things, others))

    def points(self, a: Point, b: Point) -> bool:
        brackets = {(a.opening, a.closing), (b.opening, b.closing)}
        same_brackets = len(brackets) == 1 or brackets <= ROUND_OR_ANGLE
        return same_brackets and self.in_order(a.things, b.things)

    def tables(self, a: Table, b: Table) -> bool:
        if len(a.rows) != len(b.rows):
            return False
        return all(map(self.in_order, a.rows, b.rows))

    def table_and_point(self, table: Table, point: Point) -> bool:
        """A column, and the same vector as (1, 2) or ⟨1, 2⟩."""
        is_column = all(len(row) == 1 for row in table.rows)
        if not is_column or (point.opening, point.closing) not in ROUND_OR_ANGLE:
            return False
        return self.in_order([cell for (cell,) in table.rows], point.things)

    # names, equations, inequalities

    def assignments(self, a: Assignments, b: Assignments) -> bool:
        left, right = dict(a.pairs), dict(b.pairs)
        return left.keys() == right.keys() and all(self.same(left[k], right[k]) for k in left)

    def assignments_and_point(self, assignments: Assignments, point: Point) -> bool:
        """x = 1, y = 2 and (1, 2), the letters in alphabetical order."""
        given = dict(assignments.pairs)
        things = [given[name] for name in sorted(given)]
        is_round = (point.opening, point.closing) == ("(", ")")
        return is_round and self.in_order(things, point.things)

    def assignments_and_named(self, assignments: Assignments, named: Named) -> bool:
        """x = 1, y = 2 and (x, y) = (1, 2)."""
        given = dict(assignments.pairs)
        names = named.name.strip("()").split(",")
        if not isinstance(named.thing, Point) or sorted(names) != sorted(given):
            return False
        return self.in_order([given[name] for name in names], named.thing.things)

    def assignments_and_items(self, assignments: Assignments, items: Items) -> bool:
        """x = 1, y = 2 and the bare 1, 2 in the order written; x_1 = 1, x_2 = 2 and {1, 2}."""
        things = [thing for _, thing in assignments.pairs]
        if not items.braces:
            return self.in_order(things, items.things)
        letters = {name.partition("_")[0] for name, _ in assignments.pairs}
        return len(letters) == 1 and self.matches(things, items.things)

    def named(self, a: Named, b: Named) -> bool:
        if names_agree(a.name, b.name):
            return self.same(a.thing, b.thing)
        if not (isinstance(a.thing, Value) and isinstance(b.thing, Value)):
            return False
        formulas = symbols(a.thing.tree) and symbols(b.thing.tree)
        return bool(formulas) and self.equations(
            as_equation(a.name, a.thing), as_equation(b.name, b.thing)
        )

    def equation_and_named(self, equation: Equation, named: Named) -> bool:
        return isinstance(named.thing, Value) and self.equations(
            equation, as_equation(named.name, named.thing)
        )

    def equations(self, a: Equation, b: Equation) -> bool:
        """The same solutions for the same reason: the differences of their sides are multiples."""
        left, right = difference(a), difference(b)
        if self.equality.proportional(left, right) is not None:
            return True
        tops = over_common(left)[0], over_common(right)[0]
        return tops != (left, right) and self.equality.proportional(*tops) is not None

    def inequalities(self, a: Inequality, b: Inequality) -> bool:
        """The same where one is a positive multiple of the other; ≠ has no direction."""
        sign = self.equality.proportional(difference(a), difference(b))
        return a.sign == b.sign and (sign == 1 or (sign == -1 and a.sign == "≠"))

    # sets of real numbers

    def regions(self, a: Region, b: Region) -> bool:
        return same_region(a.cuts, b.cuts)

    def as_regions(self, a: Thing, b: Thing) -> bool:
        """An interval, an inequality, a union; single numbers only against a set of numbers."""
        left, right = self.kinds.region_of(a), self.kinds.region_of(b)
        return left is not None and right is not None and same_region(left, right)


# Either order of the two kinds; `same` knows what to do with other pairs.
COMPARED_BY: dict[tuple[type, type], Callable] = {
    (Value, Value): Comparison.values,
    (TimeOfDay, TimeOfDay): Comparison.clocks,
    (TimeOfDay, Ratio): Comparison.clock_and_ratio,
    (TimeOfDay, Value): Comparison.clock_and_value,
    (Ratio, Ratio): Comparison.ratios,
    (Ratio, Value): Comparison.ratio_and_value,
    (BaseNumeral, BaseNumeral): Comparison.base_numerals,
    (BaseNumeral, Value): Comparison.base_numeral_and_value,
    (Words, Value): Comparison.words_and_value,
    (Items, Items): Comparison.items,
    (Point, Point): Comparison.points,
    (Table, Table): Comparison.tables,
    (Table, Point): Comparison.table_and_point,
    (Assignments, Assignments): Comparison.assignments,
    (Assignments, Point): Comparison.assignments_and_point,
    (Assignments, Named): Comparison.assignments_and_named,
    (Assignments, Items): Comparison.assignments_and_items,
    (Named, Named): Comparison.named,
    (Equation, Named): Comparison.equation_and_named,
    (Equation, Equation): Comparison.equations,
    (Inequality, Inequality): Comparison.inequalities,
    (Region, Region): Comparison.regions,
}


def hour_of_day(clock: TimeOfDay) -> int:
    """From 0 to 23; without its half of the day, as written."""
    if clock.half is None:
        return clock.hour
    return clock.hour % 12 + (12 if clock.half == "pm" else 0)


def is_ratio_too(clock: TimeOfDay) -> bool:
    """3:12, but not 3:05."""
    return clock.half is None and clock.minute >= 10


def as_ratio(clock: TimeOfDay) -> Ratio:
    return Ratio((Num(Fraction(clock.hour)), Num(Fraction(clock.minute))))


def names_agree(a: str, b: str) -> bool:
    """x and x; y and f(x)."""
    return a == b or ("y" in (a, b) and any(name.endswith("(x)") for name in (a, b)))


def as_equation(name: str, value: Value) -> Equation:
    return Equation(Sym(name), value.tree)


def difference(sides: Equation | Inequality) -> Node:
    return Add((sides.left, Neg(sides.right)))
