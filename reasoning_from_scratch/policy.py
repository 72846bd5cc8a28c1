"""The model that learns, behind a few methods: anything that has these can be trained.

    sample             problems -> groups of rollouts, each token with its log-probability; judged,
                       if a judge is given
    logprobs           log-probabilities of those tokens, under the current weights
    forward_backward   the loss of some rollouts; adds its gradient to the sum so far
    optim_step         one step of the optimizer, which consumes the gradient
    snapshot           a copy that samples with the current weights, even after they change

Apart from these methods, the trainer needs only the tokenizer. This file has the policy for a
single process, plain by default, optionally with parts of fast/. Its methods are stages 2, 3, 5, 6
and 7 of the loop. scale/ranks_policy.py has the policy for several ranks.
"""

import copy
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from reasoning_from_scratch.config import Rewards, TrainConfig, check_clip
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.logprobs import padded_logprobs
from reasoning_from_scratch.losses import Loss, policy_loss
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.rollouts import (
    Batch,
    Group,
    Judge,
    Rollout,
    count_tokens,
    make_batch,
    micro_batches,
    reward_groups,
    sample_groups,
)
from reasoning_from_scratch.sampling import PLAIN_ENGINE, Sampling, SamplingEngine

log = logging.getLogger("reasoning_from_scratch")
OUT_OF_MEMORY = (
    "this GPU is out of memory: lower --max-new-tokens, or use --gradient-checkpointing, "
    "--lora-rank 16 or a smaller --model"
)
MICRO_BATCH_TOKENS = 8192  # without --micro-batch-tokens, where memory does not limit it
FREED_RECORDINGS = (
    "out of memory: recorded decoding steps are no longer kept from one step to the next"
)

LossSums = Mapping[str, Tensor | float]  # what policy_loss reports for a micro-batch

# A training pass: log-probabilities (B, T) of a batch's sampled tokens under a model, at a
# temperature.
TrainingPass = Callable[[Qwen3Model, Batch, float], Tensor]


class Optimizer(Protocol):
    """What a policy needs from its optimizer; the optimizers are in optim/."""

    updates: int  # steps made so far

    def step(self, lr: float) -> None: ...

    def zero_grad(self) -> None: ...

    def accumulate_gradients(self, model: nn.Module) -> AbstractContextManager[None]:
        """Adds the gradient of the backward pass within it to the sum so far."""

    def gradients(self) -> list[Tensor]: ...

    def clip_gradient(self, largest: float) -> float: ...

    def update_ratio(self) -> float | None: ...

    def state_dict(self) -> dict[str, Tensor]: ...

    def load_state_dict(self, state: dict[str, Tensor], updates: int) -> None: ...


@dataclass(frozen=True)
class UpdateResult:
    """What one step of the optimizer did."""

    grad_norm: float  # before clipping
    finite: bool  # if not, the gradient was discarded and no weight moved
    update_ratio: float | None = None  # how far the matrices moved, as a share of their size


