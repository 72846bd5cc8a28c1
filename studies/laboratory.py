"""The laboratory: short live runs of the methods, and the stored results of many more.

    live("format")          trains two arms of a regime for a few steps, and draws what differs
    page("format")          a table of its stored runs, how learning rates were chosen, a picture
    rest()                  the regimes without a page, a line each
    overview()              all of them in one picture; overview("small"): the small differences
    other_base()            the deciding differences of three pages, from another base model, too
    solved()                pass@k while a model learns, from pass_over_training.csv
    five_hundred_steps()    long runs, from long_runs.csv
    tried(lr=1e-3)          a short run of plain GRPO with these changes, for the exercises

The regimes themselves, with the settings of every run, are in regimes.py.
"""

import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import long_runs
from ch07_pictures import joint_curves, long_run_curves, passes_over_training
from IPython.display import Markdown, display
from matplotlib.figure import Figure
from regime_findings import (
    Contrast,
    arms_by_choice,
    chosen_rates,
    contrast_cells,
    findings,
    findings_table,
    is_choosing_seed,
    one_line_table,
    stored_rows,
)
from regime_pictures import GROUPS, all_effects, regime_picture
from regime_runs import SettingsMarks, changes_of, config_of, current_rows
from regimes import REGIMES

from reasoning_from_scratch.sampling import Sampling
from reasoning_from_scratch.text import align_table
from rfs.config import RunConfig, replaced
from rfs.evaluation.evaluate import evaluate
from rfs.files.tables import read_table
from rfs.report import metrics
from rfs.run.start import TrainResult
from rfs.run.study import run_to_end
from rfs.tasks.problem_sets import load_problems

STORED_FILE = Path(__file__).with_name("regimes.csv")
OTHER_BASE_FILE = Path(__file__).with_name("regimes_other_base.csv")
PASSES_FILE = Path(__file__).with_name("pass_over_training.csv")
LONG_RUNS_FILE = Path(__file__).with_name("long_runs.csv")
STEPS, SEED = 6, 2  # of a live run
TRIAL_SETTINGS = {"model": "tiny-base", "problems": "tiny", "steps": 12, "max_new_tokens": 160}
# Curves: a metric, and its label.
CORRECT = {metrics.RIGHT: "share of correct rollouts"}
TOKENS = {metrics.TOKENS: "tokens per answer"}
ENTROPY = {metrics.ENTROPY: "entropy (nats per token)"}
CLIP = {"optim/clip_frac": "share of clipped tokens", "optim/ratio_max": "largest ratio"}
MIXED = {metrics.MIXED: "groups with a signal (share)"}
REWARD = {metrics.REWARD: "reward"}
LAG = {"optim/kl_sample_train_v2": "from sampler to trainer (KL)"}


@dataclass(frozen=True)
class LiveRuns:
    """Two arms side by side, and the curves that tell them apart."""

    arms: tuple[str, str]
    curves: Mapping[str, str]


LIVE_RUNS = {
    "epochs": LiveRuns(("4 passes, clip", "4 passes, no clip"), CLIP | CORRECT | ENTROPY),
    "lag": LiveRuns(("lag 0", "lag 8"), LAG | CORRECT),
    "format": LiveRuns(("correct", "correct and format"), REWARD | CORRECT | TOKENS | MIXED),
}
# Regimes with several changes at a time: sections 7.6 and 8.5 show them.
SHOWN_ELSEWHERE = ("recipes", "rivals")
PAGES = (
    "epochs",
    "lag",
    "methods-lag",
    "int8",
    "rare",
    "pairing",
    "format",
    "overlong",
    "active",
    "fewer-trained",
    "lora",
    "spurious",
    "three-ways",
)


@cache
def stored() -> tuple[dict, ...]:
    """The stored runs that belong to the current regimes and models."""
    return tuple(current_rows(stored_rows(STORED_FILE), REGIMES, SettingsMarks()))


def live(name: str, steps: int = STEPS) -> Figure:
    """Both arms for a few steps, each at its best learning rate."""
    regime, shown = REGIMES[name], LIVE_RUNS[name]
    rates = chosen_rates(name, regime, stored())
    runs = {arm: train_arm(name, arm, rates.get(arm, 1e-4), steps) for arm in shown.arms}
    return joint_curves({arm: run.rows for arm, run in runs.items()}, shown.curves)


def train_arm(name: str, arm: str, lr: float, steps: int) -> TrainResult:
    changes = dict(changes_of(REGIMES[name], arm))
    if "reward" in changes:  # a file below the repository's root, wherever the notebook runs
        changes["reward"] = str(STORED_FILE.parents[1] / changes["reward"])
    return train_without_folder(config_of(changes | {"steps": steps}, lr, SEED))


def train_without_folder(config: RunConfig) -> TrainResult:
    """Trains without keeping the run's folder of 30 MB: we need only the model and the metrics."""
    with TemporaryDirectory() as folder:
        return run_to_end(replaced(config, log_path=f"{folder}/run"))


def page(name: str) -> Figure:
    """A table of a regime's stored runs, how learning rates were chosen, and a picture of them."""
    contrasts = findings({name: REGIMES[name]}, stored())
    _about, _, *lines = findings_table(contrasts).splitlines()
    display(Markdown("\n".join([*lines, "", *rate_choice_lines(name), "", *shared_runs(name)])))
    return regime_picture(name, REGIMES[name], stored(), contrasts)


