"""The styles of answer over training, drawn: stacked areas, each with its name in or beside it."""

from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from reasoning_from_scratch.text import percent
from reasoning_from_scratch.tiny.ways import WAYS

from .curves import page_svg, percent_axis, step_axis
from .palette import COLOR, TEXT
from .ways import WaysOverTime

# From light to dark as the styles take more tokens, so that gray shows the same order.
FILLS = ("w0", "w1", "w2", "w3")
INKS = ("ink", "ink", "card", "card")  # of the names inside the areas
WIDTH, HEIGHT = 360, 210  # of a picture in the page
LEFT, RIGHT, TOP, BOTTOM = 62, 70, 8, 40
THICK = 0.11  # an area at least this high has room for its name
SPACE = 0.1  # between two names beside the areas


def way_pictures(pictures: Sequence[WaysOverTime]) -> list[tuple[str, Markup]]:
    """For the page: title and SVG."""
    return [(picture.title, _as_svg(picture)) for picture in pictures]


def _as_svg(picture: WaysOverTime) -> Markup:
    figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    box = (LEFT / WIDTH, BOTTOM / HEIGHT, across / WIDTH, down / HEIGHT)
    draw_ways(figure.add_axes(box, facecolor="none"), picture)
    ends = (
        f"{way} {percent(shares[0])} at the start, {percent(shares[-1])} at the end"
        for way, shares in picture.shares.items()
    )
    label = f"Share of each style of answer, {picture.title}: " + "; ".join(ends)
    return page_svg(figure, f"ways {picture.title}", label)


def draw_all_ways(pictures: Sequence[WaysOverTime]) -> Figure:
    """For a file: a panel each."""
    across = 2 if len(pictures) == 4 else min(len(pictures), 3)
    down = -(-len(pictures) // across)
    figure = Figure(figsize=(4.6 * across, 2.9 * down), layout="constrained")
    for number, picture in enumerate(pictures, start=1):
        panel = figure.add_subplot(down, across, number)
        draw_ways(panel, picture)
        panel.set_title(picture.title)
    return figure


def draw_ways(panel: Axes, picture: WaysOverTime) -> None:
    step_axis(panel)
    panel.set_xlabel("step of training", color=TEXT)
    panel.set_ylabel("share of answers", color=TEXT)
    panel.yaxis.set_major_locator(MultipleLocator(0.25))
    percent_axis(panel)
    panel.set_ylim(0, 1)
    at, shares = list(picture.at), [list(shares) for shares in picture.shares.values()]
    if len(at) == 1:  # an area needs two ends
        at, shares = [at[0], at[0] + 1], [2 * one for one in shares]
    panel.set_xlim(at[0], at[-1])
    panel.set_axisbelow(True)
    fills = [COLOR[name] for name in FILLS]
    panel.stackplot(at, *shares, colors=fills, edgecolor=COLOR["card"], linewidth=0.7)
    _name_areas(panel, at, shares)


def _name_areas(panel: Axes, at: list[float], shares: list[list[float]]) -> None:
    """Writes each name inside its area if there is room, else beside the area's right end."""
    beside, low = [], [0.0] * len(at)
    for number, (way, heights) in enumerate(zip(WAYS, shares, strict=True)):
        high = [a + b for a, b in zip(low, heights, strict=True)]
        thick, x, y = _widest_place(at, low, high)
        if thick >= THICK:
            ink = COLOR[INKS[number]]
            panel.text(x, y, way, color=ink, ha="center", va="center", fontsize=11)
        elif max(heights) >= 0.005:
            beside.append(((low[-1] + high[-1]) / 2, way))
        low = high
    height = 0.0
    for place, way in beside:  # from the lowest up
        height = max(place, height)
        panel.text(
            1.02, height, way, transform=panel.transAxes, color=TEXT, va="center", fontsize=10
        )
        height += SPACE


def _widest_place(at: list[float], low: list[float], high: list[float]) -> tuple[float, ...]:
    """Where a name a third as wide as the panel has the most room: the height there, x, y."""
    reach = (at[-1] - at[0]) / 6
    places = [(0.0, at[0], 0.0)]
    for x in at:
        x = min(max(x, at[0] + reach), at[-1] - reach)
        under = [i for i, other in enumerate(at) if abs(other - x) <= 1.3 * reach]
        if under:
            top, bottom = min(high[i] for i in under), max(low[i] for i in under)
            places.append((top - bottom, x, (top + bottom) / 2))
    return max(places)
