"""A forest plot: effects with their intervals, one below the other, the largest on top."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rfs.evaluation.paired import Effect
from rfs.report.palette import COLOR, COLORS, RULE, TEXT
from rfs.report.picture_files import save_picture

# Blue and orange differ in every kind of color blindness; in gray, the shapes still differ.
BLUE, ORANGE = COLORS[:2]
BETTER: dict[str, Any] = {"color": BLUE, "marker": "o", "markerfacecolor": BLUE}
WORSE: dict[str, Any] = {"color": ORANGE, "marker": "s", "markerfacecolor": ORANGE}
UNSURE: dict[str, Any] = {"color": TEXT, "marker": "D", "markerfacecolor": COLOR["card"]}


def forest_plot(effects: Mapping[str, Effect], axis: str, path: str | Path) -> Path:
    """A line per effect: its mean, and its 95% interval. `axis` names the unit and the baseline of
    the differences."""
    figure = Figure(figsize=(8, 1.5 + 0.36 * len(effects)), layout="constrained")
    draw_forest(figure.subplots(), effects, axis)
    intervals_legend(figure)
    return save_picture(figure, path)


def draw_forest(panel: Axes, effects: Mapping[str, Effect], axis: str) -> None:
    ordered = sorted(effects.items(), key=lambda item: item[1].mean)
    panel.axvline(0, color=TEXT, linewidth=1)
    for row, (_, effect) in enumerate(ordered):
        style = UNSURE if not effect.is_significant else BETTER if effect.mean > 0 else WORSE
        half_width = 0 if math.isnan(effect.half_width) else effect.half_width
        panel.errorbar(effect.mean, row, xerr=half_width, capsize=3, linewidth=1.6, **style)
    panel.set_yticks(range(len(ordered)), [name for name, _ in ordered])
    panel.set_ylim(-0.7, len(ordered) - 0.3)
    panel.set_xlabel(axis, color=TEXT)
    soften(panel, grid="x")


def soften(panel: Axes, grid: Literal["both", "x", "y"] = "both") -> None:
    """No frame, a pale grid behind the data."""
    panel.spines[:].set_visible(False)
    panel.grid(axis=grid, color=RULE)
    panel.set_axisbelow(True)
    panel.tick_params(length=0, labelcolor=TEXT)


def intervals_legend(figure: Figure) -> None:
    legend_rows = (("above 0", BETTER), ("below 0", WORSE), ("0 is possible", UNSURE))
    handles = [Line2D([], [], linestyle="", label=label, **style) for label, style in legend_rows]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=3, frameon=False, title="95% interval"
    )
