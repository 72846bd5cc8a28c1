"""Pictures of what the regimes found: the arms of one, and the differences of all of them."""

import math
from collections.abc import Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator
from regime_findings import (
    Contrast,
    Regime,
    chosen_rates,
    rate_values,
    short_rate,
    unit_of,
    values_of,
)

from rfs.evaluation.paired import Effect, rate_means
from rfs.report.curves import DASHES
from rfs.report.forest import draw_forest, intervals_legend, soften
from rfs.report.palette import COLORS, TEXT

# For each of six arms a color, a shape and a kind of line.
ARM_COLORS = (*COLORS, "#b8336a")
MARKS = ("o", "s", "D", "^", "v", "P")
ARM_DASHES = (*DASHES, (0, (1, 1)))
GROUPS = ("large", "small", "other units")  # of differences, each drawn at its own scale
LARGE = 0.15  # a share; a larger difference is drawn among the large ones
BAND = "#eef1f6"  # within 2 percentage points of no difference


def regime_picture(name: str, regime: Regime, rows: Sequence[dict], contrasts: Sequence[Contrast]):
    """What each arm reached, seed by seed; how that depends on its learning rate, if there
    are few arms; and the differences with their intervals."""
    decided = {f"{one.ours}\nagainst {one.theirs}": one.effect for one in contrasts if one.decides}
    arms = {arm: values_of(rows, name, arm, regime.outcome) for arm in regime.arms}
    heights = [max(2.3, 1 + 0.3 * len(arms)), 1.2 + 0.42 * len(decided)]
    figure = Figure(figsize=(7, sum(heights)), layout="constrained")
    draws_rates = len(arms) <= len(MARKS)  # more curves than that are a tangle
    top_row = ["seeds", "rates" if draws_rates else "seeds"]
    panels = figure.subplot_mosaic([top_row, ["differences"] * 2], height_ratios=heights)
    seeds, *middle, differences = panels.values()
    draw_seeds(seeds, arms, chosen_rates(name, regime, rows))
    seeds.set_xlabel(f"{regime.outcome} ({unit_of(regime.outcome)})", color=TEXT)
    for panel in middle:
        draw_rates(panel, {arm: rate_values(rows, name, arm, regime.chosen_by) for arm in arms})
        panel.set_ylabel(f"{regime.chosen_by} ({unit_of(regime.chosen_by)})", color=TEXT)
    draw_forest(differences, decided, f"difference in {regime.outcome}, 95% interval")
    better = "left" if regime.lower_is_better else "right"
    differences.xaxis.set_major_locator(MaxNLocator(5))
    differences.set_title(f"better is to the {better}", color=TEXT, fontsize=10)
    for panel in (seeds, *middle, differences):
        panel.tick_params(labelsize=9)
        panel.xaxis.label.set_size(9)
        panel.yaxis.label.set_size(9)
    return figure


def draw_seeds(panel: Axes, arms: dict, rates: dict[str, float]) -> None:
    """A dot per seed, and the mean as a bar across."""
    for y, (arm, values) in enumerate(reversed(arms.items())):
        if arm not in rates:
            continue
        number = len(arms) - 1 - y
        color, mark = ARM_COLORS[number % len(ARM_COLORS)], MARKS[number % len(MARKS)]
        measured = [value for value in values[rates[arm]].values() if not math.isnan(value)]
        panel.plot(measured, [y] * len(measured), mark, color=color, alpha=0.5, ms=5, mew=0)
        if measured:
            panel.plot([fmean(measured)] * 2, [y - 0.3, y + 0.3], color=color, lw=2.5)
    panel.set_yticks(range(len(arms)), reversed(list(arms)))
    panel.set_ylim(-0.6, len(arms) - 0.4)
    panel.set_title("a dot per seed, at the best rate", color=TEXT, fontsize=10)
    soften(panel)


def draw_rates(panel: Axes, arms: dict) -> None:
    """The mean over the seeds that tried every rate. If more seeds tried only the best few, the
    choice between those used them, too, but they are not drawn: see `best_rate`."""
    for number, values in enumerate(arms.values()):
        means = dict(sorted(rate_means(values).items()))
        color, dash = ARM_COLORS[number % len(ARM_COLORS)], ARM_DASHES[number % len(ARM_DASHES)]
        mark = MARKS[number % len(MARKS)]
        panel.plot(list(means), list(means.values()), marker=mark, ms=4, color=color, ls=dash)
    tried = sorted({lr for values in arms.values() for lr in values if lr > 0})
    panel.set_xscale("log")
    panel.minorticks_off()
    panel.set_xticks(tried, [short_rate(lr) for lr in tried], rotation=90 * (len(tried) > 4))
    panel.set_xlabel("learning rate", color=TEXT)
    panel.set_title("learning rates tried", color=TEXT, fontsize=10)
    soften(panel)


def all_effects(contrasts: Sequence[Contrast], groups: Sequence[str] = GROUPS) -> Figure:
    """Every method's deciding difference, the largest on top; a panel for each group and unit."""
    panels: dict[tuple[str, str], dict[str, Effect]] = {}
    for contrast in contrasts:
        if contrast.decides and contrast.effect.seeds > 1 and group_of(contrast) in groups:
            unit, effect = unit_of(contrast.outcome), contrast.effect
            if unit == "share":
                unit = "percentage points"
                effect = Effect(100 * effect.mean, 100 * effect.error, effect.seeds)
            label = f"{contrast.regime}: {contrast.ours} / {contrast.theirs}"
            panels.setdefault((group_of(contrast), unit), {})[label] = effect
    panels = dict(sorted(panels.items(), key=lambda item: GROUPS.index(item[0][0])))
    heights = [len(effects) + 1.5 for effects in panels.values()]
    figure = Figure(figsize=(9, 0.8 + 0.3 * sum(heights)), layout="constrained")
    axes = figure.subplots(len(panels), 1, height_ratios=heights, squeeze=False)[:, 0]
    for panel, ((group, unit), effects) in zip(axes, panels.items(), strict=True):
        draw_forest(panel, effects, f"difference, with / without ({unit})")
        panel.tick_params(labelsize=8.5)
        if group == "small":
            panel.axvspan(-2, 2, color=BAND, zorder=0)
            panel.xaxis.set_major_locator(MultipleLocator(4))
    intervals_legend(figure)
    return figure


def group_of(contrast: Contrast) -> str:
    if unit_of(contrast.outcome) != "share":
        return "other units"
    return "large" if abs(contrast.effect.mean) > LARGE else "small"
