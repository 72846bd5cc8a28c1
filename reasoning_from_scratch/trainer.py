"""The loop: problems, rollouts, rewards, advantages, log-probabilities, loss, update.

    training_loop    from step to step
    sample_step      stages 1 to 3: what a step is trained on
    train_step       stages 4 to 7: what it makes of the weights

What a run does beside (evaluating, saving, pages, alarms) are two calls on the object that
`training_loop` is given. ch07/rl_loop.py is the same with less around it.

Further down: how a step's rollouts become tensors, what a faster engine may replace, and the
numbers that a step reports.
"""

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from reasoning_from_scratch.advantages import advantages, normalize_batch, per_part_advantages
from reasoning_from_scratch.config import Learning, Problems, Rollouts, TrainConfig, Updates
from reasoning_from_scratch.logprobs import padded_logprobs
from reasoning_from_scratch.losses import (
    KL_IN_ADVANTAGES,
    Loss,
    discounted_sums,
    kl_advantages,
    needs_start,
    policy_loss,
    step_denominator,
    summarize,
    token_kl_advantages,
)
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.rewards import conditional_parts
from reasoning_from_scratch.rollouts import (
    Batch,
    Group,
    Rollout,
    make_batch,
    micro_batches,
    reward_groups,
    sample_groups,
    step_problems,
)
from reasoning_from_scratch.sampling import PLAIN, SamplingEngine

Sums = Mapping[str, Tensor | float]  # what policy_loss reports of a micro-batch
Numbers = dict[str, float | None]  # what a step reports, as optim/*


class Optimizer(Protocol):
    """What the loop asks of an optimizer; optim/ has them."""

    def step(self, lr: float) -> None: ...

    def zero_grad(self) -> None: ...

    def add_up(self, model: nn.Module) -> None:
        """Puts the gradient that a backward pass has left in the model to those before it."""

    def gradients(self) -> list[Tensor]: ...

    def clip_gradient(self, largest: float) -> float: ...

    def update_ratio(self) -> float | None: ...


class Training(Protocol):
    """What the loop is given; run/training_run.py has it."""

    config: TrainConfig
    model: Qwen3Model
    reference: Qwen3Model | None  # what a KL penalty compares with
    engine: "Engine"
    first_step: int

    @property
    def optimizer(self) -> Optimizer: ...

    @property
    def rollouts(self) -> Iterator[list[Group]]:
        """on_policy_rollouts, or another that yields the same."""

    def lr(self, step: int) -> float: ...

    def config_at(self, step: int) -> TrainConfig:
        """The configuration, with kl_coef as it is at that step."""

    def before_update(self, step: int, groups: Sequence[Group]) -> None:
        """Metrics, and an evaluation where one is due."""

    def after_update(self, step: int, groups: Sequence[Group], numbers: Numbers) -> str:
        """Pages, saves, alarms; why the run must end now, or ""."""


def training_loop(run: Training) -> str:
    """Train until the rollouts end, or a step says why the run must: that sentence, or ""."""
    for step, groups in enumerate(run.rollouts, run.first_step):  # stages 1 to 3, by sample_step
        run.before_update(step, groups)
        chosen = chosen_groups(groups, run.config)
        config, lr = run.config_at(step), run.lr(step)
        numbers = train_step(
            run.model, run.optimizer, chosen, config, lr, run.reference, run.engine
        )
        stopped = run.after_update(step, groups, numbers)
        if stopped:
            return stopped
    return ""


def sample_step(
    model,
    tokenizer,
    problems: Sequence[Problem],
    config: Rollouts,
    step: int,
    engine: "RolloutEngine | None" = None,
    version: int | None = None,
    before_step: Callable[[], None] | None = None,
) -> list[Group]:
    """Stages 1 to 3, without gradient. `version` and `before_step` are sample_groups'."""
    engine = engine or RolloutEngine()
    groups: list[Group] = []
    for round in range(ACTIVE_SAMPLING_ROUNDS if config.active_sampling else 1):
        # 1. Problems: a function of the seed and the step, so that resuming needs no state.
        chosen = dict(enumerate(step_problems(problems, config, step, round), len(groups)))
        places = engine.own(list(chosen))  # of this rank, if there are several

        def answered(places=places, chosen=chosen) -> list[Group]:
            # 2. Rollouts: several answers to each problem.
            asked = [chosen[place] for place in places]
            drawn = sample_groups(
                model, tokenizer, asked, config, step, places, version=version,
                before_step=before_step, engine=engine.sampling,
            )  # fmt: skip
            # 3. Rewards: what each answer is paid.
            with engine.timed("reward"):
                engine.reward(drawn, config, tokenizer)
            return drawn

        with engine.timed("sampling"):
            groups += engine.together(answered)
        if sum(group.mixed for group in groups) >= config.problems_per_step:
            break  # active sampling has enough groups with right and wrong answers
    return groups


