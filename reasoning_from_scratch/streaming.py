"""Streaming: the gradient of finished groups is computed while the others are still sampled.

The weights stay as they are until the step's last group is in, so every rollout comes from the
same policy and the update is that of the whole batch.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from reasoning_from_scratch.optim import AdamW
from reasoning_from_scratch.rollouts import Group

Sums = dict[str, Tensor]  # what policy_loss reports of a micro-batch


class Stream:
    """Groups as they come, handed to `backward` in equal parts.

    `backward(groups)` adds their gradient with denominator 1: by what the step's sum is divided,
    for instance its number of tokens, is known only at its end.
    """

    def __init__(self, size: int, backward: Callable[[list[Group]], list[Sums]]) -> None:
        self.size, self.backward = size, backward
        self.waiting: list[Group] = []
        self.sums: list[Sums] = []

    def add(self, group: Group) -> None:
        """Called from within sampling, which records no gradients."""
        self.waiting.append(group)
        if len(self.waiting) == self.size:
            self.flush()

    def flush(self) -> None:
        groups, self.waiting = self.waiting, []
        if groups:
            with torch.enable_grad():
                self.sums += self.backward(groups)

    @torch.no_grad()
    def finish(self, optimizer: AdamW, denominator: float) -> list[Sums]:
        """The gradient as the whole batch would have given it, and its sums."""
        self.flush()  # a last part that is not full
        for parameter in optimizer.parameters:
            if parameter.grad is not None:
                parameter.grad /= denominator
        losses = ("loss", "pg_loss", "kl_loss")
        scaled = [{name: value / denominator if name in losses else value
                   for name, value in sums.items()} for sums in self.sums]  # fmt: skip
        self.sums = []
        return scaled
