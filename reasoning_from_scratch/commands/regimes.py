"""A regime for each method: small runs with and without it, where it should matter.

A regime is a table of arms, each a change of the same run. One line of the CSV file is one run,
written as soon as it is finished; a line that is there is not made again. The lines may come in
any order and from several calls, so a study of hours can be made a row at a time. ch07/regimes.py
holds the regimes.
"""

import csv
import hashlib
import io
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import torch

from reasoning_from_scratch.commands.compare import last_third
from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.evaluation.evaluate import EvalResult, evaluate
from reasoning_from_scratch.evaluation.paired import best_rate
from reasoning_from_scratch.evaluation.regime_findings import (
    OUTCOMES,
    Regime,
    findings,
    stored_rows,
    table,
    values_of,
)
from reasoning_from_scratch.files.problem_sets import held_out, load_problems
from reasoning_from_scratch.files.weights import load_model_and_tokenizer
from reasoning_from_scratch.recipes import get_recipe
from reasoning_from_scratch.report.ways import by_way, evaluated_answers
from reasoning_from_scratch.run.folder import RunFolder
from reasoning_from_scratch.run.jobs import jobs_for, side_by_side
from reasoning_from_scratch.run.options import configure, resolved, resumed_config
from reasoning_from_scratch.run.origin import weights_mark
from reasoning_from_scratch.run.start import train
from reasoning_from_scratch.sampling import NotFinite, Sampling, greedy
from reasoning_from_scratch.text import aligned
from reasoning_from_scratch.tiny.ways import ANSWER_TOKENS

LATE = {
    "reward": "env/all/reward/total",
    "sampled": "env/all/correct",
    "entropy": "optim/token_entropy",
    "mixed": "env/all/by_group/frac_mixed",
}
KEY = ("regime", "arm", "lr", "seed")
COLUMNS = (*KEY, "settings", "seconds", *OUTCOMES, "stopped")
GREEDY_PROBLEMS, SAMPLED_PROBLEMS, SAMPLES = 200, 100, 8


@dataclass
class RegimesOptions:
    """Which rows to make, and where they are kept."""

    regime: tuple[str, ...] = ()
    """Only these regimes (default: all)."""
    arm: tuple[str, ...] = ()
    """Only these of their arms (default: all)."""
    lrs: tuple[float, ...] = ()
    """Only these of their learning rates, with every seed."""
    seeds: int = 5
    """Runs of each arm, with seeds 0, 1, ..."""
    tuning_seeds: int = 1
    """The first so many seeds try every learning rate; the others run at the best of them."""
    jobs: int | None = None
    """Runs side by side (default: one per core)."""
    out: Path = Path("ch07/regimes.csv")
    """File to which each run adds a line."""
    keep: Path | None = None
    """Folder in which the runs stay; a killed one then goes on from its last save."""
    table: bool = False
    """Make nothing, print the table of what is there."""
    list: bool = False
    """Make nothing, print the regimes and the runs that each still lacks."""


@dataclass(frozen=True)
class ArmRun:
    """One line of the file, to be made."""

    regime: str
    arm: str
    lr: float
    seed: int
    settings: str
    changes: str  # as JSON: a frozen value, the same in every process
    keep: Path | None = None

    @property
    def key(self) -> tuple:
        return self.regime, self.arm, self.lr, self.seed

    @property
    def run(self) -> tuple:
        """What is made for it, whichever regime asks."""
        return self.settings, self.lr, self.seed

    def __str__(self) -> str:
        return f"{self.regime}, {self.arm}, lr {self.lr:g}, seed {self.seed}"


def run_regimes(regimes: Mapping[str, Regime], options: RegimesOptions) -> None:
    """Makes the rows that are asked for and not there, then prints the table."""
    chosen = chosen_regimes(regimes, options)
    marks = SettingsMarks()
    rows = current_rows(stored_rows(options.out), regimes, marks)
    if options.list:
        print(regimes_list(chosen, missing(chosen, options, rows, marks)))
        return
    if not options.table:
        open_rows(options.out)
        # What the later seeds run with is known when the first ones are there.
        for seeds in (min(options.seeds, options.tuning_seeds), options.seeds):
            todo = missing(chosen, replace(options, seeds=seeds), rows, marks)
            for row in made_rows(todo, rows, options.jobs):
                append_row(options.out, row)
                rows.append(row)
    print(table(findings(chosen, rows)))


