"""The trainer: sample, reward, advantage, batch, update."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reasoning_from_scratch.advantages import advantages, normalize_batch, per_part_advantages
from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.interrupts import Interrupts
from reasoning_from_scratch.logprobs import pack_kept, token_logprobs
from reasoning_from_scratch.losses import kl_advantages, policy_loss, step_denominator, summarize
from reasoning_from_scratch.metrics import advantage_metrics, rollout_metrics
from reasoning_from_scratch.optim import AdamW, learning_rate
from reasoning_from_scratch.rollouts import (
    Batch,
    Group,
    make_batch,
    micro_batches,
    on_policy_rollouts,
)
from reasoning_from_scratch.run_start import start_run
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


def train(config: TrainConfig, **given) -> TrainResult:
    """Run `config` to its end. `given`: a model, tokenizer, problems, ... to use instead of
    loading those that the configuration names (see start_run)."""
    run = start_run(config, **given)
    config, step = run.config, run.first_step
    stopped = ""
    stream = stream_of(run) if config.num_minibatches > 1 else None
    with Interrupts() as interrupts, run:
        # 1. Sample, without gradient.  2. Reward.  (Both in the iterator.)
        rollouts = on_policy_rollouts(
            run.model, run.tokenizer, run.problems, config, run.first_step, run.clock,
            on_group=stream.add if stream else None,
        )  # fmt: skip
        try:
            for step, groups in enumerate(rollouts, run.first_step):
                metrics = rollout_metrics(groups) | run.evaluate_if_due(step)
                # 3. Advantage: how much better than the other answers to this problem.
                sampled, groups = groups, chosen_groups(groups, config)
                set_advantages(groups, config)
                run.report_rollouts("train", step, sampled)
                run.refresh_report_if_due(step)
                with interrupts.held():
                    with run.clock("train"):
                        # 4. Batch.  5. Update.
                        lr = learning_rate(config, step)
                        updated = update_policy(
                            run.model, run.optimizer, groups, config, lr, run.reference, stream
                        )
                    if updated["optim/nonfinite"]:
                        run.report_nonfinite(step, groups)
                    stopped = run.finish_step(step, metrics | advantage_metrics(groups) | updated)
                if stopped:
                    break
        except KeyboardInterrupt:
            stopped = run.save_interrupted()
    return TrainResult(run.model, run.tokenizer, run.folder.path, run.folder.rows, stopped)


def chosen_groups(groups: Sequence[Group], config: TrainConfig) -> list[Group]:
    """Active sampling drew more groups than needed: train on the first ones with a signal."""
    if config.active_sampling:
        return [group for group in groups if not group.uniform][: config.problems_per_step]
    return list(groups)


def set_advantages(groups: Sequence[Group], config: TrainConfig) -> None:
    """Stage 3: the advantage of every rollout. All rewards equal: exactly 0."""
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
    parts = {
        name: torch.tensor([rollout.rewards[name] for rollout in group.rollouts])  # (G,)
        for name in config.reward_parts
    }
    return per_part_advantages(parts, config.reward_parts)


def update_policy(
    model: nn.Module,
    optimizer: AdamW,
    groups: Sequence[Group],
    config: TrainConfig,
    lr: float,
    reference: nn.Module | None = None,
    stream: Stream | None = None,
) -> dict[str, float]:
    """Stages 4 and 5: every optimizer step on the groups of one step.

    A part without a live group takes no optimizer step at all: with a zero gradient, momentum
    would still move the weights. With a stream, the gradient is there already.
    """
    device = next(model.parameters()).device
    record = UpdateRecord(lr)
    if stream:
        gradients = iter([stream.finish(optimizer, whole_denominator(groups, config))])
    else:
        shares = substep_shares(groups, config.num_substeps)
        parts = [prepared_part(model, reference, share, config, device) for share in shares]
        # Inner epochs re-use the rollouts.
        gradients = (accumulate_gradient(model, part, config) for part in parts * config.epochs)
    for sums in gradients:
        if not sums:
            continue
        grad_norm = optimizer.clip_gradient(config.grad_clip)
        record.add(sums, grad_norm)
        if record.is_finite():
            optimizer.step(lr)
        optimizer.zero_grad()
    post_kl = kl_pre_post(model, groups, config) if config.compute_post_kl else {}
    return record.metrics() | post_kl


def stream_of(run: TrainingRun) -> Stream:
    """Trains on the groups of a step in num_minibatches parts, while the rest is sampled."""
    config, device = run.config, next(run.model.parameters()).device

    def backward(groups: list[Group]) -> list[dict[str, Tensor]]:
        with run.clock("train"):
            set_advantages(groups, config)
            part = prepared_part(run.model, run.reference, groups, config, device)
            return accumulate_gradient(run.model, part and replace(part, denominator=1.0), config)

    return Stream(config.problems_per_step // config.num_minibatches, backward)


def kl_pre_post(
    model: nn.Module, groups: Sequence[Group], config: TrainConfig
) -> dict[str, float]:
    """How far the step moved the policy, on its own rollouts: from the sampler's record."""
    rollouts = [rollout for group in groups if group.live for rollout in group.rollouts]
    if not rollouts:
        return {}
    batch = make_batch(rollouts, next(model.parameters()).device)
    moved = (batch.old_logprobs - frozen_logprobs(model, batch, config))[batch.mask.bool()]  # (N,)
    return {"kl_pre_post_v1": float(moved.mean()),
            "kl_pre_post_v2": float(0.5 * moved.square().mean())}  # fmt: skip


