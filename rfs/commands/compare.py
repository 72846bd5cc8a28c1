"""`rfs compare`: a study of recipes with equal budget, problems and seeds, each at its best
learning rate.

    runs.csv        a line per run, written as soon as it is finished
    compare.csv     a line per recipe: means, standard errors, differences seed by seed
    compare.md      the same as tables to read, and which recipes were the same algorithm
    forest.png      the differences, one line per algorithm
    compare.png     curves over the steps

A finished run is never repeated, and a killed one continues from its last save.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from matplotlib.figure import Figure
from tqdm.auto import tqdm

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.model_names import is_model_name
from reasoning_from_scratch.text import align_table, counted, percent, percent_error, points
from rfs.commands.compare_options import CompareOptions
from rfs.commands.plot import step_of
from rfs.config import RunConfig
from rfs.evaluation.paired import Effect, best_rate, paired, standard_error
from rfs.files.models import load_model_and_tokenizer
from rfs.files.saved_models import evaluations_in, which_weights
from rfs.files.tables import write_table
from rfs.report.curves import Line, draw_line, share_axis, step_axis
from rfs.report.forest import forest_plot
from rfs.report.picture_files import save_picture
from rfs.run.folder import RunFolder
from rfs.run.model_card import option_text
from rfs.run.options import PRESETS, configure, preset
from rfs.run.origin import weights_checksum
from rfs.run.study import (
    Trial,
    cores,
    last_third,
    make_trials,
    refuse_other_settings,
    run_to_end,
    step_progress,
    study,
)

Runs = Mapping[int, list[dict]]  # the metrics of each seed
ENTROPY = "optim/token_entropy"


@dataclass
class Row:
    """One recipe in the table, at its best learning rate."""

    recipe: str
    lr: float
    accuracy: float  # with greedy decoding, of the last weights
    error: float  # standard error over seeds; nan for one seed
    accuracy_gain: float  # minus the baseline's, seed by seed
    accuracy_gain_error: float
    sampled: float  # correct answers among the rollouts of the last third of the steps
    sampled_error: float
    gain: float  # that share minus the baseline's, seed by seed
    gain_error: float
    start: float  # with greedy decoding, before the first step
    same_as: str  # the first recipe whose runs match these step by step; "" if none
    tokens: float  # sampled per run
    minutes: float  # per run


def compare_command(options: CompareOptions) -> None:
    """Trains every recipe at every learning rate and seed, then writes and prints the table."""
    options = replace(options, model=which_weights(options.model))  # printed once, not by each run
    trials = all_trials(options)
    refuse_shared_folders(trials)
    for trial in trials:  # before the first run: a table takes hours
        refuse_other_settings(trial_config(options, trial))
    refuse_other_weights(options)
    metrics = run_all(options, trials)
    by_rate = {
        recipe: {
            lr: {seed: metrics[Trial(recipe, lr, seed)] for seed in range(options.seeds)}
            for lr in learning_rates(options)
        }
        for recipe in options.recipes
    }
    best = {recipe: choose_best_rate(runs) for recipe, runs in by_rate.items()}
    rows = table_rows(best, options)
    out = Path(options.log_path)
    write_csv(out / "compare.csv", [vars(row) for row in rows])
    last_row = next(iter(metrics.values()))[-1]
    table = markdown(rows, options, last_row.get("eval_problems", options.eval_limit))
    (out / "compare.md").write_text(table, encoding="utf-8")
    plot_bands({recipe: list(runs.values()) for recipe, (_, runs) in best.items()}, out)
    forest = plot_forest(rows, best, options, out)
    pictures = "compare.png" + ", forest.png" * forest
    print(summary(rows, options))
    print(f"\nall figures: {out / 'compare.md'}, compare.csv, runs.csv, {pictures}")


def learning_rates(options: CompareOptions) -> tuple[float | None, ...]:
    return options.lrs or (None,)


def all_trials(options: CompareOptions) -> list[Trial]:
    return make_trials(
        options.recipes, lambda recipe: learning_rates(options), range(options.seeds)
    )


def trial_config(options: CompareOptions, trial: Trial) -> RunConfig:
    """The configuration of a trial's run."""
    # If none is given: the recipe's, or what suits the model.
    rate: dict[str, Any] = {} if trial.lr is None else {"lr": trial.lr}
    return configure(
        str(trial.arm),
        **options.shared,
        **rate,
        seed=trial.seed,
        rolling_every=options.eval_every,
        num_groups_to_log=0,
        preflight=False,
        log_path=str(Path(options.log_path) / folder_name(trial)),
    )


