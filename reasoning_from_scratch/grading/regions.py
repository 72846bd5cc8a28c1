"""Sets of real numbers as cuts of the line.

A region is a tuple of cuts in rising order; inside and outside alternate, beginning outside. A cut
is (place, side): side 0 lies just before the place, side 1 just after it. So [a, b) is the cuts
(a, 0), (b, 0) and (a, b] is (a, 1), (b, 1). A place is -1 or 1 for an infinity, else a Form.
"""

from functools import cmp_to_key

from .limits import TooBig, Undefined

MINUS, PLUS = -1, 1
LINE = ((MINUS, 1), (PLUS, 0))
MAX_CUTS = 60


class Regions:
    def __init__(self, values):
        self.values = values

    def order(self, a, b) -> int:
        """The sign of a - b for two cuts."""
        self.values.work.spend(30)
        places = self.order_places(a[0], b[0])
        return places or a[1] - b[1]

    def order_places(self, a, b) -> int:
        if isinstance(a, int) or isinstance(b, int):
            left = a if isinstance(a, int) else 0
            right = b if isinstance(b, int) else 0
            return (left > right) - (left < right)
        top, bottom = self.values.plus(a, self.values.negative(b))
        sign = self.values.sign(top)
        if sign is None or (sign and not self.values.sign(bottom)):
            raise Undefined
        return sign * self.values.sign(bottom) if sign else 0

    def interval(self, low, low_closed: bool, high, high_closed: bool) -> tuple:
        if isinstance(low, int) and low_closed or isinstance(high, int) and high_closed:
            raise Undefined
        cuts = (low, 0 if low_closed else 1), (high, 1 if high_closed else 0)
        if self.order(*cuts) >= 0:
            raise Undefined
        return cuts

    def point(self, place) -> tuple:
        return (place, 0), (place, 1)

    def union(self, *regions: tuple) -> tuple:
        """Sweeps over all cuts and counts how many regions are open."""
        steps = [(cut, 1 - 2 * (i % 2)) for region in regions for i, cut in enumerate(region)]
        if len(steps) > MAX_CUTS:
            raise TooBig
        steps.sort(key=cmp_to_key(lambda s, t: self.order(s[0], t[0]) or t[1] - s[1]))
        cuts, depth = [], 0
        for cut, change in steps:
            if depth == 0 or depth + change == 0:
                cuts.append(cut)
            depth += change
        return tuple(cuts)

    def complement(self, region: tuple) -> tuple:
        cuts = list(region)
        cuts = cuts[1:] if cuts and cuts[0] == LINE[0] else [LINE[0], *cuts]
        cuts = cuts[:-1] if cuts and cuts[-1] == LINE[1] else [*cuts, LINE[1]]
        return tuple(cuts)

    def meet(self, *regions: tuple) -> tuple:
        return self.complement(self.union(*(self.complement(region) for region in regions)))

    def same(self, a: tuple, b: tuple) -> bool:
        return len(a) == len(b) and all(self.order(x, y) == 0 for x, y in zip(a, b, strict=True))
