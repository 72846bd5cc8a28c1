"""Whether two expressions are equal: their values are, at points where they have any.

Exact fractions are compared exactly. Other numbers are equal if they agree in hundreds of digits:
two answers that agree in so many and differ after that are not written by chance.
"""

from collections.abc import Iterator
from fractions import Fraction

from ..limits import Budget, NotReal, TooBig, Undefined
from ..reading.trees import Add, Div, Mul, Neg, Node, Num, Pow, rational, symbol_names
from ..values import Evaluator, SamplePoint, precision_for

SAMPLE_VALUES = [  # irregular, of both signs, small and large
    Fraction(*map(int, pair.split("/")))
    for pair in """3/7 19/11 -5/13 131/17 -47/19 29/31 -211/23 7/37 83/41 -13/53 449/43 2/59
    -97/61 37/71 5/67 -1/73 1009/53 67/3 211/5 -389/19 613/29 907/31 -53/3 709/79""".split()
]
ENOUGH_POINTS = 5  # points at which both sides have a value
ONE = Num(Fraction(1))


class Equality:
    def __init__(self, budget: Budget):
        self.budget = budget

    def equal(self, a: Node, b: Node) -> bool:
        if a == b:
            return True
        if (left := rational(a)) is not None and (right := rational(b)) is not None:
            return left == right
        agreeing = 0
        for evaluator, left, right in self.samples(a, b):
            if not evaluator.equal(left, right):
                return False
            agreeing += 1
        return agreeing >= self.points_needed(a, b)

    def samples(self, a: Node, b: Node) -> Iterator[tuple]:
        """(evaluator, value of a, value of b) at enough points: real ones or, if these are too few,
        with complex roots and logarithms."""
        bits = precision_for(a, b)
        names = sorted(symbol_names(a) | symbol_names(b))
        if not names:
            evaluator = Evaluator(self.budget, bits=bits)
            yield evaluator, evaluator.evaluate(a), evaluator.evaluate(b)
            return
        for real in (True, False):
            evaluated = []
            for point in sample_points(names):
                evaluator = Evaluator(self.budget, point, real, bits)
                try:
                    evaluated.append((evaluator, evaluator.evaluate(a), evaluator.evaluate(b)))
                except (NotReal, Undefined):
                    continue
                except TooBig:
                    if self.budget.units_left < 0:
                        raise
                    continue
                yield evaluated[-1]
                if len(evaluated) == ENOUGH_POINTS:
                    return

    def points_needed(self, a: Node, b: Node) -> int:
        return ENOUGH_POINTS if symbol_names(a) or symbol_names(b) else 1

    # equations and inequalities

    def proportionality_sign(self, a: Node, b: Node) -> int | None:
        """The sign of k where a = k b for a constant k other than zero, else None."""
        ratio, agreeing = None, 0
        for evaluator, left, right in self.samples(a, b):
            if not left or not right:
                if left or right:
                    return None
                continue
            ratio = left * (1 / right) if ratio is None else ratio
            if not evaluator.equal(left, ratio * right):
                return None
            agreeing += 1
        if ratio is None or agreeing < self.points_needed(a, b) - 1:
            return None
        return -1 if ratio.real < 0 else 1


def sample_points(names: list[str]) -> Iterator[SamplePoint]:
    for shift in range(len(SAMPLE_VALUES)):
        yield {
            name: SAMPLE_VALUES[(shift * (2 * i + 1) + 5 * i) % len(SAMPLE_VALUES)]
            for i, name in enumerate(names)
        }


def as_single_fraction(tree: Node) -> tuple[Node, Node]:
    """(numerator, denominator) of a formula: y - 6/x as x y - 6 over x."""
    match tree:
        case Div(top, bottom):
            (a, b), (c, d) = as_single_fraction(top), as_single_fraction(bottom)
            return product_of(a, d), product_of(b, c)
        case Neg(inner):
            top, bottom = as_single_fraction(inner)
            return Neg(top), bottom
        case Mul(factors):
            tops, bottoms = zip(*map(as_single_fraction, factors), strict=True)
            return Mul(tops), product_of(*bottoms)
        case Add(terms):
            parts = [as_single_fraction(term) for term in terms]
            different = list(dict.fromkeys(bottom for _, bottom in parts if bottom != ONE))
            summands = [
                product_of(top, *(other for other in different if other != bottom))
                for top, bottom in parts
            ]
            return Add(tuple(summands)), product_of(*different)
        case Pow(base, exponent) if symbol_names(base) and (rational(exponent) or 0) < 0:
            top, bottom = as_single_fraction(base)
            power = Num(-rational(exponent))
            return Pow(bottom, power), Pow(top, power)
    return tree, ONE


def product_of(*factors: Node) -> Node:
    left = tuple(factor for factor in factors if factor != ONE)
    return Mul(left) if len(left) > 1 else left[0] if left else ONE
