"""Curves: how a line is drawn, for report.html, `rfs plot` and `rfs compare` alike.

The page embeds each chart as SVG, which is visible without a script.
"""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from reasoning_from_scratch.text import evenly_spaced, percent, visible
from rfs.files.saved_models import evaluated_at, evaluations_in

from .iteration import safe_name
from .palette import COLOR, COLORS, RULE, TEXT
from .run_files import RunFiles, is_number

ROUNDING = 1e-6  # nats: a KL below this is rounding, the policies are equal
MAX_POINTS = 500  # per line of the page; more can't be told apart
# The bold line averages this many values, or a tenth of all; the thin one is the raw data.
MIN_WINDOW = 9
DASHES = ("-", "--", ":", "-.", (0, (8, 2, 1, 2, 1, 2)))
COLOR_NAMES = {color: name for name, color in COLOR.items()}  # if a color has two names, the last
WIDTH, HEIGHT, LEFT, RIGHT, TOP_EDGE, BOTTOM = 360, 180, 46, 10, 16, 24  # of a chart in the page


@dataclass
class Line:
    label: str
    steps: list[int]
    values: list[float]
    dots: bool = False  # measured now and then: dots, not smoothed
    band: tuple[list[float], list[float]] | None = None  # low and high, smoothed like the line
    color: str = ""  # its name, if it means something; else the next of COLORS


@dataclass
class Chart:
    title: str
    note: str
    lines: list[Line]
    svg: Markup  # its label describes the curves
    are_shares: bool  # its values are shares, shown in percent


# title, what to look for, metrics with their labels
CHARTS: tuple[tuple[str, str, dict[str, str]], ...] = (
    (
        "Reward",
        "mean over the rollouts of a step",
        {"env/all/reward/total": "total", "env/all/format": "format"},
    ),
    (
        "Accuracy",
        "share of correct answers: sampled in training, and held out",
        {"env/all/correct": "training"},
    ),
    (
        "Groups",
        "mixed: rewards differ, so there is something to learn",
        {
            "env/all/by_group/frac_mixed": "mixed",
            "env/all/by_group/frac_all_good": "all good",
            "env/all/by_group/frac_all_bad": "all bad",
        },
    ),
    ("Length", "tokens per answer", {"env/all/ac_tokens_per_turn": "tokens"}),
    (
        "Entropy",
        "nats per token; near 0 the model tries nothing new",
        {"optim/token_entropy": "entropy"},
    ),
    (
        "KL",
        "distance from the reference (by default the start), and between sampler and trainer",
        {"kl_policy_base": "from the reference", "optim/kl_sample_train_v2": "sampler to trainer"},
    ),
    (
        "Clip fraction",
        "share of tokens (gspo: rollouts) that the bounds touch",
        {"optim/clip_frac": "clipped"},
    ),
    ("Gradient norm", "before clipping", {"optim/grad_norm": "norm"}),
    (
        "Throughput",
        "tokens per second",
        {"perf/sample_tokens_per_sec": "sampling", "perf/train_tokens_per_sec": "training"},
    ),
)


SHARE_CHARTS = ("Accuracy", "Groups", "Clip fraction")  # charts whose values are shares
LINE_COLORS = {"mixed": "mixed", "all good": "right", "all bad": "wrong"}  # label -> color's name


# When training on worked solutions, watch the loss: nothing is sampled, nothing is rewarded.
SUPERVISED_CHARTS = (
    ("Loss", "nats per token of the solutions", {"optim/loss": "training"}),
    ("Accuracy", "share of correct answers to held-out problems", {}),
    *(chart for chart in CHARTS if chart[0] in ("Length", "Gradient norm", "Throughput")),
)


def make_charts(run: RunFiles) -> list[Chart]:
    charts, panel = [], page_panel()
    chart_table = SUPERVISED_CHARTS if run.supervised else CHARTS
    for title, note, labels_by_metric in chart_table:
        lines = [_metric_line(run.metrics, name, label) for name, label in labels_by_metric.items()]
        lines += _eval_lines(run) if title == "Accuracy" else []
        lines += _loss_lines(run) if title == "Loss" else []
        lines = [line for line in lines if _is_worth_showing(title, line, run)]
        charts.append((title, note.replace("per answer", f"per {run.unit}"), lines))
    charts += [(name, "your evaluator", lines) for name, lines in _evaluator_lines(run).items()]
    drawn = []
    for title, note, lines in charts:
        if lines := [line for line in lines if line.steps]:
            are_shares = title in SHARE_CHARTS
            svg = chart_svg(panel, title, lines, are_shares)
            drawn.append(Chart(title, note, lines, svg, are_shares))
    return drawn