def train_step(
    model: Qwen3Model,
    optimizer: Optimizer,
    groups: Sequence[Group],
    config: Learning,
    lr: float,
    reference: Qwen3Model | None = None,
    engine: "Engine | None" = None,
) -> Numbers:
    """Stages 4 to 7 on the groups of one step: what was measured, as optim/*."""
    engine, record = engine or Engine(), StepRecord(lr)
    # 4. Advantages: how much better than the other answers to this problem.
    set_advantages(groups, config)
    updates = [
        prepared_update(model, reference, share, config, engine)
        for share in equal_shares(groups, config.num_substeps)
    ]
    for prepared in updates * config.epochs:  # several epochs use the rollouts again
        all_sums: list[Sums] = []
        for batch in prepared.batches:
            # 5. Log-probabilities of the sampled tokens, as the model is now.
            logprobs = engine.training_pass(model, batch, config.train_temperature)  # (B, T)
            # 6. Loss, and its gradient on top of that of the batches before.
            loss, sums = batch_loss(logprobs, batch, config, prepared.denominator)
            loss.backward()
            optimizer.add_up(model)
            all_sums.append(sums)
        # 7. Update: one step of the optimizer on their sum.
        update(optimizer, all_sums, config, lr, record, engine)
    return record.metrics() | advantage_metrics(groups)


def batch_loss(
    logprobs: Tensor, batch: Batch, config: Loss, denominator: float
) -> tuple[Tensor, Sums]:
    """The policy loss of a micro-batch, and its sums for the metrics."""
    return policy_loss(
        logprobs,
        batch.old_logprobs,
        batch.advantages,
        batch.mask,
        config,
        denominator,
        ref_logprobs=batch.ref_logprobs,
        start_logprobs=batch.start_logprobs,
    )


def update(
    optimizer: Optimizer,
    all_sums: list[Sums],
    config: Learning,
    lr: float,
    record: "StepRecord",
    engine: "Engine",
) -> None:
    """Without any gradient there is no step: momentum would still move the weights."""
    all_sums = engine.reducer.add_gradients(optimizer, all_sums)
    if not all_sums:
        return
    record.add(all_sums, grad_norm=engine.reducer.clip_gradient(optimizer, config.grad_clip))
    if record.is_finite():
        optimizer.step(lr)
        record.moved = optimizer.update_ratio()
    optimizer.zero_grad()


# --- stages 1 to 3: who samples ---

# Active sampling gives up after so many rounds: a set without a signal must not loop for ever.
ACTIVE_SAMPLING_ROUNDS = 4


@dataclass(frozen=True)
class RolloutEngine:
    """What a run hands in around the sampling of a step; by default one process does it plainly."""

    sampling: SamplingEngine = PLAIN  # how tokens are computed
    reward: Callable = reward_groups  # reward(groups, config, tokenizer) writes the rewards
    own: Callable[[list[int]], list[int]] = list  # of a step's places, those sampled by this rank
    together: Callable[[Callable[[], list[Group]]], list[Group]] = lambda sample: sample()
    """Calls `sample` on each rank; all ranks get the groups of all."""
    timed: Callable[[str], AbstractContextManager] = nullcontext  # timed("sampling"): a stopwatch


def on_policy_rollouts(
    model,
    tokenizer,
    problems: Sequence[Problem],
    config: Rollouts,
    first_step: int = 0,
    engine: RolloutEngine | None = None,
) -> Generator[list[Group]]:
    """The groups of one step after another, always sampled by the model as it is now.

    The trainer sees no more than this iterator: asynchronous and many-machine sampling are other
    functions that yield the same.
    """
    for step in range(first_step, config.steps):
        yield sample_step(model, tokenizer, problems, config, step, engine)


# --- stage 4: advantages ---


def chosen_groups(groups: Sequence[Group], config: Problems) -> list[Group]:
    """Active sampling drew more groups than needed: train on the first ones with right and wrong
    answers. (Where all are wrong, an overlong penalty would make the shortest the best.)"""
    if config.active_sampling:
        return [group for group in groups if group.mixed][: config.problems_per_step]
    return list(groups)


