"""Sets of real numbers as cuts of the line.

A region is a tuple of cuts in rising order; inside and outside alternate, beginning outside. A cut
is (point, side): side 0 lies just before the point, side 1 just after it. A point is a number as
values.py computes them, or an infinity.

    [a, b)    ((a, 0), (b, 0))        (a, b]    ((a, 1), (b, 1))        {a}    ((a, 0), (a, 1))
"""

from functools import cmp_to_key
from typing import Any, NamedTuple

from ..limits import TooBig, Undefined
from ..values import compare_reals

MINUS_INFINITY, PLUS_INFINITY = float("-inf"), float("inf")
INFINITE = (MINUS_INFINITY, PLUS_INFINITY)
MAX_CUTS = 60


class Cut(NamedTuple):
    point: Any
    side: int


Cuts = tuple[Cut, ...]
LINE: Cuts = (Cut(MINUS_INFINITY, 1), Cut(PLUS_INFINITY, 0))


def compare_cuts(a: Cut, b: Cut) -> int:
    """The sign of a - b."""
    if a.point in INFINITE or b.point in INFINITE:
        order = (a.point > b.point) - (a.point < b.point)
    else:
        order = compare_reals(a.point, b.point)
    return order or a.side - b.side


def interval(low, low_closed: bool, high, high_closed: bool) -> Cuts:
    if low in INFINITE and low_closed or high in INFINITE and high_closed:
        raise Undefined
    cuts = Cut(low, 0 if low_closed else 1), Cut(high, 1 if high_closed else 0)
    if compare_cuts(*cuts) >= 0:
        raise Undefined
    return cuts


def single_point(point) -> Cuts:
    return Cut(point, 0), Cut(point, 1)


def union(*regions: Cuts) -> Cuts:
    """Sweeps over all cuts and counts how many regions are open."""
    # Even cuts of a region open it (+1), odd ones close it (-1).
    steps = [(cut, 1 - 2 * (i % 2)) for region in regions for i, cut in enumerate(region)]
    if len(steps) > MAX_CUTS:
        raise TooBig
    steps.sort(key=cmp_to_key(compare_steps))
    cuts, depth = [], 0
    for cut, change in steps:
        if depth == 0 or depth + change == 0:
            cuts.append(cut)
        depth += change
    return tuple(cuts)


def compare_steps(a: tuple[Cut, int], b: tuple[Cut, int]) -> int:
    """Of two at the same cut, the one that opens comes first."""
    return compare_cuts(a[0], b[0]) or b[1] - a[1]


def complement(region: Cuts) -> Cuts:
    cuts = list(region)
    cuts = cuts[1:] if cuts and cuts[0] == LINE[0] else [LINE[0], *cuts]
    cuts = cuts[:-1] if cuts and cuts[-1] == LINE[1] else [*cuts, LINE[1]]
    return tuple(cuts)


def intersection(*regions: Cuts) -> Cuts:
    return complement(union(*(complement(region) for region in regions)))


def same_region(a: Cuts, b: Cuts) -> bool:
    return len(a) == len(b) and all(compare_cuts(x, y) == 0 for x, y in zip(a, b, strict=True))
