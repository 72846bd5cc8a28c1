"""Small line charts, as SVG that needs no script to be seen."""

import itertools
import math
from dataclasses import dataclass

from markupsafe import Markup, escape

from reasoning_from_scratch.text import evenly

from .run_files import RunFiles

WIDTH, HEIGHT, LEFT, RIGHT, TOP_EDGE, BOTTOM = 360, 180, 46, 10, 10, 24
POINTS = 500  # per line; more can't be told apart


@dataclass
class Line:
    label: str
    steps: list[int]
    values: list[float]
    dots: bool = False  # measured now and then: dots, not smoothed


@dataclass
class Chart:
    title: str
    note: str
    lines: list[Line]
    svg: Markup
    summary: str  # the curve in words


# title, what to look for, metrics with their labels
CHARTS: tuple[tuple[str, str, dict[str, str]], ...] = (
    (
        "Reward",
        "mean over the rollouts of a step",
        {"env/all/reward/total": "total", "env/all/format": "format"},
    ),
    (
        "Accuracy",
        "share of right answers: sampled in training, and held out",
        {"env/all/correct": "training"},
    ),
    (
        "Groups",
        "only mixed groups teach anything",
        {
            "env/all/by_group/frac_mixed": "mixed",
            "env/all/by_group/frac_all_good": "all good",
            "env/all/by_group/frac_all_bad": "all bad",
        },
    ),
    ("Length", "tokens per answer", {"env/all/ac_tokens_per_turn": "tokens"}),
    ("Entropy", "nats per token; near 0 nothing new is tried", {"optim/token_entropy": "entropy"}),
    (
        "KL",
        "distance from the starting model, and of the sampler from the trainer",
        {"kl_policy_base": "from the start", "optim/kl_sample_train_v2": "sampler to trainer"},
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


def make_charts(run: RunFiles) -> list[Chart]:
    charts = []
    for title, note, names in CHARTS:
        lines = [_metric(run.metrics, name, label) for name, label in names.items()]
        lines += _eval_lines(run) if title == "Accuracy" else []
        lines = [line for line in lines if line.steps]
        if lines:
            svg = draw(title, lines)
            charts.append(Chart(title, note, lines, svg, "; ".join(map(_in_words, lines))))
    return charts


def _metric(rows: list[dict], name: str, label: str) -> Line:
    pairs = [(row["step"], row[name]) for row in rows if _is_number(row.get(name))]
    pairs = evenly(pairs, POINTS)
    return Line(label, [step for step, _ in pairs], [float(value) for _, value in pairs])


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _eval_lines(run: RunFiles) -> list[Line]:
    lines = []
    for name, evals in run.evals.items():
        steps, values = [row.step for row in evals.rows], [row.accuracy for row in evals.rows]
        lines.append(Line(name, steps, values, dots=True))
    return lines


def _in_words(line: Line) -> str:
    first, last = line.values[0], line.values[-1]
    where = f"step {line.steps[0]}", f"step {line.steps[-1]}"
    return f"{line.label}: {short(first)} at {where[0]}, {short(last)} at {where[1]}"


def short(value: float) -> str:
    """A number as a label: 1234 -> 1.2k, 0.00012 -> 1.2e-04."""
    size = abs(value)
    if size >= 1_000_000:
        return f"{value / 1e6:.1f}".removesuffix(".0") + "M"
    if size >= 10_000:
        return f"{value / 1000:.0f}k"
    if size >= 1000:
        return f"{value / 1000:.1f}".removesuffix(".0") + "k"
    if size >= 100 or value == int(value):
        return f"{value:.0f}"
    if size >= 1:
        return f"{value:.2f}".rstrip("0")
    return f"{value:.3f}".rstrip("0") if size >= 0.001 else f"{value:.1e}"


def ticks(low: float, high: float, wanted: int = 4) -> list[float]:
    """Round numbers that enclose low and high."""
    span = (high - low) or abs(high) or 1.0
    size = 10 ** math.floor(math.log10(span / wanted))
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if span / (size * m) <= wanted)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, max(last, first + 1) + 1)]


def smooth(values: list[float]) -> list[float]:
    """The mean of a tenth of the points around each."""
    sums = list(itertools.accumulate(values, initial=0.0))
    reach = len(values) // 20
    calm = []
    for i in range(len(values)):
        first, last = max(0, i - reach), min(len(values), i + reach + 1)
        calm.append((sums[last] - sums[first]) / (last - first))
    return calm


def draw(title: str, lines: list[Line]) -> Markup:
    values = [value for line in lines for value in line.values]
    # A share is easiest to read on the whole scale from 0; other curves from 0 where 0 is near.
    low, high = min(values), max(values)
    marks = ticks(min(low, 0.0) if low < 0.5 * high else low, high)
    steps = max(max(line.steps) for line in lines) or 1
    parts = [*_grid(marks, steps)]
    for number, line in enumerate(lines):
        parts += _draw_line(line, number, marks, steps)
    label = escape(f"{title}. " + "; ".join(map(_in_words, lines)))
    return Markup(
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" '
        f'data-last="{steps}">' + "".join(parts) + '<line class="cursor" y1="10" y2="156"/></svg>'
    )


def place_x(step: float, steps: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * step / steps


def place_y(value: float, marks: list[float]) -> float:
    share = (value - marks[0]) / (marks[-1] - marks[0])
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP_EDGE) * share


def _grid(marks: list[float], steps: int):
    for mark in marks:
        y = place_y(mark, marks)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(mark)}</text>'
    for mark in ticks(0, steps):
        if mark <= steps and mark == int(mark):
            x = place_x(mark, steps)
            yield f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{short(mark)}</text>'


def _draw_line(line: Line, number: int, marks: list[float], steps: int):
    xs = [place_x(step, steps) for step in line.steps]
    ys = [place_y(value, marks) for value in line.values]
    if line.dots or len(xs) < 20:
        yield f'<path class="line l{number}" d="{_path(xs, ys)}"/>'
        for x, y in evenly(list(zip(xs, ys, strict=True)), 60):
            yield f'<circle class="dot l{number}" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>'
        return
    yield f'<path class="raw l{number}" d="{_path(xs, ys)}"/>'
    calm = [place_y(value, marks) for value in smooth(line.values)]
    yield f'<path class="line l{number}" d="{_path(xs, calm)}"/>'


def _path(xs: list[float], ys: list[float]) -> str:
    return "M" + "L".join([f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys, strict=True)])
