"""A regime for each method: small runs with and without it, where it should matter.

A regime is a table of arms, each a change to the same run. Each line of the CSV file is one run,
written as soon as it is finished; a run that has a line is not made again. The lines may come in
any order and from several calls, so a study of many hours can be made a row at a time. regimes.py
has the regimes. run/study.py makes the runs, as it does for `rfs compare`, except for those with
old rollouts: `run_with_exact_lag` makes these.
"""

import csv
import hashlib
import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import torch
from regime_findings import (
    FIRST_CHOOSING,
    OUTCOMES,
    Regime,
    close_call_rates,
    findings,
    findings_table,
    is_choosing_seed,
    rate_values,
    stored_rows,
)

from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.recipes import get_recipe
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.sampling import NotFinite, Sampling, greedy
from reasoning_from_scratch.text import align_table
from reasoning_from_scratch.tiny.ways import ANSWER_TOKENS
from reasoning_from_scratch.trainer import StepMetrics, sample_step, training_loop
from rfs.config import RunConfig
from rfs.engine import sample_groups
from rfs.evaluation.evaluate import EvalResult, evaluate
from rfs.evaluation.paired import best_rate
from rfs.files.models import load_model_and_tokenizer
from rfs.own_policy import Policy
from rfs.report.metrics import ENTROPY, MIXED, REWARD, RIGHT, rollout_metrics
from rfs.report.ways import by_way, evaluated_answers
from rfs.run.options import configure, resolved
from rfs.run.origin import weights_checksum
from rfs.run.start import TrainResult
from rfs.run.study import (
    Trial,
    cores,
    last_third,
    make_trials,
    run_to_end,
    study,
)
from rfs.tasks.problem_sets import held_out, load_problems, training_problems

LATE_METRICS = {"reward": REWARD, "sampled": RIGHT, "entropy": ENTROPY, "mixed": MIXED}
KEY = ("regime", "arm", "lr", "seed")
COLUMNS = (*KEY, "settings", "seconds", *OUTCOMES, "stopped")
GREEDY_PROBLEMS, SAMPLED_PROBLEMS = 200, 100


@dataclass
class RegimesOptions:
    """Which rows to make, and where they are kept."""

    regime: tuple[str, ...] = ()
    """Make only these regimes (default: all)."""
    arm: tuple[str, ...] = ()
    """Make only these arms (default: all)."""
    lrs: tuple[float, ...] = ()
    """Try only these learning rates, with every seed."""
    seeds: int = 5
    """Make this many runs of each arm at its best learning rate, with seeds 0, 1, ..."""
    choosing: int = 3
    """Let this many other seeds (100, 101, ...) first try every learning rate. As many more retry
    the two best of an arm if they are less than half a percentage point apart."""
    jobs: int | None = None
    """Make this many runs in parallel (default: one per core)."""
    model: str = "tiny-base"
    """Start from this model where a regime starts from tiny-base. Give --out too."""
    out: Path = Path("studies/regimes.csv")
    """Add a line to this file for each run."""
    table: bool = False
    """Only print the table of the stored runs."""
    list: bool = False
    """Only print the regimes and how many runs each still lacks."""


@dataclass(frozen=True)
class Arm:
    """An arm of a regime, and the settings of its runs."""

    regime: str
    name: str
    settings: str
    changes: str  # as JSON: a frozen value, the same in every process
    samples: int  # answers to each held-out problem
    chosen_by: str  # column that chooses its rate
    lag: int  # how many updates old its rollouts are

    def __str__(self) -> str:
        return f"{self.regime}, {self.name}"


def key_of(trial: Trial) -> tuple:
    """The values that identify a line of the file."""
    return trial.arm.regime, trial.arm.name, trial.lr, trial.seed


def run_regimes(regimes: Mapping[str, Regime], options: RegimesOptions) -> None:
    """Makes the requested rows that are still missing, then prints the table."""
    defaults = RegimesOptions()
    if options.model != defaults.model and options.out == defaults.out:
        raise UserError(f"{defaults.out} has runs from {defaults.model}; choose another --out")
    regimes = {name: from_model(regime, options.model) for name, regime in regimes.items()}
    chosen = chosen_regimes(regimes, options)
    marks = SettingsMarks()
    rows = current_rows(stored_rows(options.out), regimes, marks)
    arms, stages = arms_of(chosen, options, marks), stages_of(chosen, options, rows)
    if options.list:
        todo = [trial for stage in stages for trial in missing_trials(arms, *stage, rows)]
        print(regimes_list(chosen, todo))
        return
    if not options.table:
        for stage in stages:
            make_rows(missing_trials(arms, *stage, rows), rows, options)
    print(findings_table(findings(chosen, rows)))


