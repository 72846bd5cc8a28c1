"""The pictures of chapter 7: curves of runs side by side, and drawings of its ideas.

`joint_curves`, `answer_ways`, `passes_over_training`, `long_run_curves`, `budget_curves` and
`lag_prices` draw runs; the others draw ideas: the loop, the records of log-probabilities, the clip,
KL's two directions, groups, lengths, the lag. The first run or the good case is always blue and
solid, the second orange and dashed, so color alone never carries the meaning. All pictures have a
white background, for dark pages.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import PercentFormatter

from reasoning_from_scratch.advantages import mean_centered, zscore
from reasoning_from_scratch.losses import ppo
from rfs.report.curves import DASHES, step_axis
from rfs.report.palette import COLORS, RULE, TEXT
from rfs.report.pass_picture import MARKERS
from rfs.report.run_files import read_run
from rfs.report.ways import train_answers, ways_over_time
from rfs.report.ways_picture import draw_ways

STAGES = "problems rollouts rewards advantages logprobs loss update".split()
INK, SHADE, LIGHT = "#1d2130", "#eef1f6", "#e8eefb"
STEPS_BEFORE = 2  # earlier steps that a running average includes


def joint_curves(
    runs: Mapping[str, Sequence[dict]], curves: Mapping[str, str], looks: Sequence[int] = ()
) -> Figure:
    """A panel per curve (metric -> label with its unit), a line per run (name -> its rows).

    The thin line is the measurement, the thick one its mean over three steps. A gap means that a
    step had nothing to measure. `looks` has the number of each run's color and dash; by default
    each has its own, in order. The legend names only the first of the runs that look the same.
    """
    looks = looks or range(len(runs))
    columns = 3 if len(curves) > 4 else 2
    row_count = -(-len(curves) // columns)
    figure = Figure(figsize=(2.9 * columns + 0.3, 2.3 * row_count + 0.3), layout="constrained")
    panels = figure.subplots(row_count, columns, squeeze=False).flat
    for panel, (metric, label) in zip(panels, curves.items(), strict=False):
        step_axis(panel, label)
        panel.title.set_fontsize(10)
        for number, rows in zip(looks, runs.values(), strict=True):
            draw_run(panel, rows, metric, number)
        if panel.dataLim.ymin >= 0:
            panel.set_ylim(bottom=0)
    for panel in list(figure.axes)[len(curves) :]:
        panel.set_visible(False)
    for i, (number, name) in enumerate(zip(looks, runs, strict=True)):
        if number not in looks[:i]:
            figure.axes[0].plot([], [], color=COLORS[number], ls=DASHES[number], label=name)
    named = len(set(looks))
    figure.legend(loc="outside lower center", ncols=named, frameon=False, handlelength=3)
    return figure


def draw_run(panel: Axes, rows: Sequence[dict], metric: str, number: int) -> None:
    points = [(row["step"], row[metric]) for row in rows if row.get(metric) is not None]
    steps, values = [step for step, _ in points], [value for _, value in points]
    style = {"color": COLORS[number]}
    if metric == "eval_acc":  # measured only at some steps
        panel.plot(steps, values, "o", ls=DASHES[number], ms=4, **style)
    else:
        by_step = dict(points)
        every = range(len(rows))
        means = [trailing_mean(by_step, step) for step in every]
        panel.plot(every, [by_step.get(step) for step in every], lw=0.8, alpha=0.35, **style)
        panel.plot(every, means, ls=DASHES[number], **style)


def trailing_mean(by_step: dict[int, float], step: int) -> float:
    """The mean over the last three steps; nan, which is not drawn, if this one measured nothing."""
    if step not in by_step:
        return float("nan")
    values = [by_step[past] for past in range(step - STEPS_BEFORE, step + 1) if past in by_step]
    return sum(values) / len(values)


def answer_ways(folders: dict[str, Path]) -> Figure:
    """For each run, the share of each style of answer, as areas that add up to 1."""
    figure = Figure(figsize=(0.6 + 4.2 * len(folders), 2.9), layout="constrained")
    panels = figure.subplots(1, len(folders), squeeze=False)[0]
    for panel, (name, folder) in zip(panels, folders.items(), strict=True):
        everything, *_ = ways_over_time(train_answers(read_run(folder)))
        draw_ways(panel, everything)
        panel.set_title(name, fontsize=10)
    return figure


def passes_over_training(stages: dict[str, dict[str, dict[int, list[float]]]]) -> Figure:
    """Panel title -> label of a line -> step -> pass@k. A step that ends one run and begins the
    next has two values; a vertical line marks it."""
    figure = Figure(figsize=(1 + 3.3 * len(stages), 3.2), layout="constrained")
    row = figure.subplots(1, len(stages), sharey=True, squeeze=False)[0]
    for panel, (title, lines) in zip(row, stages.items(), strict=True):
        step_axis(panel, title)
        panel.set(ylim=(0, 1.02), xlabel="steps of training")
        panel.yaxis.set_major_formatter(PercentFormatter(1))
        for number, (label, values) in enumerate(lines.items()):
            points = [(step, value) for step, of_step in values.items() for value in of_step]
            style = {"color": COLORS[number], "ls": DASHES[number], "marker": MARKERS[number]}
            panel.plot(*zip(*points, strict=True), label=label, ms=4, clip_on=False, **style)
        for step in {step for values in lines.values() for step, two in values.items() if two[1:]}:
            panel.axvline(step, color=RULE, lw=1.5, zorder=0)
    row[0].set_ylabel("problems solved", color=TEXT)
    lines = row[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=4, frameon=False, handlelength=3)
    return figure


def long_run_curves(rows: Sequence[Mapping[str, str]], curves: Mapping[str, str]) -> Figure:
    """A panel for each curve (column -> label), a line for each arm: the mean of its seeds, and
    their range."""
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    figure = Figure(figsize=(10, 5.4), layout="constrained")
    for panel, (column, label) in zip(figure.subplots(2, 3).flat, curves.items(), strict=True):
        step_axis(panel, label)
        for number, arm in enumerate(arms):
            values: dict[int, list[float]] = {}  # by step
            for row in rows:
                if row["arm"] == arm and row[column]:
                    values.setdefault(int(row["step"]), []).append(float(row[column]))
            steps, marker = list(values), "o" if len(values) < 5 else ""
            style = {"color": COLORS[number], "ls": DASHES[number], "marker": marker}
            panel.plot(steps, list(map(fmean, values.values())), label=arm, **style)
            low, high = list(map(min, values.values())), list(map(max, values.values()))
            panel.fill_between(steps, low, high, color=COLORS[number], alpha=0.12)
        panel.set_ylim(bottom=0)
    lines = figure.axes[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=3, frameon=False, handlelength=3)
    return figure


def clip_curves(
    ratios: Sequence[float] = (),
    advantages: Sequence[float] = (),
    clip_low: float = 0.8,
    clip_high: float = 1.2,
) -> Figure:
    """The clipped objective over the ratio, for an advantage of +1 and of -1. `ratios` are those
    of a run's tokens, drawn as dots under the curve for the sign of their advantage."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    ratio_axis = torch.linspace(0.0, 2.2, 400)
    for panel, sign in zip(figure.subplots(1, 2), (1.0, -1.0), strict=True):
        bare_axis(panel, f"advantage {'above' if sign > 0 else 'below'} 0")
        flat = (clip_high, ratio_axis[-1]) if sign > 0 else (0.0, clip_low)
        panel.axvspan(*map(float, flat), color=SHADE)
        place = sum(map(float, flat)) / 2, 0.4 if sign > 0 else -1.5
        panel.text(*place, "no gradient", ha="center", va="center", color=TEXT)
        panel.plot(ratio_axis, sign * ratio_axis, color=TEXT, ls=":", label="ratio x advantage")
        clipped = ppo(ratio_axis, torch.tensor(sign), clip_low, clip_high)
        label = "clipped: the smaller of the two"
        panel.plot(ratio_axis, clipped, color=COLORS[0], lw=2.5, label=label)
        ratios_of_sign = [r for r, a in zip(ratios, advantages, strict=True) if a * sign > 0]
        draw_ratios(panel, ratios_of_sign, flat, sign)
        panel.set(xlim=(0, 2.2), xlabel="ratio: probability now / at the start of the step")
        panel.set_ylim((-0.75, 2.2) if sign > 0 else (-2.2, 0.75))
    figure.axes[0].set_ylabel("value that is maximized", color=TEXT)
    figure.axes[0].legend(loc="upper left", frameon=False, fontsize=9)
    return figure