def folder_name(trial: Trial) -> str:
    """The name of a trial's folder; a recipe of your own is in it without its path."""
    short = replace(trial, arm=Path(str(trial.arm)).name.replace(".py:", "-"))
    return str(short).replace(", ", "-").replace(" ", "")


def refuse_shared_folders(trials: Sequence[Trial]) -> None:
    """Refuse two trials whose runs would have the same folder: one of them would not be run."""
    owners: dict[str, Trial] = {}
    for trial in trials:
        other = owners.setdefault(folder_name(trial), trial)
        if other.arm != trial.arm:
            raise UserError(
                f"{other.arm} and {trial.arm} would share the folder {folder_name(trial)}: rename "
                "one of the two files, or what is named in it"
            )
        if other.lr != trial.lr:
            raise UserError(
                f"--lrs {other.lr} and {trial.lr} would share the folder {folder_name(trial)}: "
                "their first six digits are the same, so drop one"
            )


def refuse_other_weights(options: CompareOptions) -> None:
    """Refuse a run whose first weights are not those in the model's folder now: each run has
    recorded their checksum. Names of published models always mean the same weights."""
    if is_model_name(options.model):
        return
    checksums = {}  # of the weights as they are now, by dtype: loaded once for all runs
    for trial in all_trials(options):
        folder = RunFolder(trial_config(options, trial).log_path)
        record = folder.first_weights_record() if folder.used() else {}
        if "mark" not in record:
            continue
        dtype = record["dtype"]
        if dtype not in checksums:
            model, _ = load_model_and_tokenizer(options.model, dtype=getattr(torch, dtype))
            checksums[dtype] = weights_checksum(model)
        if record["mark"] != checksums[dtype]:
            raise UserError(
                f"{folder.path} began with other weights than those in {options.model} now; "
                "choose another --out"
            )


def run_all(options: CompareOptions, trials: Sequence[Trial]) -> dict[Trial, list[dict]]:
    """The metrics of each trial. Each one that ends adds a line to runs.csv."""
    tiny = preset(options.model) is PRESETS["tiny"]
    jobs = options.jobs if options.jobs is not None else cores() if tiny else 1
    done: dict[Trial, list[dict]] = {}
    sizes = f"{counted(len(trials), 'run')} of {counted(options.steps, 'step')}"
    print(f"{sizes}, {min(jobs, len(trials))} at a time", file=sys.stderr, flush=True)
    with step_progress([trial_config(options, t).log_path for t in trials], options.steps):
        for trial, metrics in study(partial(run_one, options), trials, jobs):
            done[trial] = metrics
            rows = [run_row(t, done[t]) for t in trials if t in done]
            write_csv(Path(options.log_path) / "runs.csv", rows)
            accuracy = f"{percent(metrics[-1]['eval_acc'])} correct"
            tqdm.write(f"{len(done)} of {len(trials)}: {trial}: {accuracy}")
    return done


def run_one(options: CompareOptions, trial: Trial) -> list[dict]:
    """The metrics of one run; continues or reuses what an earlier call did of it."""
    config = trial_config(options, trial)
    result = run_to_end(config).require_finished()
    if len(result.rows) < options.steps:
        raise UserError(
            f"{result.folder} has the metrics of only {len(result.rows)} of its "
            f"{options.steps} steps; delete it, or choose another --out"
        )
    return result.rows


def run_row(trial: Trial, rows: Sequence[dict]) -> dict:
    """A line of runs.csv."""
    return {
        "recipe": trial.arm,
        "lr": rows[0]["optim/lr"] if trial.lr is None else trial.lr,
        "seed": trial.seed,
        "start": start_accuracy(rows),
        "accuracy": rows[-1]["eval_acc"],
        "sampled": late_accuracy(rows),
        "tokens": sum(row["env/all/total_ac_tokens"] for row in rows),
        "minutes": sum(row["time/total"] for row in rows) / 60,
    }


def choose_best_rate(by_rate: Mapping[float | None, Runs]) -> tuple[float | None, Runs]:
    """The learning rate with the best rollouts in the last third of the steps, and its runs. The
    held-out problems, on which recipes are then compared, do not influence the choice."""
    best = best_rate({lr: values(runs, late_accuracy) for lr, runs in by_rate.items()})
    return best, by_rate[best]


def table_rows(best: Mapping[str, tuple[float | None, Runs]], options: CompareOptions) -> list[Row]:
    _, baseline = best[options.baseline or options.recipes[0]]
    at_best = {recipe: runs for recipe, (_, runs) in best.items()}
    return [
        table_row(recipe, lr, runs, baseline, first_same_algorithm(recipe, at_best))
        for recipe, (lr, runs) in best.items()
    ]


