"""The drawings of chapter 6. Each function draws one, and the notebook shows it below the cell.

Each thing has the same color and name throughout. Position, numbers or hatching repeat whatever
colors show, so the pictures also work in gray. (ways_picture.py draws the styles of answer.)
"""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from rfs.report.palette import COLORS, TEXT
from rfs.report.ways import Answered, ways_over_time
from rfs.report.ways_picture import draw_all_ways

STAGES = "problems rollouts rewards advantages logprobs loss update".split()
INK, SOFT, PAPER = "#1d2130", TEXT, "#ffffff"
(BLUE, ORANGE), LIGHT = COLORS[:2], "#e8eefb"


def _canvas(width: float, height: float):
    """An empty canvas without axes, in inches."""
    figure, panel = plt.subplots(figsize=(width, height))
    figure.subplots_adjust(0, 0, 1, 1)
    panel.set(xlim=(0, width), ylim=(0, height))
    panel.axis("off")
    return panel


def _panels(count: int, width: float, height: float, **options):
    """Axes side by side."""
    _, row = plt.subplots(
        1, count, figsize=(width, height), squeeze=False, layout="constrained", **options
    )
    for panel in row[0]:
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=11)
        for axis in (panel.xaxis, panel.yaxis):
            axis.label.set_size(12)
    return row[0]


def _box(panel, x, y, width, height, text, fill=LIGHT, ink=INK, size=12, edge=BLUE):
    box_style = "round,pad=0,rounding_size=0.08"
    panel.add_patch(FancyBboxPatch((x, y), width, height, box_style, fc=fill, ec=edge, lw=1.2))
    panel.text(
        x + width / 2, y + height / 2, text, ha="center", va="center", color=ink, fontsize=size
    )


def _arrow(panel, start, end, color=SOFT, bend=0.0):
    panel.annotate(
        "", end, start,
        arrowprops={"arrowstyle": "-|>", "color": color, "lw": 1.4,
                    "connectionstyle": f"arc3,rad={bend}"},
    )  # fmt: skip


def _visible(token: str) -> str:
    return token.replace("\n", "\\n")


def draw_loop() -> None:
    """The seven stages in a row, and an arrow from the last back to the first."""
    panel = _canvas(9, 0.95)
    width, gap = 1.12, 0.16
    for number, stage in enumerate(STAGES):
        x = 0.08 + number * (width + gap)
        _box(panel, x, 0.42, width, 0.45, f"{number + 1} {stage}", size=10)
        if number:
            _arrow(panel, (x - gap - 0.02, 0.645), (x + 0.03, 0.645))
    left, right = 0.08 + width / 2, 0.08 + 6 * (width + gap) + width / 2
    panel.plot([right, right, left], [0.42, 0.18, 0.18], color=SOFT, lw=1.4)
    _arrow(panel, (left, 0.17), (left, 0.43))


def draw_group(
    problem: str, answers: Sequence[str], rewards: Sequence[float], advantages: Sequence[float]
) -> None:
    """One problem, its answers, their rewards, their advantages as bars left and right of zero."""
    row = 0.46
    height = row * len(answers) + 0.6
    panel = _canvas(9, height)
    middle = (height - 0.5) / 2
    _box(panel, 0.05, middle - 0.5, 1.6, 1.0, problem, size=10.5)
    for x, title in ((3.75, "answers (shortened)"), (6.1, "reward"), (7.65, "advantage")):
        panel.text(x, height - 0.25, title, ha="center", va="center", color=SOFT, fontsize=11)
    scale = 0.75 / max(1e-9, *map(abs, advantages))
    for number, (answer, reward, advantage) in enumerate(
        zip(answers, rewards, advantages, strict=True)
    ):
        y = height - 0.5 - (number + 1) * row
        _arrow(panel, (1.66, middle), (2.0, y + row / 2))
        _box(panel, 2.0, y + 0.06, 3.6, row - 0.12, answer, PAPER, size=9.5, edge=SOFT)
        right = reward > 0
        fill, ink = (BLUE, PAPER) if right else (PAPER, INK)
        _box(panel, 5.85, y + 0.06, 0.5, row - 0.12, f"{reward:.0f}", fill, ink, 11)
        color, hatch = (BLUE, "") if advantage > 0 else (ORANGE, "///")
        panel.barh(
            y + row / 2, advantage * scale, row * 0.55, left=7.65,
            color=color if not hatch else PAPER, edgecolor=color, hatch=hatch,
        )  # fmt: skip
        side = "left" if advantage >= 0 else "right"
        panel.text(
            7.65 + advantage * scale + (0.06 if advantage >= 0 else -0.06), y + row / 2,
            f"{advantage:+.2f}", va="center", ha=side, fontsize=10, color=INK,
        )  # fmt: skip
    panel.plot([7.65, 7.65], [0.1, height - 0.5], color=SOFT, lw=1)