def made_rows(
    todo: Sequence[ArmRun], rows: Sequence[dict], jobs: int | None
) -> Iterator[dict[str, Any]]:
    """The rows that lack. Where arms of two regimes are the same run, it is made once."""
    waiting: dict[tuple, list[ArmRun]] = {}
    for trial in todo:
        waiting.setdefault(trial.run, []).append(trial)
    for row in rows:
        same = waiting.pop((row["settings"], row["lr"], row["seed"]), [])
        yield from (row | {"regime": trial.regime, "arm": trial.arm} for trial in same)
    runs = [same[0] for same in waiting.values()]
    start = time.monotonic()
    for done, (first, row) in enumerate(
        side_by_side(make_row, runs, jobs_for(jobs, len(runs), tiny=True)), 1
    ):
        yield from (row | {"regime": t.regime, "arm": t.arm} for t in waiting[first.run])
        left = (time.monotonic() - start) / done * (len(runs) - done) / 60
        took = f"{row['seconds']:.0f} s; about {left:.0f} minutes to go"
        print(f"{done} of {len(runs)}: {first}: {took}", flush=True)


def chosen_regimes(regimes: Mapping[str, Regime], options: RegimesOptions) -> dict[str, Regime]:
    if options.seeds < 1:
        raise UserError(f"--seeds is {options.seeds}, but must be at least 1")
    for name in options.regime:
        if name not in regimes:
            raise unknown_name("regime", name, list(regimes))
    chosen = {name: regimes[name] for name in options.regime or regimes}
    known = [arm for regime in chosen.values() for arm in regime.arms]
    for arm in options.arm:
        if arm not in known:
            raise unknown_name("arm", arm, known)
    tried = sorted(
        {lr for regime in chosen.values() for arm in regime.arms for lr in regime.rates(arm)}
    )
    for lr in set(options.lrs) - set(tried):
        raise UserError(
            f"--lrs {lr:g} is none of theirs: {', '.join(f'{rate:g}' for rate in tried)}"
        )
    return chosen


# ---- which run a line stands for


def changes_of(regime: Regime, arm: str) -> dict[str, Any]:
    return regime.common | regime.arms[arm]


def config_of(changes: Mapping[str, Any], lr: float, seed: int) -> TrainConfig:
    """The run of an arm, but for its folder."""
    return configure(**dict(changes), lr=lr, seed=seed, **QUIET)


# A row is all that stays of a run, so nothing else is written, and nothing measured on the way.
QUIET = {
    "device": "cpu",
    "dtype": "float32",
    "preflight": False,
    "num_groups_to_log": 0,
    "report_every": 0,
    "rolling_every": 20,
}


