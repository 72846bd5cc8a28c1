"""Streaming: the gradient of finished groups is computed while the others are still sampled.

A loop of its own beside trainer.training_loop, of the same pieces. The weights stay as they are
until the step's last group is in, so every rollout comes from the same policy and each update is
that of the plain step. Where a step has several updates, only the first is prepared in this way:
the gradient of the others needs the weights that it leaves behind.

In one process it saves no time. It does where samplers are elsewhere (scale/ray_rollouts.py).
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial

import torch

from reasoning_from_scratch.config import Rollouts, TrainConfig
from reasoning_from_scratch.losses import LOSSES
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.report.clock import Clock
from reasoning_from_scratch.rollouts import Batch, Group, sample_groups, step_problems
from reasoning_from_scratch.trainer import (
    Engine,
    Numbers,
    Optimizer,
    RolloutEngine,
    StepRecord,
    Sums,
    Training,
    Update,
    advantage_metrics,
    batch_loss,
    equal_shares,
    prepared_update,
    set_advantages,
    update,
    whole_denominator,
)

OnGroup = Callable[[Group], None]


def streaming_loop(run: Training, stream: "Stream") -> str:
    """trainer.training_loop, where `stream` has been handed each group as it came."""
    for step, groups in enumerate(run.rollouts, run.first_step):  # 1. to 6. of the first update
        run.before_update(step, groups)
        numbers = stream.finish_step(groups, run.lr(step), run.engine)
        stopped = run.after_update(step, groups, numbers)
        if stopped:
            return stopped
    return ""


def streamed_rollouts(
    model: Qwen3Model,
    tokenizer,
    problems: Sequence[Problem],
    config: Rollouts,
    first_step: int,
    engine: RolloutEngine,
    on_group: OnGroup,
) -> Generator[list[Group]]:
    """trainer.on_policy_rollouts; `on_group` gets each group, rewarded, while others may still be
    sampled."""

    def came(group: Group) -> None:
        with engine.timed("reward"):
            engine.reward([group], config, tokenizer)
        on_group(group)

    for step in range(first_step, config.steps):
        chosen = dict(enumerate(step_problems(problems, config, step)))
        places = engine.own(list(chosen))
        asked = [chosen[place] for place in places]
        sample = partial(
            sample_groups, model, tokenizer, asked, config, step, places, came,
            engine=engine.sampling,
        )  # fmt: skip
        with engine.timed("sampling"):
            groups = engine.together(sample)
        yield groups


class Stream:
    """Groups as they come, trained on in parts of `size`; `finish_step` has the last part to do,
    and all groups whose problem is not among the first `streamed` of the step.

    By what an update's sum is divided, for instance its number of tokens, is known only at its
    end: until then the denominator is 1.
    """

    def __init__(
        self,
        size: int,
        streamed: int,
        model: Qwen3Model,
        optimizer: Optimizer,
        config: TrainConfig,
        reference: Qwen3Model | None = None,
        engine: Engine | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.size, self.streamed, self.model, self.config = size, streamed, model, config
        self.optimizer, self.reference, self.clock = optimizer, reference, clock or Clock()
        # These groups were sampled here, and their gradient is computed here.
        self.here = Engine((engine or Engine()).training_pass)
        self.waiting: list[Group] = []
        self.sums: list[Sums] = []
        self.batches: list[Batch] = []  # for further epochs

    def add(self, group: Group) -> None:
        """Called from within sampling, which records no gradients."""
        if group.rollouts[0].place[0] >= self.streamed:
            return
        self.waiting.append(group)
        if len(self.waiting) == self.size:
            with self.clock("train"):
                self.flush()

    def flush(self) -> None:
        groups, self.waiting = self.waiting, []
        if not groups:
            return
        with torch.enable_grad():
            set_advantages(groups, self.config)
            part = prepared_update(self.model, self.reference, groups, self.config, self.here)
            self.sums += self.backward(Update(part.batches, denominator=1.0), self.here)
            self.batches += part.batches

    def backward(self, prepared: Update, engine: Engine) -> list[Sums]:
        """Stages 5 and 6: the gradient of an update's micro-batches, added to what is there."""
        all_sums = []
        for batch in prepared.batches:
            logprobs = engine.training_pass(self.model, batch, self.config.train_temperature)
            loss, sums = batch_loss(logprobs, batch, self.config, prepared.denominator)
            loss.backward()
            self.optimizer.add_up(self.model)
            all_sums.append(sums)
        return all_sums

    def finish_step(self, groups: Sequence[Group], lr: float, engine: Engine) -> Numbers:
        """In place of trainer.train_step: the first gradient is there, but for its denominator."""
        self.flush()  # a last part that is not full
        config, optimizer, record = self.config, self.optimizer, StepRecord(lr)
        set_advantages(groups, config)
        first, *others = equal_shares(groups, config.num_substeps)
        denominator = whole_denominator(first, config)
        updates = [Update(self.batches, denominator)]
        updates += [
            prepared_update(self.model, self.reference, share, config, engine) for share in others
        ]
        streamed = self.streamed_sums(denominator)
        update(optimizer, streamed, config, lr, record, engine)
        for prepared in (updates * config.epochs)[1:]:
            update(optimizer, self.backward(prepared, engine), config, lr, record, engine)
        self.batches = []
        return record.metrics() | advantage_metrics(groups)

    def streamed_sums(self, denominator: float) -> list[Sums]:
        """Those of the groups that came in one by one, and their gradient, as it should be."""
        streamed, self.sums = self.sums, []
        with torch.no_grad():
            for gradient in self.optimizer.gradients():
                gradient /= denominator
        return [
            {name: value / denominator if name in LOSSES else value for name, value in sums.items()}
            for sums in streamed
        ]