def draw_tokens(prompt: Sequence[str], answer: Sequence[str], padding: int = 0) -> None:
    """Tokens in boxes; from each logit an arrow to the token that it predicts; the mask below."""
    tokens = [*prompt, *answer, *["pad"] * padding]
    width = 9 / (len(tokens) + 1.4)
    panel = _canvas(9, 2.5)
    for y, name in ((1.72, "token"), (0.95, "logits"), (0.3, "mask")):
        panel.text(0.05, y, name, va="center", color=SOFT, fontsize=11)
    for number, token in enumerate(tokens):
        x = 1.3 * width + number * width
        sampled = len(prompt) <= number < len(prompt) + len(answer)
        fill = BLUE if sampled else LIGHT if number < len(prompt) else PAPER
        ink, edge = (PAPER if sampled else INK), (SOFT if token == "pad" else BLUE)
        _box(panel, x, 1.48, width * 0.88, 0.46, token, fill, ink, 10, edge)
        _box(panel, x, 0.75, width * 0.88, 0.4, str(number), PAPER, SOFT, 10, SOFT)
        panel.text(x + width * 0.44, 0.3, f"{sampled:d}", ha="center", va="center", fontsize=12,
                   color=INK, weight="bold" if sampled else "normal")  # fmt: skip
        if number + 1 < len(tokens):
            used = len(prompt) <= number + 1 < len(prompt) + len(answer)
            start, end = (x + width * 0.44, 1.16), (x + width * 1.44, 1.47)
            _arrow(panel, start, end, BLUE if used else "#c9ced6")
    panel.text(1.3 * width, 2.2, "prompt", color=SOFT, fontsize=11)
    x = (1.3 + len(prompt)) * width
    panel.text(x, 2.2, "answer: what was sampled", color=BLUE, fontsize=11)


def draw_answer_logprob(tokens: Sequence[str], logprobs: Sequence[float]) -> None:
    """An answer's log-probability: a bar for what each token adds, a line for the running sum."""
    (panel,) = _panels(1, 9, 3.3)
    places = range(len(tokens))
    totals = np.cumsum(logprobs)
    panel.bar(places, logprobs, color=ORANGE, label="this token")
    panel.step(places, totals, where="mid", color=BLUE, lw=1.8, label="sum so far")
    for place, value in zip(places, logprobs, strict=True):
        if value < -0.3:
            background = {"fc": PAPER, "ec": "none", "pad": 0.6, "alpha": 0.85}
            panel.text(
                place, value - 0.12, f"{value:.1f}", ha="center", va="top", fontsize=9, color=INK,
                bbox=background,
            )  # fmt: skip
    last = len(tokens) - 1
    panel.text(last + 0.6, totals[-1], f"{totals[-1]:.1f}", va="center", fontsize=11, color=BLUE)
    panel.set_xticks(
        places, [_visible(token) for token in tokens], rotation=90, fontsize=9, family="monospace"
    )
    lowest = 1.25 * min(*totals, -0.4)
    panel.set(ylabel="log-probability", ylim=(lowest, -0.06 * lowest), xlim=(-0.7, last + 2.2))
    panel.axhline(0, color=SOFT, lw=0.8)
    panel.legend(frameon=False, fontsize=11, loc="lower left")