def make_rows(todo: Sequence[Trial], rows: list[dict[str, Any]], options: RegimesOptions) -> None:
    """Adds the missing rows, here and in the file. A run that arms of two regimes share is made
    only once."""
    runs: dict[tuple, list[Trial]] = {}
    for trial in todo:
        run_key = (trial.arm.settings, trial.lr, trial.seed, trial.arm.chosen_by)
        runs.setdefault(run_key, []).append(trial)

    def add(row: dict[str, Any], sharing: Sequence[Trial]) -> None:
        for trial in sharing:
            rows.append(row | {"regime": trial.arm.regime, "arm": trial.arm.name})
            append_row(options.out, rows[-1])

    stored = {(row["settings"], row["lr"], row["seed"]): row for row in rows}
    for run in list(runs):
        row = stored.get(run[:3], {})
        if not math.isnan(row.get(run[3], math.nan)):  # not every run measures everything
            add(row, runs.pop(run))
    trials_to_run = {sharing[0]: sharing for sharing in runs.values()}
    jobs = cores() if options.jobs is None else options.jobs
    for number, (trial, row) in enumerate(study(make_row, list(trials_to_run), jobs), start=1):
        add(row, trials_to_run[trial])
        print(f"{number} of {len(trials_to_run)}: {trial}: {row['seconds']:.0f} s", flush=True)


def chosen_regimes(regimes: Mapping[str, Regime], options: RegimesOptions) -> dict[str, Regime]:
    if options.seeds < 1:
        raise UserError(f"--seeds is {options.seeds}, but must be at least 1")
    for name in options.regime:
        if name not in regimes:
            raise unknown_name("regime", name, list(regimes))
    chosen = {name: regimes[name] for name in options.regime or regimes}
    known_arms = [arm for regime in chosen.values() for arm in regime.arms]
    for arm in options.arm:
        if arm not in known_arms:
            raise unknown_name("arm", arm, known_arms)
    known_rates = sorted(
        {lr for regime in chosen.values() for arm in regime.arms for lr in regime.rates(arm)}
    )
    for lr in set(options.lrs) - set(known_rates):
        raise UserError(
            f"--lrs {lr:g} is none of theirs: {', '.join(f'{rate:g}' for rate in known_rates)}"
        )
    return chosen


def from_model(regime: Regime, model: str) -> Regime:
    """The same regime, starting from another model."""
    if regime.common.get("model") != RegimesOptions.model:
        return regime
    return replace(regime, common=regime.common | {"model": model})


# ---- which run a line stands for


def changes_of(regime: Regime, arm: str) -> dict[str, Any]:
    return regime.common | regime.arms[arm]


def config_of(changes: Mapping[str, Any], lr: float, seed: int) -> RunConfig:
    """The configuration of an arm's run, without its folder."""
    return configure(**dict(changes), lr=lr, seed=seed, **QUIET)


# Only a row remains of a run, so it writes nothing else and measures nothing along the way.
QUIET = {
    "device": "cpu",
    "dtype": "float32",
    "preflight": False,
    "num_groups_to_log": 0,
    "report_every": 0,
    "rolling_every": 20,
}


class SettingsMarks:
    """Eight hex digits that identify an arm's settings: its changes, its recipe's, the weights that
    it starts from, samples and lag. A line with another mark is from another experiment."""

    def __init__(self) -> None:
        self.weights: dict[str, list[int]] = {}

    def of(self, regime: Regime, arm: str) -> str:
        changes = changes_of(regime, arm)
        model = changes.get("model", "tiny-base")
        if model not in self.weights:
            self.weights[model] = weights_checksum(load_model_and_tokenizer(model, "cpu")[0])
        recipe = get_recipe(changes.get("recipe", "grpo")).changes
        settings = [changes, recipe, self.weights[model]]
        if regime.samples != Regime.samples:
            settings.append(regime.samples)
        if regime.lag:
            settings.append({"lag": regime.lag})
        text = json.dumps(settings, sort_keys=True)
        text = text.replace("studies/regimes", "ch07/regimes")  # where the rows were made
        return hashlib.sha256(text.encode()).hexdigest()[:8]


def arms_of(
    chosen: Mapping[str, Regime], options: RegimesOptions, marks: SettingsMarks
) -> list[Arm]:
    return [
        Arm(
            name,
            arm,
            marks.of(regime, arm),
            json.dumps(changes_of(regime, arm)),
            regime.samples,
            regime.chosen_by,
            regime.lag,
        )
        for name, regime in chosen.items()
        for arm in regime.arms
        if not options.arm or arm in options.arm
    ]


Stage = tuple[Callable[[Arm], Sequence[float]], range]  # an arm's rates, and the seeds


