"""Whether two expressions are equal: exact first; then many digits at points reject; what exact
arithmetic cannot decide is accepted only where it agrees in hundreds of digits everywhere."""

from fractions import Fraction

from ..limits import NotReal, TooBig, Undefined, Work
from ..reading.trees import Call, Node, Num, Pow, rational, symbols
from ..values.exact import ExactValues
from ..values.numeric import HUGE, Numeric
from ..values.polynomials import Polynomial

POINTS = [  # irregular, of both signs, small and large
    Fraction(*map(int, pair.split("/")))
    for pair in """3/7 19/11 -5/13 131/17 -47/19 29/31 -211/23 7/37 83/41 -13/53 449/43 2/59
    -97/61 37/71 5/67 -1/73 1009/53 67/3 211/5 -389/19 613/29 907/31 -53/3 709/79""".split()
]
ENOUGH = 5  # points at which both sides are real
CONSTANT_BITS, POINT_BITS = 1_000, 300


class Equality:
    def __init__(self, work: Work, values: ExactValues):
        self.work = work
        self.values = values

    def equal(self, a: Node, b: Node) -> bool:
        if a == b:
            return True
        decided = self.exactly(a, b)
        return self.at_points(a, b) if decided is None else decided

    def exactly(self, a: Node, b: Node) -> bool | None:
        """By cross-multiplication; None where it does not decide."""
        left, right = self.values.form(a), self.values.form(b)
        multiply, subtract = self.values.ring.multiply, self.values.ring.subtract
        try:
            difference = subtract(
                multiply(left.top, right.bottom), multiply(right.top, left.bottom)
            )
        except TooBig:
            return False
        return self.values.zero.is_zero(difference)

    def at_points(self, a: Node, b: Node) -> bool:
        names = sorted(symbols(a) | symbols(b))
        longest = 4 * max(longest_number(a), longest_number(b))
        if longest > HUGE:
            raise TooBig
        if not names:
            return self.agree(a, b, None, CONSTANT_BITS + longest)
        if has_steps(a) or has_steps(b):
            return False  # steps agree at any number of points and differ between them
        agreeing = 0
        for shift in range(len(POINTS)):
            point = {
                name: POINTS[(shift * (2 * i + 1) + 5 * i) % len(POINTS)]
                for i, name in enumerate(names)
            }
            try:
                if not self.agree(a, b, point, POINT_BITS + longest):
                    return False
                agreeing += 1
                if agreeing == ENOUGH:
                    return True
            except (NotReal, Undefined):
                continue
        return False

    def agree(self, a: Node, b: Node, point: dict[str, Fraction] | None, bits: int) -> bool:
        """Equal up to rounding in the largest number that occurs."""
        numeric = Numeric(bits, self.work, point)
        difference = abs(numeric.tree(a) - numeric.tree(b))
        return difference <= numeric.largest * numeric.two_to(-bits // 2 - bits // 4)

    # equations and inequalities

    def proportional(self, a: Node, b: Node, as_equations: bool = False) -> int | None:
        """The sign of k where a = k b for a real constant k other than zero, else None.

        In an equation a and b may first be multiplied by the letters they are divided by.
        """
        ring = self.values.ring
        (p, d), (q, e) = self.values.form(a), self.values.form(b)
        if as_equations:
            p, q = ring.without_negative_powers(p), ring.without_negative_powers(q)
        if not p or not q:
            return None
        left, right = ring.by_symbols(p), ring.by_symbols(q)
        shared = left.keys() & right.keys()
        if not shared:
            return None
        # Were a = k b, then k would be the quotient of their coefficients of any shared product.
        c, k = left[max(shared)], right[max(shared)]
        difference = ring.subtract(ring.multiply(p, k), ring.multiply(q, c))
        if not self.values.zero.is_zero(difference):
            return None
        return self.sign_of_product(c, k, d, e)

    def sign_of_product(self, c: Polynomial, k: Polynomial, *bottoms: Polynomial) -> int | None:
        """A quotient has the sign of the product. Denominators with letters are not looked at."""
        sign_of, is_constant = self.values.zero.sign, self.values.ring.is_constant
        signs = [sign_of(c), sign_of(k), *(sign_of(d) if is_constant(d) else 1 for d in bottoms)]
        if None in signs or 0 in signs:
            return 1 if set(signs) == {None} else None
        product = 1
        for sign in signs:
            product *= sign
        return product


def longest_number(tree: Node) -> int:
    """Bits of the longest number in a tree, 10^{-80} included: comparing needs more than these."""
    longest, stack = 0, [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Num):
            longest = max(longest, bits_of(node))
        elif isinstance(node, Pow):
            longest = max(longest, bits_of(node.base) * abs(int(rational(node.exponent) or 0)))
        stack += node.children
    return longest


def bits_of(tree: Node) -> int:
    value = rational(tree) or Fraction(0)
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def has_steps(tree: Node) -> bool:
    """Whether floor or ceil occurs."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Call) and node.name in ("floor", "ceil"):
            return True
        stack += node.children
    return False