def draw_push(labels: Sequence[str], probs: Sequence[float], sampled: int) -> None:
    """How an update pushes each token's logit after one was sampled: by 1 - p for that token and
    by -p for all others, times the advantage."""
    push = np.array([float(place == sampled) - p for place, p in enumerate(probs)])
    names = [f"{label}\np = {p:.2f}" for label, p in zip(labels, probs, strict=True)]
    row = _panels(2, 9, 3, sharey=True)
    for panel, sign in zip(row, (1, -1), strict=True):
        moves = sign * push
        colors = [BLUE if move > 0 else PAPER for move in moves]
        edges = [BLUE if move > 0 else ORANGE for move in moves]
        bars = panel.bar(names, moves, color=colors, edgecolor=edges, linewidth=1.2)
        for bar, move in zip(bars, moves, strict=True):
            bar.set_hatch("" if move > 0 else "///")
        panel.bar_label(bars, [f"{move:+.2f}" for move in moves], fontsize=10, padding=2)
        panel.axhline(0, color=SOFT, lw=1)
        panel.get_xticklabels()[sampled].set_weight("bold")
        panel.set_title(f"advantage {sign:+d}: {labels[sampled]!r} was sampled", fontsize=11.5)
    row[0].set(ylabel="push on the logit", ylim=(-1.15, 1.15))


def draw_critic_and_group() -> None:
    """PPO's critic beside GRPO's group: two sources of a baseline."""
    panel = _canvas(9, 2.9)
    for x, title in ((0.1, "PPO: a second model predicts"), (4.75, "GRPO: the group compares")):
        panel.text(x, 2.68, title, fontsize=12.5, weight="bold", color=INK, va="center")
    panel.plot([4.5, 4.5], [0.1, 2.8], color="#c9ced6", lw=1)
    for x in (0.1, 4.75):
        _box(panel, x, 1.2, 0.95, 0.5, "problem", size=10.5)
        _box(panel, x + 1.3, 1.2, 0.8, 0.5, "policy", BLUE, PAPER, 10.5)
        _arrow(panel, (x + 1.05, 1.45), (x + 1.32, 1.45))
    _box(panel, 2.5, 1.75, 0.85, 0.5, "answer", PAPER, edge=SOFT, size=10.5)
    _box(panel, 2.5, 0.55, 0.85, 0.5, "critic", ORANGE, PAPER, 10.5, ORANGE)
    _arrow(panel, (2.2, 1.5), (2.52, 1.95))
    _arrow(panel, (0.6, 1.2), (2.5, 0.8), bend=0.15)
    _arrow(panel, (2.92, 1.74), (2.92, 1.07))
    panel.text(3.45, 2.0, "reward $r$", va="center", fontsize=11, color=INK)
    panel.text(3.45, 0.8, "guess $V$", va="center", fontsize=11, color=INK)
    panel.text(3.4, 1.4, "$A = r - V$", va="center", fontsize=11.5, color=INK, weight="bold")
    panel.text(0.1, 0.15, "as large as the policy, trained beside it", fontsize=10, color=SOFT)
    for number, reward in enumerate("1001"):
        y = 2.05 - number * 0.43
        _box(panel, 7.15, y, 0.8, 0.33, f"answer {number + 1}", PAPER, size=9, edge=SOFT)
        _arrow(panel, (6.85, 1.45), (7.16, y + 0.16))
        panel.text(8.05, y + 0.16, f"$r_{number + 1} = {reward}$", va="center", fontsize=11)
    panel.text(7.95, 0.42, "$A_i = r_i$ - mean", ha="center", fontsize=11.5, color=INK)
    panel.text(4.75, 0.15, "no second model; several answers", fontsize=10, color=SOFT)


