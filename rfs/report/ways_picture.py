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
FILL_COLORS = ("w0", "w1", "w2", "w3")
NAME_COLORS = ("ink", "ink", "card", "card")  # of the names inside the areas
WIDTH, HEIGHT = 360, 210  # of a picture in the page
LEFT, RIGHT, TOP, BOTTOM = 62, 70, 8, 40
MIN_NAME_HEIGHT = 0.11  # an area at least this high has room for its name
NAME_SPACING = 0.1  # between two names beside the areas


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
    steps, shares = list(picture.at), [list(shares) for shares in picture.shares.values()]
    if len(steps) == 1:  # an area needs two ends
        steps, shares = [steps[0], steps[0] + 1], [2 * values for values in shares]
    panel.set_xlim(steps[0], steps[-1])
    panel.set_axisbelow(True)
    fills = [COLOR[name] for name in FILL_COLORS]
    panel.stackplot(steps, *shares, colors=fills, edgecolor=COLOR["card"], linewidth=0.7)
    _name_areas(panel, steps, shares)


def _name_areas(panel: Axes, steps: list[float], shares: list[list[float]]) -> None:
    """Writes each name inside its area if there is room, else beside the area's right end."""
    beside, low = [], [0.0] * len(steps)
    for number, (way, heights) in enumerate(zip(WAYS, shares, strict=True)):
        high = [a + b for a, b in zip(low, heights, strict=True)]
        room, x, y = _roomiest_place(steps, low, high)
        if room >= MIN_NAME_HEIGHT:
            color = COLOR[NAME_COLORS[number]]
            panel.text(x, y, way, color=color, ha="center", va="center", fontsize=11)
        elif max(heights) >= 0.005:
            beside.append(((low[-1] + high[-1]) / 2, way))
        low = high
    height = 0.0
    for middle, way in beside:  # from the lowest up
        height = max(middle, height)
        panel.text(
            1.02, height, way, transform=panel.transAxes, color=TEXT, va="center", fontsize=10
        )
        height += NAME_SPACING


def _roomiest_place(steps: list[float], low: list[float], high: list[float]) -> tuple[float, ...]:
    """Where a name a third as wide as the panel has the most room: the height there, x, y."""
    half_width = (steps[-1] - steps[0]) / 6
    places = [(0.0, steps[0], 0.0)]
    for x in steps:
        x = min(max(x, steps[0] + half_width), steps[-1] - half_width)
        covered = [i for i, other in enumerate(steps) if abs(other - x) <= 1.3 * half_width]
        if covered:
            top, bottom = min(high[i] for i in covered), max(low[i] for i in covered)
            places.append((top - bottom, x, (top + bottom) / 2))
    return max(places)
