"""What a step's metrics are: pure functions from groups to numbers, with run_outputs' names."""

import math
from collections.abc import Sequence
from statistics import fmean

from torch import Tensor

from reasoning_from_scratch.losses import summarize
from reasoning_from_scratch.rollouts import Group, Rollout

# Names under which Tinker's documentation plots the same numbers; people's cells use both.
SHORT_NAMES = {
    "entropy": "optim/entropy",
    "ac_tokens_per_turn": "env/all/ac_tokens_per_turn",
    "kl_sample_train_v1": "optim/kl_sample_train_v1",
    "kl_sample_train_v2": "optim/kl_sample_train_v2",
    "reward/total": "env/all/reward/total",
}

# The book's columns, and where their numbers come from.
CSV_COLUMNS = {
    "step": "step",
    "total_steps": "total_steps",
    "loss": "optim/loss",
    "kl_loss": "optim/kl_loss",
    "policy_ratio": "optim/ratio_mean",
    "reward_avg": "env/all/reward/total",
    "format_reward_avg": "env/all/format",
    "tokens_per_sec": "perf/sample_tokens_per_sec",
    "avg_response_len": "env/all/ac_tokens_per_turn",
    "adv_avg": "advantage/mean",
    "adv_std": "advantage/std",
    "entropy_avg": "optim/token_entropy",
    "eval_acc": "eval_acc",
}


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """env/all/*: over all sampled groups, before any filter."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    answer_tokens = sum(len(rollout.response_ids) for rollout in rollouts)
    prompt_tokens = sum(len(rollout.prompt_ids) for rollout in rollouts)
    metrics = {"env/all/reward/total": fmean(rollout.reward for rollout in rollouts)}
    for part in rollouts[0].rewards:
        metrics[f"env/all/{part}"] = fmean(rollout.rewards[part] for rollout in rollouts)
    metrics |= {
        "env/all/cutoff_share": fmean(not rollout.finished for rollout in rollouts),
        "env/all/ac_tokens_per_turn": answer_tokens / len(rollouts),
        "env/all/ob_tokens_per_turn": prompt_tokens / len(rollouts),
        "env/all/turns_per_episode": 1.0,
        "env/all/total_episodes": len(rollouts),
        "env/all/total_turns": len(rollouts),
        "env/all/total_ac_tokens": answer_tokens,
        "env/all/total_ob_tokens": prompt_tokens,
    }
    return metrics | group_shares(groups) | sampler_metrics(rollouts)


def group_shares(groups: Sequence[Group]) -> dict[str, float]:
    """Mixed: rewards not all equal. Else good if at least 0.5, else bad."""
    uniform = [group.rewards[0] for group in groups if group.uniform]
    good = sum(reward >= 0.5 for reward in uniform)
    shares = {"mixed": len(groups) - len(uniform), "all_good": good, "all_bad": len(uniform) - good}
    return {f"env/all/by_group/frac_{name}": n / len(groups) for name, n in shares.items()}


def sampler_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Entropy twice: from the drawn tokens' log-probabilities, and exactly per position."""
    tokens = max(1, sum(len(rollout.logprobs) for rollout in rollouts))
    return {
        "optim/entropy": -sum(sum(rollout.logprobs) for rollout in rollouts) / tokens,
        "optim/token_entropy": sum(sum(rollout.entropies) for rollout in rollouts) / tokens,
    }


def lag_metrics(groups: Sequence[Group], step: int, config) -> dict[str, float]:
    """How old the policy was that sampled, in updates; nothing where no lag is allowed."""
    if not config.max_steps_off_policy:
        return {}
    versions = [rollout.policy_version for group in groups for rollout in group.rollouts]
    return {
        "sampling_client/step_min": min(versions),
        "sampling_client/step_mean": fmean(versions),
        "sampling_client/step_max": max(versions),
        "training_client/step": step,
    }


def advantage_metrics(groups: Sequence[Group]) -> dict[str, float]:
    values = [rollout.advantage for group in groups for rollout in group.rollouts] or [0.0]
    mean = fmean(values)  # by hand: statistics.pstdev fails on NaN, which is to be written as null
    std = math.sqrt(fmean((value - mean) ** 2 for value in values))
    return {"advantage/mean": mean, "advantage/std": std}


def with_short_names(metrics: dict[str, float]) -> dict[str, float]:
    known = {short: long for short, long in SHORT_NAMES.items() if long in metrics}
    return metrics | {short: metrics[long] for short, long in known.items()}


def csv_row(metrics: dict[str, float], total_steps: int) -> list[str]:
    """The metrics line as a row of the book's CSV: empty where something was not measured."""
    values = metrics | {"total_steps": total_steps}
    numbers = [values.get(key) for key in CSV_COLUMNS.values()]
    return ["" if number is None else repr(number) for number in numbers]


class StepRecord:
    """Collects what the optimizer steps of one training step report."""

    def __init__(self, lr: float) -> None:
        self.lr = lr
        self.steps: list[dict[str, float]] = []
        self.sums: list[dict[str, Tensor]] = []
        self.moved: float | None = None  # by the last update, as a share of the weights

    def add(self, sums: list[dict[str, Tensor]], grad_norm: float) -> None:
        self.sums += sums
        self.steps.append(summarize(sums) | {"grad_norm": grad_norm})

    def is_finite(self) -> bool:
        """Whether the last loss and gradient are numbers that an update may use."""
        return all(math.isfinite(self.steps[-1][name]) for name in ("loss", "grad_norm"))

    def metrics(self) -> dict[str, float | None]:
        """optim/*. Loss and gradient norm are means over optimizer steps, the rest over tokens."""
        if not self.steps:  # no signal: nothing was computed, no weight moved
            names = (
                "grad_norm",
                "kl_loss",
                "clip_frac",
                "ratio_mean",
                "ratio_max",
                "update_ratio",
                "importance_weight",
                "kl_sample_train_v1",
                "kl_sample_train_v2",
            )
            empty = {"optim/loss": 0.0} | {f"optim/{name}": None for name in names}
            return empty | {"optim/lr": self.lr, "optim/updates": 0, "optim/nonfinite": 0}
        first, over_all = self.steps[0], summarize(self.sums)
        finite = [math.isfinite(s["loss"]) and math.isfinite(s["grad_norm"]) for s in self.steps]
        means = {
            name: sum(step[name] for step in self.steps) / len(self.steps)
            for name in ("loss", "kl_loss", "grad_norm")
        }
        names = ("clip_frac", "ratio_mean", "ratio_max", "importance_weight")
        whole = {name: over_all[name] for name in names}
        # Only before the first update do sampler and trainer have the same weights.
        gap = {name: first[name] for name in ("kl_sample_train_v1", "kl_sample_train_v2")}
        result = {f"optim/{name}": value for name, value in (means | whole | gap).items()}
        if "kl_ref" in over_all:
            result["kl_policy_base"] = over_all["kl_ref"]
        result["optim/update_ratio"] = self.moved
        counts = {"optim/updates": sum(finite), "optim/nonfinite": len(finite) - sum(finite)}
        return result | {"optim/lr": self.lr} | counts
