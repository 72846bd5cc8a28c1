"""Before the gradient: the rollouts of one optimizer step, with all that the loss reads of them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn

from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.logprobs import padded_logprobs
from reasoning_from_scratch.losses import kl_advantages, needs_start, step_denominator
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.rollouts import Batch, Group, Rollout, make_batch, micro_batches

# A training pass: log-probabilities (B, T) of a batch's sampled tokens under a model, at the
# temperature given. `padded_logprobs` is the plain one.
TrainingPass = Callable[[nn.Module, Batch, float], Tensor]
Sums = dict[str, Tensor]  # what policy_loss reports of a micro-batch


class Reducer:
    """How the gradient of a step is put together. This one: a single process computes it all.

    Several ranks share out the rollouts and add up what each found; see scale/ranks.py, and for
    weights that are shared out as well, scale/sharding.py.
    """

    def share(self, groups: Sequence[Group], whole_groups: bool) -> list[list[Rollout]]:
        """The rollouts whose gradient is computed here; with `whole_groups`, in their groups."""
        return [group.rollouts for group in groups]

    def even(self, batches: list[Batch]) -> list[Batch]:
        """The micro-batches, and as many empty ones as the other ranks have more of them."""
        return batches

    def whole(self, model: nn.Module) -> AbstractContextManager:
        """While entered, this process can compute with `model` by itself."""
        return nullcontext()

    def add_gradients(self, optimizer: AdamW, sums: list[Sums]) -> list[Sums]:
        """The gradient of the whole step into `.grad`; the sums of all its micro-batches."""
        return sums

    def clip_gradient(self, optimizer: AdamW, largest: float) -> float:
        """The gradient's norm before it was clipped."""
        return optimizer.clip_gradient(largest)


@dataclass(frozen=True)
class Engine:
    """Who does the heavy work of a step. The defaults are the plain ones."""

    training_pass: TrainingPass = padded_logprobs
    reducer: Reducer = Reducer()


PLAIN = Engine()


@dataclass
class Part:
    """The rollouts of one optimizer step."""

    batches: list[Batch]
    denominator: float  # what the summed loss is divided by, the same for every micro-batch


def prepared_part(
    model: nn.Module,
    reference: nn.Module | None,
    groups: Sequence[Group],
    config: TrainConfig,
    engine: Engine = PLAIN,
) -> Part | None:
    """The micro-batches that are computed here, with all that the loss reads; None if there is
    nothing with a gradient.

    The denominator counts every sampled rollout, also those of groups that are dropped for
    having no gradient: dropping them saves time and changes nothing else.
    """
    denominator = whole_denominator(groups, config)
    groups = groups_with_gradient(groups, config)
    # A KL that is paid in the reward compares the rollouts of a group.
    units = engine.reducer.share(groups, whole_groups=config.kl == "reward") if groups else []
    if not units:
        return None
    batch = make_batch(list(chain.from_iterable(units)), next(model.parameters()).device)
    if reference is not None:
        batch.ref_logprobs = frozen_logprobs(reference, batch, config, engine)
    # In a single pass the first log-probabilities are those of the start.
    later = needs_start(config) and config.epochs * config.num_substeps > 1
    if later or config.kl == "reward":
        batch.start_logprobs = frozen_logprobs(model, batch, config, engine)
    if config.kl == "reward":
        add_kl_to_advantages(batch, [len(rollouts) for rollouts in units], config.kl_coef)
    return Part(engine.reducer.even(in_micro_batches(batch, config)), denominator)


def in_micro_batches(batch: Batch, config: TrainConfig) -> list[Batch]:
    parts = micro_batches(batch.lengths.tolist(), config.micro_batch_tokens)
    return [batch.rows(index) for index in parts]


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
    """kl="reward": each rollout pays for the distance between the policy and its reference. Both
    are the trainer's own passes: at the start, when they are one model, it is exactly 0."""
    rows = zip(
        *(x.split(sizes) for x in (batch.start_logprobs, batch.ref_logprobs, batch.mask)),
        strict=True,
    )
    batch.advantages += torch.cat([kl_advantages(*group, kl_coef) for group in rows])


def train_temperature(config: TrainConfig) -> float:
    """Of the log-probabilities that are trained."""
    return config.logprob_temperature or config.temperature


@torch.no_grad()
def frozen_logprobs(
    model: nn.Module, batch: Batch, config: TrainConfig, engine: Engine = PLAIN
) -> Tensor:
    """The log-probabilities (B, T) of a batch without gradient, a micro-batch at a time."""
    result = torch.zeros_like(batch.old_logprobs)  # (B, T)
    with engine.reducer.whole(model):
        for index in micro_batches(batch.lengths.tolist(), config.micro_batch_tokens):
            part = engine.training_pass(model, batch.rows(index), train_temperature(config))
            result[index, : part.shape[1]] = part
    return result
