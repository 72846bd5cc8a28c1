"""Streaming: the gradient of finished groups is computed while the others are still sampled.

The weights stay as they are until the step's last group is in, so every rollout comes from the
same policy and each update is that of the plain step. Where a step has several updates, only the
first is prepared in this way: the gradient of the others needs the weights that it leaves behind.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from reasoning_from_scratch.losses import Loss
from reasoning_from_scratch.optim.adamw import AdamW, Float32Sums
from reasoning_from_scratch.report.clock import Clock
from reasoning_from_scratch.rollouts import Batch, Group
from reasoning_from_scratch.trainer import (
    Engine,
    Part,
    StepRecord,
    Sums,
    advantage_metrics,
    backward,
    equal_shares,
    prepared_part,
    set_advantages,
    update,
    whole_denominator,
)

LOSSES = ("loss", "pg_loss", "kl_loss")


class Stream:
    """Groups as they come, trained on in parts of `size`; `train_step` has the last part to do,
    and all groups whose problem is not among the first `streamed` of the step.

    By what a substep's sum is divided, for instance its number of tokens, is known only at its
    end: until then the denominator is 1.
    """

    def __init__(
        self,
        size: int,
        streamed: int,
        model: nn.Module,
        config: Loss,
        reference: nn.Module | None = None,
        engine: Engine | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.size, self.streamed, self.model, self.config = size, streamed, model, config
        self.reference, self.clock = reference, clock or Clock()
        # These groups were sampled here, and their gradient is computed here.
        self.here = Engine((engine or Engine()).training_pass, Float32Sums())
        self.waiting: list[Group] = []
        self.sums: list[Sums] = []
        self.batches: list[Batch] = []  # for further epochs

    def add(self, group: Group) -> None:
        """Called from within sampling, which records no gradients."""
        if group.rollouts[0].place[0] >= self.streamed:
            return
        self.waiting.append(group)
        if len(self.waiting) == self.size:
            self.flush()

    def flush(self) -> None:
        groups, self.waiting = self.waiting, []
        if not groups:
            return
        with torch.enable_grad(), self.clock("train"):
            set_advantages(groups, self.config)
            part = prepared_part(self.model, self.reference, groups, self.config, self.here)
            part = part and replace(part, denominator=1.0)
            self.sums += backward(self.model, part, self.config, self.here)
            self.batches += part.batches if part else []

    def train_step(
        self,
        model: nn.Module,
        optimizer: AdamW,
        groups: Sequence[Group],
        config: Loss,
        lr: float,
        reference: nn.Module | None,
        engine: Engine,
    ) -> dict[str, float | None]:
        """In place of trainer.train_step: the first gradient is there, but for its denominator."""
        self.flush()  # a last part that is not full
        set_advantages(groups, config)
        first, *others = equal_shares(groups, config.num_substeps)
        denominator = whole_denominator(first, config)
        parts = [Part(self.batches, denominator)]
        parts += [prepared_part(model, reference, share, config, engine) for share in others]
        record = StepRecord(lr)
        update(optimizer, self.streamed_sums(optimizer, denominator), config, lr, record, engine)
        for part in (parts * config.epochs)[1:]:
            sums = backward(model, part, config, engine)
            update(optimizer, sums, config, lr, record, engine)
        self.batches = []
        return record.metrics() | advantage_metrics(groups)

    def streamed_sums(self, optimizer: AdamW, denominator: float) -> list[Sums]:
        """Those of the groups that came in one by one; their gradient goes to the optimizer."""
        streamed, self.sums = self.here.reducer.add_gradients(optimizer, self.sums), []
        with torch.no_grad():
            for gradient in optimizer.gradients():
                gradient /= denominator
        return [
            {name: value / denominator if name in LOSSES else value for name, value in part.items()}
            for part in streamed
        ]
