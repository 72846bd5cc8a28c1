"""The loop: problems, rollouts, rewards, advantages, log-probabilities, loss, update.

    training_loop    runs one step after another
    sample_step      stages 1 to 3: the groups that a step trains on
    train_step       stages 4 to 7: updates the weights

Everything else that a run does (evaluating, saving, pages, alarms) happens in two calls on the
observer passed to `training_loop`. ch07/rl_loop.py is the same loop with less around it.

Further down: advantages, the records that the loss reads, and the numbers that a step reports.
"""

import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from reasoning_from_scratch.advantages import (
    advantages,
    most_varied,
    normalize_batch,
    per_part_advantages,
)
from reasoning_from_scratch.config import Optim, Schedule, TrainConfig
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.losses import (
    KL_IN_ADVANTAGES,
    Loss,
    discounted_sums,
    kl_advantages,
    needs_start_logprobs,
    step_denominator,
    summarize,
    token_kl_advantages,
)
from reasoning_from_scratch.policy import LocalPolicy, LossSums, UpdateResult
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rewards import conditional_parts
from reasoning_from_scratch.rollouts import (
    Group,
    Judge,
    Rollout,
    grader,
    next_problems,
    reward_groups,
    step_problems,
    told_rollouts,
    worked_rollout,
)

StepMetrics = dict[str, float | None]  # what a step reports, as optim/*
Config = TypeVar("Config", bound=TrainConfig)  # of a run, which has more


class Observer(Protocol):
    """What a run does besides its updates; run/training_run.py implements it."""

    def before_update(self, step: int, groups: Sequence[Group]) -> None:
        """Metrics, and an evaluation if one is due."""

    def after_update(self, step: int, groups: Sequence[Group], metrics: StepMetrics) -> str:
        """Write pages, save, check for alarms. Returns why the run must end now, or ""."""


def training_loop(
    policy: LocalPolicy,
    sampled_steps: Iterable[Iterable[Group]],
    config: TrainConfig,
    observer: Observer,
    reference: LocalPolicy | None = None,
    first_step: int = 0,
) -> str:
    """Train until `sampled_steps` ends or the observer gives a reason to stop; return that reason,
    or "". `sampled_steps` comes from on_policy_rollouts or a function like it. A KL penalty
    compares the policy with `reference`."""
    for step, sampled_groups in enumerate(sampled_steps, first_step):
        groups = list(sampled_groups)  # stages 1 to 3, by sample_step
        observer.before_update(step, groups)
        lr = step_learning_rate(config, step)
        metrics = train_step(policy, groups, with_kl_coef(config, step), lr, reference)
        stop_reason = observer.after_update(step, groups, metrics)
        if stop_reason:
            return stop_reason
    return ""


def sample_step(
    policy: LocalPolicy,
    problems: Sequence[Problem],
    config: TrainConfig,
    step: int,
    judge: Judge = grader,
) -> list[Group]:
    """Stages 1 to 3, without gradient."""
    groups: list[Group] = []
    # 1. Problems: a function of the seed and the step, so that resuming needs no state. Active
    # sampling draws more until enough groups have both correct and incorrect answers.
    while batch := next_problems(problems, config, step, groups):
        # 2. Rollouts: several answers to each problem.  3. Rewards: how good each of them is.
        places = range(len(groups), len(groups) + len(batch))
        groups += policy.sample(batch, config, step, places, judge)
    return groups


def train_step(
    policy: LocalPolicy,
    groups: Sequence[Group],
    config: TrainConfig,
    lr: float,
    reference: LocalPolicy | None = None,
) -> StepMetrics:
    """Stages 4 to 7 on the groups of one step. Returns what was measured, as optim/*."""
    groups, record = select_training_groups(groups, config), StepRecord(lr)
    # 4. Advantages: how much better each answer is than the others to the same problem.
    set_advantages(groups, config)
    updates = [
        prepare_update(policy, reference, substep, config)
        for substep in substep_groups(groups, config.num_substeps)
    ]
    for rollouts, denominator in updates * config.epochs:  # several epochs use the rollouts again
        # 5. Log-probabilities of the sampled tokens.  6. Loss, and its gradient.
        loss_sums = policy.forward_backward(rollouts, config, denominator)
        # 7. Update. Skipped without a gradient, because momentum would still move the weights.
        if loss_sums:
            update = policy.optim_step(lr, config.grad_clip)
            record.add(loss_sums, update)
    return record.metrics() | advantage_metrics(groups)