def draw_ratios(panel: Axes, ratios: Sequence[float], flat: tuple, sign: float) -> None:
    """A dot for each token at its ratio; a random height keeps the dots apart."""
    if not ratios:
        return
    low, high = map(float, flat)
    without_gradient = sum(ratio > low if sign > 0 else ratio < high for ratio in ratios)
    random_heights = torch.rand(len(ratios), generator=torch.Generator().manual_seed(0))
    heights = -sign * (0.15 + 0.35 * random_heights)
    shown = [min(ratio, 2.19) for ratio in ratios]
    panel.plot(shown, heights, "o", color=COLORS[1], ms=2.5, alpha=0.35, mew=0)
    percent = 100 * without_gradient / len(ratios)
    words = f"{len(ratios):,} tokens of a step, {percent:.1f}% without gradient"
    panel.text(1.1, -0.64 * sign, words, ha="center", va="center", color=COLORS[1], fontsize=9)


def loop_strip(notes: Mapping[str, str]) -> Figure:
    """The seven stages in a row; those with a note are blue, with the note below."""
    figure, panel = blank_canvas(8, 1.6)
    for number, stage in enumerate(STAGES):
        x, noted = 0.05 + number * 1.135, stage in notes
        fill, ink = (COLORS[0], "white") if noted else (LIGHT, INK)
        draw_box(panel, x, 1.08, 1.04, 0.42, f"{number + 1} {stage}", fill, ink, COLORS[0])
        words = notes.get(stage, "")
        panel.text(x + 0.52, 0.98, words, ha="center", va="top", color=TEXT, fontsize=9)
    return figure