def rate_choice_lines(name: str) -> list[str]:
    """A line for each choice of a learning rate: where it lies among those tried, and how many
    seeds chose it."""
    arms_of_choice = arms_by_choice(name, REGIMES[name], stored())
    return [f"- {emphasized(arms)}: {choice}." for choice, arms in arms_of_choice.items()]


def emphasized(arms: Sequence[str]) -> str:
    return "; ".join(f"*{arm}*" for arm in arms)


def rest() -> Markdown:
    """The regimes without a page, a line each."""
    shown = PAGES + SHOWN_ELSEWHERE
    others = {name: regime for name, regime in REGIMES.items() if name not in shown}
    return Markdown(one_line_table(others, stored()))


def shared_runs(name: str) -> list[str]:
    """A sentence for each arm that shares most of its runs, and so its luck, with other pages."""
    sentences, runs = [], runs_of_arms()
    for arm in REGIMES[name].arms:
        own_runs = runs[name, arm]
        shared = {
            page: len(own_runs & others)
            for (page, _), others in runs.items()
            if page != name and len(own_runs & others) > len(own_runs) / 2
        }
        if shared:
            all_or_most = "The" if min(shared.values()) == len(own_runs) else "Most of the"
            pages = ", ".join(f"`{page}`" for page in shared)
            sentences.append(f"{all_or_most} runs of *{arm}* also belong to {pages}.")
    return sentences


def runs_of_arms() -> dict[tuple[str, str], set[tuple]]:
    """Each arm's reported runs, each as the values that identify it."""
    return {
        (name, arm): {
            (row["lr"], row["seed"], row["tokens"], row["reward"], row["greedy test"])
            for row in stored()
            if (row["regime"], row["arm"], row["lr"]) == (name, arm, rate)
            and not is_choosing_seed(row["seed"])
        }
        for name, regime in REGIMES.items()
        for arm, rate in chosen_rates(name, regime, stored()).items()
    }


def overview(*groups: str) -> Figure:
    """The deciding difference of each pair: the `large` ones, the `small` ones, those in `other
    units`, or by default all three. Whole recipes change several things at a time, so they are not
    included."""
    single = {name: regime for name, regime in REGIMES.items() if name not in SHOWN_ELSEWHERE}
    return all_effects(findings(single, stored()), groups or GROUPS)


def other_base() -> Markdown:
    """The deciding differences of the regimes that were also run from another base model. Its
    weights are not shipped, so nothing checks that its rows are current."""
    from_tiny_base, from_other = (
        {(one.regime, one.ours, one.theirs): one for one in findings(REGIMES, rows) if one.decides}
        for rows in (stored(), stored_rows(OTHER_BASE_FILE))
    )
    lines = [["with", "against", "decided by", "from tiny-base", "from the other"]]
    for pair, contrast in from_other.items():
        sides = format_sides(from_tiny_base[pair]), format_sides(contrast)
        lines.append([*pair[1:], contrast.outcome, *sides])
    return Markdown("\n".join(align_table(lines)))


def format_sides(contrast: Contrast) -> str:
    """As 0.053 and 0.860: -0.807 (0.012)."""
    with_it, without, difference, error, _ = contrast_cells(contrast)
    return f"{with_it} and {without}: {difference} ({error})"


def solved() -> Figure:
    """A table and a picture of two runs: the quickstart's and, to the right of the line, the one on
    longer problems."""
    with open(PASSES_FILE, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ks = [name for name in rows[0] if name.startswith("pass@")]
    panels: dict[str, dict[str, dict[int, list[float]]]] = {}
    table: dict[tuple[str, int], list[str]] = {}
    ends = {row["run"]: int(row["step"]) for row in rows}  # the last step of each run
    first = next(iter(ends))
    for row in rows:
        step = int(row["step"]) + (0 if row["run"] == first else ends[first])
        cells = table.setdefault((row["run"], step), [row["run"], str(step)])
        cells += (f"{100 * float(row[k]):.1f}" for k in ks)
        for k in ks:
            points = panels.setdefault(row["problems"], {}).setdefault(k, {})
            points.setdefault(step, []).append(float(row[k]))
    head = ["run", "steps", *(f"{name} {k}" for name in panels for k in ks)]
    display(Markdown("\n".join(align_table([head, *table.values()]))))
    return passes_over_training(panels)


def five_hundred_steps() -> Figure:
    """The long runs: how they end, how much each change helps, and their curves."""
    rows = read_table(LONG_RUNS_FILE)
    display(Markdown(f"{long_runs.end_table(rows)}\n\n{long_runs.difference_table(rows)}"))
    return long_run_curves(rows, long_runs.CURVES)


def tried(
    reward: Callable | None = None, lr: float = 4e-4, seed: int = 0, **changes
) -> TrainResult:
    """A short run of the tiny model; `reward` is a function of an answer and its problem."""
    on_trial.reward = reward
    if reward:
        changes["reward"] = f"{__file__}:on_trial"
    return train_without_folder(config_of(TRIAL_SETTINGS | changes, lr, seed))


def on_trial(text: str, problem) -> float:
    """The run imports this file a second time; the function to try is in the first import."""
    return sys.modules["laboratory"].on_trial.reward(text, problem)


def right_share(model, tokenizer) -> float:
    """The share of correct answers at temperature 1: four answers to each of 100 test problems."""
    problems = load_problems("tiny-test", limit=100)
    return evaluate(model, tokenizer, problems, Sampling(160, rollouts=4)).accuracy
