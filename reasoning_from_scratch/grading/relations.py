"""Equations, inequalities and membership, as kinds of answers."""

from fractions import Fraction

from .limits import Unparsed
from .regions import LINE, MINUS, PLUS, Regions
from .trees import contains, name_of, symbols

FALSE = ("false",)
FLIPPED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤", "≠": "≠"}
SCALARS = set("num sym const add mul div neg pow root pm mp deg fn".split())


class Relations:
    """The part of kinds.py that reads what stands on both sides of =, <, ≤, ≈ and ∈."""

    def __init__(self, values, equal):
        self.values = values
        self.equal = equal
        self.regions = Regions(values)

    def settle(self, tree: tuple) -> tuple:
        raise NotImplementedError

    def scalar(self, tree: tuple) -> tuple:
        raise NotImplementedError

    def joined_regions(self, kind: str, things: list[tuple]) -> tuple | None:
        """x < 2 or x > 3; x > 1 and x < 3. A comma means "and" unless nothing is left of it."""
        names = {thing[1] for thing in things if thing[0] == "named"}
        cuts = [t[2][1] for t in things if t[0] == "named" and t[2][0] == "region"]
        if len(names) != 1 or len(cuts) != len(things):
            return None
        if kind == "either":
            joined = self.regions.union(*cuts)
        else:
            joined = self.regions.meet(*cuts)
            if not joined:
                joined = self.regions.union(*cuts)
        return ("named", names.pop(), ("region", joined))

    def relation(self, ops: tuple, sides: tuple) -> tuple:
        if ops[-1] == "≈" and len(ops) >= 1 and set(ops[:-1]) <= {"="}:
            if not self.near(sides[-2], sides[-1]):
                return FALSE
            ops, sides = self.without_approximation(ops, sides)
            if not ops:
                return self.settle(sides[0])
        if set(ops) <= {"=", "≡"}:
            return self.equalities(sides)
        if ops == ("∈",):
            return self.membership(*sides)
        if set(ops) <= set(FLIPPED):
            return self.inequalities(ops, sides)
        raise Unparsed

    def near(self, left: tuple, right: tuple) -> bool:
        """Whether one can be the other, rounded: closer than 1 in 20."""
        if name_of(left) is not None:
            return True
        distance = ("fn", "abs", ("add", self.plain(left), ("neg", self.plain(right))))
        limit = ("div", ("fn", "abs", self.plain(left)), ("num", Fraction(20)))
        top, bottom = self.values.form(("add", limit, ("neg", distance)))
        return (self.values.sign(top) or 0) * (self.values.sign(bottom) or 0) > 0

    def without_approximation(self, ops: tuple, sides: tuple) -> tuple[tuple, tuple]:
        """\\sqrt{2} ≈ 1.41 says \\sqrt{2}; x ≈ 1.41 says x = 1.41."""
        if name_of(sides[-2]) is not None and len(sides) == 2:
            return ("=",), sides
        return ops[:-1], sides[:-1]

    def membership(self, left: tuple, right: tuple) -> tuple:
        name = name_of(left)
        if name is None:
            raise Unparsed
        return ("named", name, self.settle(right))

    def equalities(self, sides: tuple) -> tuple:
        sides = list(sides)
        if len(sides) == 2 and name_of(sides[0]) is None and name_of(sides[1]) is not None:
            sides.reverse()
        name = name_of(sides[0])
        if name is not None and not any(self.occurs(name, side) for side in sides[1:]):
            if self.all_equal(sides[1:]):
                return ("named", name, self.settle(sides[1]))
            return FALSE
        if self.all_equal(sides):
            return self.settle(sides[0])
        if len(sides) != 2 or not (symbols(sides[0]) or symbols(sides[1])):
            return FALSE
        return ("equation", *(self.plain(side) for side in sides))

    def occurs(self, name: str, tree: tuple) -> bool:
        return name in symbols(tree) if len(name) == 1 or name[1:2] == "_" else False

    def plain(self, tree: tuple) -> tuple:
        """An expression without its units."""
        tree = tree[1] if tree[0] == "qty" else tree
        if tree[0] not in SCALARS:
            raise Unparsed
        return tree

    def all_equal(self, sides: list[tuple]) -> bool:
        if len(sides) == 1:
            return True
        if any(contains(side, {"pm", "mp"}) for side in sides):
            return False
        trees = [side[1] if side[0] == "qty" else side for side in sides]
        return all(tree[0] in SCALARS and self.equal(trees[0], tree) for tree in trees[1:])

    def inequalities(self, ops: tuple, sides: tuple) -> tuple:
        links = [
            self.inequality(op, self.plain(sides[i]), self.plain(sides[i + 1]))
            for i, op in enumerate(ops)
        ]
        if len(links) == 1:
            return links[0]
        return self.joined_regions("both", links) or ("items", False, *links)

    def inequality(self, op: str, left: tuple, right: tuple) -> tuple:
        """As a region where it is linear in one letter, else with < or ≤."""
        if op in (">", "≥"):
            op, left, right = FLIPPED[op], right, left
        names = symbols(left) | symbols(right)
        for size, limit in ((left, right), (right, left)):
            if size[:2] == ("fn", "abs") and len(names) == 1 and not symbols(limit) and op != "≠":
                return self.absolute(op, size[2], limit, size is left)
        infinite = contains(left, {"const"}) and (
            self.scalar(left)[0] == "infinite" or self.scalar(right)[0] == "infinite"
        )
        if len(names) == 1 and not infinite and self.scalar(right)[0] != "infinite":
            region = self.linear(op, left, right, names.copy().pop())
            if region is not None:
                return ("named", names.pop(), ("region", region))
        if len(names) == 1 and (infinite or self.scalar(right)[0] == "infinite"):
            return ("named", names.pop(), ("region", LINE))
        return ("inequality", op, left, right)

    def absolute(self, op: str, inner: tuple, limit: tuple, inside: bool) -> tuple:
        """|u| < c is -c < u < c; c < |u| is u < -c or c < u."""
        low, high = ("neg", limit), limit
        if inside:
            links = [self.inequality(op, low, inner), self.inequality(op, inner, high)]
        else:
            links = [self.inequality(op, inner, low), self.inequality(op, high, inner)]
        joined = self.joined_regions("both" if inside else "either", links)
        if joined is None:
            raise Unparsed
        return joined

    def linear(self, op: str, left: tuple, right: tuple, name: str) -> tuple | None:
        """The solutions of a x + b < 0."""
        values = self.values
        top, bottom = values.plus(values.form(left), values.negative(values.form(right)))
        if not values.is_constant(bottom):
            return None
        x = ((values.atom("sym", name), 1),)
        parts = values.by_symbols(top)
        if x not in parts or any(not values.is_constant({key: 1}) for key in parts if key != x):
            return None
        slope = parts.pop(x)
        rest = {(*key, *m): c for key, part in parts.items() for m, c in part.items()}
        sign = (values.sign(slope) or 0) * (values.sign(bottom) or 0)
        if not sign:
            return None
        place = values.negative(
            values.times((rest, values.constant(1)), values.reciprocal((slope, values.constant(1))))
        )
        if op == "≠":
            return self.regions.complement(self.regions.point(place))
        if sign > 0:
            return self.regions.interval(MINUS, False, place, op == "≤")
        return self.regions.interval(place, op == "≤", PLUS, False)
