"""Curves of one or several runs, as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.saved_models import evaluated_at, evaluations_in
from reasoning_from_scratch.report import newest_run
from reasoning_from_scratch.report.curves import Line, draw_line, step_axis
from reasoning_from_scratch.text import read_lines

CURVES = {
    "reward": "env/all/reward/total",
    "held-out accuracy": "eval_acc",
    "answer length (tokens)": "env/all/ac_tokens_per_turn",
    "groups with signal": "env/all/by_group/frac_mixed",
    "entropy (nats per token)": "optim/token_entropy",
    "gradient norm": "optim/grad_norm",
}


@dataclass
class PlotOptions:
    """Options of `rfs plot`."""

    runs: tyro.conf.Positional[list[str]] = field(default_factory=list)
    """Run folders (default: the newest in runs/)."""
    out: str = "curves.png"
    """Picture to write; its ending says in which format."""


def plot_command(options: PlotOptions) -> None:
    """Draws reward, accuracy, length, signal, entropy and gradient norm of the given runs."""
    runs = options.runs or [newest_run(Path("runs"))]
    print(plot_runs(runs, options.out))


def plot_runs(folders: Sequence[str | Path], save_as: str | Path) -> Path:
    """One picture of several runs, written to a file."""
    return save_picture(draw_runs(folders), save_as)


def draw_runs(folders: Sequence[str | Path]) -> Figure:
    """A panel per curve and a line per run."""
    runs = {name: metrics_of(folder) for name, folder in named(folders).items()}
    figure = Figure(figsize=(11, 6), layout="constrained")
    panels = figure.subplots(2, 3)
    for panel, (title, key) in zip(panels.flat, CURVES.items(), strict=True):
        step_axis(panel, title)
        for number, (name, rows) in enumerate(runs.items()):
            line = line_of(rows, key, name)
            if line.steps:
                draw_line(panel, line, number)
    if len(runs) > 1:
        lines = panels.flat[0].get_legend_handles_labels()  # every step has a reward
        figure.legend(*lines, loc="outside lower center", ncols=4)
    else:
        figure.suptitle(*runs)
    return figure


def named(folders: Sequence[str | Path]) -> dict[str, Path]:
    """Folders by their names; by their whole paths where two have the same name."""
    paths = [Path(folder) for folder in folders]
    names = [path.resolve().name for path in paths]
    return {
        name if names.count(name) == 1 else str(path): path
        for name, path in zip(names, paths, strict=True)
    }


def line_of(rows: list[dict], key: str, label: str) -> Line:
    if key == "eval_acc":
        rows = [found for row in rows for found in evaluations_in(row)]
    points = [(step_of(row, key), row[key]) for row in rows if row.get(key) is not None]
    steps, values = ([point[i] for point in points] for i in (0, 1))
    return Line(label, steps, values, dots=key == "eval_acc")


def step_of(row: dict, key: str) -> int:
    """The step that a value of a metrics line belongs to: its own, but for the evaluation of the
    final weights. That is one step later, and has no line to itself."""
    return evaluated_at(row) if key == "eval_acc" else row["step"]


def metrics_of(folder: str | Path) -> list[dict]:
    rows = read_lines(Path(folder) / "metrics.jsonl")
    if not rows:
        raise UserError(f"{folder} has no metrics.jsonl with a step in it; give a run folder")
    return rows


def save_picture(figure: Figure, path: str | Path) -> Path:
    """Write the picture where the user wants it."""
    path = picture_path(path)
    try:
        figure.savefig(path, dpi=110)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; choose another place") from error
    return path


def picture_path(path: str | Path) -> Path:
    """The path, if a picture can have that name; its folder is made."""
    path, known = Path(path), FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise UserError(f"{path}: a picture's name ends in one of .{', .'.join(sorted(known))}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {path.parent}: {error.strerror}") from error
    return path
