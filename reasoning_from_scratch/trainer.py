"""The trainer: problems, rollouts, rewards, advantages, log-probabilities, loss, update."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from reasoning_from_scratch.advantages import advantages, normalize_batch, per_part_advantages
from reasoning_from_scratch.async_rollouts import async_rollouts
from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.gradients import (
    UpdateRecord,
    accumulate_gradient,
    frozen_logprobs,
    prepared_part,
    whole_denominator,
)
from reasoning_from_scratch.interrupts import Interrupts
from reasoning_from_scratch.metrics import advantage_metrics, lag_metrics, rollout_metrics
from reasoning_from_scratch.optim import AdamW, learning_rate
from reasoning_from_scratch.parallel import ALONE, Ranks
from reasoning_from_scratch.ray_rollouts import ray_rollouts
from reasoning_from_scratch.rewards import conditional_parts
from reasoning_from_scratch.rollouts import Group, make_batch, on_policy_rollouts
from reasoning_from_scratch.run_start import start_run
from reasoning_from_scratch.sampling import NotFinite
from reasoning_from_scratch.streaming import Stream
from reasoning_from_scratch.training_run import TrainingRun


@dataclass
class TrainResult:
    """What a run leaves behind."""

    model: nn.Module
    tokenizer: object
    folder: Path
    rows: list[dict]  # the lines of metrics.jsonl
    stopped: str = ""  # why the run ended before its last step; "" if it did not
    writes: bool = True  # whether this rank is the one that talks to people


def train(config: TrainConfig, **given) -> TrainResult:
    """Run `config` to its end. `given`: a model, tokenizer, problems, ... to use instead of
    loading those that the configuration names (see start_run)."""
    run = start_run(config, **given)
    config, step = run.config, run.first_step
    stopped = ""
    stream = stream_of(run) if config.num_minibatches > 1 else None
    source = rollouts_of(run, on_group=stream.add if stream else None)
    interrupts = Interrupts(together=run.ranks.size > 1, quiet=not run.ranks.writes)
    run.ranks.interruptible = interrupts.open
    with interrupts, run, closing(source) as rollouts:
        # 1. Problems.  2. Rollouts, without gradient.  3. Rewards.  (All in the iterator.)
        try:
            for step, groups in enumerate(rollouts, run.first_step):
                metrics = rollout_metrics(groups) | lag_metrics(groups, step, config)
                metrics |= run.evaluate_if_due(step)
                # 4. Advantages: how much better than the other answers to this problem.
                sampled, groups = groups, chosen_groups(groups, config)
                set_advantages(groups, config)
                run.report_rollouts("train", step, sampled)
                run.refresh_report_if_due(step)
                with interrupts.held(run.unchanged):
                    with run.clock("train"):
                        # 5. Log-probabilities.  6. Loss.  7. Update.
                        lr = learning_rate(config, step)
                        updated = update_policy(
                            run.model, run.optimizer, groups, config, lr, run.reference, stream,
                            run.ranks,
                        )  # fmt: skip
                    if updated["optim/nonfinite"]:
                        run.report_nonfinite(step, groups)
                    stopped = run.finish_step(step, metrics | advantage_metrics(groups) | updated)
                if stopped:
                    break
        except KeyboardInterrupt:
            stopped = run.save_interrupted()
        except NotFinite as error:
            stopped = run.stop_diverged(error)
    return TrainResult(run.model, run.tokenizer, run.folder.path, run.folder.rows, stopped,
                       run.ranks.writes)  # fmt: skip


def rollouts_of(
    run: TrainingRun, on_group: Callable[[Group], None] | None
) -> Iterator[list[Group]]:
    """Who samples: the trainer knows no more of it than this iterator."""
    start = (run.model, run.tokenizer, run.problems, run.config, run.first_step, run.clock)
    ranks = {"own": run.ranks.own, "together": run.ranks.together}
    if run.config.sampler == "ray":
        return ray_rollouts(*start, on_group, from_first=run.ranks.from_first)
    if run.config.max_steps_off_policy:
        return async_rollouts(*start, **ranks)
    return on_policy_rollouts(*start, on_group, **ranks)


def chosen_groups(groups: Sequence[Group], config: TrainConfig) -> list[Group]:
    """Active sampling drew more groups than needed: train on the first ones with right and wrong
    answers. (Where all are wrong, an overlong penalty would make the shortest the best.)"""
    if config.active_sampling:
        return [group for group in groups if group.mixed][: config.problems_per_step]
    return list(groups)


def set_advantages(groups: Sequence[Group], config: TrainConfig) -> None:
    """Stage 4: the advantage of every rollout. All rewards equal: exactly 0."""
    values = [group_advantages(group, config) for group in groups]
    if config.advantage_per_part and values:
        flat = torch.cat(values)
        # What was exactly 0 stays so: normalizing must not lend a uniform group a gradient.
        flat = torch.where(flat == 0, flat, normalize_batch(flat))
        values = list(flat.split([len(group.rollouts) for group in groups]))
    for group, numbers in zip(groups, values, strict=True):
        for rollout, number in zip(group.rollouts, numbers.tolist(), strict=True):
            rollout.advantage = number


def group_advantages(group: Group, config: TrainConfig) -> Tensor:
    if not config.advantage_per_part:
        return advantages(torch.tensor(group.rewards), config.advantage)  # (G,)
    weights = dict(config.reward_parts)
    if config.overlong_penalty:
        weights["overlong"] = 1.0  # a part like the others, as GDPO treats lengths
    earned = [rollout.rewards for rollout in group.rollouts]
    if config.conditional_format:
        earned = [conditional_parts(parts) for parts in earned]
    parts = {name: torch.tensor([parts[name] for parts in earned]) for name in weights}  # (G,)
    return per_part_advantages(parts, weights)


def update_policy(
    model: nn.Module,
    optimizer: AdamW,
    groups: Sequence[Group],
    config: TrainConfig,
    lr: float,
    reference: nn.Module | None = None,
    stream: Stream | None = None,
    ranks: Ranks = ALONE,
) -> dict[str, float]:
    """Stages 5 to 7: every optimizer step on the groups of one step.

    A part without a live group takes no optimizer step at all: with a zero gradient, momentum
    would still move the weights. With a stream, the gradient is there already.
    """
    device = next(model.parameters()).device
    record = UpdateRecord(lr)
    if stream:
        gradients = iter([stream.finish(optimizer, whole_denominator(groups, config))])
    else:
        shares = substep_shares(groups, config.num_substeps)
        parts = [
            prepared_part(model, reference, share, config, device, ranks) for share in shares
        ]
        # Inner epochs re-use the rollouts.
        gradients = (accumulate_gradient(model, part, config) for part in parts * config.epochs)
    moved = None
    for sums in gradients:
        sums = ranks.add_gradients(optimizer, sums)
        if not sums:
            continue
        grad_norm = ranks.clip_gradient(optimizer, config.grad_clip)
        record.add(sums, grad_norm)
        if record.is_finite():
            optimizer.step(lr)
            moved = optimizer.update_ratio()
        optimizer.zero_grad()
    post_kl = kl_pre_post(model, groups, config, ranks) if config.compute_post_kl else {}
    return record.metrics() | {"optim/update_ratio": moved} | post_kl


def stream_of(run: TrainingRun) -> Stream:
    """Trains on the groups of a step in num_minibatches parts, while the rest is sampled."""
    config, device = run.config, next(run.model.parameters()).device

    def backward(groups: list[Group]) -> list[dict[str, Tensor]]:
        with run.clock("train"):
            set_advantages(groups, config)
            # These groups were sampled here, and their gradient is computed here.
            part = prepared_part(run.model, run.reference, groups, config, device)
            return accumulate_gradient(run.model, part and replace(part, denominator=1.0), config)

    size = config.problems_per_step // config.num_minibatches // run.ranks.size
    return Stream(max(1, size), backward)


def kl_pre_post(
    model: nn.Module, groups: Sequence[Group], config: TrainConfig, ranks: Ranks
) -> dict[str, float]:
    """How far the step moved the policy, on its own rollouts: from the sampler's record."""
    rollouts = [[rollout] for group in groups if group.live for rollout in group.rollouts]
    own = [rollout for (rollout,) in ranks.own_parts(rollouts)]
    moved = torch.zeros(0)  # (N,) of this rank's sampled tokens
    with ranks.whole(model):
        if own:
            batch = make_batch(own, next(model.parameters()).device)
            moved = batch.old_logprobs - frozen_logprobs(model, batch, config)  # (B, T)
            moved = moved[batch.mask.bool()].double()
    sums = ranks.exchange((moved.numel(), float(moved.sum()), float(moved.square().sum())))
    tokens, first, second = map(sum, zip(*sums, strict=True))
    if not tokens:
        return {}
    return {"kl_pre_post_v1": first / tokens, "kl_pre_post_v2": 0.5 * second / tokens}


def substep_shares(groups: Sequence[Group], num_substeps: int) -> list[Sequence[Group]]:
    """Whole groups in equal shares (active sampling may leave the last ones smaller)."""
    size = math.ceil(len(groups) / num_substeps)
    return [groups[start : start + size] for start in range(0, len(groups), size or 1)]