def three_records() -> Figure:
    """One token's log-probability as the weights change, and who records it when: the sampler, the
    trainer as the step begins, the trainer now. The reference does not move."""
    figure, panel = blank_canvas(8, 3.5)
    xs, ys = [0.9, 2.3, 3.7, 4.5, 5.3, 6.1], [1.35, 1.6, 1.85, 2.1, 2.45, 2.75]
    panel.plot(xs, ys, color=COLORS[0], lw=2)
    panel.plot(xs, ys, "o", color="white", mec=COLORS[0], ms=6, mew=1.5)
    records = (
        (0, "drawn: the sampler's\nold_logprobs", COLORS[1], "s"),
        (2, "the step begins:\nstart_logprobs", COLORS[2], "D"),
        (5, "now: logprobs,\nwith gradient", COLORS[0], "o"),
    )
    for i, words, color, marker in records:
        panel.plot(xs[i], ys[i], marker, color=color, ms=11)
        panel.plot([xs[i]] * 2, [0.55, ys[i]], color=RULE, lw=1, zorder=0)
        at = xs[i]
        panel.text(at, 0.5, words, ha="center", va="top", color=color, fontsize=10)
    gaps = (
        (0, 2, "updates since the draw (a lag):\na weight of at most 2, section 7.7"),
        (2, 5, "updates of this step:\nthe ratio, section 7.2"),
    )
    for first, last, words in gaps:
        ends = (xs[first], 3.0), (xs[last], 3.0)
        panel.annotate("", *ends, arrowprops={"arrowstyle": "<->", "color": TEXT})
        middle = (xs[first] + xs[last]) / 2
        panel.text(middle, 3.05, words, ha="center", va="bottom", color=TEXT, fontsize=9)
    panel.plot([0.3, 7.8], [0.95, 0.95], color=COLORS[3], ls=":", lw=2)
    panel.annotate("", (6.9, 0.98), (6.9, 2.75), arrowprops={"arrowstyle": "<->", "color": TEXT})
    panel.text(6.98, 1.9, "KL,\nsection 7.3", va="center", color=TEXT, fontsize=9)
    panel.text(7.85, 0.88, "ref_logprobs", ha="right", va="top", color=COLORS[3], fontsize=10)
    panel.text(0.1, 2.6, "log-probability\nof one token", color=TEXT, fontsize=9)
    return figure


