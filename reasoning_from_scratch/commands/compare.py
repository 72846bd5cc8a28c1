"""`rfs compare`: recipes with equal budget, data and seeds, as one table and one picture."""

import csv
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean, stdev

import torch
from matplotlib.figure import Figure

from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.saved_models import evaluations_in, which_weights
from reasoning_from_scratch.files.weights import MODEL_NAMES, load_model_and_tokenizer
from reasoning_from_scratch.recipes import get_recipe
from reasoning_from_scratch.report.curves import Line, draw_line, step_axis
from reasoning_from_scratch.report.plots import save_picture, step_of
from reasoning_from_scratch.run.folder import PLACES, RunFolder
from reasoning_from_scratch.run.options import configure, resolved, resumed_config
from reasoning_from_scratch.run.origin import weights_mark, with_whole_paths
from reasoning_from_scratch.run.start import train
from reasoning_from_scratch.text import counted


@dataclass
class CompareOptions:
    """Options of `rfs compare`; what is None is as in `rfs train`."""

    recipes: tuple[str, ...] = ("grpo", "dr_grpo", "dapo")
    """Rows of `rfs recipes`."""
    seeds: int = 3
    """Runs per recipe, with seeds 0, 1, ..."""
    model: str = "tiny-base"
    """Model that all start from: a name, a folder, a file, a run (its best save) or RUN@SAVE."""
    steps: int = 60
    """Training steps of each run."""
    problems_per_step: int = 8
    """Problems sampled at each step."""
    rollouts: int = 8
    """Rollouts per problem."""
    max_new_tokens: int | None = None
    """Longest answer in tokens."""
    lr: float | None = None
    """Learning rate of all recipes."""
    eval_every: int = 10
    """Evaluate before every so many steps and at the end."""
    eval_limit: int = 200
    """Problems per evaluation."""
    out: str = "runs/compare"
    """Folder of the runs, the table and the picture. A run that is there is not run again; if it
    was made with other settings than these, nothing is done."""


@dataclass
class Row:
    """One recipe in the table."""

    recipe: str
    accuracy: float  # greedy, of the last weights
    error: float  # standard error over seeds; nan for one seed
    sampled: float  # right answers among the rollouts of the last third of the steps
    sampled_error: float
    gain: float  # that share minus the first recipe's, seed by seed
    gain_error: float
    start: float  # greedy, before the first step
    tokens: float  # sampled per run
    minutes: float  # per run


def compare_command(options: CompareOptions) -> None:
    """Trains every recipe with every seed, then writes and prints the table."""
    check_options(options)
    options = replace(options, model=which_weights(options.model))  # said once, not by each run
    for recipe in options.recipes:  # before the first run: a table takes hours
        for seed in range(options.seeds):
            refuse_other_settings(asked_config(options, recipe, seed))
    refuse_other_weights(options)
    curves = {
        recipe: [run_one(options, recipe, seed) for seed in range(options.seeds)]
        for recipe in options.recipes
    }
    first = curves[options.recipes[0]]
    rows = [table_row(recipe, runs, first) for recipe, runs in curves.items()]
    out = Path(options.out)
    write_csv(out / "compare.csv", rows)
    table = markdown(rows, options)
    (out / "compare.md").write_text(table, encoding="utf-8")
    plot_bands(curves, out / "compare.png")
    print(f"{table}\n{out / 'compare.md'}, compare.csv, compare.png")


def check_options(options: CompareOptions) -> None:
    if options.seeds < 1:
        raise UserError(f"--seeds is {options.seeds}, but must be at least 1")
    if options.eval_every < 1:
        raise UserError(f"--eval-every is {options.eval_every}, but the table needs evaluations")
    if len(set(options.recipes)) < len(options.recipes) or not options.recipes:
        raise UserError("--recipes needs one or more names, each once")
    for recipe in options.recipes:
        get_recipe(recipe)


def asked_config(options: CompareOptions, recipe: str, seed: int) -> TrainConfig:
    """The run that stands for a recipe and a seed."""
    names = (
        "model",
        "steps",
        "problems_per_step",
        "rollouts",
        "max_new_tokens",
        "lr",
        "eval_every",
        "eval_limit",
    )
    chosen = {name: getattr(options, name) for name in names}
    # A recipe's own learning rate would make it another budget, so the option rules for all.
    return configure(
        recipe,
        **chosen,
        seed=seed,
        num_groups_to_log=0,
        preflight=False,
        log_path=str(Path(options.out) / f"{recipe}-seed{seed}"),
    )


def refuse_other_settings(asked: TrainConfig) -> None:
    """A run that is there may be shown only if each of its steps was made as asked.

    Whoever resumed it may have changed any field for some steps and then changed it back.
    """
    folder = RunFolder(asked.log_path)
    wanted = with_whole_paths(resolved(asked), given=False)
    if not folder.used():
        return
    for made in reversed(folder.read_configs()):  # the latest difference says most
        for name in (field.name for field in fields(TrainConfig) if field.name not in PLACES):
            before, now = getattr(made, name), getattr(wanted, name)
            if before != now:
                raise UserError(
                    f"{folder.path} was run with {name} {before}, not {now}; give another --out"
                )


def refuse_other_weights(options: CompareOptions) -> None:
    """A folder may hold other weights by now: each run has noted the CRC of those that it began
    with. The names of published models stand for the same weights for ever."""
    if options.model in MODEL_NAMES:
        return
    marks = {}  # of the weights as they are now, by number format: loaded once for all runs
    for recipe in options.recipes:
        for seed in range(options.seeds):
            folder = RunFolder(asked_config(options, recipe, seed).log_path)
            begun = folder.start_record() if folder.used() else {}
            if "mark" not in begun:
                continue
            dtype = begun["dtype"]
            if dtype not in marks:
                model, _ = load_model_and_tokenizer(options.model, dtype=getattr(torch, dtype))
                marks[dtype] = weights_mark(model)
            if begun["mark"] != marks[dtype]:
                raise UserError(
                    f"{folder.path} began with other weights than are in {options.model} now; "
                    "give another --out"
                )


