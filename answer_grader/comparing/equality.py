"""Whether two expressions are equal: their values are, at points where they have any.

Exact fractions are compared exactly. Other numbers are equal if they agree in hundreds of digits:
two answers that agree in so many and differ after that are not written by chance.
"""

from collections.abc import Iterator
from fractions import Fraction

from ..limits import NotReal, TooBig, Undefined, Work
from ..reading.trees import Add, Div, Mul, Neg, Node, Num, Pow, rational, symbols
from ..values import Point, Values, digits_for

POINTS = [  # irregular, of both signs, small and large
    Fraction(*map(int, pair.split("/")))
    for pair in """3/7 19/11 -5/13 131/17 -47/19 29/31 -211/23 7/37 83/41 -13/53 449/43 2/59
    -97/61 37/71 5/67 -1/73 1009/53 67/3 211/5 -389/19 613/29 907/31 -53/3 709/79""".split()
]
ENOUGH = 5  # points at which both sides have a value
ONE = Num(Fraction(1))


class Equality:
    def __init__(self, work: Work):
        self.work = work

    def equal(self, a: Node, b: Node) -> bool:
        if a == b:
            return True
        if (left := rational(a)) is not None and (right := rational(b)) is not None:
            return left == right
        agreeing = 0
        for values, left, right in self.samples(a, b):
            if not values.same(left, right):
                return False
            agreeing += 1
        return agreeing >= self.enough(a, b)

    def samples(self, a: Node, b: Node) -> Iterator[tuple]:
        """The values of both at enough points: at real ones, or where these are too few, with
        complex roots and logarithms."""
        bits = digits_for(a, b)
        names = sorted(symbols(a) | symbols(b))
        if not names:
            values = Values(self.work, bits=bits)
            yield values, values.of(a), values.of(b)
            return
        for real in (True, False):
            evaluated = []
            for point in sample_points(names):
                values = Values(self.work, point, real, bits)
                try:
                    evaluated.append((values, values.of(a), values.of(b)))
                except (NotReal, Undefined):
                    continue
                except TooBig:
                    if self.work.left < 0:
                        raise
                    continue
                yield evaluated[-1]
                if len(evaluated) == ENOUGH:
                    return

    def enough(self, a: Node, b: Node) -> int:
        return ENOUGH if symbols(a) or symbols(b) else 1

    # equations and inequalities

    def proportional(self, a: Node, b: Node) -> int | None:
        """The sign of k where a = k b for a constant k other than zero, else None."""
        ratio, agreeing = None, 0
        for values, left, right in self.samples(a, b):
            if not left or not right:
                if left or right:
                    return None
                continue
            ratio = left * (1 / right) if ratio is None else ratio
            if not values.same(left, ratio * right):
                return None
            agreeing += 1
        if ratio is None or agreeing < self.enough(a, b) - 1:
            return None
        return -1 if ratio.real < 0 else 1


def sample_points(names: list[str]) -> Iterator[Point]:
    for shift in range(len(POINTS)):
        yield {
            name: POINTS[(shift * (2 * i + 1) + 5 * i) % len(POINTS)]
            for i, name in enumerate(names)
        }


def over_common(tree: Node) -> tuple[Node, Node]:
    """A formula as a top and a bottom: y - 6/x as x y - 6 over x."""
    match tree:
        case Div(top, bottom):
            (a, b), (c, d) = over_common(top), over_common(bottom)
            return multiplied(a, d), multiplied(b, c)
        case Neg(inner):
            top, bottom = over_common(inner)
            return Neg(top), bottom
        case Mul(factors):
            tops, bottoms = zip(*map(over_common, factors), strict=True)
            return Mul(tops), multiplied(*bottoms)
        case Add(terms):
            parts = [over_common(term) for term in terms]
            different = list(dict.fromkeys(bottom for _, bottom in parts if bottom != ONE))
            summands = [
                multiplied(top, *(other for other in different if other != bottom))
                for top, bottom in parts
            ]
            return Add(tuple(summands)), multiplied(*different)
        case Pow(base, exponent) if symbols(base) and (rational(exponent) or 0) < 0:
            top, bottom = over_common(base)
            power = Num(-rational(exponent))
            return Pow(bottom, power), Pow(top, power)
    return tree, ONE


def multiplied(*factors: Node) -> Node:
    left = tuple(factor for factor in factors if factor != ONE)
    return Mul(left) if len(left) > 1 else left[0] if left else ONE