def two_directions() -> Figure:
    """A reference with two peaks, and the policy with one peak that is nearest to it, for each
    direction of KL."""
    xs = torch.arange(41.0)
    reference = 0.6 * bump(xs, 11, 3.0) + 0.4 * bump(xs, 29, 3.0)
    candidates = [
        bump(xs, middle, width) for middle in range(41) for width in (2, 3, 4, 6, 8, 10, 12)
    ]
    figure = Figure(figsize=(8, 2.9), layout="constrained")
    directions = (
        ("KL(policy ‖ reference), k2's gradient", lambda p: kl_exact(p, reference)),
        ("KL(reference ‖ policy), k3's gradient", lambda p: kl_exact(reference, p)),
    )
    for panel, (title, distance) in zip(
        figure.subplots(1, 2, sharey=True), directions, strict=True
    ):
        bare_axis(panel, title)
        panel.fill_between(xs, reference, color=RULE, label="reference: two peaks")
        best = min(candidates, key=distance)
        panel.plot(xs, best, color=COLORS[0], lw=2.5, label="nearest policy with one peak")
        panel.set(xticks=[], yticks=[], xlabel="answers", ylim=(0, None))
    figure.axes[0].set_ylabel("probability", color=TEXT)
    lines = figure.axes[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=2, frameon=False)
    return figure


def bump(xs: torch.Tensor, middle: float, width: float) -> torch.Tensor:
    return torch.softmax(-0.5 * ((xs - middle) / width) ** 2, dim=0)


def kl_exact(p: torch.Tensor, q: torch.Tensor) -> float:
    """KL(p || q); a probability that underflows counts as float32's smallest number."""
    least = torch.finfo(p.dtype).tiny
    return float((p * (p.clamp(min=least).log() - q.clamp(min=least).log())).sum())


