"""The pictures of chapter 8: the signal in a problem, a run's curve, the weight of each token.

The first or the later model is blue and solid, the other orange and dashed or hatched, so color
alone never carries the meaning. All pictures have a white background, for dark pages.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from rfs.report.palette import COLORS, RULE, TEXT

BLUE, ORANGE = COLORS[:2]


def signal(group_size: int = 8) -> Figure:
    """Two curves over the pass rate p, from 0 to 1. p (1 - p) is a hill with its top of 0.25 at
    one half. The chance that a group of eight has correct and incorrect answers is a plateau near
    1 that falls to 0 at both ends."""
    figure = Figure(figsize=(8, 2.7), layout="constrained")
    rates = [number / 100 for number in range(101)]
    panels = figure.subplots(1, 2)
    variance = [p * (1 - p) for p in rates]
    chance_mixed = [1 - p**group_size - (1 - p) ** group_size for p in rates]
    titles = ("p (1 - p)", f"chance that {group_size} answers differ")
    for panel, values, title in zip(panels, (variance, chance_mixed), titles, strict=True):
        panel.plot(rates, values, color=BLUE)
        panel.set(title=title, xlabel="pass rate p", ylim=(0, None))
        remove_frame(panel)
    return figure


def pass_rates(counts: Mapping[str, Sequence[int]], group_size: int = 8) -> Figure:
    """A panel for each model: how many problems it solves 0, 1, ... 8 times out of eight. The bars
    of 0 and 8, which teach nothing, are hatched in orange; those between are blue."""
    figure = Figure(figsize=(3.1 * len(counts), 2.6), layout="constrained")
    panels = figure.subplots(1, len(counts), sharey=True, squeeze=False)[0]
    for panel, (name, correct) in zip(panels, counts.items(), strict=True):
        for count in range(group_size + 1):
            no_signal = count in (0, group_size)
            style = (
                {"fc": "white", "ec": ORANGE, "hatch": "///"}
                if no_signal
                else {"fc": BLUE, "ec": BLUE}
            )
            panel.bar(count, list(correct).count(count), width=0.8, **style)
        panel.set(title=name, xlabel="correct answers of 8", xticks=range(0, group_size + 1, 2))
        remove_frame(panel)
    panels[0].set_ylabel("problems")
    return figure


def practice_curve(rewards: Sequence[float]) -> Figure:
    """The share of correct answers at each step of a run: thin as measured, thick the mean of
    five steps."""
    figure = Figure(figsize=(6, 2.7), layout="constrained")
    panel = figure.subplots()
    steps = range(1, len(rewards) + 1)
    panel.plot(steps, rewards, color=BLUE, lw=0.8, alpha=0.5)
    smoothed = [fmean(rewards[max(0, step - 5) : step]) for step in steps]
    panel.plot(steps, smoothed, color=BLUE, lw=2)
    panel.set(xlabel="step of GRPO", ylabel="correct answers", ylim=(0, 1))
    panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    remove_frame(panel)
    return figure


def token_weights(tokens: Sequence[str], advantage: float, from_teacher: Sequence[float]) -> Figure:
    """One answer, token by token. Above, GRPO's weight: the same low bar for each. Below, the
    teacher's: the same small bar for most, and long ones where it would have written another."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    places = range(len(tokens))
    rows = (("GRPO", [advantage] * len(tokens)), ("teacher", from_teacher))
    for panel, (name, values) in zip(panels, rows, strict=True):
        for place, value in zip(places, values, strict=True):
            style = (
                {"fc": BLUE, "ec": BLUE}
                if value > 0
                else {"fc": "white", "ec": ORANGE, "hatch": "///"}
            )
            panel.bar(place, value, width=0.8, **style)
        panel.axhline(0, color=RULE, lw=0.8)
        panel.set_ylabel(f"{name}:\nweight")
        remove_frame(panel)
    shown = [token.replace("\n", "\\n").replace("$", r"\$") for token in tokens]
    panels[1].set_xticks(list(places), shown, rotation=90, fontsize=9, family="monospace")
    return figure


def rivals(table: pd.DataFrame) -> Figure:
    """A line for each row of gsm8k_chapter.rivals, from the share of correct answers at temperature
    1 to that with greedy decoding. A short line: the model means what it says first. A long one: it
    can, but seldom does."""
    figure = Figure(figsize=(8, 1 + 0.42 * len(table)), layout="constrained")
    panel = figure.subplots()
    places = range(len(table))
    panel.hlines(places, table["temperature 1"], table["greedy"], color=RULE, lw=3, zorder=1)
    marks = {"temperature 1": (ORANGE, "D", "white"), "greedy": (BLUE, "o", BLUE)}
    for column, (color, mark, inside) in marks.items():
        panel.scatter(
            table[column], places, s=60, marker=mark, edgecolors=color, facecolors=inside,
            lw=1.8, label=column, zorder=2,
        )  # fmt: skip
    panel.set(yticks=places, yticklabels=table.index, xlim=(0, None), ylim=(len(table) - 0.4, -0.6))
    panel.set_xlabel("correct on held-out problems")
    panel.xaxis.set_major_formatter(PercentFormatter(100, decimals=0))
    figure.legend(frameon=False, loc="outside upper center", ncols=2)
    remove_frame(panel)
    return figure


def remove_frame(panel) -> None:
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(colors=TEXT)