def draw_first_token(labels: Sequence[str], panels: Mapping[str, Sequence[float]]) -> None:
    """A panel of bars for each way of sampling."""
    row = _panels(len(panels), 9, 2.8, sharey=True)
    for panel, (title, probs) in zip(row, panels.items(), strict=True):
        bars = panel.bar(range(len(labels)), probs, color=BLUE)
        panel.bar_label(bars, [f"{p:.2f}" if p else "0" for p in probs], fontsize=9)
        panel.set_xticks(range(len(labels)), labels, rotation=40, ha="right")
        panel.set_title(title, fontsize=11)
    row[0].set(ylabel="probability", ylim=(0, 1.12))


def draw_baseline(baselines, variances, mean_reward: float) -> None:
    """The variance of the estimate for each baseline; a line at the mean reward."""
    (panel,) = _panels(1, 5.5, 2.9)
    panel.plot(baselines, variances, color=BLUE, lw=2)
    panel.axvline(mean_reward, color=ORANGE, ls="--")
    top = max(variances)
    panel.text(mean_reward, top, " mean reward", color=ORANGE, va="top")
    panel.set(xlabel="baseline b", ylabel="variance of the estimate", ylim=(0, None))


def draw_noise(cosines: Mapping[int, Sequence[float]]) -> None:
    """For each group size, how well each estimate points along a reference gradient."""
    (panel,) = _panels(1, 6.5, 2.9)
    for number, values in enumerate(cosines.values()):
        spread = np.linspace(-0.22, 0.22, len(values))
        marks = {"s": 16, "color": BLUE, "alpha": 0.5, "linewidths": 0}
        panel.scatter(number + spread, values, **marks)
        mean = float(np.mean(values))
        panel.plot([number - 0.32, number + 0.32], [mean, mean], color=ORANGE, lw=2.5)
        panel.text(number + 0.36, mean, f"{mean:.2f}", color=ORANGE, va="center")
    panel.axhline(0, color=SOFT, lw=0.8)
    panel.set_xticks(range(len(cosines)), [f"G = {size}" for size in cosines])
    panel.set(ylabel="cosine with the\nreference", ylim=(-0.6, 1.1))


def _smooth(values: Sequence[float], width: int = 9) -> np.ndarray:
    """Each value averaged with those around it; fewer at the ends."""
    half = width // 2
    return np.array([np.mean(values[max(0, i - half) : i + half + 1]) for i in range(len(values))])


def draw_training(runs: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Training curves in panels side by side: one panel per title, one curve per label."""
    styles = ((BLUE, "-"), (ORANGE, "--"), (INK, ":"))
    for panel, (title, curves) in zip(_panels(len(runs), 9, 3), runs.items(), strict=True):
        for (label, values), (color, dash) in zip(curves.items(), styles, strict=False):
            panel.plot(values, color=color, alpha=0.25, lw=1)
            panel.plot(_smooth(values), dash, color=color, lw=2, label=label)
        panel.set(xlabel="step", title=title, ylim=(0, None))
        if len(curves) > 1:
            panel.legend(frameon=False, fontsize=10)


def draw_ways_of(answers: Sequence[Answered]) -> Figure:
    """How often each style of answer was chosen, over training."""
    return draw_all_ways(ways_over_time(answers))


def draw_logprobs(tokens: Sequence[str], rows: Mapping[str, Sequence[float]]) -> None:
    """A heat map: a row for each model, a column for each token; dark is unlikely."""
    (panel,) = _panels(1, 9, 1.1 + 0.5 * len(rows))
    values = np.array(list(rows.values()))
    image = panel.imshow(values, cmap="Blues_r", vmin=-4, vmax=0, aspect="auto")
    for (y, x), value in np.ndenumerate(values):
        if value < -0.3:
            color = PAPER if value < -1.8 else INK
            panel.text(x, y, f"{value:.1f}", ha="center", va="center", fontsize=7, color=color)
    panel.set_xticks(range(len(tokens)), list(map(_visible, tokens)), rotation=90, fontsize=8)
    panel.set_yticks(range(len(rows)), list(rows))
    panel.tick_params(length=0)
    for side in panel.spines.values():
        side.set_visible(False)
    panel.figure.colorbar(image, label="log-probability", ticks=(-4, -2, 0), pad=0.01)