def groups_and_advantages(size: int = 8) -> Figure:
    """Three groups as dots, correct answers filled, and the advantage of a correct and of an
    incorrect answer, with the division by the group's standard deviation and without it."""
    counts = (1, size // 2, size - 1)
    figure = Figure(figsize=(8, 3.0), layout="constrained")
    for panel, correct in zip(figure.subplots(1, 3, sharey=True), counts, strict=True):
        bare_axis(panel, f"{correct} of {size} correct")
        rewards = torch.tensor([1.0] * correct + [0.0] * (size - correct))
        for shift, advantage, number in ((-0.2, zscore, 0), (0.2, mean_centered, 1)):
            values = advantage(rewards)
            heights = [values[0].item(), values[-1].item()]
            style = {"color": COLORS[number], "alpha": 0.85, "hatch": ("", "///")[number]}
            name = ("z-score (GRPO)", "minus the mean (Dr. GRPO)")[number]
            places = [shift, 1 + shift]
            panel.bar(places, heights, 0.36, label=name, edgecolor="white", **style)
            for at, value in zip(places, heights, strict=True):
                side = "bottom" if value > 0 else "top"
                panel.text(at, value, f"{value:+.2f}", ha="center", va=side, fontsize=8.5)
        for number, reward in enumerate(rewards.tolist()):
            fill = INK if reward else "white"
            panel.plot(-0.3 + number * 1.6 / (size - 1), 3.4, "o", color=fill, mec=INK, ms=7)
        panel.axhline(0, color=TEXT, lw=1)
        panel.set(xticks=[0, 1], yticks=[], ylim=(-3.1, 3.8))
        panel.set_xticklabels(["correct", "incorrect"])
    figure.axes[0].set_ylabel("advantage", color=TEXT)
    lines = figure.axes[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=2, frameon=False)
    return figure


def where_length_enters(short: int = 10, long: int = 40) -> Figure:
    """Two answers under the three averages: each token's bar is as high as its weight."""
    averages = {
        "sequence (GRPO)": (1 / (2 * short), 1 / (2 * long)),
        "token (DAPO)": (1 / (short + long),) * 2,
        "constant (Dr. GRPO)": (1 / (2 * long),) * 2,
    }
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    panels = figure.subplots(3, 1, sharex=True, sharey=True)
    for panel, (name, weights) in zip(panels, averages.items(), strict=True):
        bare_axis(panel)
        panel.set_title(name, fontsize=10, loc="left")
        first = 0
        for number, (length, weight) in enumerate(zip((short, long), weights, strict=True)):
            style = {"color": COLORS[number], "alpha": (0.8, 0.5)[number]}
            panel.bar(range(first, first + length), [weight] * length, 0.85, **style)
            share = (
                length * weight / sum(n * w for n, w in zip((short, long), weights, strict=True))
            )
            words = f"1/{1 / weight:.0f} each, {100 * share:.0f}% in total"
            middle = first + length / 2 - 0.5
            panel.text(middle, weight + 0.003, words, ha="center", va="bottom", fontsize=9)
            first += length + 5
        panel.set(yticks=[], xticks=[], ylim=(0, 1.6 / (2 * short)))
    panels[-1].set(xticks=[short / 2 - 0.5, short + 4.5 + long / 2])
    panels[-1].set_xticklabels([f"{short} tokens", f"{long} tokens"], fontsize=10)
    return figure


def budget_curves(curves: Mapping[str, Mapping[int, float]]) -> Figure:
    """The share of answers that are correct and no longer than a budget of tokens, for each budget;
    a line for each model."""
    figure = Figure(figsize=(5.6, 2.9), layout="constrained")
    panel = figure.subplots()
    step_axis(panel, "correct within a budget of tokens")
    for number, (name, points) in enumerate(curves.items()):
        style = {"color": COLORS[number], "ls": DASHES[number], "marker": MARKERS[number]}
        panel.plot(list(points), list(points.values()), label=name, ms=4, **style)
    panel.set(xlabel="tokens that an answer may have", ylim=(0, None))
    panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    panel.legend(frameon=False, handlelength=3)
    return figure


def lag_prices(
    faster: Mapping[int, float], correct: Mapping[str, Mapping[int, Sequence[float]]]
) -> Figure:
    """What a lag gains and what it costs. On the left, how many times as fast updates follow each
    other; on the right, the share of correct answers after training, with the standard error over
    the seeds, if the loss ignores the lag and if it weights the rollouts."""
    figure = Figure(figsize=(8, 2.9), layout="constrained")
    speed, price = figure.subplots(1, 2)
    step_axis(speed, "updates per unit of time (simulated)")
    speed.plot(list(faster), list(faster.values()), "o-", color=INK, ms=4)
    speed.set(xlabel="lag", ylim=(0, 2.1))
    step_axis(price, "correct answers after training")
    for number, (name, by_lag) in enumerate(correct.items()):
        style = {"color": COLORS[number], "ls": DASHES[number], "marker": MARKERS[number]}
        means = [fmean(values) for values in by_lag.values()]
        errors = [stdev(values) / len(values) ** 0.5 for values in by_lag.values()]
        price.errorbar(list(by_lag), means, errors, label=name, capsize=3, ms=4, **style)
    price.set(xlabel="largest lag", ylim=(0, 1))
    price.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    price.legend(frameon=False, handlelength=3, loc="lower left")
    return figure


def lag_timeline(batches: int = 4) -> Figure:
    """Who works when, taking turns and side by side; each batch with the version of the weights
    that drew it."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    for panel, lag in zip(panels, (0, 1), strict=True):
        title = "taking turns: lag 0" if lag == 0 else "side by side: lag 1"
        bare_axis(panel, title)
        for batch in range(batches):
            sampled = 2 * batch if lag == 0 else batch
            version = batch if lag == 0 else max(0, batch - 1)
            draw_batch(panel, sampled, 1, f"batch {batch + 1}\nby version {version}", COLORS[0])
            draw_batch(panel, sampled + 1, 0, f"batch {batch + 1}\nversion {batch} → {batch + 1}")
        panel.set(yticks=[0, 1], yticklabels=["trainer", "sampler"], ylim=(-0.5, 1.5), xticks=[])
    panels[1].set(xlim=(0, 2 * batches), xlabel="time →")
    return figure


def draw_batch(panel: Axes, start: int, row: int, words: str, color: str = COLORS[1]) -> None:
    panel.barh(row, 0.94, left=start + 0.03, height=0.8, color=color, alpha=0.2)
    panel.text(start + 0.5, row, words, ha="center", va="center", fontsize=8)


def blank_canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty canvas without axes, in inches."""
    figure = Figure(figsize=(width, height))
    panel = figure.add_axes((0, 0, 1, 1))
    panel.set(xlim=(0, width), ylim=(0, height))
    panel.axis("off")
    return figure, panel


def draw_box(panel: Axes, x, y, width, height, words, fill, ink, edge) -> None:
    looks = "round,pad=0,rounding_size=0.08"
    panel.add_patch(FancyBboxPatch((x, y), width, height, looks, fc=fill, ec=edge, lw=1.2))
    middle = x + width / 2, y + height / 2
    panel.text(*middle, words, ha="center", va="center", color=ink, fontsize=9.5)


def bare_axis(panel: Axes, title: str = "") -> None:
    panel.set_title(title, fontsize=10)
    panel.spines[:].set_visible(False)
    panel.tick_params(length=0, labelcolor=TEXT)
