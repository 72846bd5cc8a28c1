"""Streaming: the gradient of finished groups is computed while the others are still sampled.

The weights stay as they are until the step's last group is in, so every rollout comes from the
same policy and the update is that of the whole batch.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from reasoning_from_scratch.losses import Loss
from reasoning_from_scratch.optim.adamw import AdamW, Float32Sums
from reasoning_from_scratch.report.clock import Clock
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.trainer import (
    Engine,
    StepRecord,
    Sums,
    advantage_metrics,
    backward,
    prepared_part,
    set_advantages,
    update,
    whole_denominator,
)

LOSSES = ("loss", "pg_loss", "kl_loss")


class Stream:
    """Groups as they come, trained on in parts of `size`; `train_step` has the last part to do.

    By what the step's sum is divided, for instance its number of tokens, is known only at its
    end: until then the denominator is 1.
    """

    def __init__(
        self,
        size: int,
        model: nn.Module,
        config: Loss,
        reference: nn.Module | None = None,
        engine: Engine | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.size, self.model, self.config = size, model, config
        self.reference, self.clock = reference, clock or Clock()
        # These groups were sampled here, and their gradient is computed here.
        self.here = Engine((engine or Engine()).training_pass, Float32Sums())
        self.waiting: list[Group] = []
        self.sums: list[Sums] = []

    def add(self, group: Group) -> None:
        """Called from within sampling, which records no gradients."""
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
        """In place of trainer.train_step: the gradient is there, but for its denominator."""
        self.flush()  # a last part that is not full
        self.sums = self.here.reducer.add_gradients(optimizer, self.sums)
        denominator = whole_denominator(groups, config)
        with torch.no_grad():
            for parameter in optimizer.parameters:
                if parameter.grad is not None:
                    parameter.grad /= denominator
        sums = [
            {name: value / denominator if name in LOSSES else value for name, value in part.items()}
            for part in self.sums
        ]
        self.sums = []
        record = StepRecord(lr)
        update(optimizer, sums, config, lr, record, engine)
        return record.metrics() | advantage_metrics(groups)