def equal_shares(groups: Sequence[Group], num_substeps: int) -> list[Sequence[Group]]:
    """Whole groups in equal shares (active sampling may leave the last ones smaller)."""
    size = math.ceil(len(groups) / num_substeps)
    return [groups[start : start + size] for start in range(0, len(groups), size or 1)]


def set_advantages(groups: Sequence[Group], config: Learning) -> None:
    """The advantage of every rollout. All rewards equal: exactly 0."""
    if callable(config.advantage) and groups:  # the reader's own sees the rewards of all, (P, G)
        values = list(config.advantage(rewards=torch.tensor([group.rewards for group in groups])))
    else:
        values = [group_advantages(group, config) for group in groups]
    if config.advantage_per_part and values:
        flat = torch.cat(values)
        # What was exactly 0 stays so: normalizing must not lend a uniform group a gradient.
        flat = torch.where(flat == 0, flat, normalize_batch(flat))
        values = list(flat.split([len(group.rollouts) for group in groups]))
    for group, numbers in zip(groups, values, strict=True):
        for rollout, number in zip(group.rollouts, numbers.tolist(), strict=True):
            rollout.advantage = number


def group_advantages(group: Group, config: Learning) -> Tensor:
    """(G,), from the rewards or, for gdpo, from each part of them."""
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


# --- between 4 and 5: the rollouts of one optimizer step, as tensors ---


@dataclass
class Update:
    """The rollouts of one optimizer step, in micro-batches."""

    batches: list[Batch]  # none, where nothing has a gradient
    denominator: float  # what the summed loss is divided by, the same for every micro-batch


def prepared_update(
    model: Qwen3Model,
    reference: Qwen3Model | None,
    groups: Sequence[Group],
    config: Learning,
    engine: "Engine | None" = None,
) -> Update:
    """The micro-batches that are computed here, with all that the loss reads.

    The denominator counts every sampled rollout, also those of groups that are dropped for
    having no gradient: dropping them saves time and changes nothing else.
    """
    engine = engine or Engine()
    denominator = whole_denominator(groups, config)
    groups = groups_with_gradient(groups, config)
    # A KL that is paid in the advantages compares the rollouts of a group.
    pays_kl = config.kl in KL_IN_ADVANTAGES
    units = engine.reducer.share(groups, whole_groups=pays_kl) if groups else []
    if not units:
        return Update([], denominator)
    batch = make_batch(list(chain.from_iterable(units)), next(model.parameters()).device)
    if reference is not None:
        batch.ref_logprobs = frozen_logprobs(reference, batch, config, engine)
    # In a single pass the first log-probabilities are those of the start.
    later = needs_start(config) and config.epochs * config.num_substeps > 1
    if later or pays_kl:
        batch.start_logprobs = frozen_logprobs(model, batch, config, engine)
    if pays_kl:
        add_kl_to_advantages(batch, [len(rollouts) for rollouts in units], config)
    batches = [batch.rows(index) for index in indexes(batch, config)]
    return Update(engine.reducer.even(batches), denominator)


def indexes(batch: Batch, config: Updates) -> list[list[int]]:
    """The rows of each micro-batch."""
    lengths = batch.lengths.tolist()
    return micro_batches(lengths, config.micro_batch_tokens, config.micro_batch_rows)


def groups_with_gradient(groups: Sequence[Group], config: Loss) -> Sequence[Group]:
    """Those that are worth a pass. Where all rewards are equal, the policy term has no gradient;
    a KL term has one, and so has dro's price on leaving the sampler, once there is an update."""
    if config.kl != "none":
        return groups
    live = [group for group in groups if group.live]
    drop = config.drop_uniform_groups and config.objective != "dro"
    return groups if live and not drop else live


def whole_denominator(groups: Sequence[Group], config: Loss) -> float:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    tokens = sum(rollout.num_sampled for rollout in rollouts)
    return step_denominator(config.aggregate, len(rollouts), tokens, config.length_constant)


def add_kl_to_advantages(batch: Batch, sizes: list[int], config: Loss) -> None:
    """Each rollout, or each token, pays for the distance between the policy and its reference. Both
    are the trainer's own passes: at the start, when they are one model, it is exactly 0."""
    records = (batch.start_logprobs, batch.ref_logprobs, batch.mask)  # each (B, T)
    groups = zip(*(record.split(sizes) for record in records), strict=True)
    price = kl_advantages if config.kl == "reward" else token_kl_advantages
    paid = torch.cat([price(start, ref, mask, config.kl_coef) for start, ref, mask in groups])
    if config.kl == "reward":
        batch.advantages += paid  # (B,)
        return
    paid = discounted_sums(paid, config.kl_discount_factor)  # (B, T)
    batch.advantages = batch.advantages[:, None] + paid  # (B, T)