def run_one(options: CompareOptions, recipe: str, seed: int) -> list[dict]:
    """The metrics of one run, which may have been done or begun by an earlier call."""
    config = asked_config(options, recipe, seed)
    refuse_other_settings(config)
    if RunFolder(config.log_path).used():
        config = resumed_config(config.log_path)
    print(f"{recipe}, seed {seed}", flush=True)
    result = train(config, quiet=True)
    if result.stopped.startswith("interrupted"):
        print("the same command goes on where it was", file=sys.stderr)
        raise KeyboardInterrupt
    if result.stopped:
        raise UserError(f"{result.folder}: {result.stopped}")
    if len(result.rows) < options.steps:
        raise UserError(
            f"{result.folder} has the metrics of {len(result.rows)} of its "
            f"{options.steps} steps; delete it, or give another --out"
        )
    return result.rows


def table_row(recipe: str, runs: Sequence[list[dict]], first: Sequence[list[dict]]) -> Row:
    """`first` are the runs of the first recipe, with the same seeds."""
    final = [rows[-1]["eval_acc"] for rows in runs]
    # Greedy accuracy stops telling recipes apart once each problem's likeliest answer is right.
    late = [late_share(rows) for rows in runs]
    # A seed fixes the problems, so what they do to both recipes cancels in the difference.
    gains = [share - late_share(rows) for share, rows in zip(late, first, strict=True)]
    return Row(
        recipe=recipe,
        accuracy=fmean(final),
        error=standard_error(final),
        sampled=fmean(late),
        sampled_error=standard_error(late),
        gain=fmean(gains),
        gain_error=standard_error(gains),
        start=fmean(start_accuracy(rows) for rows in runs),
        tokens=fmean(sum(row["env/all/total_ac_tokens"] for row in rows) for rows in runs),
        minutes=fmean(sum(row["time/total"] for row in rows) for rows in runs) / 60,
    )


def start_accuracy(rows: Sequence[dict]) -> float:
    """Before the first step."""
    return evaluations_in(rows[0])[0]["eval_acc"]


def late_share(rows: Sequence[dict]) -> float:
    """Right answers among the rollouts of the last third of the steps, at least of one."""
    return fmean(row["env/all/correct"] for row in rows[-max(1, len(rows) // 3) :])


def standard_error(values: Sequence[float]) -> float:
    """Of the mean; nan for a single value, which says nothing about its own spread."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def markdown(rows: Sequence[Row], options: CompareOptions) -> str:
    """The table, best recipe first, under lines that say what was equal and what is shown."""
    first = rows[0].recipe
    about = (
        f"{options.model}: {counted(options.steps, 'step')} x "
        f"{counted(options.problems_per_step, 'problem')} x {options.rollouts} rollouts, "
        f"seeds 0 to {options.seeds - 1}. greedy: accuracy on "
        f"{options.eval_limit} held-out problems at the end (before: at the start). rollouts: "
        f"right answers among those of the last third of the steps. vs {first}: the difference "
        "of rollouts, seed by seed. s.e.: standard error over seeds of the column before it. "
        "tokens: sampled in all, per run."
    )
    lines = [
        [
            "recipe",
            "greedy",
            "s.e.",
            "rollouts",
            "s.e.",
            f"vs {first}",
            "s.e.",
            "before",
            "tokens",
            "minutes",
        ]
    ]
    for row in sorted(rows, key=lambda row: (row.accuracy, row.sampled), reverse=True):
        shares = [
            row.accuracy,
            row.error,
            row.sampled,
            row.sampled_error,
            row.gain,
            row.gain_error,
            row.start,
        ]
        lines.append(
            [row.recipe, *map(percent, shares), f"{row.tokens:,.0f}", f"{row.minutes:.1f}"]
        )
    return "\n".join([about, "", *aligned(lines), ""])


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table, padded so that it can be read as plain text too."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return [
        "| "
        + " | ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        + " |"
        for line in (lines[0], rule, *lines[1:])
    ]


def percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.1%}"


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(vars(rows[0])))
        table.writeheader()
        for row in rows:
            table.writerow({k: round(v, 5) if k != "recipe" else v for k, v in vars(row).items()})


def plot_bands(curves: dict[str, Sequence[list[dict]]], path: Path) -> None:
    """Held-out accuracy and reward by step: mean over seeds in a band of one standard error."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    titles = {"held-out accuracy": "eval_acc", "reward": "env/all/reward/total"}
    for panel, (title, key) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        step_axis(panel, title)
        for number, (recipe, runs) in enumerate(curves.items()):
            steps, low, mean, high = band(runs, key)
            line = Line(recipe, steps, mean, dots=key == "eval_acc", band=(low, high))
            draw_line(panel, line, number)
    figure.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=6)
    save_picture(figure, path)


def band(runs: Sequence[list[dict]], key: str) -> tuple[list[int], list, list, list]:
    """Steps, and mean minus error, mean, mean plus error over runs, where all have a value."""
    steps, low, means, high = [], [], [], []
    for rows in zip(*runs, strict=False):
        values = [row[key] for row in rows if row.get(key) is not None]
        if len(values) < len(runs):
            continue
        error = standard_error(values) if len(values) > 1 else 0.0
        steps.append(step_of(rows[0], key))
        means.append(fmean(values))
        low.append(means[-1] - error)
        high.append(means[-1] + error)
    return steps, low, means, high