def _is_worth_showing(title: str, line: Line, run: RunFiles) -> bool:
    """Whether a line is worth showing. At the defaults nothing can be clipped, and the KL between
    sampler and trainer is only rounding: they are the same model."""
    if title == "Clip fraction":
        return any(line.values) or not run.on_policy
    return title != "KL" or any(abs(value) > ROUNDING for value in line.values)


def _metric_line(rows: list[dict], name: str, label: str) -> Line:
    pairs = [(row["step"] + 1, row[name]) for row in rows if is_number(row.get(name))]
    shown_pairs = evenly_spaced(pairs, MAX_POINTS)
    steps, values = [step for step, _ in shown_pairs], [float(value) for _, value in shown_pairs]
    return Line(label, steps, values, color=LINE_COLORS.get(label, ""))


def _eval_lines(run: RunFiles) -> list[Line]:
    lines = []
    for name, evals in run.evals.items():
        steps, values = [row.step for row in evals.rows], [row.accuracy for row in evals.rows]
        lines.append(Line(name, steps, values, dots=True))
    return lines


def _loss_lines(run: RunFiles) -> list[Line]:
    rows = [evaluation for row in run.metrics for evaluation in evaluations_in(row)]
    keys = dict.fromkeys(key for row in rows for key in row if key.endswith("/loss"))
    # An evaluation is named as in its file: mine.jsonl@held-out is mine.jsonl_held-out.
    losses = {safe_name(key.removesuffix("/loss")): key for key in keys}
    return [_evaluation_line(rows, losses[name], name) for name in run.evals if name in losses]


def _evaluator_lines(run: RunFiles) -> dict[str, list[Line]]:
    """What your own evaluators returned: a line for each of their numbers."""
    rows = [evaluation for row in run.metrics for evaluation in evaluations_in(row)]
    charts = {}
    for evaluator in run.evaluators:
        names = dict.fromkeys(n for row in rows for n in row if n.startswith(f"{evaluator}/"))
        charts[evaluator] = [_evaluation_line(rows, name, name.partition("/")[2]) for name in names]
    return charts


def _evaluation_line(rows: list[dict], name: str, label: str) -> Line:
    pairs = [(evaluated_at(row), float(row[name])) for row in rows if is_number(row.get(name))]
    pairs = [(at, value) for at, value in pairs if isinstance(at, int) and is_number(at)]
    return Line(label, [at for at, _ in pairs], [value for _, value in pairs], dots=True)


def _describe_line(line: Line, are_shares: bool) -> str:
    first, last = map(percent if are_shares else three_digits, (line.values[0], line.values[-1]))
    return f"{line.label}: {first} at step {line.steps[0]}, {last} at step {line.steps[-1]}"


def three_digits(value: float) -> str:
    """Three digits: 1230, 0.25, 0.00012."""
    return f"{float(f'{value:.3g}'):g}"


