"""Curves of one or several runs, as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from matplotlib.figure import Figure

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.json_files import read_lines

CURVES = {
    "reward": "env/all/reward/total",
    "held-out accuracy": "eval_acc",
    "answer length (tokens)": "env/all/ac_tokens_per_turn",
    "groups with signal": "env/all/by_group/frac_mixed",
    "entropy (nats per token)": "optim/token_entropy",
    "gradient norm": "optim/grad_norm",
}
SMOOTH = 9  # steps averaged for the bold line; the thin one is what was measured


@dataclass
class PlotOptions:
    """Options of `rfs plot`."""

    runs: tyro.conf.Positional[list[str]]
    """Run folders."""
    out: str = "curves.png"
    """Picture to write."""


def plot_command(options: PlotOptions) -> None:
    """Draws reward, accuracy, length, signal, entropy and gradient norm of the given runs."""
    print(plot_runs(options.runs, options.out))


def plot_runs(folders: Sequence[str | Path], save_as: str | Path) -> Path:
    """One picture with a panel per curve and a line per run."""
    runs = {Path(folder).name: metrics_of(folder) for folder in folders}
    figure = Figure(figsize=(11, 6), layout="constrained")
    panels = figure.subplots(2, 3).flat
    for panel, (title, key) in zip(panels, CURVES.items(), strict=True):
        panel.set(title=title, xlabel="step")
        panel.grid(alpha=0.3)
        for number, (name, rows) in enumerate(runs.items()):
            draw_curve(panel, rows, key, f"C{number}", name)
    if len(runs) > 1:
        figure.legend(list(runs), loc="outside lower center", ncols=4)
    figure.savefig(save_as, dpi=110)
    return Path(save_as)


def draw_curve(panel, rows: list[dict], key: str, color: str, label: str) -> None:
    points = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
    if not points:
        return
    steps, values = zip(*points, strict=True)
    few = len(points) <= 2 * SMOOTH
    panel.plot(steps, values if few else smoothed(values), color=color, label=label,
               marker="o" if few else None, markersize=3)  # fmt: skip
    if not few:
        panel.plot(steps, values, color=color, alpha=0.25, linewidth=0.8)


def smoothed(values: Sequence[float]) -> list[float]:
    """Mean of the last SMOOTH values: nothing is known before it happened."""
    windows = [values[max(0, end - SMOOTH) : end] for end in range(1, len(values) + 1)]
    return [sum(window) / len(window) for window in windows]


def metrics_of(folder: str | Path) -> list[dict]:
    rows = read_lines(Path(folder) / "metrics.jsonl")
    if not rows:
        raise UserError(f"{folder} has no metrics.jsonl with a step in it; give a run folder")
    return rows