# --- stages 1 to 3, step after step ---


def on_policy_rollouts(
    policy: LocalPolicy,
    problems: Sequence[Problem],
    config: TrainConfig,
    first_step: int = 0,
    judge: Judge = grader,
) -> Generator[list[Group]]:
    """Yields the groups of each step, always sampled with the current weights.

    The trainer sees nothing but this iterator, so asynchronous sampling and sampling on many
    machines are just other functions that yield the same.
    """
    for step in range(first_step, config.steps):
        yield sample_step(policy, problems, config, step, judge)


def worked_solutions(
    policy: LocalPolicy,
    problems: Sequence[Problem],
    config: TrainConfig,
    first_step: int = 0,
    judge: Judge = grader,
) -> Generator[list[Group]]:
    """For supervised training: yields each problem's own solution, alone in its group, instead of
    sampled answers. It is judged like any answer, but learned whatever its reward."""
    for step in range(first_step, config.steps):
        batch = step_problems(problems, config, step)
        groups = [Group(problem, [worked_rollout(problem, policy.tokenizer)]) for problem in batch]
        for place, group in enumerate(groups):
            group.rollouts[0].place = (place, 0)
        reward_groups(groups, config, policy.tokenizer, judge)
        yield groups


# --- stage 4: advantages ---


def select_training_groups(groups: Sequence[Group], config: TrainConfig) -> list[Group]:
    """The groups to train on: all of them or, after active sampling, which draws more than needed,
    the first ones with both correct and incorrect answers. (In a group with only incorrect
    answers, an overlong penalty would favor the shortest.) With train_rollouts, only some rollouts
    of each are left: from here on these are the group, in advantages and denominators too."""
    if config.active_sampling:
        groups = [group for group in groups if group.solved_sometimes][: config.problems_per_step]
    if not config.train_rollouts:
        return list(groups)
    selected = [most_varied(group.rewards, config.train_rollouts) for group in groups]
    return [
        Group(group.problem, [group.rollouts[place] for place in places])
        for group, places in zip(groups, selected, strict=True)
    ]


def substep_groups(groups: Sequence[Group], num_substeps: int) -> list[Sequence[Group]]:
    """The groups of each optimizer step: equally many, but after active sampling, the last step may
    have fewer."""
    size = math.ceil(len(groups) / num_substeps)
    return [groups[start : start + size] for start in range(0, len(groups), size or 1)]


def set_advantages(groups: Sequence[Group], config: TrainConfig) -> None:
    """Set the advantage of every rollout. The built-in kinds give a uniform group exact zeros."""
    if callable(config.advantage) and groups:  # your own function gets all rewards
        rewards = torch.tensor([group.rewards for group in groups])  # (P, G)
        per_group = list(config.advantage(rewards=rewards))  # P tensors (G,)
    else:
        per_group = [group_advantages(group, config) for group in groups]  # P tensors (G,)
    if config.advantage_per_part and per_group:
        flat = torch.cat(per_group)  # (P * G,)
        # Exact zeros stay 0: normalizing must not give a uniform group a gradient.
        flat = torch.where(flat == 0, flat, normalize_batch(flat))
        per_group = list(flat.split([len(group.rollouts) for group in groups]))
    for group, advantages_G in zip(groups, per_group, strict=True):
        for rollout, advantage in zip(group.rollouts, advantages_G.tolist(), strict=True):
            rollout.advantage = advantage
            # Discard the records of an earlier step on the same rollout.
            rollout.token_advantages = rollout.start_logprobs = rollout.ref_logprobs = None


def group_advantages(group: Group, config: TrainConfig) -> Tensor:
    """Advantages (G,) from a group's rewards or, for gdpo, from each part of them."""
    if config.objective == "cross_entropy":  # nothing is compared: every solution is learned
        return torch.ones(len(group.rollouts))
    if not config.advantage_per_part:
        if config.advantage == "maxrl" and min(group.rewards) < 0:
            raise UserError(
                "--advantage maxrl divides by the mean reward of a group, and an answer got "
                f"{min(group.rewards):g}: rewards must not be below 0"
            )
        return advantages(torch.tensor(group.rewards), config.advantage)  # (G,)
    weights = dict(config.reward_parts)
    if config.overlong_penalty:
        weights["overlong"] = 1.0  # a part like the others, as GDPO treats lengths
    rewards = [rollout.rewards for rollout in group.rollouts]  # G dicts: part -> value
    if config.conditional_format:
        rewards = [conditional_parts(parts) for parts in rewards]
    by_part = {name: torch.tensor([parts[name] for parts in rewards]) for name in weights}  # (G,)
    return per_part_advantages(by_part, weights)


