"""Comparison of two answers by kind."""

from fractions import Fraction

from .expressions import Expressions
from .kinds import Kinds
from .limits import Undefined, Unparsed, Work
from .numeric import NotReal
from .statements import Answer
from .trees import symbols
from .units import units_agree, with_letter_unit

SINGLE = ("value", "tuple", "named")
MAX_PAIRS = 2_500  # elements of one list times elements of the other


class Comparison:
    """One comparison of two answers, with its own budget and atoms."""

    def __init__(self, work: Work | None = None):
        self.work = work or Work()
        self.expressions = Expressions(self.work)
        self.kinds = Kinds(self.expressions.values, self.equal)

    def equal(self, a: tuple, b: tuple) -> bool:
        """Two expressions; an undefined one equals nothing."""
        try:
            return self.expressions.equal(a, b)
        except (Undefined, NotReal, Unparsed):
            return False

    def answers(self, a: Answer, b: Answer) -> bool:
        words = [x.tree[0] == "words" for x in (a, b)]
        if all(words):
            return a.tree == b.tree
        for base, other in ((a, b), (b, a)):
            if base.tree[0] == "base" and other.phrase == base.tree[1].lower():
                return True
        if any(words):
            return self.word_and_letters(*((a, b) if words[0] else (b, a)))
        if a.tree == b.tree:
            return True
        try:
            return self.same(self.settled(a.tree), self.settled(b.tree))
        except (Undefined, NotReal, Unparsed):
            return False

    def settled(self, tree: tuple) -> tuple:
        """{5} is 5, {(1, 2)} is (1, 2)."""
        thing = self.kinds.settle(tree)
        single = thing[0] == "items" and thing[1] and len(thing) == 3 and thing[2][0] in SINGLE
        return thing[2] if single else thing

    def word_and_letters(self, word: Answer, other: Answer) -> bool:
        """\\text{AB} and plain AB. One letter must have the same case."""
        if other.phrase is None or word.tree[1] != other.phrase:
            return False
        return True

    def same(self, a: tuple, b: tuple) -> bool:
        self.work.spend(2)
        compare = getattr(self, f"{a[0]}_{b[0]}".replace(" ", "_"), None)
        if compare is not None:
            return compare(a, b)
        compare = getattr(self, f"{b[0]}_{a[0]}".replace(" ", "_"), None)
        if compare is not None:
            return compare(b, a)
        if "named" in (a[0], b[0]):
            named, other = (a, b) if a[0] == "named" else (b, a)
            return self.same(named[2], other)
        if "region" in (a[0], b[0]):
            return self.as_regions(a, b)
        return a[0] == b[0] and a == b and a[0] != "false"

    # scalars

    def value_value(self, a: tuple, b: tuple) -> bool:
        for plain, other in ((a, b), (b, a)):
            if other[2] and not plain[2]:
                plain = with_letter_unit(plain, other[2])
                if plain[2]:
                    return self.equal(plain[1], other[1])
        return units_agree(a[2], b[2]) and self.equal(a[1], b[1])

    def clock_clock(self, a: tuple, b: tuple) -> bool:
        """3:30 may lack its half of the day; 15:30 is 3:30 p.m."""
        if a[3] is None and b[3] is None:
            return a[1:3] == b[1:3]
        if None in (a[3], b[3]):
            bare, full = (a, b) if a[3] is None else (b, a)
            return bare[2] == full[2] and (
                bare[1] == full[1] or (bare[1] > 12 and bare[1] == hour_of_day(full))
            )
        return (hour_of_day(a), a[2]) == (hour_of_day(b), b[2])

    def clock_ratio(self, clock: tuple, ratio: tuple) -> bool:
        return clock[3] is None and clock[2] >= 10 and self.ratio_ratio(as_ratio(clock), ratio)

    def clock_value(self, clock: tuple, value: tuple) -> bool:
        return clock[3] is None and clock[2] >= 10 and self.ratio_value(as_ratio(clock), value)

    def ratio_ratio(self, a: tuple, b: tuple) -> bool:
        """3:4 and 6:8: proportional."""
        if len(a) != len(b):
            return False
        pairs = zip(a[2:], b[2:], strict=True)
        return all(self.equal(("mul", a[1], y), ("mul", x, b[1])) for x, y in pairs)

    def ratio_value(self, ratio: tuple, value: tuple) -> bool:
        """3:4 and 3/4; a whole number is no ratio."""
        if value[1][0] == "num" and value[1][1].denominator == 1:
            return False
        return len(ratio) == 3 and not value[2] and self.equal(("div", *ratio[1:]), value[1])

    def base_base(self, a: tuple, b: tuple) -> bool:
        return a[2] == b[2] and a[1].lstrip("0") == b[1].lstrip("0")

    def base_value(self, base: tuple, value: tuple) -> bool:
        """The digits without their base. Base ten is the number itself."""
        tree = value[1]
        if not base[1].isdigit() or tree[0] != "num" or value[2]:
            return False
        return tree[1] == int(base[1])

    def infinite_infinite(self, a: tuple, b: tuple) -> bool:
        return a[1] == b[1]

    def words_value(self, words: tuple, value: tuple) -> bool:
        """The letter of a choice, once as text."""
        return value[1][0] in ("sym", "const") and value[1][1].lower() == words[1]

    # lists, tuples, matrices

    def items_items(self, a: tuple, b: tuple) -> bool:
        """As bags; as sets where both have braces."""
        left, right = a[2:], b[2:]
        if len(left) * len(right) > MAX_PAIRS:
            return False
        if a[1] and b[1]:
            return self.covers(left, right) and self.covers(right, left)
        return len(left) == len(right) and self.matches(left, right)

    def covers(self, left: tuple, right: tuple) -> bool:
        return all(any(self.same(x, y) for x in left) for y in right)

    def matches(self, left: tuple, right: tuple) -> bool:
        rest = list(right)
        for x in left:
            found = next((i for i, y in enumerate(rest) if self.same(x, y)), None)
            if found is None:
                return False
            del rest[found]
        return True

    def pieces_pieces(self, a: tuple, b: tuple) -> bool:
        if a[1] == "minus" or a[1] != b[1]:
            return a == b
        return len(a) == len(b) and self.matches(a[2:], b[2:])

    def tuple_tuple(self, a: tuple, b: tuple) -> bool:
        if len(a) != len(b) or not same_brackets(a[1:3], b[1:3]):
            return False
        return all(self.same(x, y) for x, y in zip(a[3:], b[3:], strict=True))

    def matrix_matrix(self, a: tuple, b: tuple) -> bool:
        if (len(a), len(a[1])) != (len(b), len(b[1])):
            return False
        return all(
            self.same(x, y)
            for r, s in zip(a[1:], b[1:], strict=True)
            for x, y in zip(r, s, strict=True)
        )

    def matrix_tuple(self, matrix: tuple, row: tuple) -> bool:
        """A column and a vector in angle brackets; a row and [1, 2]."""
        cells = [cell for r in matrix[1:] for cell in r]
        column = row[1] == "<(" and all(len(r) == 1 for r in matrix[1:])
        if not column or len(cells) != len(row) - 3:
            return False
        return all(self.same(x, y) for x, y in zip(cells, row[3:], strict=True))

    # names, equations, inequalities

    def assign_assign(self, a: tuple, b: tuple) -> bool:
        left, right = dict(a[1:]), dict(b[1:])
        return left.keys() == right.keys() and all(self.same(left[k], right[k]) for k in left)

    def assign_tuple(self, assign: tuple, point: tuple) -> bool:
        """x = 1, y = 2 and (1, 2), the letters in alphabetical order."""
        things = [thing for _, thing in sorted(assign[1:])]
        return self.in_order(things, point[3:]) and point[1:3] == ("(", ")")

    def assign_named(self, assign: tuple, named: tuple) -> bool:
        """x = 1, y = 2 and (x, y) = (1, 2)."""
        given = dict(assign[1:])
        names = named[1].strip("()").split(",")
        if named[2][0] != "tuple" or sorted(names) != sorted(given):
            return False
        return self.in_order([given[name] for name in names], named[2][3:])

    def assign_items(self, assign: tuple, items: tuple) -> bool:
        """x = 1, y = 2 and the bare 1, 2 in the order written."""
        return not items[1] and self.in_order([thing for _, thing in assign[1:]], items[2:])

    def in_order(self, things: list, others: tuple) -> bool:
        return len(things) == len(others) and all(map(self.same, things, others))

    def named_named(self, a: tuple, b: tuple) -> bool:
        if names_agree(a[1], b[1]):
            return self.same(a[2], b[2])
        values = a[2], b[2]
        if any(v[0] != "value" or not symbols(v[1]) for v in values):
            return False
        return self.equation_equation(as_equation(a), as_equation(b))

    def equation_named(self, equation: tuple, named: tuple) -> bool:
        return named[2][0] == "value" and self.equation_equation(equation, as_equation(named))

    def equation_equation(self, a: tuple, b: tuple) -> bool:
        """The same solutions for the same reason: the differences of their sides are multiples."""
        left, right = difference(*a[1:]), difference(*b[1:])
        return self.expressions.proportional(left, right, equation=True) is not None

    def inequality_inequality(self, a: tuple, b: tuple) -> bool:
        factor = self.expressions.proportional(difference(*a[2:]), difference(*b[2:]))
        return a[1] == b[1] and factor is not None and (factor == 1 or a[1] == "≠")

    # sets of reals

    def region_region(self, a: tuple, b: tuple) -> bool:
        return self.kinds.regions.same(a[1], b[1])

    def as_regions(self, a: tuple, b: tuple) -> bool:
        """An interval, an inequality, a union; single numbers only against a set of numbers."""
        regions = self.kinds.region_of(a), self.kinds.region_of(b)
        return None not in regions and self.kinds.regions.same(*regions)


def hour_of_day(clock: tuple) -> int:
    return clock[1] % 12 + (12 if clock[3] == "pm" else 0)


def as_ratio(clock: tuple) -> tuple:
    return ("ratio", ("num", Fraction(clock[1])), ("num", Fraction(clock[2])))


def same_brackets(a: tuple, b: tuple) -> bool:
    round_or_angle = {("(", ")"), ("<(", ">)")}
    return a == b or {a, b} <= round_or_angle


def names_agree(a: str, b: str) -> bool:
    """x and x; y and f(x)."""
    return a == b or ("y" in (a, b) and any(name.endswith("(x)") for name in (a, b)))


def as_equation(named: tuple) -> tuple:
    return ("equation", ("sym", named[1]), named[2][1])


def difference(left: tuple, right: tuple) -> tuple:
    return ("add", left, ("neg", right))