def stages_of(
    chosen: Mapping[str, Regime], options: RegimesOptions, rows: Sequence[dict]
) -> list[Stage]:
    """Learning rates come first: some seeds try every rate, and as many more retry the two best of
    an arm if it was a close call. Then come the runs that are reported. Rates given by --lrs need
    no choice. What a stage tries depends on the `rows` that earlier stages have added."""
    first = FIRST_CHOOSING + (0 if options.lrs else options.choosing)
    choosing, retrying = range(FIRST_CHOOSING, first), range(first, 2 * first - FIRST_CHOOSING)

    def requested_rates(arm: Arm) -> list[float]:
        of_arm = chosen[arm.regime].rates(arm.name)
        return [lr for lr in of_arm if not options.lrs or lr in options.lrs]

    def all_rates(arm: Arm) -> list[float]:
        return requested_rates(arm) if len(requested_rates(arm)) > 1 else []

    def close_rates(arm: Arm) -> list[float]:
        return close_call_rates(rows, arm.regime, arm.name, arm.chosen_by, choosing)

    def best_of(arm: Arm) -> list[float]:
        if options.lrs:
            return requested_rates(arm)
        values = rate_values(rows, arm.regime, arm.name, arm.chosen_by)
        return [best_rate(values) if values else requested_rates(arm)[0]]

    return [(all_rates, choosing), (close_rates, retrying), (best_of, range(options.seeds))]


def missing_trials(
    arms: Sequence[Arm],
    rates: Callable[[Arm], Sequence[float]],
    seeds: range,
    rows: Sequence[dict],
) -> list[Trial]:
    stored_keys = {tuple(row[name] for name in KEY) for row in rows}
    return [trial for trial in make_trials(arms, rates, seeds) if key_of(trial) not in stored_keys]


# ---- one run, one row


def make_row(trial: Trial) -> dict[str, Any]:
    """Trains and measures; only the row remains of the run."""
    start, arm = time.perf_counter(), trial.arm
    config = config_of(json.loads(arm.changes), trial.lr, trial.seed)
    if arm.lag:
        result = run_with_exact_lag(config, arm.lag)
    else:
        with TemporaryDirectory() as folder:
            result = run_to_end(replace(config, log_path=f"{folder}/run"))
    row = late_metrics(result.rows)
    model, tokenizer = result.model, result.tokenizer
    try:
        if not is_choosing_seed(trial.seed):
            row |= measure_answers(model, tokenizer, resolved(config).problems, arm.samples)
            row["old answers"] = kl_from_start(model, config.model)
        elif arm.chosen_by == "pass@1":
            row["pass@1"] = accuracy_on_other_problems(model, tokenizer, arm.samples)
    except NotFinite:  # the run diverged: it has no answers, and that is its result
        result.stopped = result.stopped or "weights that are no numbers"
    row = {name: round(value, 5) for name, value in row.items()}
    head = dict(zip(KEY, key_of(trial), strict=True)) | {"settings": arm.settings}
    seconds = round(time.perf_counter() - start, 1)
    return head | row | {"seconds": seconds, "stopped": result.stopped[:60]}


def run_with_exact_lag(config: RunConfig, lag: int) -> TrainResult:
    """Trains each step on rollouts of the policy from `lag` updates before. With
    --max-steps-off-policy a sampler is *at most* that far behind, depending on timing. Here it
    always is, so runs are reproducible, and arms differ only in their loss."""
    config = resolved(config)
    policy = Policy.load(config.model, config, config.device)
    problems = training_problems(config.problems)
    recorder, stopped = StepRecorder(), ""
    try:
        rollouts = lagged_rollouts(policy, problems, config, lag)
        stopped = training_loop(policy, rollouts, config, recorder)
    except NotFinite as error:
        stopped = str(error)
    return TrainResult(policy.model, policy.tokenizer, Path(), recorder.rows, stopped)


def lagged_rollouts(
    policy: LocalPolicy, problems: Sequence[Problem], config: RunConfig, lag: int
) -> Iterator[list[Group]]:
    """The groups of each step; the starting policy draws those of the first `lag` steps."""
    snapshots: deque[LocalPolicy] = deque(maxlen=lag + 1)  # the oldest first
    for step in range(config.steps):
        snapshots.append(policy.snapshot(step))
        yield sample_step(snapshots[0], problems, config, step)


class StepRecorder:
    """Records the metrics that the loop reports for each step."""

    def __init__(self) -> None:
        self.rows: list[dict] = []

    def before_update(self, step: int, groups: Sequence[Group]) -> None:
        self.rows.append({"step": step} | rollout_metrics(groups))

    def after_update(self, step: int, groups: Sequence[Group], numbers: StepMetrics) -> str:
        self.rows[-1] |= numbers
        return ""