# --- between 4 and 5: what the loss reads besides the sampler's record ---


def prepare_update(
    policy: LocalPolicy,
    reference: LocalPolicy | None,
    groups: Sequence[Group],
    config: TrainConfig,
    others_live: bool = False,
) -> tuple[list[Rollout], float]:
    """The rollouts of one optimizer step that have a gradient, with the records that their loss
    reads, and the denominator of the sum over their tokens. `others_live`: the step has more
    groups, and one of those is live.

    The denominator counts every sampled rollout, including those of groups that are dropped
    because they have no gradient: dropping them saves time and changes nothing else.
    """
    denominator = loss_denominator(groups, config)
    groups = groups_with_gradient(groups, config, others_live)
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    check_reference(reference, config)
    if reference is not None:
        scored = told_rollouts(rollouts, policy.tokenizer) if config.kl_solution else rollouts
        for rollout, logprobs in zip(rollouts, reference.logprobs(scored), strict=True):
            rollout.ref_logprobs = logprobs  # (T,)
    # A step with a single update computes the log-probabilities of the start in that update.
    start_needed = needs_start_logprobs(config) and config.makes_several_updates
    kl_in_advantages = config.kl in KL_IN_ADVANTAGES
    if start_needed or kl_in_advantages:
        for rollout, logprobs in zip(rollouts, policy.logprobs(rollouts), strict=True):
            rollout.start_logprobs = logprobs  # (T,)
    if kl_in_advantages:
        for group in groups:
            add_kl_to_advantages(group.rollouts, config)
    return rollouts, denominator


def check_reference(reference: LocalPolicy | None, config: TrainConfig) -> None:
    """Refuse a KL penalty without a reference, or with one at another temperature."""
    if reference is None:
        if config.kl in KL_IN_ADVANTAGES:
            raise UserError(f"kl={config.kl!r} compares the policy with a reference: pass one")
    elif reference.config.train_temperature != config.train_temperature:
        raise UserError(
            f"the reference computes log-probabilities at temperature "
            f"{reference.config.train_temperature:g}, and the policy at "
            f"{config.train_temperature:g}: Policy.load(MODEL, config)"
        )


def groups_with_gradient(
    groups: Sequence[Group], config: Loss, others_live: bool = False
) -> Sequence[Group]:
    """The groups to train on. Without a nonzero advantage, a group's policy term has no gradient.
    A KL term still has one and, once weights have moved, so does dro's penalty on moving away from
    the sampler; but that alone makes no update: without a live group, nothing is trained."""
    if config.kl != "none":
        return groups
    live = [group for group in groups if group.live]
    drop = config.drop_uniform_groups and config.objective != "dro"
    return groups if (live or others_live) and not drop else live


def loss_denominator(groups: Sequence[Group], config: Loss) -> float:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    tokens = sum(rollout.num_sampled for rollout in rollouts)
    return step_denominator(config.aggregate, len(rollouts), tokens, config.length_constant)


def add_kl_to_advantages(rollouts: Sequence[Rollout], config: Loss) -> None:
    """Subtract the distance between policy and reference from the advantage of each token of a
    group. Both come from the trainer's own passes: at the start, when the two are the same model,
    the distance is exactly 0."""
    start_logprobs = pad_sequence([rollout.start_logprobs for rollout in rollouts], True)  # (G, T)
    ref_logprobs = pad_sequence([rollout.ref_logprobs for rollout in rollouts], True)  # (G, T)
    mask = pad_sequence([rollout.sampled_mask() for rollout in rollouts], True)  # (G, T)
    if config.kl == "reward":
        per_rollout = kl_advantages(start_logprobs, ref_logprobs, mask, config.kl_coef)  # (G,)
        kl_terms = per_rollout[:, None].expand_as(mask)  # (G, T)
    else:
        kl_terms = token_kl_advantages(start_logprobs, ref_logprobs, mask, config.kl_coef)  # (G, T)
        kl_terms = discounted_sums(kl_terms, config.kl_discount_factor)  # (G, T)
    for rollout, kl_terms_T in zip(rollouts, kl_terms, strict=True):
        rollout.token_advantages = rollout.advantage + kl_terms_T[: len(rollout.response_ids)]