class SettingsMarks:
    """Eight letters for what an arm is made with: its changes, its recipe's, and the very weights
    that it starts from. A line of another mark is of another experiment."""

    def __init__(self) -> None:
        self.weights: dict[str, list[int]] = {}

    def of(self, regime: Regime, arm: str) -> str:
        changes = changes_of(regime, arm)
        model = changes.get("model", "tiny-base")
        if model not in self.weights:
            self.weights[model] = weights_mark(load_model_and_tokenizer(model, "cpu")[0])
        recipe = get_recipe(changes.get("recipe", "grpo")).changes
        said = json.dumps([changes, recipe, self.weights[model]], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()[:8]


def missing(
    chosen: Mapping[str, Regime],
    options: RegimesOptions,
    rows: Sequence[dict],
    marks: SettingsMarks,
) -> list[ArmRun]:
    """Seed by seed, so that a study that is stopped early has whole seeds."""
    there = {tuple(row[name] for name in KEY) for row in rows}
    every = [
        ArmRun(name, arm, lr, seed, marks.of(regime, arm), json.dumps(changes), options.keep)
        for seed in range(options.seeds)
        for name, regime in chosen.items()
        for arm in regime.arms
        if not options.arm or arm in options.arm
        for lr in rates_of(name, regime, arm, options, rows, tuning=seed < options.tuning_seeds)
        for changes in [changes_of(regime, arm)]
    ]
    for trial in every:  # before the first run: what is refused is refused now
        resolved(config_of(json.loads(trial.changes), trial.lr, trial.seed))
    return [trial for trial in every if trial.key not in there]


def rates_of(
    name: str,
    regime: Regime,
    arm: str,
    options: RegimesOptions,
    rows: Sequence[dict],
    tuning: bool,
) -> Sequence[float]:
    """The learning rates that a seed runs with."""
    tried = [lr for lr in regime.rates(arm) if not options.lrs or lr in options.lrs]
    if tuning or options.lrs:
        return tried
    found = values_of(rows, name, arm, regime.chosen_by)
    return [best_rate(found) if found else tried[0]]


# ---- one run, one row


def make_row(trial: ArmRun) -> dict[str, Any]:
    """Trains and measures."""
    config = config_of(json.loads(trial.changes), trial.lr, trial.seed)
    start = time.perf_counter()
    head = dict(zip(KEY, trial.key, strict=True)) | {"settings": trial.settings}
    if trial.keep is None:
        with TemporaryDirectory() as folder:
            return head | measured_run(config, Path(folder) / "run", start)
    name = f"{trial}-{trial.settings}".replace(", ", "-").replace(" ", "_")
    return head | measured_run(config, trial.keep / name, start)


def measured_run(config: TrainConfig, folder: Path, start: float) -> dict[str, Any]:
    config = replace(config, log_path=str(folder))
    if RunFolder(folder).used():
        config = resumed_config(folder)
    result = train(config, quiet=True)
    if result.stopped.startswith("interrupted"):
        raise KeyboardInterrupt
    row = late_figures(result.rows)
    try:
        row |= answers_of(result.model, result.tokenizer, resolved(config).problems)
    except NotFinite:  # the run diverged: it has no answers, and that is its result
        result.stopped = result.stopped or "weights that are no numbers"
    row = {name: round(value, 5) for name, value in row.items()}
    return row | {"seconds": round(time.perf_counter() - start, 1), "stopped": result.stopped[:60]}


def late_figures(rows: Sequence[dict]) -> dict[str, float]:
    """Means over the last third of the steps; what a step did not measure is left out."""
    late = last_third(rows)
    found = {
        name: [row[key] for row in late if row.get(key) is not None] for name, key in LATE.items()
    }
    means = {name: fmean(values) for name, values in found.items() if values}
    return means | {"tokens": sum(row["env/all/total_ac_tokens"] for row in rows)}


def answers_of(model: torch.nn.Module, tokenizer, problems: str) -> dict[str, float]:
    """The figures of held-out answers, greedy and sampled."""
    sets = {
        name: load_problems(name, limit=GREEDY_PROBLEMS) for name in ("tiny-test", "tiny-longer")
    }
    test, longer = (evaluate(model, tokenizer, of, greedy(ANSWER_TOKENS)) for of in sets.values())
    asked = load_problems(held_out(problems) or "tiny-test", limit=SAMPLED_PROBLEMS)
    several = Sampling(ANSWER_TOKENS, rollouts=SAMPLES)
    sampled = evaluate(model, tokenizer, asked, several)
    figures = {
        "greedy test": test.accuracy,
        "greedy longer": longer.accuracy,
        "tokens test": test.mean_length,
        "pass@1": sampled.accuracy,
        "pass@8": sampled.pass_at[SAMPLES],
    }
    ways = by_way(evaluated_answers(asked, sampled.rows))
    return figures | lengths(sampled) | {way: found.share for way, found in ways.items()}


def lengths(result: EvalResult) -> dict[str, float]:
    """Tokens of right and of wrong answers; where there are none, nothing."""
    found = {}
    for name, correct in (("right tokens", True), ("wrong tokens", False)):
        tokens = [row["tokens"] for row in result.rows if bool(row["correct"]) is correct]
        if tokens:
            found[name] = fmean(tokens)
        if tokens and not correct:
            found["most wrong tokens"] = max(tokens)
    return found


# ---- the file


def open_rows(path: Path) -> None:
    """A file with its first line; what a kill left of a last line goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text(csv_line(COLUMNS), encoding="utf-8")
    text = path.read_bytes()
    if not text.endswith(b"\n"):
        os.truncate(path, text.rfind(b"\n") + 1)


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """One write: lines of two commands that run side by side do not mix."""
    line = csv_line([row.get(name, "") for name in COLUMNS])
    with open(path, "ab", buffering=0) as file:
        file.write(line.encode())


def csv_line(cells: Sequence[object]) -> str:
    text = io.StringIO()
    one_line = [str(cell).replace("\n", " ") for cell in cells]
    csv.writer(text, lineterminator="\n").writerow(one_line)
    return text.getvalue()


def current_rows(
    rows: Sequence[dict], regimes: Mapping[str, Regime], marks: SettingsMarks
) -> list[dict]:
    """Those that are of the regimes as they are now, each once."""
    current, old = {}, 0
    for row in rows:
        regime = regimes.get(row["regime"])
        if regime and row["arm"] in regime.arms and row["settings"] == marks.of(regime, row["arm"]):
            current[tuple(row[name] for name in KEY)] = row
        else:
            old += 1
    if old:
        print(f"{old} rows are of other settings, or began with other weights: left out")
    return list(current.values())


def regimes_list(chosen: Mapping[str, Regime], todo: Sequence[ArmRun]) -> str:
    lines = [["regime", "arms", "runs to make", "question"]]
    for name, regime in chosen.items():
        left = sum(trial.regime == name for trial in todo)
        lines.append([name, str(len(regime.arms)), str(left), regime.question])
    return "\n".join(aligned(lines))
