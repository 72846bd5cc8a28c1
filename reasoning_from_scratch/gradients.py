"""Stages 5 and 6: the batch, its log-probabilities, the loss and its gradient."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.logprobs import pack_kept, token_logprobs
from reasoning_from_scratch.losses import (
    kl_advantages,
    needs_start,
    policy_loss,
    step_denominator,
    summarize,
)
from reasoning_from_scratch.parallel import ALONE, Ranks
from reasoning_from_scratch.rollouts import Batch, Group, make_batch, micro_batches
from reasoning_from_scratch.shared_prompts import shared_prompts

EVEN = 4  # so many groups per rank can be shared out evenly


@dataclass
class Part:
    """The rollouts of one optimizer step."""

    batch: Batch
    denominator: float  # what the summed loss is divided by, the same for every micro-batch
    idle: int = 0  # empty micro-batches, while other ranks have real ones


def prepared_part(
    model: nn.Module,
    reference: nn.Module | None,
    groups: Sequence[Group],
    config: TrainConfig,
    device: torch.device,
    ranks: Ranks = ALONE,
) -> Part | None:
    """The rows of this rank with all that the loss reads; None if none has a gradient.

    The denominator counts every sampled rollout, also those of groups that are dropped for
    having no gradient: dropping them saves time and changes nothing else.
    """
    denominator = whole_denominator(groups, config)
    groups = groups_with_gradient(groups, config)
    if not groups:
        return None
    # Ranks share out groups, whose rows have a prompt in common, or rows where groups are few.
    # A KL that is paid in the reward compares the rollouts of a group.
    units = [group.rollouts for group in groups]
    if config.kl != "reward" and len(groups) < EVEN * ranks.size:
        units = [[rollout] for rollouts in units for rollout in rollouts]
    own = ranks.own_parts(units)
    if not own and not ranks.lockstep:
        return None
    batch = make_batch(list(chain.from_iterable(own or units[:1])), device)
    if not own:
        batch.mask.zero_()
    if reference is not None:
        with ranks.whole(reference):
            batch.ref_logprobs = frozen_logprobs(reference, batch, config)
    if config.kl == "reward":
        add_kl_to_advantages(batch, [len(rollouts) for rollouts in own or units[:1]],
                              config.kl_coef)  # fmt: skip
    if needs_start(config) and config.epochs * config.num_substeps > 1:
        with ranks.whole(model):
            batch.start_logprobs = frozen_logprobs(model, batch, config)
    passes = len(micro_batches(batch.lengths.tolist(), config.micro_batch_tokens))
    return Part(batch, denominator, ranks.idle_passes(passes))


def groups_with_gradient(groups: Sequence[Group], config: TrainConfig) -> Sequence[Group]:
    """Those that are worth a pass. Where all rewards are equal, the policy term has no gradient;
    a KL term has one, and so has dro's price on leaving the sampler, once there is an update."""
    if config.kl != "none":
        return groups
    live = [group for group in groups if group.live]
    drop = config.drop_uniform_groups and config.objective != "dro"
    return groups if live and not drop else live


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
    token_ids, layout, before = shared_prompts(batch)
    hidden = hidden_states(token_ids, layout=layout)[0]  # (N, D)
    sampled = batch.mask[:, 1:].bool()  # (B, T - 1)
    targets = batch.token_ids[:, 1:][sampled]  # (M,)
    kept = None
    if batch.kept is not None:
        kept = pack_kept(list(chain.from_iterable(batch.kept)))
    logprobs, _ = token_logprobs(
        F.embedding(before, hidden)[None],  # (1, M, D)
        model.out_head.weight,
        targets[None],
        torch.ones_like(targets)[None],
        config.logprob_temperature or config.temperature,
        kept,
    )
    zeros = logprobs.new_zeros(sampled.shape)  # (B, T - 1)
    return F.pad(zeros.masked_scatter(sampled, logprobs), (1, 0))  # (B, T)


@torch.no_grad()
def frozen_logprobs(model: nn.Module, batch: Batch, config: TrainConfig) -> Tensor:
    """`batch_logprobs` without gradient, a micro-batch at a time."""
    result = torch.zeros_like(batch.old_logprobs)  # (B, T)
    for index in micro_batches(batch.lengths.tolist(), config.micro_batch_tokens):
        part = batch_logprobs(model, batch.rows(index), config)
        result[index, : part.shape[1]] = part
    return result


def passes_of(part: Part, config: TrainConfig) -> Iterator[Batch]:
    for index in micro_batches(part.batch.lengths.tolist(), config.micro_batch_tokens):
        yield part.batch.rows(index)
    for _ in range(part.idle):
        row = part.batch.rows([int(part.batch.lengths.argmin())])
        yield replace(row, mask=torch.zeros_like(row.mask))


def accumulate_gradient(
    model: nn.Module, part: Part | None, config: TrainConfig
) -> list[dict[str, Tensor]]:
    """Forward and backward, a micro-batch at a time; the gradients add up to the big batch's.
    The sums of each; none if there is nothing with a gradient."""
    all_sums: list[dict[str, Tensor]] = []
    if part is None:
        return all_sums
    narrow = NarrowGradients(model)
    for batch in passes_of(part, config):
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
        narrow.take()
        loss.backward()
        all_sums.append(sums)
    narrow.put_back()
    return all_sums


class NarrowGradients:
    """Adds up the gradients of bfloat16 weights in float32, and rounds once, at the end.

    Autograd would add each micro-batch to a bfloat16 `.grad`, whose numbers have 8 bits: what is
    below 1/256 of the sum so far is lost, micro-batch after micro-batch.
    """

    def __init__(self, model: nn.Module) -> None:
        self.parameters = [parameter for parameter in model.parameters()
                           if torch.finfo(parameter.dtype).bits < 32]  # fmt: skip
        self.sums: dict[nn.Parameter, Tensor] = {}

    @torch.no_grad()
    def take(self) -> None:
        """Before a backward pass: what `.grad` holds goes to the sums."""
        for parameter in self.parameters:
            if parameter.grad is None:
                continue
            if parameter in self.sums:
                self.sums[parameter] += parameter.grad
            else:
                self.sums[parameter] = parameter.grad.float()
            parameter.grad = None

    @torch.no_grad()
    def put_back(self) -> None:
        """After the last one: `.grad` holds the whole sum, rounded once."""
        for parameter, total in self.sums.items():
            if parameter.grad is not None:
                total += parameter.grad
            parameter.grad = total.to(parameter.dtype)


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
                     "importance_weight", "kl_sample_train_v1", "kl_sample_train_v2")  # fmt: skip
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
        counts = {"optim/updates": sum(finite), "optim/nonfinite": len(finite) - sum(finite)}
        return result | {"optim/lr": self.lr} | counts
