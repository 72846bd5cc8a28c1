"""The pictures of chapter 7: curves of runs side by side, the clip, the policies, the lag.

`joint_curves`, `answer_ways` and `passes_over_training` draw runs; the others draw ideas. Blue and
solid is always the first run or the good case, orange and dashed the second, so no line is told by
its color alone.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from reasoning_from_scratch.losses import ppo
from reasoning_from_scratch.report.curves import COLORS, DASHES, RULE, TEXT, step_axis
from reasoning_from_scratch.report.pass_picture import MARKERS
from reasoning_from_scratch.report.run_files import read_run
from reasoning_from_scratch.report.ways import train_answers, ways_over_time
from reasoning_from_scratch.report.ways_picture import draw_ways

SHADE = "#eef1f6"
NARROW = 2  # steps before a value that its average takes in


def joint_curves(runs: dict[str, Sequence[dict]], curves: dict[str, str]) -> Figure:
    """A panel per curve (metric -> label with its unit), a line per run (name -> its rows).

    Thin is what was measured; the line is its mean over three steps. Where a curve has a gap,
    the step had nothing to measure.
    """
    across = 3 if len(curves) > 4 else 2
    down = -(-len(curves) // across)
    figure = Figure(figsize=(2.9 * across + 0.3, 2.3 * down + 0.3), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flat
    for panel, (metric, label) in zip(panels, curves.items(), strict=False):
        step_axis(panel, label)
        panel.title.set_fontsize(10)
        for number, rows in enumerate(runs.values()):
            draw_run(panel, rows, metric, number)
        if panel.dataLim.ymin >= 0:
            panel.set_ylim(bottom=0)
    for panel in list(figure.axes)[len(curves) :]:
        panel.set_visible(False)
    for number, name in enumerate(runs):
        figure.axes[0].plot([], [], color=COLORS[number], ls=DASHES[number], label=name)
    figure.legend(loc="outside lower center", ncols=len(runs), frameon=False, handlelength=3)
    return figure


def draw_run(panel: Axes, rows: Sequence[dict], metric: str, number: int) -> None:
    found = [(row["step"], row[metric]) for row in rows if row.get(metric) is not None]
    steps, values = [step for step, _ in found], [value for _, value in found]
    look = {"color": COLORS[number]}
    if metric == "eval_acc":  # measured now and then
        panel.plot(steps, values, "o", ls=DASHES[number], ms=4, **look)
    else:
        known = dict(found)
        every = range(len(rows))
        panel.plot(every, [known.get(step) for step in every], lw=0.8, alpha=0.35, **look)
        panel.plot(every, [trailing_mean(known, step) for step in every], ls=DASHES[number], **look)


def trailing_mean(known: dict[int, float], step: int) -> float:
    """Over the last three steps; nan, which is not drawn, where this step measured nothing."""
    if step not in known:
        return float("nan")
    values = [known[past] for past in range(step - NARROW, step + 1) if past in known]
    return sum(values) / len(values)


def answer_ways(folders: dict[str, Path]) -> Figure:
    """Of each run, how many of its answers were given in which way, as areas that add up to 1."""
    figure = Figure(figsize=(0.6 + 4.2 * len(folders), 2.9), layout="constrained")
    panels = figure.subplots(1, len(folders), squeeze=False)[0]
    for panel, (name, folder) in zip(panels, folders.items(), strict=True):
        everything, *_ = ways_over_time(train_answers(read_run(folder)))
        draw_ways(panel, everything)
        panel.set_title(name, fontsize=10)
    return figure


def passes_over_training(stages: dict[str, dict[str, dict[int, list[float]]]]) -> Figure:
    """Panel title -> label of a line -> step -> pass@k. A step that ends one run and begins the
    next has two values; a line across marks it."""
    figure = Figure(figsize=(1 + 3.3 * len(stages), 3.2), layout="constrained")
    row = figure.subplots(1, len(stages), sharey=True, squeeze=False)[0]
    for panel, (title, lines) in zip(row, stages.items(), strict=True):
        step_axis(panel, title)
        panel.set(ylim=(0, 1.02), xlabel="steps of training")
        panel.yaxis.set_major_formatter(PercentFormatter(1))
        for number, (label, values) in enumerate(lines.items()):
            points = [(step, value) for step, found in values.items() for value in found]
            look = {"color": COLORS[number], "ls": DASHES[number], "marker": MARKERS[number]}
            panel.plot(*zip(*points, strict=True), label=label, ms=4, clip_on=False, **look)
        for step in {step for values in lines.values() for step, two in values.items() if two[1:]}:
            panel.axvline(step, color=RULE, lw=1.5, zorder=0)
    row[0].set_ylabel("problems solved", color=TEXT)
    lines = row[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=4, frameon=False, handlelength=3)
    return figure


def clip_curves(
    ratios: Sequence[float] = (),
    advantages: Sequence[float] = (),
    clip_low: float = 0.8,
    clip_high: float = 1.2,
) -> Figure:
    """The clipped objective over the ratio, for an advantage of +1 and of -1. `ratios` are the
    tokens of a run, dots under the curve of the sign of their advantage."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    across = torch.linspace(0.0, 2.2, 400)
    for panel, sign in zip(figure.subplots(1, 2), (1.0, -1.0), strict=True):
        idea_axis(panel, f"advantage {'above' if sign > 0 else 'below'} 0")
        flat = (clip_high, across[-1]) if sign > 0 else (0.0, clip_low)
        panel.axvspan(*map(float, flat), color=SHADE)
        place = sum(map(float, flat)) / 2, 0.4 if sign > 0 else -1.5
        panel.text(*place, "no gradient", ha="center", va="center", color=TEXT)
        panel.plot(across, sign * across, color=TEXT, ls=":", label="ratio x advantage")
        clipped = ppo(across, torch.tensor(sign), clip_low, clip_high)
        panel.plot(across, clipped, color=COLORS[0], lw=2.5, label="the smaller of the two")
        same = [r for r, a in zip(ratios, advantages, strict=True) if a * sign > 0]
        draw_ratios(panel, same, flat, sign)
        panel.set(xlim=(0, 2.2), xlabel="ratio: new probability / old probability")
        panel.set_ylim((-0.75, 2.2) if sign > 0 else (-2.2, 0.75))
    figure.axes[0].set_ylabel("value that is maximized", color=TEXT)
    figure.axes[0].legend(loc="upper left", frameon=False, fontsize=9)
    return figure