class LocalPolicy:
    """A model in one process, with its optimizer; without one it can only sample and score.

    `config` says at what temperature log-probabilities are computed, and how many tokens go into a
    micro-batch. `version` is how many steps its weights have been trained for (None: all steps
    before the one that it samples for).
    """

    version: int | None = None

    def __init__(
        self,
        model: Qwen3Model,
        optimizer: Optimizer | None = None,
        config: TrainConfig | None = None,
        training_pass: TrainingPass = padded_logprobs,
        tokenizer=None,
        engine: SamplingEngine = PLAIN_ENGINE,
    ) -> None:
        self.model, self.optimizer, self.tokenizer = model, optimizer, tokenizer
        self.config: TrainConfig = config or TrainConfig()
        self.training_pass, self.engine = training_pass, engine
        # Limits that are lowered when a GPU runs out of memory: see `use_less_memory`.
        self.max_tokens, self.max_rows = math.inf, math.inf
        self.last_micro_batch: tuple[int, int] | None = None  # its rows and tokens
        self.calls_since_update: list[tuple] = []  # calls whose gradients wait for optim_step

    # -- the methods that the trainer calls

    def sample(
        self,
        problems: Sequence[Problem],
        config: Sampling,
        step: int = 0,
        places: Sequence[int] | None = None,
        judge: Judge | None = None,
    ) -> list[Group]:
        """A group of rollouts for each problem, judged if `judge` is given. For given weights,
        their tokens depend only on the seed, the step and the problem's place in the step (by
        default 0, 1, ...)."""
        # 2. Rollouts: several answers to each problem.
        groups = self.sample_within_memory(problems, config, step, places)
        # 3. Rewards: how good each answer is.
        if judge is not None:
            assert isinstance(config, Rewards), (
                "judging needs the weights of the reward parts: pass a TrainConfig"
            )
            reward_groups(groups, config, self.tokenizer, judge)
        return groups

    @torch.no_grad()
    def logprobs(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """For each rollout, the log-probabilities of its response's tokens, (T,)."""
        all_logprobs: list[Tensor] = [torch.empty(0)] * len(rollouts)
        self.last_micro_batch = None
        try:
            with self.full_model() as model:
                for rows, batch in self.batches(rollouts):
                    logprobs = self.training_pass(model, batch, self.config.train_temperature)
                    self.store_logprobs(all_logprobs, rollouts, rows, logprobs)
            return all_logprobs
        except torch.OutOfMemoryError:
            self.use_less_memory()
        # Not self.logprobs: with several ranks, that would split up the rollouts a second time.
        return LocalPolicy.logprobs(self, rollouts)

    def forward_backward(
        self,
        rollouts: Sequence[Rollout],
        config: Loss,
        denominator: float,
        logprobs_into: list[Tensor] | None = None,
    ) -> list[LossSums]:
        """Adds the gradient of these rollouts' loss. The loss is a sum over tokens, divided by
        `denominator`, so the split into micro-batches does not matter. `logprobs_into`, a
        list as long as the rollouts, receives what `logprobs` would return. A call that fails, or
        is interrupted, adds nothing."""
        self.check_can_train()
        check_clip(config)
        call = rollouts, config, denominator, logprobs_into
        try:
            sums = self.accumulate_gradient(*call)
        except torch.OutOfMemoryError:
            self.use_less_memory()
        except BaseException:
            self.discard_failed_call()
            raise
        else:
            self.calls_since_update.append(call)
            return sums
        # Part of a micro-batch's gradient may have been added: redo every call since the update.
        return self.recompute_gradient([*self.calls_since_update, call])[-1]

    def discard_failed_call(self) -> None:
        """Restores the gradient of the calls before one that ended midway."""
        self.recompute_gradient(self.calls_since_update)

    def recompute_gradient(self, calls: Sequence[tuple]) -> list[list[LossSums]]:
        """The gradient of these calls of forward_backward, and of no others."""
        self.optimizer.zero_grad()
        self.calls_since_update = []
        return [LocalPolicy.forward_backward(self, *call) for call in calls]

    def accumulate_gradient(
        self,
        rollouts: Sequence[Rollout],
        config: Loss,
        denominator: float,
        logprobs_into: list[Tensor] | None = None,
    ) -> list[LossSums]:
        """Stages 5 and 6, a micro-batch at a time."""
        all_sums: list[LossSums] = []
        for rows, batch in self.batches(rollouts):
            # 5. Log-probabilities (B, T) of the sampled tokens, with the current weights.
            logprobs = self.training_pass(self.model, batch, self.config.train_temperature)
            # 6. Loss, and its gradient, added to that of earlier micro-batches.
            loss, sums = batch_loss(logprobs, batch, config, denominator)
            with self.optimizer.accumulate_gradients(self.model):
                loss.backward()
            all_sums.append(sums)
            if logprobs_into is not None:
                self.store_logprobs(logprobs_into, rollouts, rows, logprobs.detach())
        return all_sums

    @torch.no_grad()
    def optim_step(
        self, lr: float, grad_clip: float = 0.0, denominator: float = 1.0
    ) -> UpdateResult:
        """7. Update: one step of the optimizer, unless the gradient is not a finite number.
        `denominator` divides the gradient here, if it was not known when the loss was computed."""
        self.check_can_train()
        if not 0 <= lr < math.inf:
            raise UserError(f"the learning rate is {lr}, but must be a finite number from 0")
        if denominator != 1:
            for gradient in self.optimizer.gradients():
                gradient /= denominator
        norm = self.clip_gradient(grad_clip)
        finite = math.isfinite(norm)
        if finite:
            self.optimizer.step(lr)
        self.optimizer.zero_grad()
        self.calls_since_update = []
        return UpdateResult(norm, finite, self.update_ratio() if finite else None)

    @property
    def context_length(self) -> float:
        """The number of tokens that the model can read."""
        return getattr(self.model, "cfg", {}).get("context_length", math.inf)

    def check_can_train(self) -> None:
        if self.optimizer is None:
            raise UserError(
                "this policy has no optimizer, so it only samples and scores, like every snapshot: "
                "train the policy that it was taken from"
            )

    def update_ratio(self) -> float | None:
        """How far the step moved the matrices of the blocks, as a share of their size."""
        return self.optimizer.update_ratio()

    @torch.no_grad()
    def snapshot(
        self, version: int | None = None, into: "LocalPolicy | None" = None
    ) -> "LocalPolicy":
        """A policy that keeps sampling with the current weights after they change. Weights that are
        not trained (with LoRA, nearly all) are shared. `into`: an earlier snapshot that is no
        longer used and may be overwritten."""
        if into is None:
            shared = {id(p): p for p in self.model.parameters() if not p.requires_grad}
            model = copy.deepcopy(self.model, shared).requires_grad_(False).eval()
            into = self.sampling_policy(model)
        else:
            for old, new in zip(into.model.parameters(), self.model.parameters(), strict=True):
                if new.requires_grad:
                    old.copy_(new)
        into.version = version
        return into

    # -- how much fits into memory

    def sample_within_memory(
        self,
        problems: Sequence[Problem],
        config: Sampling,
        step: int,
        places: Sequence[int] | None,
    ) -> list[Group]:
        """Samples, with fewer rows in parallel if memory runs out; the rollouts stay the same."""
        all_rows = len(problems) * config.rollouts
        rows = max(1, int(min(config.sample_rows, self.max_rows, all_rows)))
        sampling = replace(config, sample_rows=rows)
        try:
            return sample_groups(
                self.model,
                self.tokenizer,
                problems,
                sampling,
                step,
                places,
                self.version,
                self.engine,
            )
        except torch.OutOfMemoryError:
            pass  # leaving this block frees its memory
        if self.engine.free_memory():
            log.warning(FREED_RECORDINGS)
        elif rows == 1:
            raise UserError(f"not even one answer at a time fits: {OUT_OF_MEMORY}")
        else:
            self.max_rows = rows // 2
            log.warning("out of memory: from now on %d answers are sampled at a time", rows // 2)
        return self.sample_within_memory(problems, config, step, places)

    def store_logprobs(
        self,
        logprobs_into: list[Tensor],
        rollouts: Sequence[Rollout],
        rows: Sequence[int],
        logprobs: Tensor,
    ) -> None:
        """Store each response's log-probabilities (T,), from those of a micro-batch (B, T)."""
        for row, logprobs_T in zip(rows, logprobs.cpu(), strict=True):
            start, end = len(rollouts[row].prompt_ids), len(rollouts[row])
            # A copy, which does not keep the whole batch alive.
            logprobs_into[row] = logprobs_T[start:end].clone()

    def use_less_memory(self) -> None:
        """After a micro-batch that did not fit: frees what sampling keeps in memory or, if there is
        nothing to free, makes micro-batches half as large from now on."""
        if self.engine.free_memory():
            log.warning(FREED_RECORDINGS)
            return
        if self.last_micro_batch is None:
            raise UserError(f"not even the model fits: {OUT_OF_MEMORY}") from None
        rows, tokens = self.last_micro_batch
        if rows == 1:
            raise UserError(
                f"one answer of {tokens} tokens does not fit: {OUT_OF_MEMORY}"
            ) from None
        self.max_tokens = tokens // 2
        log.warning("out of memory: from now on micro-batches have %d tokens", tokens // 2)

    def batches(self, rollouts: Sequence[Rollout]) -> Iterator[tuple[list[int], Batch]]:
        """The rollouts in micro-batches, each with the indices of its rows."""
        longest = max(map(len, rollouts), default=0)
        if longest - 1 > self.context_length:  # the last token is predicted, but not read
            raise UserError(
                f"a rollout has {longest} tokens; the model reads {self.context_length}"
            )
        device = self.model.tok_emb.weight.device
        for rows in self.split_into_micro_batches(rollouts):
            part = [rollouts[row] for row in rows]
            lengths, prompts = self.lengths_and_prompts(part)
            self.last_micro_batch = len(part), count_tokens(lengths, range(len(part)), prompts)
            yield rows, make_batch(part, device)

    def split_into_micro_batches(self, rollouts: Sequence[Rollout]) -> list[list[int]]:
        """The indices of each micro-batch's rollouts."""
        lengths, prompts = self.lengths_and_prompts(rollouts)
        tokens = int(min(self.config.micro_batch_tokens or MICRO_BATCH_TOKENS, self.max_tokens))
        return micro_batches(lengths, tokens, self.config.micro_batch_rows, prompts)

    def lengths_and_prompts(
        self, rollouts: Sequence[Rollout]
    ) -> tuple[list[int], list[list[int]] | None]:
        """Each rollout's length, and the prompts if the training pass stores each only once."""
        lengths = [len(rollout) for rollout in rollouts]
        if self.training_pass is padded_logprobs:
            return lengths, None
        return lengths, [rollout.prompt_ids for rollout in rollouts]

    # -- what a policy of several processes overrides, besides the methods above

    def sampling_policy(self, model: Qwen3Model) -> "LocalPolicy":
        """A policy with this model that only samples and scores, in this process alone."""
        return LocalPolicy(
            model, None, self.config, self.training_pass, self.tokenizer, self.engine
        )

    def model_to_save(self) -> Qwen3Model | None:
        """The model to save; None in a process that saves nothing."""
        return self.model

    def optimizer_state(self) -> dict[str, Tensor]:
        """The optimizer's state to save."""
        return self.optimizer.state_dict()

    def load_optimizer(self, state: dict[str, Tensor], updates: int) -> None:
        """Load the state that was saved after this many updates."""
        self.optimizer.load_state_dict(state, updates)

    def full_model(self) -> AbstractContextManager[Qwen3Model]:
        """Inside this context, this process can use the whole model without the others."""
        return nullcontext(self.model)

    def clip_gradient(self, largest: float) -> float:
        """Clip the gradient and return its norm before clipping; `largest` 0: do not clip."""
        return self.optimizer.clip_gradient(largest)


def batch_loss(
    logprobs: Tensor, batch: Batch, config: Loss, denominator: float
) -> tuple[Tensor, LossSums]:
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