@torch.no_grad()
def frozen_logprobs(
    model: Qwen3Model, batch: Batch, config: Learning, engine: "Engine | None" = None
) -> Tensor:
    """The log-probabilities (B, T) of a batch without gradient, a micro-batch at a time."""
    engine = engine or Engine()
    result = torch.zeros_like(batch.old_logprobs)  # (B, T)
    with engine.reducer.whole(model) as model:
        for index in indexes(batch, config):
            found = engine.training_pass(model, batch.rows(index), config.train_temperature)
            result[index, : found.shape[1]] = found
    return result


# --- what a run may replace by something faster, or by several processes ---


class Reducer:
    """How the gradient of a step is put together. This one: a single process computes it all.

    Several ranks share out the rollouts and add up what each found (scale/gradients.py), also of
    weights in slices (scale/sharding.py).
    """

    def share(self, groups: Sequence[Group], whole_groups: bool) -> list[list[Rollout]]:
        """The rollouts whose gradient is computed here; with `whole_groups`, in their groups."""
        return [group.rollouts for group in groups]

    def even(self, batches: list[Batch]) -> list[Batch]:
        """The micro-batches, and as many empty ones as the other ranks have more of them."""
        return batches

    def whole(self, model: Qwen3Model) -> AbstractContextManager:
        """While entered, this process can compute with the model that it gives by itself."""
        return nullcontext(model)

    def add_gradients(self, optimizer: Any, all_sums: list[Sums]) -> list[Sums]:
        """What all processes found, for the optimizer of each; the sums of all micro-batches."""
        return all_sums

    def clip_gradient(self, optimizer: Any, largest: float) -> float:
        """The gradient's norm before it was clipped."""
        return optimizer.clip_gradient(largest)


# A training pass: log-probabilities (B, T) of a batch's sampled tokens under a model, at the
# temperature given.
TrainingPass = Callable[[Qwen3Model, Batch, float], Tensor]


@dataclass(frozen=True)
class Engine:
    """Who does the heavy work of a step. The defaults are the plain ones."""

    training_pass: TrainingPass = padded_logprobs
    reducer: Reducer = Reducer()


# --- what a step reports ---


def advantage_metrics(groups: Sequence[Group]) -> dict[str, float]:
    values = [rollout.advantage for group in groups for rollout in group.rollouts] or [0.0]
    mean = fmean(values)  # by hand: statistics.pstdev fails on NaN, which is to be written as null
    std = math.sqrt(fmean((value - mean) ** 2 for value in values))
    return {"advantage/mean": mean, "advantage/std": std}


class StepRecord:
    """Collects what the optimizer steps of one training step report."""

    # What is not measured where no group had a signal: nothing was computed, no weight moved.
    EMPTY = (
        "grad_norm kl_loss clip_frac ratio_mean ratio_max update_ratio importance_weight "
        "kl_sample_train_v1 kl_sample_train_v2"
    ).split()

    def __init__(self, lr: float) -> None:
        self.lr = lr
        self.steps: list[dict[str, float]] = []
        self.sums: list[Sums] = []
        self.moved: float | None = None  # by the last update, as a share of the weights

    def add(self, sums: list[Sums], grad_norm: float) -> None:
        self.sums += sums
        self.steps.append(summarize(sums) | {"grad_norm": grad_norm})

    def is_finite(self, step: int = -1) -> bool:
        """Whether the loss and gradient of an optimizer step are numbers that it may use."""
        return all(math.isfinite(self.steps[step][name]) for name in ("loss", "grad_norm"))

    def metrics(self) -> dict[str, float | None]:
        """optim/*. Loss and gradient norm are means over optimizer steps, the rest over tokens."""
        if not self.steps:
            empty = {"optim/loss": 0.0} | {f"optim/{name}": None for name in self.EMPTY}
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
        # Only before the first update do sampler and trainer have the same weights.
        names = ("kl_sample_train_v1", "kl_sample_train_v2")
        gap = {name: self.steps[0][name] for name in names}
        values = over_steps | over_tokens | gap | {"update_ratio": self.moved}
        result = {f"optim/{name}": value for name, value in values.items()}
        if "kl_ref" in summary:
            result["kl_policy_base"] = summary["kl_ref"]
        updates = sum(self.is_finite(step) for step in range(len(self.steps)))
        counts = {"optim/updates": updates, "optim/nonfinite": len(self.steps) - updates}
        return result | {"optim/lr": self.lr} | counts
