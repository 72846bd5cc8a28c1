"""Alarms: when a run goes wrong, they say what was observed and what usually causes it.

Each alarm is a pure function of the metrics lines so far, so a resumed run raises the same ones.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from reasoning_from_scratch.text import one_line, percent, visible
from rfs.files.saved_models import evaluation_basis

Rows = Sequence[dict]

MIXED = "env/all/by_group/frac_mixed"  # missing when training on worked solutions
NO_SIGNAL_STEPS = 10
WINDOW = 10  # steps to average before calling something a trend
COLLAPSED_ENTROPY = 0.01  # nats per token
RISEN_ENTROPY = 3.0  # times the entropy at the start, and at least
HIGH_ENTROPY = 1.0  # nats per token
CUT_OFF_SHARE = 0.3
EVAL_FALL = 0.05
SAMPLER_GAP = 1e-2  # mean difference of log-probabilities, or half their mean square
SPIKE = 20.0  # times the median gradient norm
MIN_UPDATE = 2e-6  # of a matrix's size; a thousand such steps add up to a bfloat16's last digit


@dataclass(frozen=True)
class Alarm:
    name: str
    observation: str
    cause: str

    def __str__(self) -> str:
        return f"ALARM {self.name}: {self.observation}. Usual cause: {self.cause}"


def alarms(rows: Rows) -> list[Alarm]:
    """The alarms set off by the last of these metrics lines."""
    verdicts = (check(rows) for check in CHECKS)
    return [alarm for alarm in verdicts if alarm is not None]


def new_alarms(rows: Rows) -> list[Alarm]:
    """The alarms that the previous line did not set off: an ongoing problem is reported once."""
    before = {alarm.name for alarm in alarms(rows[:-1])} if len(rows) > 1 else set()
    return [alarm for alarm in alarms(rows) if alarm.name not in before]


def no_signal(rows: Rows) -> Alarm | None:
    last = rows[-NO_SIGNAL_STEPS:]
    if len(last) < NO_SIGNAL_STEPS or any(r.get(MIXED, 1.0) > 0 for r in last):
        return None
    rewarded = any(row["env/all/reward/total"] for row in last)
    if not rewarded and any(row["env/all/correct"] for row in last):
        return None  # correct answers get no reward: it learns otherwise (distill, opsd)
    if fmean(row["env/all/by_group/frac_all_good"] for row in last) > 0.5:
        cause = "the problems have become too easy; use harder ones, or stop here"
    elif fmean(row["env/all/cutoff_share"] for row in last) > 0.5:
        cause = (
            "answers are cut off before they end; raise --max-new-tokens, or use shorter "
            "problems if they fill the model's context"
        )
    else:
        cause = "the problems are too hard for this model, or its answers are not in a \\boxed{}"
    observation = f"no group had both better and worse answers for {NO_SIGNAL_STEPS} steps"
    return Alarm("no_signal", observation, cause)


def entropy_collapse(rows: Rows) -> Alarm | None:
    now = recent_mean(rows, "optim/token_entropy")
    if now is None or now > COLLAPSED_ENTROPY or recent_mean(rows, "env/all/correct", 0) > 0.8:
        return None
    observation = f"entropy has fallen to {now:.3f} nats per token while many answers are incorrect"
    return Alarm(
        "entropy_collapse",
        observation,
        "lr is too high, or clip-high too low; all rollouts of a group now say the same thing",
    )


def entropy_rise(rows: Rows) -> Alarm | None:
    now = recent_mean(rows, "optim/token_entropy")
    start = recent_mean(rows[:WINDOW], "optim/token_entropy")
    if now is None or start is None or now < max(HIGH_ENTROPY, RISEN_ENTROPY * start):
        return None
    observation = f"entropy has risen from {start:.3f} to {now:.3f} nats per token"
    return Alarm(
        "entropy_rise",
        observation,
        "lr is too high, or there are too many updates per rollout; the text "
        "dissolves into noise: go back to the best save with a lower lr",
    )


def length_limit(rows: Rows) -> Alarm | None:
    now = recent_mean(rows, "env/all/cutoff_share")
    if now is None or now < CUT_OFF_SHARE:
        return None
    observation = f"{percent(now)} of answers hit the length limit"
    return Alarm(
        "length_limit",
        observation,
        "--max-new-tokens is too small, or the model rambles because nothing rewards stopping",
    )


def reward_without_accuracy(rows: Rows) -> Alarm | None:
    """Reward rises while held-out accuracy falls: the reward is being gamed or memorized."""
    needed = ("eval_acc", "env/all/reward/total")  # a reward that is not finite is null
    measured_rows = [row for row in rows if None not in map(row.get, needed)]
    if not measured_rows or measured_rows[-1] is not rows[-1]:
        return None
    last = rows[-1]
    comparable_rows = [
        row for row in measured_rows if evaluation_basis(row) == evaluation_basis(last)
    ]
    best = max(comparable_rows, key=lambda row: row["eval_acc"])
    gain = last["env/all/reward/total"] - best["env/all/reward/total"]
    fall = best["eval_acc"] - last["eval_acc"]
    if fall < EVAL_FALL or fall <= chance_margin(best, last) or gain <= 0:
        return None
    observation = (
        f"since step {best['step'] + 1} reward rose by {gain:.3f}, but held-out accuracy fell "
        f"by {100 * fall:.1f} points"
    )
    return Alarm(
        "reward_without_accuracy",
        observation,
        "a reward that does not require a correct answer, "
        "or too many passes over too few problems; the best checkpoint is kept",
    )


def chance_margin(before: dict, after: dict) -> float:
    """How far accuracy may be off by chance: half of the 95% interval around the two's mean."""
    problems = min(row.get("eval_problems", math.inf) for row in (before, after))
    middle = (before["eval_acc"] + after["eval_acc"]) / 2
    return 2 * math.sqrt(max(0.0, middle * (1 - middle)) / problems)


