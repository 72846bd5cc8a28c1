"""Streaming: groups are trained on as they come, while others are still being sampled.

A second loop besides trainer.training_loop, with the same verbs; Tinker calls it
`num_minibatches`. The weights do not change until the step's last group has arrived, so every
rollout comes from the same policy, and each update is the same as without streaming. If a step has
several updates, only the first is prepared in this way: the gradients of the others need the
weights that it produces.

If samplers run elsewhere (lag.py, ray_rollouts.py), they go on while the trainer works. A single
process samples a whole step before it trains on any of it, so there streaming saves no time.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from reasoning_from_scratch.losses import LOSSES
from reasoning_from_scratch.policy import LocalPolicy, LossSums
from reasoning_from_scratch.rollouts import Group, Rollout
from reasoning_from_scratch.trainer import (
    Observer,
    StepMetrics,
    StepRecord,
    advantage_metrics,
    loss_denominator,
    prepare_update,
    select_training_groups,
    set_advantages,
    step_learning_rate,
    substep_groups,
    with_kl_coef,
)
from rfs.config import RunConfig


def streaming_loop(
    policy: LocalPolicy,
    sampled_steps: Iterable[Iterable[Group]],
    full_config: RunConfig,
    observer: Observer,
    reference: LocalPolicy | None = None,
    first_step: int = 0,
) -> str:
    """Like trainer.training_loop; each step's groups come in the order of their places."""
    for step, arriving in enumerate(sampled_steps, first_step):
        config = with_kl_coef(full_config, step)
        groups, rollouts, sums = gradient_on_arrival(policy, arriving, config, reference)
        observer.before_update(step, groups)
        lr = step_learning_rate(config, step)
        chosen = select_training_groups(groups, config)
        numbers = rest_of_step(policy, chosen, rollouts, sums, config, lr, reference)
        stopped = observer.after_update(step, groups, numbers)
        if stopped:
            return stopped
    return ""


def gradient_on_arrival(
    policy: LocalPolicy,
    arriving: Iterable[Group],
    config: RunConfig,
    reference: LocalPolicy | None,
) -> tuple[list[Group], list[Rollout], list[LossSums]]:
    """All groups of a step; of the first update the rollouts that have a gradient, which is
    computed as they come, and its sums."""
    num_streamed = config.problems_per_step // config.num_substeps  # groups of the first update
    groups: list[Group] = []
    pending: list[Group] = []  # whose rewards are all equal, until another group is live
    any_live = False  # whether one is
    rollouts: list[Rollout] = []
    sums: list[LossSums] = []
    for part in in_parts(arriving, num_streamed // config.num_minibatches):
        groups += part
        if len(groups) > num_streamed:
            continue
        chosen = select_training_groups(part, config)
        set_advantages(chosen, config)
        pending += chosen
        any_live = any_live or any(group.live for group in chosen)
        if not any_live and config.kl == "none":
            continue
        ready, pending = pending, []
        part_rollouts, _ = prepare_update(policy, reference, ready, config, any_live)
        # The divisor of their sum (tokens, perhaps) is known only once all groups are here.
        sums += policy.forward_backward(part_rollouts, config, denominator=1.0)
        rollouts += part_rollouts
    return groups, rollouts, sums


def rest_of_step(
    policy: LocalPolicy,
    groups: Sequence[Group],
    rollouts: list[Rollout],
    sums: list[LossSums],
    config: RunConfig,
    lr: float,
    reference: LocalPolicy | None,
) -> StepMetrics:
    """The rest of trainer.train_step after the first gradient, which lacks its denominator."""
    record = StepRecord(lr)
    update_groups, *later_groups = substep_groups(groups, config.num_substeps)
    updates = [(rollouts, loss_denominator(update_groups, config))]
    for update_groups in later_groups:
        set_advantages(update_groups, config)
        updates.append(prepare_update(policy, reference, update_groups, config))
    if sums:
        _, denominator = updates[0]
        record.add(divided(sums, denominator), policy.optim_step(lr, config.grad_clip, denominator))
    for rollouts, denominator in (updates * config.epochs)[1:]:
        sums = policy.forward_backward(rollouts, config, denominator)
        if sums:
            record.add(sums, policy.optim_step(lr, config.grad_clip))
    return record.metrics() | advantage_metrics(groups)


def in_parts(groups: Iterable[Group], size: int) -> Iterator[list[Group]]:
    groups = iter(groups)
    while part := list(islice(groups, size)):
        yield part


def divided(all_sums: list[LossSums], denominator: float) -> list[LossSums]:
    return [
        {name: value / denominator if name in LOSSES else value for name, value in sums.items()}
        for sums in all_sums
    ]