def substep_shares(groups: Sequence[Group], num_substeps: int) -> list[Sequence[Group]]:
    """Whole groups in equal shares (active sampling may leave the last ones smaller)."""
    size = math.ceil(len(groups) / num_substeps)
    return [groups[start : start + size] for start in range(0, len(groups), size or 1)]


@dataclass
class Part:
    """The rollouts of one optimizer step."""

    batch: Batch
    denominator: float  # what the summed loss is divided by, the same for every micro-batch


def prepared_part(
    model: nn.Module,
    reference: nn.Module | None,
    groups: Sequence[Group],
    config: TrainConfig,
    device: torch.device,
) -> Part | None:
    """Stage 4: the batch with all that the loss reads; None if nothing in it has a gradient.

    The denominator counts every sampled rollout, also those of groups that are dropped for
    having no gradient: dropping them saves time and changes nothing else.
    """
    denominator = whole_denominator(groups, config)
    if config.drop_uniform_groups:
        groups = [group for group in groups if group.live]
    if not groups or not (config.kl in ("k2", "k3") or any(group.live for group in groups)):
        return None
    batch = make_batch([rollout for group in groups for rollout in group.rollouts], device)
    if reference is not None:
        batch.ref_logprobs = frozen_logprobs(reference, batch, config)
    if config.kl == "reward":
        add_kl_to_advantages(batch, [len(group.rollouts) for group in groups], config.kl_coef)
    if config.truncate_importance and config.epochs * config.num_substeps > 1:
        batch.start_logprobs = frozen_logprobs(model, batch, config)
    return Part(batch, denominator)


def whole_denominator(groups: Sequence[Group], config: TrainConfig) -> float:
    rollouts = list(chain.from_iterable(group.rollouts for group in groups))
    tokens = sum(len(rollout.response_ids) for rollout in rollouts)
    length = config.length_constant or config.max_new_tokens
    return step_denominator(config.aggregate, len(rollouts), tokens, length)


def add_kl_to_advantages(batch: Batch, sizes: list[int], kl_coef: float) -> None:
    """kl="reward": each rollout pays for its distance from the reference."""
    rows = zip(*(x.split(sizes) for x in (batch.old_logprobs, batch.ref_logprobs, batch.mask)),
               strict=True)  # fmt: skip
    batch.advantages += torch.cat([kl_advantages(*group, kl_coef) for group in rows])


