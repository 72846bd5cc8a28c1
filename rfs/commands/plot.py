"""`rfs plot`: curves of one or several runs, as a picture."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.text import read_lines
from rfs.commands.positional_options import PlotOptions
from rfs.files.saved_models import evaluated_at, evaluations_in
from rfs.report import newest_run
from rfs.report.curves import Line, draw_line, share_axis, step_axis
from rfs.report.metrics import (
    CSV_COLUMNS,
    ENTROPY,
    GRADIENT_NORM,
    MIXED,
    REWARD,
    TOKENS,
)
from rfs.report.picture_files import save_picture
from rfs.report.run_files import is_number, latest_by_step

CURVES = {
    "reward": REWARD,
    "held-out accuracy": "eval_acc",
    "answer length (tokens)": TOKENS,
    "groups with signal": MIXED,
    "entropy (nats per token)": ENTROPY,
    "gradient norm": GRADIENT_NORM,
}
SHARES = ("eval_acc", MIXED)


def plot_command(options: PlotOptions) -> None:
    """Draws reward, accuracy, length, signal, entropy and gradient norm of the given runs."""
    runs: Sequence[str | Path] = options.runs or [newest_run(Path("runs"))]
    inside = len(runs) == 1 and Path(runs[0]).is_dir()
    print(plot_runs(runs, options.out or (Path(runs[0]) if inside else Path()) / "curves.png"))


def plot_runs(folders: Sequence[str | Path], save_as: str | Path) -> Path:
    """One picture of several runs, written to a file."""
    return save_picture(draw_runs(folders), save_as)


def draw_runs(folders: Sequence[str | Path]) -> Figure:
    """A panel per curve and a line per run; a curve that no run has measured gets no panel."""
    runs = {name: read_metrics(folder) for name, folder in by_name(folders).items()}
    figure = Figure(figsize=(11, 6), layout="constrained")
    panels = figure.subplots(2, 3)
    for panel, (title, key) in zip(panels.flat, CURVES.items(), strict=True):
        step_axis(panel, title)
        for number, (name, rows) in enumerate(runs.items()):
            line = curve_line(rows, key, name)
            if line.steps:
                draw_line(panel, line, number)
        if key in SHARES and panel.has_data():
            share_axis(panel)
        panel.set_visible(panel.has_data())
    if len(runs) > 1:
        drawn = (zip(*panel.get_legend_handles_labels(), strict=True) for panel in panels.flat)
        lines = {name: handle for pairs in drawn for handle, name in pairs}
        figure.legend(lines.values(), lines, loc="outside lower center", ncols=4)
    else:
        figure.suptitle(*runs)
    return figure


def by_name(folders: Sequence[str | Path]) -> dict[str, Path]:
    """Folders by their names; by their paths where two have the same name."""
    paths = [Path(folder) for folder in folders]
    names = [path.resolve().name.removesuffix(".csv") for path in paths]
    return {
        name if names.count(name) == 1 else str(path): path
        for name, path in zip(names, paths, strict=True)
    }


def curve_line(rows: list[dict], key: str, label: str) -> Line:
    if key == "eval_acc":
        rows = [evaluation for row in rows for evaluation in evaluations_in(row)]
    points = [(step_of(row, key), row[key]) for row in rows if is_number(row.get(key))]
    steps, values = ([point[i] for point in points] for i in (0, 1))
    return Line(label, steps, values, dots=key == "eval_acc")


def step_of(row: dict, key: str) -> int:
    """The step that a value of a metrics line belongs to, counted from 1 as in all texts for
    people. For an evaluation: the number of steps before it."""
    return evaluated_at(row) if key == "eval_acc" else row["step"] + 1


def read_metrics(folder: str | Path) -> list[dict]:
    path = Path(folder)
    if path.name == "metrics.csv" and path.with_suffix(".jsonl").exists():
        path = path.parent  # a run: its metrics.jsonl says when it was evaluated
    elif path.suffix == ".csv":
        return read_book_csv(path)
    rows = latest_by_step(read_lines(path / "metrics.jsonl"))
    if not rows:
        raise UserError(f"{folder} has no metrics.jsonl with a step in it; give a run folder")
    return rows


def read_book_csv(path: Path) -> list[dict]:
    """The steps of a CSV file in the format of the book's scripts, with the names that we use.

    The book's scripts count steps from 1 and evaluate after a step. The metrics.csv of our runs
    counts from 0, and has evaluations before a step and after the last.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [
                {key: number_in(row.get(column), path) for column, key in CSV_COLUMNS.items()}
                for row in csv.DictReader(file)
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {path}: {reason}; give a run folder or a CSV file") from None
    rows = [row for row in rows if row["step"] is not None]
    if not any(row.get(key) is not None for row in rows for key in CURVES.values()):
        known = ", ".join(CSV_COLUMNS)
        raise UserError(f"{path} has no steps of a run; expected some of the columns {known}")
    from_0 = min(row["step"] for row in rows) == 0
    percent = max(row["eval_acc"] or 0 for row in rows) > 1
    for row in rows:
        step, is_last = int(row["step"]), row["step"] + 1 == row["total_steps"]
        row["step"] = step if from_0 else step - 1
        row["eval_step"] = step + (from_0 and is_last)
        if percent and row["eval_acc"] is not None:
            row["eval_acc"] /= 100
    return rows


def number_in(cell: str | None, path: Path) -> float | None:
    """None for an empty cell, and for a number that is not finite."""
    try:
        number = float(cell or "nan")
    except ValueError:
        raise UserError(f"{path}: {cell[:40]!r} is not a number") from None
    return number if math.isfinite(number) else None