def table_row(recipe: str, lr: float | None, runs: Runs, baseline: Runs, same_as: str = "") -> Row:
    """`baseline` are the runs of the recipe to compare with, with the same seeds."""
    final, late = (values(runs, measure) for measure in (final_accuracy, late_accuracy))
    # Greedy accuracy no longer separates recipes once each problem's most likely answer is correct.
    accuracy_gain = paired(final, values(baseline, final_accuracy))
    gain = paired(late, values(baseline, late_accuracy))
    metrics = list(runs.values())  # of each seed
    return Row(
        recipe=recipe,
        lr=metrics[0][0]["optim/lr"] if lr is None else lr,
        accuracy=fmean(final.values()),
        error=standard_error(list(final.values())),
        accuracy_gain=accuracy_gain.mean,
        accuracy_gain_error=accuracy_gain.error,
        sampled=fmean(late.values()),
        sampled_error=standard_error(list(late.values())),
        gain=gain.mean,
        gain_error=gain.error,
        start=fmean(map(start_accuracy, metrics)),
        tokens=fmean(sum(row["env/all/total_ac_tokens"] for row in rows) for rows in metrics),
        minutes=fmean(sum(row["time/total"] for row in rows) for rows in metrics) / 60,
        same_as=same_as,
    )


def values(runs: Runs, measure: Callable[[list[dict]], float]) -> dict[int, float]:
    """One figure of each seed's run."""
    return {seed: measure(rows) for seed, rows in runs.items()}


def same_algorithm(ours: Runs, theirs: Runs) -> bool:
    """Whether all steps have the same accuracy and number of tokens, and the same entropy up to
    rounding. Two algorithms that differ diverge within a few steps; two that coincide at these
    settings do not, unless rounding changes a token. A first step shows nothing: all recipes sample
    it with the same weights."""
    names = ("env/all/correct", "env/all/total_ac_tokens", "eval_acc")
    steps = [step for seed in ours for step in zip(ours[seed], theirs[seed], strict=True)]
    return len(steps) > len(ours) and all(
        all(one.get(name) == other.get(name) for name in names)
        and math.isclose(one[ENTROPY], other[ENTROPY], rel_tol=1e-3)
        for one, other in steps
    )


def first_same_algorithm(recipe: str, runs: Mapping[str, Runs]) -> str:
    """The first recipe that is the same algorithm; "" if that is the recipe itself."""
    first = next(
        name for name in runs if name == recipe or same_algorithm(runs[name], runs[recipe])
    )
    return "" if first == recipe else first


def final_accuracy(rows: Sequence[dict]) -> float:
    """Accuracy of the last weights."""
    return rows[-1]["eval_acc"]


def start_accuracy(rows: Sequence[dict]) -> float:
    """Accuracy before the first step."""
    return evaluations_in(rows[0])[0]["eval_acc"]


def late_accuracy(rows: Sequence[dict]) -> float:
    """The share of correct answers among the rollouts of the last third of the steps."""
    return fmean(row["env/all/correct"] for row in last_third(rows))


def summary(rows: Sequence[Row], options: CompareOptions) -> str:
    """What is printed: a line per recipe, the best first."""
    first = options.baseline or options.recipes[0]
    lines = [["recipe", "lr", "greedy", f"vs {first}", "rollouts"]]
    for row in best_first(rows):
        cells = [percent_error(row.accuracy, row.error), gain_of(row, first)[0]]
        cells.append(percent_error(row.sampled, row.sampled_error))
        lines.append([row.recipe, f"{row.lr:g}", *cells])
    explained = f"vs {first}: of greedy, in points, seed by seed. ±: one standard error over seeds."
    notes = [explained] * (options.seeds > 1)
    return "\n".join([*align_table(lines), *notes, *same_algorithms(rows)])


def best_first(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.accuracy, row.sampled), reverse=True)


def gain_of(row: Row, first: str) -> list[str]:
    """The differences of greedy and of rollouts from the first recipe's; none from itself."""
    gains = (row.accuracy_gain, row.accuracy_gain_error), (row.gain, row.gain_error)
    if row.recipe == first:
        return ["", ""]
    return [
        points(gain) if math.isnan(error) else f"{points(gain)} ± {100 * error:.1f}"
        for gain, error in gains
    ]