def sampler_gap(rows: Rows) -> Alarm | None:
    gaps = {name: rows[-1].get(f"optim/kl_sample_train_{name}") for name in ("v1", "v2")}
    lag = rows[-1].get("training_client/step", 0) - rows[-1].get("sampling_client/step_min", 0)
    too_wide = [f"{name} = {gap:.4f}" for name, gap in gaps.items() if abs(gap or 0) >= SAMPLER_GAP]
    if not too_wide or lag:
        return None
    observation = f"sampler and trainer disagree on log-probabilities ({', '.join(too_wide)})"
    return Alarm(
        "sampler_gap",
        observation,
        "top-p or another temperature without --keep-sampling-mask, "
        "or a number format that is too coarse",
    )


def gradient_spike(rows: Rows) -> Alarm | None:
    norms = [row["optim/grad_norm"] for row in rows[-51:] if row.get("optim/grad_norm")]
    if len(norms) <= WINDOW or not rows[-1].get("optim/grad_norm"):
        return None
    usual = median(norms[:-1])
    if norms[-1] < SPIKE * usual:
        return None
    observation = f"gradient norm {norms[-1]:.3g}, usually {usual:.3g}"
    return Alarm(
        "gradient_spike",
        observation,
        "a rollout with very unlikely tokens; harmless if it is clipped and "
        "happens once; if it repeats, lower lr or clip-high",
    )


def hardly_moves(rows: Rows) -> Alarm | None:
    ratios = [
        row["optim/update_ratio"] for row in rows if row.get("optim/update_ratio") is not None
    ]
    rates = [row.get("optim/lr", 0.0) for row in rows[-2:]]
    # In a warm-up the learning rate is small; if it decays to zero, earlier steps were larger.
    if len(ratios) < WINDOW or max(ratios) >= MIN_UPDATE or rates[-1] > rates[0]:
        return None
    observation = f"the weights hardly move: no update was above {max(ratios):.1g} of their size"
    return Alarm(
        "hardly_moves",
        observation,
        "lr is too low for this optimizer (with muon, the matrices' "
        "learning rate is --lr times --matrix-lr)",
    )


def recent_mean(rows: Rows, name: str, missing: float | None = None) -> float | None:
    """Mean of the last WINDOW steps; `missing` if there are fewer."""
    values = [row[name] for row in rows[-WINDOW:] if row.get(name) is not None]
    return fmean(values) if len(values) == WINDOW else missing


CHECKS: tuple[Callable[[Rows], Alarm | None], ...] = (
    no_signal,
    entropy_collapse,
    entropy_rise,
    length_limit,
    reward_without_accuracy,
    sampler_gap,
    gradient_spike,
    hardly_moves,
)


# --- when your own verifier or environment fails ---

SHOWN = 300  # characters of a problem or answer in the report of a failure


def failure_kind(failure: str) -> str:
    """Failures of the same kind differ only after the colon: "raised KeyError: ..."."""
    return failure.partition(":")[0]


def failure_reports(rollouts: Sequence, known_kinds: set[str]) -> list[str]:
    """For each kind of failure not in `known_kinds`: how often it happened, and an example."""
    failed = [rollout for rollout in rollouts if rollout.failure]
    reports = []
    for kind, count in Counter(failure_kind(rollout.failure) for rollout in failed).items():
        if kind in known_kinds:
            continue
        known_kinds.add(kind)
        rewarder = "reward function" if rollouts[0].outcome is None else "environment"
        example = next(rollout for rollout in failed if failure_kind(rollout.failure) == kind)
        reports.append(
            f"the {rewarder} failed on {count} of {len(rollouts)} answers, which get 0. It "
            f"{one_line(example.failure, SHOWN)}. Problem {one_line(example.problem.id, SHOWN)}: "
            f"{quoted(example.problem.problem)} Answer: {quoted(example.text)} "
            "From now on such failures are only counted (env/all/reward_failed)"
        )
    return reports


def quoted(text: str) -> str:
    cut = f"... ({len(text):,} characters)" if len(text) > SHOWN else ""
    return repr(visible(text[:SHOWN])) + cut
