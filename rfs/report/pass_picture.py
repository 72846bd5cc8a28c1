"""The pass@k curves of several models, as a picture and as the numbers behind it."""

import csv
import io
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator, NullLocator

from reasoning_from_scratch.files.disk import disk_errors_as, write_atomically
from rfs.evaluation.pass_curves import Curve, shown_ks
from rfs.report.curves import DASHES, percent_axis
from rfs.report.palette import COLORS, RULE, TEXT
from rfs.report.picture_files import save_picture

MARKERS = "osD^v"
FONT_SIZE = 12  # points: to be read without zooming in


def save_pass_curves(panels: dict[str, dict[str, Curve]], path: Path) -> None:
    """Panel title -> model -> curve, drawn to `path`; the numbers go into a CSV file beside it."""
    save_picture(draw_pass_curves(panels), path)
    file = path.with_suffix(".csv")
    with disk_errors_as(f"cannot write {file}", "choose another place"):
        write_atomically(file, curve_csv(panels))


def curve_csv(panels: dict[str, dict[str, Curve]]) -> str:
    """A row per panel, model and k."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["problems", "model", "k", "pass_at_k", "low", "high"])
    for title, curves in panels.items():
        for name, curve in curves.items():
            values = zip(curve.mean, curve.low, curve.high, strict=True)
            for k, numbers in enumerate(values, start=1):
                writer.writerow([title, name, k, *(f"{number:.6f}" for number in numbers)])
    return text.getvalue()


def draw_pass_curves(panels: dict[str, dict[str, Curve]]) -> Figure:
    """A panel per problem set and a line per model, with its band."""
    figure = Figure(figsize=(1 + 3.3 * len(panels), 3.4), layout="constrained")
    panel_row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for panel, (title, curves) in zip(panel_row, panels.items(), strict=True):
        for number, (name, curve) in enumerate(curves.items()):
            draw_pass_curve(panel, name, curve, number)
        ks = shown_ks(max(len(curve.mean) for curve in curves.values()))
        pass_axes(panel, title, ks)
    panel_row[0].set_ylabel("problems solved", fontsize=FONT_SIZE, color=TEXT)
    legend_style = {"fontsize": FONT_SIZE, "frameon": False, "handlelength": 3}
    handles_and_labels = panel_row[0].get_legend_handles_labels()
    figure.legend(*handles_and_labels, loc="outside lower center", ncols=4, **legend_style)
    return figure


def draw_pass_curve(panel: Axes, name: str, curve: Curve, number: int) -> None:
    """Models differ in color, and for gray prints also in dashes and markers."""
    color, ks = COLORS[number % 5], range(1, len(curve.mean) + 1)
    panel.fill_between(ks, curve.low, curve.high, color=color, alpha=0.2, linewidth=0)
    panel.plot(
        ks,
        curve.mean,
        label=name,
        color=color,
        linestyle=DASHES[number % 5],
        linewidth=2,
        marker=MARKERS[number % 5],
        markersize=6,
        markevery=[k - 1 for k in shown_ks(len(ks))],
        clip_on=False,
    )


def pass_axes(panel: Axes, title: str, ks: list[int]) -> None:
    panel.set_title(title, fontsize=FONT_SIZE, pad=10)
    panel.set_xscale("log", base=2)
    panel.set_xticks(ks, [str(k) for k in ks])
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xlabel("answers per problem, k", fontsize=FONT_SIZE, color=TEXT)
    panel.set_ylim(0, 1)
    panel.yaxis.set_major_locator(MultipleLocator(0.25))
    percent_axis(panel)
    panel.spines[:].set_visible(False)
    panel.grid(axis="y", color=RULE)
    panel.tick_params(length=0, labelcolor=TEXT, labelsize=FONT_SIZE - 1)
