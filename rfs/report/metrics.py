"""A step's metrics: what is measured on its groups, and how a run's files record it."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from reasoning_from_scratch.rollouts import Group, Rollout
from reasoning_from_scratch.text import append, json_lines
from rfs.config import Scale

# The columns of metrics.jsonl that are plotted most; docs/metrics.md explains all columns.
REWARD = "env/all/reward/total"
RIGHT = "env/all/correct"  # share of correct answers
TOKENS = "env/all/ac_tokens_per_turn"  # tokens per answer, or per turn of it
MIXED = "env/all/by_group/frac_mixed"  # share of groups with a signal
ENTROPY = "optim/token_entropy"
GRADIENT_NORM = "optim/grad_norm"

# Names under which Tinker's documentation plots the same numbers; notebooks use both.
SHORT_NAMES = {
    "entropy": "optim/entropy",
    "ac_tokens_per_turn": TOKENS,
    "kl_sample_train_v1": "optim/kl_sample_train_v1",
    "kl_sample_train_v2": "optim/kl_sample_train_v2",
    "reward/total": REWARD,
}

# The book's columns, and where their numbers come from.
CSV_COLUMNS = {
    "step": "step",
    "total_steps": "total_steps",
    "loss": "optim/loss",
    "kl_loss": "optim/kl_loss",
    "policy_ratio": "optim/ratio_mean",
    "reward_avg": REWARD,
    "format_reward_avg": "env/all/format",
    "tokens_per_sec": "perf/sample_tokens_per_sec",
    "avg_response_len": TOKENS,
    "adv_avg": "advantage/mean",
    "adv_std": "advantage/std",
    "entropy_avg": ENTROPY,
    "eval_acc": "eval_acc",
}


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """env/all/*: over all sampled groups, before any filter."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    answer_tokens = sum(rollout.num_sampled for rollout in rollouts)
    forced_tokens = sum(len(rollout.forced) for rollout in rollouts)
    in_conversation = any(rollout.outcome is not None for rollout in rollouts)
    turns = sum(rollout.turns for rollout in rollouts)
    # What a model reads in its turns: the prompt, and an environment's replies.
    read_tokens = sum(len(rollout.prompt_ids) for rollout in rollouts)
    read_tokens += forced_tokens * in_conversation
    metrics = {REWARD: fmean(rollout.reward for rollout in rollouts)}
    for part in {part: None for rollout in rollouts for part in rollout.rewards}:
        metrics[f"env/all/{part}"] = fmean(rollout.rewards.get(part, 0.0) for rollout in rollouts)
    metrics |= {
        "env/all/cutoff_share": fmean(not rollout.finished for rollout in rollouts),
        TOKENS: answer_tokens / turns,
        "env/all/ob_tokens_per_turn": read_tokens / turns,
        "env/all/turns_per_episode": turns / len(rollouts),
        "env/all/total_episodes": len(rollouts),
        "env/all/total_turns": turns,
        "env/all/total_ac_tokens": answer_tokens,
        "env/all/total_ob_tokens": read_tokens,
    }
    if forced_tokens and not in_conversation:
        metrics["env/all/forced_tokens_per_turn"] = forced_tokens / len(rollouts)
    if in_conversation:
        metrics["env/all/ran_out_of_turns"] = fmean(rollout.ran_out for rollout in rollouts)
    if len(rollouts) == len(groups):  # worked solutions: not sampled, one per problem
        return metrics
    return metrics | group_shares(groups) | sampler_metrics(rollouts)


def group_shares(groups: Sequence[Group]) -> dict[str, float]:
    """Mixed: the rewards differ. Otherwise all good if they are at least 0.5, else all bad."""
    uniform = [group.rewards[0] for group in groups if group.uniform]
    good = sum(reward >= 0.5 for reward in uniform)
    counts = {"mixed": len(groups) - len(uniform), "all_good": good, "all_bad": len(uniform) - good}
    return {f"env/all/by_group/frac_{name}": n / len(groups) for name, n in counts.items()}


def sampler_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Entropy twice: estimated from the sampled tokens' log-probabilities, and exact."""
    tokens = max(1, sum(rollout.num_sampled for rollout in rollouts))
    return {
        "optim/entropy": -sum(sum(rollout.logprobs) for rollout in rollouts) / tokens,
        ENTROPY: sum(sum(rollout.entropies) for rollout in rollouts) / tokens,
    }


def lag_metrics(groups: Sequence[Group], step: int, config: Scale) -> dict[str, float]:
    """How many updates the sampling policy had seen; empty if no lag is allowed."""
    if not config.max_steps_off_policy:
        return {}
    versions = [rollout.policy_version for group in groups for rollout in group.rollouts]
    return {
        "sampling_client/step_min": min(versions),
        "sampling_client/step_mean": fmean(versions),
        "sampling_client/step_max": max(versions),
        "training_client/step": step,
    }


def with_short_names(metrics: dict[str, float]) -> dict[str, float]:
    measured = {short: long for short, long in SHORT_NAMES.items() if long in metrics}
    return metrics | {short: metrics[long] for short, long in measured.items()}


def csv_row(metrics: dict[str, float], total_steps: int) -> list[str]:
    """The metrics line as a row of the book's CSV: empty where something was not measured."""
    values = metrics | {"total_steps": total_steps}
    numbers = [values.get(key) for key in CSV_COLUMNS.values()]
    return ["" if number is None else repr(number) for number in numbers]


def as_csv(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def append_step(run: Path, metrics: dict, spans: list[dict], total_steps: int) -> None:
    """One step's lines in metrics.jsonl, metrics.csv and timing_spans.jsonl."""
    append(run / "metrics.jsonl", json_lines([metrics]))
    append(run / "metrics.csv", as_csv([csv_row(metrics, total_steps)]))
    append(run / "timing_spans.jsonl", json_lines([{"step": metrics["step"], "spans": spans}]))