def late_metrics(rows: Sequence[dict]) -> dict[str, float]:
    """Means over the last third of the steps; missing measurements are skipped."""
    late_rows = last_third(rows)
    values_by_name = {
        name: [row[key] for row in late_rows if row.get(key) is not None]
        for name, key in LATE_METRICS.items()
    }
    means = {name: fmean(values) for name, values in values_by_name.items() if values}
    return means | {"tokens": sum(row["env/all/total_ac_tokens"] for row in rows)}


def measure_answers(
    model: torch.nn.Module, tokenizer, problems: str, samples: int
) -> dict[str, float]:
    """The metrics of held-out answers, greedy and sampled."""
    test, longer = (
        evaluate(
            model, tokenizer, load_problems(name, limit=GREEDY_PROBLEMS), greedy(ANSWER_TOKENS)
        )
        for name in ("tiny-test", "tiny-longer")
    )
    held_out_set = load_problems(held_out(problems) or "tiny-test", limit=SAMPLED_PROBLEMS)
    sampled = evaluate(model, tokenizer, held_out_set, Sampling(ANSWER_TOKENS, rollouts=samples))
    metrics = {
        "greedy test": test.accuracy,
        "greedy longer": longer.accuracy,
        "tokens test": test.mean_length,
        "pass@1": sampled.accuracy,
        **{f"pass@{k}": sampled.pass_at[k] for k in (8, 64) if k <= samples},
    }
    styles = by_way(evaluated_answers(held_out_set, sampled.rows))
    metrics |= {style: answers.share for style, answers in styles.items()}
    return metrics | mean_lengths(sampled)


def accuracy_on_other_problems(model: torch.nn.Module, tokenizer, samples: int) -> float:
    """pass@1 on problems that no other metric uses."""
    other_problems = load_problems("tiny-test")[GREEDY_PROBLEMS:]
    sampling = Sampling(ANSWER_TOKENS, rollouts=samples)
    return evaluate(model, tokenizer, other_problems[:SAMPLED_PROBLEMS], sampling).accuracy


def kl_from_start(model: torch.nn.Module, start: str) -> float:
    """KL(start || model) per token: how much less likely the start's answers have become."""
    start_model, tokenizer = load_model_and_tokenizer(start, "cpu")
    problems = load_problems("tiny-test", limit=SAMPLED_PROBLEMS)
    sampling = Sampling(ANSWER_TOKENS, rollouts=2)
    groups = sample_groups(start_model, tokenizer, problems, sampling)
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    logprobs = LocalPolicy(model, training_pass=packed_logprobs).logprobs(rollouts)
    start_logprobs = [torch.tensor(rollout.logprobs) for rollout in rollouts]
    return float((torch.cat(start_logprobs) - torch.cat(logprobs)).mean())


def mean_lengths(result: EvalResult) -> dict[str, float]:
    """Mean tokens of correct and of incorrect answers, if there are any."""
    metrics = {}
    for name, correct in (("right tokens", True), ("wrong tokens", False)):
        tokens = [row["tokens"] for row in result.rows if bool(row["correct"]) is correct]
        if tokens:
            metrics[name] = fmean(tokens)
        if tokens and not correct:
            metrics["most wrong tokens"] = max(tokens)
    return metrics


# ---- the file


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Appends in one write, so that lines of two commands that run side by side do not mix. Half a
    line left by a full disk stays on a line of its own, and `stored_rows` skips it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_bytes() if path.exists() else b""
    with open(path, "a", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        if not before:
            table.writeheader()
        elif not before.endswith(b"\n"):
            file.write("\n")
        table.writerow(row)


def current_rows(
    rows: Sequence[dict], regimes: Mapping[str, Regime], marks: SettingsMarks
) -> list[dict]:
    """The rows that belong to the current regimes, each once."""
    current, skipped = {}, 0
    for row in rows:
        regime = regimes.get(row["regime"])
        if regime and row["arm"] in regime.arms and row["settings"] == marks.of(regime, row["arm"]):
            current[tuple(row[name] for name in KEY)] = row
        else:
            skipped += 1
    if skipped:
        print(f"{skipped} rows have other settings or started from other weights: skipped")
    return list(current.values())


def regimes_list(chosen: Mapping[str, Regime], todo: Sequence[Trial]) -> str:
    lines = [["regime", "arms", "runs to make", "question"]]
    for name, regime in chosen.items():
        to_make = sum(trial.arm.regime == name for trial in todo)
        lines.append([name, str(len(regime.arms)), str(to_make), regime.question])
    return "\n".join(align_table(lines))
