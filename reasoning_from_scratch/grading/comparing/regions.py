"""Sets of real numbers as cuts of the line.

A region is a tuple of cuts in rising order; inside and outside alternate, beginning outside. A cut
is (place, side): side 0 lies just before the place, side 1 just after it. A place is -1 or 1 for
an infinity, else a Form.

    [a, b)    ((a, 0), (b, 0))        (a, b]    ((a, 1), (b, 1))        {a}    ((a, 0), (a, 1))
"""

from functools import cmp_to_key
from typing import NamedTuple

from ..limits import TooBig, Undefined
from ..values.exact import ExactValues
from ..values.forms import Form

Place = Form | int
MINUS, PLUS = -1, 1
MAX_CUTS = 60


class Cut(NamedTuple):
    place: Place
    side: int


Cuts = tuple[Cut, ...]
LINE: Cuts = (Cut(MINUS, 1), Cut(PLUS, 0))


class Regions:
    def __init__(self, values: ExactValues):
        self.values = values

    def order(self, a: Cut, b: Cut) -> int:
        """The sign of a - b."""
        self.values.work.spend(30)
        return self.order_places(a.place, b.place) or a.side - b.side

    def order_places(self, a: Place, b: Place) -> int:
        if isinstance(a, int) or isinstance(b, int):
            left = a if isinstance(a, int) else 0
            right = b if isinstance(b, int) else 0
            return (left > right) - (left < right)
        sign_of = self.values.zero.sign
        difference = self.values.forms.minus(a, b)
        top = sign_of(difference.top)
        if top == 0:
            return 0
        bottom = sign_of(difference.bottom)
        if top is None or not bottom:
            raise Undefined
        return top * bottom

    def interval(self, low: Place, low_closed: bool, high: Place, high_closed: bool) -> Cuts:
        if isinstance(low, int) and low_closed or isinstance(high, int) and high_closed:
            raise Undefined
        cuts = Cut(low, 0 if low_closed else 1), Cut(high, 1 if high_closed else 0)
        if self.order(*cuts) >= 0:
            raise Undefined
        return cuts

    def point(self, place: Place) -> Cuts:
        return Cut(place, 0), Cut(place, 1)

    def union(self, *regions: Cuts) -> Cuts:
        """Sweeps over all cuts and counts how many regions are open."""
        # Even cuts of a region open it (+1), odd ones close it (-1).
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

    def complement(self, region: Cuts) -> Cuts:
        cuts = list(region)
        cuts = cuts[1:] if cuts and cuts[0] == LINE[0] else [LINE[0], *cuts]
        cuts = cuts[:-1] if cuts and cuts[-1] == LINE[1] else [*cuts, LINE[1]]
        return tuple(cuts)

    def intersection(self, *regions: Cuts) -> Cuts:
        return self.complement(self.union(*(self.complement(region) for region in regions)))

    def same(self, a: Cuts, b: Cuts) -> bool:
        return len(a) == len(b) and all(self.order(x, y) == 0 for x, y in zip(a, b, strict=True))