def markdown(rows: Sequence[Row], options: CompareOptions, problems: int) -> str:
    """The page: all figures, best recipe first, below lines that explain settings and columns.
    `problems`: how many are held out and asked."""
    first = options.baseline or options.recipes[0]
    chosen = (
        f" lr: for each recipe the one of {', '.join(f'{lr:g}' for lr in options.lrs)} with the "
        "largest rollouts."
        if options.lrs
        else ""
    )
    others = {*options.given} - {"model", "steps", "problems_per_step", "rollouts"}
    words = [option_text(k, v) for k, v in options.shared.items() if k in others]
    given = f" Given: {' '.join(words)}." if words else ""
    seeds = f"seeds 0 to {options.seeds - 1}" if options.seeds > 1 else "seed 0"
    about = (
        f"{options.model}: {counted(options.steps, 'step')} x "
        f"{counted(options.problems_per_step, 'problem')} x {options.rollouts} rollouts, "
        f"{seeds}. greedy: accuracy on "
        f"{problems} held-out problems at the end (before: at the start). rollouts: "
        f"correct answers among those of the last third of the steps.{chosen}{given} "
        f"vs {first}: the difference in percentage points, seed by seed. "
        "±: one standard error over seeds. tokens: sampled in all, per run."
    )
    names = ["recipe", "lr", "before", "greedy", f"greedy vs {first}"]
    lines = [[*names, "rollouts", f"rollouts vs {first}", "tokens", "minutes"]]
    for row in best_first(rows):
        accuracy_gain, gain = gain_of(row, first)
        cells = [row.recipe, f"{row.lr:g}", percent(row.start)]
        cells += [percent_error(row.accuracy, row.error), accuracy_gain]
        cells += [percent_error(row.sampled, row.sampled_error), gain]
        lines.append([*cells, f"{row.tokens:,.0f}", f"{row.minutes:.1f}"])
    return "\n".join([about, "", *align_table(lines), "", *same_algorithms(rows)])


def same_algorithms(rows: Sequence[Row]) -> list[str]:
    """A line that names the recipes that were the same algorithm; none if all differed."""
    twins = [f"{row.recipe} = {row.same_as}" for row in rows if row.same_as]
    line = (
        "The same algorithm at these settings (each step's rollouts had the same length, accuracy "
        f"and entropy, in all seeds): {', '.join(twins)}.\n"
    )
    return [line] if twins else []


def write_csv(path: Path, rows: Sequence[Mapping]) -> None:
    write_table(path, [{key: shortened(value) for key, value in row.items()} for row in rows])


def shortened(value: object) -> object:
    """Five digits: no number here is exact to more."""
    return f"{value:.5g}" if isinstance(value, float) else value


def plot_forest(
    rows: Sequence[Row],
    best: Mapping[str, tuple[float | None, Runs]],
    options: CompareOptions,
    out: Path,
) -> bool:
    """Draws each algorithm once, as its difference from the baseline; False if there is none."""
    first = options.baseline or options.recipes[0]
    twins = {row.recipe: row.same_as or row.recipe for row in rows}
    effects = {}
    for row in rows:
        names = [name for name, whose in twins.items() if whose == row.recipe]
        if names and first not in names:
            ours, theirs = (values(best[name][1], final_accuracy) for name in (row.recipe, first))
            effects[" = ".join(names)] = in_points(paired(ours, theirs))
    if effects:
        axis = f"greedy held-out accuracy minus that of {first} (percentage points)"
        forest_plot(effects, axis, out / "forest.png")
    return bool(effects)


def in_points(effect: Effect) -> Effect:
    """A difference of shares in percentage points."""
    return Effect(100 * effect.mean, 100 * effect.error, effect.seeds)


def plot_bands(curves: dict[str, Sequence[list[dict]]], out: Path) -> None:
    """Held-out accuracy and reward by step: the mean over seeds, with a band of one standard
    error."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    titles = {"held-out accuracy": "eval_acc", "reward": "env/all/reward/total"}
    for panel, (title, key) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        step_axis(panel, title)
        for number, (recipe, runs) in enumerate(curves.items()):
            steps, low, mean, high = band(runs, key)
            line = Line(recipe, steps, mean, dots=key == "eval_acc", band=(low, high))
            draw_line(panel, line, number)
        if key == "eval_acc":
            share_axis(panel)
    figure.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=6)
    save_picture(figure, out / "compare.png")


def band(runs: Sequence[list[dict]], key: str) -> tuple[list[int], list, list, list]:
    """The steps for which all runs have a value; for each, the mean minus error, mean, and mean
    plus error."""
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