# --- what changes from step to step ---


def step_learning_rate(config: TrainConfig, step: int) -> float:
    return learning_rate(config, step, config.steps, config.problems_per_step)


def batch_learning_rate(config: Optim, problems_per_step: int) -> float:
    """The learning rate for a batch of this size. It grows with the square root of the size, which
    keeps Adam's steps as noisy as before."""
    if config.lr is None:
        raise UserError("a learning rate is missing, such as TrainConfig(lr=1e-4)")
    return config.lr * math.sqrt(problems_per_step / (config.lr_at_problems or problems_per_step))


def learning_rate(config: Optim, step: int, steps: int, problems_per_step: int = 1) -> float:
    """The learning rate of a 0-based step: linear warm-up, then the schedule."""
    lr = batch_learning_rate(config, problems_per_step)
    if step < config.warmup_steps:
        return lr * (step + 1) / config.warmup_steps
    progress = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    return lr * schedule_factor(config.lr_schedule, progress)


def schedule_factor(schedule: Schedule, progress: float) -> float:
    """The factor of a schedule when a fraction `progress` of the steps is over."""
    if schedule == "linear":
        return 1 - progress
    if schedule == "cosine":
        return (1 + math.cos(math.pi * progress)) / 2
    return 1.0


def with_kl_coef(config: Config, step: int) -> Config:
    """The configuration with the kl_coef that its schedule gives for this step."""
    if config.kl_schedule == "constant":
        return config
    factor = schedule_factor(config.kl_schedule, step / config.steps)
    return replace(config, kl_coef=config.kl_coef * factor)


# --- what a step reports ---


def advantage_metrics(groups: Sequence[Group]) -> dict[str, float]:
    values = [rollout.advantage for group in groups for rollout in group.rollouts] or [0.0]
    mean = fmean(values)  # by hand: statistics.pstdev fails on NaN, which should be written as null
    std = math.sqrt(fmean((value - mean) ** 2 for value in values))
    return {"advantage/mean": mean, "advantage/std": std}


class StepRecord:
    """Collects what the optimizer steps of one training step report."""

    # Not measured if no group had a signal: nothing was computed, no weight moved.
    UNMEASURED = (
        "grad_norm kl_loss clip_frac ratio_mean ratio_max update_ratio importance_weight "
        "kl_sample_train_v1 kl_sample_train_v2"
    ).split()

    def __init__(self, lr: float) -> None:
        self.lr = lr
        self.steps: list[dict[str, float]] = []
        self.sums: list[LossSums] = []
        self.updates = 0
        self.update_ratio: float | None = None  # of the last update

    def add(self, sums: list[LossSums], update: UpdateResult) -> None:
        self.sums += sums
        self.steps.append(summarize(sums) | {"grad_norm": update.grad_norm})
        self.updates += update.finite
        if update.finite:
            self.update_ratio = update.update_ratio

    def metrics(self) -> dict[str, float | None]:
        """The optim/* metrics. Loss and gradient norm are means over optimizer steps, the gap to
        the sampler is from the first step, update_ratio from the last; the rest is over tokens
        (gspo's clip_frac: over rollouts)."""
        if not self.steps:
            empty = {"optim/loss": 0.0} | {f"optim/{name}": None for name in self.UNMEASURED}
            return empty | {"optim/lr": self.lr, "optim/updates": 0, "optim/nonfinite": 0}
        over_steps = {
            name: sum(step[name] for step in self.steps) / len(self.steps)
            for name in ("loss", "kl_loss", "grad_norm")
        }
        summary = summarize(self.sums)
        over_tokens = {
            name: summary[name]
            for name in ("clip_frac", "ratio_mean", "ratio_max", "importance_weight")
        }
        # Before the first update, sampler and trainer have the same weights, unless one lags.
        names = ("kl_sample_train_v1", "kl_sample_train_v2")
        gap = {name: self.steps[0][name] for name in names}
        values = over_steps | over_tokens | gap | {"update_ratio": self.update_ratio}
        result = {f"optim/{name}": value for name, value in values.items()}
        if "kl_ref" in summary:
            result["kl_policy_base"] = summary["kl_ref"]
        nonfinite = len(self.steps) - self.updates
        counts = {"optim/updates": self.updates, "optim/nonfinite": nonfinite}
        return result | {"optim/lr": self.lr} | counts
