"""The loop: problems, rollouts, rewards, advantages, log-probabilities, loss, update.

`training_loop` goes from step to step. Stages 1 to 3 are in the iterator of finished groups that
it is given; stages 4 to 7 are `train_step`. What a run does beside (evaluating, saving, pages,
alarms) are calls on one object, `run`. ch07/rl_loop.py is the same with less around it.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reasoning_from_scratch.advantages import advantages, normalize_batch, per_part_advantages
from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.gradients import (
    PLAIN,
    Engine,
    Part,
    Sums,
    prepared_part,
    train_temperature,
)
from reasoning_from_scratch.losses import policy_loss
from reasoning_from_scratch.optim.adamw import AdamW, NarrowGradients
from reasoning_from_scratch.report.metrics import StepRecord, advantage_metrics
from reasoning_from_scratch.rewards import conditional_parts
from reasoning_from_scratch.rollouts import Group


def training_loop(run) -> str:
    """Train until the rollouts end, or a step says why the run must: that sentence, or ""."""
    # 1. Problems.  2. Rollouts, without gradient.  3. Rewards.  (All in the iterator.)
    for step, groups in enumerate(run.rollouts, run.first_step):
        run.before_update(step, groups)  # evaluates, where that is due
        with run.updating():  # from the first change of the weights on, the step is finished
            with run.clock("train"):
                # 4. Advantages.  5. Log-probabilities.  6. Loss.  7. Update.
                numbers = run.train_step(
                    run.model,
                    run.optimizer,
                    chosen_groups(groups, run.config),
                    run.config,
                    run.lr(step),
                    run.reference,
                    run.engine,
                )
            stopped = run.after_update(step, groups, numbers)  # metrics, pages, saves, alarms
        if stopped:
            return stopped
    return ""


def train_step(
    model: nn.Module,
    optimizer: AdamW,
    groups: Sequence[Group],
    config: TrainConfig,
    lr: float,
    reference: nn.Module | None = None,
    engine: Engine = PLAIN,
) -> dict[str, float | None]:
    """Stages 4 to 7 on the groups of one step: what was measured, as optim/*."""
    record = StepRecord(lr)
    # 4. Advantages: how much better than the other answers to this problem.
    set_advantages(groups, config)
    parts = [
        prepared_part(model, reference, share, config, engine)
        for share in equal_shares(groups, config.num_substeps)
    ]
    for part in parts * config.epochs:  # inner epochs re-use the rollouts
        # 5. Log-probabilities.  6. Loss and its gradient, a micro-batch at a time.
        sums = backward(model, part, config, engine)
        # 7. One step on their sum.
        update(optimizer, sums, config, lr, record, engine)
    return record.metrics() | advantage_metrics(groups)


def backward(
    model: nn.Module, part: Part | None, config: TrainConfig, engine: Engine = PLAIN
) -> list[Sums]:
    """Stages 5 and 6: adds the gradient of a part to `.grad`. The sums of its micro-batches."""
    all_sums: list[Sums] = []
    narrow = NarrowGradients(model)
    for batch in part.batches if part else []:
        logprobs = engine.training_pass(model, batch, train_temperature(config))  # (B, T)
        loss, sums = policy_loss(
            logprobs,
            batch.old_logprobs,
            batch.advantages,
            batch.mask,
            config,
            part.denominator,
            ref_logprobs=batch.ref_logprobs,
            start_logprobs=batch.start_logprobs,
        )
        narrow.take()
        loss.backward()
        all_sums.append(sums)
    narrow.put_back()
    return all_sums


def update(
    optimizer: AdamW,
    sums: list[Sums],
    config: TrainConfig,
    lr: float,
    record: StepRecord,
    engine: Engine = PLAIN,
) -> None:
    """Stage 7. Without any gradient no step: momentum would still move the weights."""
    sums = engine.reducer.add_gradients(optimizer, sums)
    if not sums:
        return
    record.add(sums, grad_norm=engine.reducer.clip_gradient(optimizer, config.grad_clip))
    if record.is_finite():
        optimizer.step(lr)
        record.moved = optimizer.update_ratio()
    optimizer.zero_grad()


def chosen_groups(groups: Sequence[Group], config: TrainConfig) -> list[Group]:
    """Active sampling drew more groups than needed: train on the first ones with right and wrong
    answers. (Where all are wrong, an overlong penalty would make the shortest the best.)"""
    if config.active_sampling:
        return [group for group in groups if group.mixed][: config.problems_per_step]
    return list(groups)


def equal_shares(groups: Sequence[Group], num_substeps: int) -> list[Sequence[Group]]:
    """Whole groups in equal shares (active sampling may leave the last ones smaller)."""
    size = math.ceil(len(groups) / num_substeps)
    return [groups[start : start + size] for start in range(0, len(groups), size or 1)]


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