def draw_ratios(panel: Axes, ratios: Sequence[float], flat: tuple, sign: float) -> None:
    """Each token a dot at its ratio, spread up and down so that they can be told apart."""
    if not ratios:
        return
    low, high = map(float, flat)
    silent = sum(ratio > low if sign > 0 else ratio < high for ratio in ratios)
    spread = torch.rand(len(ratios), generator=torch.Generator().manual_seed(0))
    heights = -sign * (0.15 + 0.35 * spread)
    shown = [min(ratio, 2.19) for ratio in ratios]
    panel.plot(shown, heights, "o", color=COLORS[1], ms=2.5, alpha=0.35, mew=0)
    words = f"{len(ratios):,} tokens of a step, {silent / len(ratios):.1%} without gradient"
    panel.text(1.1, -0.64 * sign, words, ha="center", va="center", color=COLORS[1], fontsize=9)


def three_policies() -> Figure:
    """Which copies of the model a run compares, and when each is replaced."""
    figure = Figure(figsize=(8, 3.1), layout="constrained")
    panel = figure.subplots()
    idea_axis(panel)
    steps = 3
    moving = [step + part / 4 for step in range(steps) for part in range(5)]
    height = [0.35 + 1.3 * place / steps for place in moving]
    panel.plot(moving, height, color=COLORS[0], lw=2.5)
    for step in range(steps):
        start = 0.35 + 1.3 * step / steps
        panel.plot([step, step + 1], [start, start], color=COLORS[1], ls="--", lw=2)
        panel.plot([step] * 2, [0.25, start], color=RULE, lw=1)
        panel.text(step + 0.5, 0.24, f"step {step + 1}", color=TEXT, ha="center", fontsize=9)
    panel.plot([0, steps], [0.35, 0.35], color=COLORS[2], ls=":", lw=2.5)
    labels = (
        (1.66, "policy: moves with every update", COLORS[0]),
        (1.2, "old policy: the copy that the step\nbegan with; it drew the rollouts", COLORS[1]),
        (0.35, "reference: the model that\nthe run began with", COLORS[2]),
    )
    for at, words, color in labels:
        panel.text(steps + 0.08, at, words, color=color, va="center")
    arrow = {"arrowstyle": "<->", "color": TEXT}
    panel.annotate("", (2.9, 1.21), (2.9, 1.61), arrowprops=arrow)
    panel.text(2.86, 1.3, "ratio", ha="right", va="center", color=TEXT)
    panel.annotate("", (1.75, 0.36), (1.75, 1.1), arrowprops=arrow)
    panel.text(1.71, 0.55, "KL", ha="right", color=TEXT)
    panel.set(xlim=(-0.05, 4.75), ylim=(0.15, 1.8), yticks=[], xticks=[])
    return figure


def lag_timeline(batches: int = 4) -> Figure:
    """Who works when, taking turns and side by side; each batch with the version of the weights
    that drew it."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    for panel, lag in zip(panels, (0, 1), strict=True):
        title = "taking turns: lag 0" if lag == 0 else "side by side: lag 1"
        idea_axis(panel, title)
        for batch in range(batches):
            sampled = 2 * batch if lag == 0 else batch
            version = batch if lag == 0 else max(0, batch - 1)
            draw_work(panel, sampled, 1, f"batch {batch + 1}\nby version {version}", COLORS[0])
            draw_work(panel, sampled + 1, 0, f"batch {batch + 1}\nversion {batch} → {batch + 1}")
        panel.set(yticks=[0, 1], yticklabels=["trainer", "sampler"], ylim=(-0.5, 1.5), xticks=[])
    panels[1].set(xlim=(0, 2 * batches), xlabel="time →")
    return figure


def draw_work(panel: Axes, start: int, row: int, words: str, color: str = COLORS[1]) -> None:
    panel.barh(row, 0.94, left=start + 0.03, height=0.8, color=color, alpha=0.2)
    panel.text(start + 0.5, row, words, ha="center", va="center", fontsize=8)


def idea_axis(panel: Axes, title: str = "") -> None:
    panel.set_title(title, fontsize=10)
    panel.spines[:].set_visible(False)
    panel.tick_params(length=0, labelcolor=TEXT)