def smoothed(values: Sequence[float]) -> list[float]:
    """At each step, the mean of the last few values: no value counts before its step."""
    window = max(MIN_WINDOW, len(values) // 10)
    windows = [values[max(0, end - window) : end] for end in range(1, len(values) + 1)]
    return [sum(window) / len(window) for window in windows]


def step_axis(panel: Axes, title: str = "") -> None:
    """An empty panel over the steps of a run, with whole numbers on its axis."""
    panel.set_title(title)
    panel.set_xlabel("step" if title else "", color=TEXT)  # a chart on the page has no room
    whole_numbers = MaxNLocator("auto", integer=True, min_n_ticks=1, steps=[1, 2, 5, 10])
    panel.xaxis.set_major_locator(whole_numbers)
    panel.spines[:].set_visible(False)
    panel.grid(axis="y", color=RULE)
    panel.tick_params(length=0, labelcolor=TEXT)


def draw_line(panel: Axes, line: Line, number: int) -> None:
    """Few values are drawn as dots; many as a smoothed curve, with the raw data as a thin line."""
    if not line.steps:
        return
    as_dots = line.dots or len(line.values) <= 2 * MIN_WINDOW
    color = COLOR[line.color] if line.color else COLORS[number % 5]
    dashes = DASHES[(number + number // 5) % 5]
    style: dict[str, Any] = {"color": color, "linestyle": dashes}
    if as_dots:
        marker_spacing = max(1, len(line.values) // 60)
        style |= {"marker": "o", "markersize": 3.5, "markevery": marker_spacing, "clip_on": False}
    smooth: Callable[[Sequence[float]], list[float]] = list if as_dots else smoothed
    panel.plot(line.steps, smooth(line.values), label=line.label, **style)
    if line.band:
        low, high = map(smooth, line.band)
        panel.fill_between(line.steps, low, high, color=color, alpha=0.2, linewidth=0)
    elif not as_dots:
        panel.plot(line.steps, line.values, alpha=0.3, linewidth=0.8, **style)
    _start_axis_at_zero(panel)


def _start_axis_at_zero(panel: Axes) -> None:
    """If 0 is near, the axis begins there: the curve is easiest to read."""
    low, high = panel.dataLim.intervaly
    if 0 <= low <= 0.5 * high:
        panel.set_ylim(bottom=0, auto=True)  # the top still adapts to later lines


def percent_axis(panel: Axes) -> None:
    """Shares in percent, each tick with as few digits as possible."""
    panel.yaxis.set_major_formatter(lambda share, _: f"{round(100 * share, 6):g}%")


def share_axis(panel: Axes) -> None:
    """Percent from 0 to at least 20, so that a point of noise does not look like learning."""
    _, high = panel.dataLim.intervaly
    panel.set_ylim(0, max(0.2, 1.05 * high))
    panel.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    percent_axis(panel)


def page_panel() -> Axes:
    """The panel in which all charts of a page are drawn, one after the other: making a new one,
    with its ticks, takes as long as drawing a chart."""
    figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))  # SVG has 72 units to the inch
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP_EDGE - BOTTOM
    panel = figure.add_axes(
        (LEFT / WIDTH, BOTTOM / HEIGHT, width / WIDTH, height / HEIGHT), facecolor="none"
    )
    step_axis(panel)
    panel.yaxis.set_major_locator(MaxNLocator(5))
    return panel


def chart_svg(panel: Axes, title: str, lines: list[Line], are_shares: bool = False) -> Markup:
    """A chart for the page: its text stays text, its colors come from the style sheet, and run.js
    moves a cursor in it."""
    for old_line in list(panel.lines):  # of the previous chart
        old_line.remove()
    panel.relim()
    panel.autoscale()
    for number, line in enumerate(lines):
        draw_line(panel, line, number)
    last_step = max(max(line.steps, default=0) for line in lines) or 1
    panel.set_xlim(0, last_step)
    formatter = ScalarFormatter()
    formatter.set_powerlimits((-3, 6))  # 0.00015 does not fit beside the axis: 1.5, under "1e-4"
    panel.yaxis.set_major_formatter(formatter)
    if are_shares:
        percent_axis(panel)
    descriptions = [_describe_line(line, are_shares) for line in lines if line.steps]
    label = f"{title}. " + "; ".join(descriptions)
    assert isinstance(panel.figure, Figure)  # a panel of page_panel, not of a subfigure
    svg = page_svg(panel.figure, title, label, last_step)
    cursor = f'<line class="cursor" y1="{TOP_EDGE}" y2="{HEIGHT - BOTTOM}"/></svg>'
    return Markup(str(svg).replace("</svg>", cursor))


def page_svg(figure: Figure, title: str, label: str, last_step: int | None = None) -> Markup:
    """A figure as SVG for the page, in colors that change with the page. `label` says in words what
    the figure shows."""
    file = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(file, format="svg", transparent=True, metadata=no_metadata)
    svg = file.getvalue().partition("<svg ")[2]
    svg = re.sub(r' id="[A-Za-z0-9.]+_[0-9]+"', "", svg)  # ids that every chart would repeat
    for color, name in COLOR_NAMES.items():
        svg = svg.replace(color, f"var(--{name})")
    cursor_data = "" if last_step is None else f'data-last="{last_step}" '  # for run.js
    return Markup(f'<svg role="img" aria-label="{escape(visible(label))}" {cursor_data}' + svg)