def batch_logprobs(model: nn.Module, batch: Batch, config: TrainConfig) -> Tensor:
    """Log-probabilities (B, T) of the sampled tokens, each at its own position; 0 elsewhere."""
    hidden_states = getattr(model, "training_pass", model.hidden_states)  # compiled, if asked for
    hidden = hidden_states(batch.token_ids[:, :-1])  # (B, T - 1, D); t predicts t + 1
    kept = None
    if batch.kept is not None:
        kept = pack_kept(list(chain.from_iterable(batch.kept)))
    logprobs, _ = token_logprobs(
        hidden,
        model.out_head.weight,
        batch.token_ids[:, 1:],
        batch.mask[:, 1:],
        config.logprob_temperature or config.temperature,
        kept,
    )
    return F.pad(logprobs, (1, 0))  # (B, T)


@torch.no_grad()
def frozen_logprobs(model: nn.Module, batch: Batch, config: TrainConfig) -> Tensor:
    """`batch_logprobs` without gradient, a micro-batch at a time."""
    result = torch.zeros_like(batch.old_logprobs)  # (B, T)
    for index in micro_batches(batch.lengths.tolist(), config.micro_batch_tokens):
        part = batch_logprobs(model, batch.rows(index), config)
        result[index, : part.shape[1]] = part
    return result


def accumulate_gradient(
    model: nn.Module, part: Part | None, config: TrainConfig
) -> list[dict[str, Tensor]]:
    """Forward and backward, a micro-batch at a time; the gradients add up to the big batch's.
    The sums of each; none if there is nothing with a gradient."""
    all_sums: list[dict[str, Tensor]] = []
    if part is None:
        return all_sums
    for index in micro_batches(part.batch.lengths.tolist(), config.micro_batch_tokens):
        batch = part.batch.rows(index)
        loss, sums = policy_loss(
            batch_logprobs(model, batch, config),
            batch.old_logprobs,
            batch.advantages,
            batch.mask,
            config,
            part.denominator,
            ref_logprobs=batch.ref_logprobs,
            start_logprobs=batch.start_logprobs,
        )
        loss.backward()
        all_sums.append(sums)
    return all_sums


class UpdateRecord:
    """Collects what the optimizer steps of one training step report."""

    def __init__(self, lr: float) -> None:
        self.lr = lr
        self.steps: list[dict[str, float]] = []
        self.sums: list[dict[str, Tensor]] = []

    def add(self, sums: list[dict[str, Tensor]], grad_norm: float) -> None:
        self.sums += sums
        self.steps.append(summarize(sums) | {"grad_norm": grad_norm})

    def is_finite(self) -> bool:
        """Whether the last loss and gradient are numbers that an update may use."""
        return all(math.isfinite(self.steps[-1][name]) for name in ("loss", "grad_norm"))

    def metrics(self) -> dict[str, float | None]:
        """optim/*. Loss and gradient norm are means over optimizer steps, the rest over tokens."""
        if not self.steps:  # no signal: nothing was computed, no weight moved
            names = ("grad_norm", "kl_loss", "clip_frac", "ratio_mean", "ratio_max",
                     "kl_sample_train_v1", "kl_sample_train_v2")  # fmt: skip
            empty = {"optim/loss": 0.0} | {f"optim/{name}": None for name in names}
            return empty | {"optim/lr": self.lr, "optim/updates": 0, "optim/nonfinite": 0}
        first, over_all = self.steps[0], summarize(self.sums)
        finite = [math.isfinite(s["loss"]) and math.isfinite(s["grad_norm"]) for s in self.steps]
        means = {
            name: sum(step[name] for step in self.steps) / len(self.steps)
            for name in ("loss", "kl_loss", "grad_norm")
        }
        whole = {name: over_all[name] for name in ("clip_frac", "ratio_mean", "ratio_max")}
        # Only before the first update do sampler and trainer have the same weights.
        gap = {name: first[name] for name in ("kl_sample_train_v1", "kl_sample_train_v2")}
        result = {f"optim/{name}": value for name, value in (means | whole | gap).items()}
        if "kl_ref" in over_all:
            result["kl_policy_base"] = over_all["kl_ref"]
        counts = {"optim/updates": sum(finite), "optim/nonfinite": len(finite) - sum(finite)}
        return result | {"optim/lr": self.lr} | counts
