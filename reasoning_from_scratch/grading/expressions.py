"""Whether two expressions are equal: exact first; then many digits at points reject; what exact
arithmetic cannot decide is accepted only where it agrees in hundreds of digits everywhere."""

from fractions import Fraction

from .limits import TooBig, Undefined, Work
from .numeric import HUGE, NotReal, Numeric, rational
from .trees import symbols
from .values import Values

POINTS = (  # irregular, of both signs, small and large
    (3, 7), (19, 11), (-5, 13), (131, 17), (-47, 19), (29, 31), (-211, 23), (7, 37), (83, 41),
    (-13, 53), (449, 43), (2, 59), (-97, 61), (37, 71), (5, 67), (-1, 73), (1_009, 53),
    (67, 3), (211, 5), (-389, 19), (613, 29), (907, 31), (-53, 3), (709, 79),
)  # fmt: skip
ENOUGH = 5  # points at which both sides are real
CONSTANT_BITS, POINT_BITS = 1_000, 300


def longest_number(tree: tuple) -> int:
    """Bits of the longest number in a tree, 10^{-80} included: comparing needs more than these."""
    longest, stack = 0, [tree]
    while stack:
        node = stack.pop()
        if node[0] == "num":
            longest = max(longest, bits_of(node))
        elif node[0] == "pow":
            longest = max(longest, bits_of(node[1]) * abs(int(rational(node[2]) or 0)))
        stack += [part for part in node[1:] if isinstance(part, tuple)]
    return longest


def contains_step(tree: tuple) -> bool:
    """Whether floor or ceil occurs."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if node[0] == "fn" and node[1] in ("floor", "ceil"):
            return True
        stack += [part for part in node[1:] if isinstance(part, tuple)]
    return False


def bits_of(tree: tuple) -> int:
    value = rational(tree) or Fraction(0)
    return max(value.numerator.bit_length(), value.denominator.bit_length())


class Expressions:
    def __init__(self, work: Work):
        self.work = work
        self.values = Values(work)

    def equal(self, a: tuple, b: tuple) -> bool:
        if a == b:
            return True
        decided = self.exactly(a, b)
        if decided is not None:
            return decided
        return self.at_points(a, b)

    def exactly(self, a: tuple, b: tuple) -> bool | None:
        """By cross-multiplication; None where an expansion is too long or does not decide."""
        left, right = self.values.form(a), self.values.form(b)
        try:
            product = self.values.multiply(left[0], right[1])
            other = self.values.multiply(right[0], left[1])
            difference = self.values.add(product, self.values.scale(other, Fraction(-1)))
        except TooBig:
            return False
        return self.values.is_zero(difference)

    def at_points(self, a: tuple, b: tuple) -> bool:
        names = sorted(symbols(a) | symbols(b))
        longest = 4 * max(longest_number(a), longest_number(b))
        if longest > HUGE:
            raise TooBig
        if not names:
            return self.agree(a, b, None, CONSTANT_BITS + longest)
        if any(contains_step(tree) for tree in (a, b)):
            return False  # steps agree at any number of points and differ between them
        agreeing = 0
        for shift in range(len(POINTS)):
            point = {
                name: Fraction(*POINTS[(shift * (2 * i + 1) + 5 * i) % len(POINTS)])
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

    def agree(self, a: tuple, b: tuple, point: dict | None, bits: int) -> bool:
        """Equal up to rounding in the largest number that occurs."""
        numeric = Numeric(bits, self.work, point)
        difference = abs(numeric.tree(a) - numeric.tree(b))
        scale = numeric.largest
        return difference <= scale * numeric.two_to(-bits // 2 - bits // 4)

    def proportional(self, a: tuple, b: tuple, equation: bool = False) -> int | None:
        """The sign of k where a = k b for a real constant k other than zero, else None.

        In an equation a and b may first be multiplied by the letters they are divided by.
        """
        values = self.values
        (p, d), (q, e) = values.form(a), values.form(b)
        if equation:
            p, q = values.without_negative_powers(p), values.without_negative_powers(q)
        if not p or not q:
            return None
        left, right = values.by_symbols(p), values.by_symbols(q)
        shared = sorted(set(left) & set(right))
        if not shared:
            return None
        c, k = left[shared[-1]], right[shared[-1]]
        difference = values.add(
            values.multiply(p, k), values.scale(values.multiply(q, c), Fraction(-1))
        )
        if not values.is_zero(difference):
            return None
        signs = [values.sign(part) for part in (c, k)]
        for part in (d, e):
            signs.append(values.sign(part) if values.is_constant(part) else 1)
        if None in signs or 0 in signs:
            return 1 if set(signs) == {None} else None
        return signs[0] * signs[1] * signs[2] * signs[3]
