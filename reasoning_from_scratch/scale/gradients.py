"""One gradient from several ranks: who computes which rows, and how the sums come together."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.rollouts import Group, Rollout
from reasoning_from_scratch.scale.ranks import Ranks
from reasoning_from_scratch.trainer import Reducer, Sums

BUCKET = 2**25  # numbers that are added up in one go: 128 MB
EVEN = 4  # so many groups per rank can be shared out evenly


class RankReducer(Reducer):
    """Each rank computes the rows that are its own; then all gradients are added up in each."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks

    def share(self, groups: Sequence[Group], whole_groups: bool) -> list[list[Rollout]]:
        """Groups, whose rows have a prompt in common, or single rows where groups are few."""
        units = [group.rollouts for group in groups]
        if not whole_groups and len(groups) < EVEN * self.ranks.size:
            units = [[rollout] for rollouts in units for rollout in rollouts]
        return self.ranks.own_parts(units)

    def add_gradients(self, optimizer: AdamW, all_sums: list[Sums]) -> list[Sums]:
        """The gradients of all ranks added up in each, and the sums of all their micro-batches.
        None of them had a gradient: no sums, and nothing to add up."""
        numbers: list[Sums] = [
            {name: float(value) for name, value in sums.items()} for sums in all_sums
        ]
        every = [sums for of_a_rank in self.ranks.exchange(numbers) for sums in of_a_rank]
        if every:
            self.collect_gradients(optimizer)
        return every

    def collect_gradients(self, optimizer: AdamW) -> None:
        for bucket in buckets(optimizer.parameters):
            self.add_bucket(optimizer, bucket)

    @torch.no_grad()
    def add_bucket(self, optimizer: AdamW, parameters: Sequence[nn.Parameter]) -> None:
        """In float32 from the micro-batches to the optimizer: bfloat16 would round each rank's sum,
        and their sum once more."""
        parts = []
        for parameter in parameters:
            own = optimizer.gradient(parameter)  # None: this rank had no row in this step
            parts.append((torch.zeros_like(parameter) if own is None else own).float().flatten())
        flat = torch.cat(parts)
        with self.ranks.in_touch():
            dist.all_reduce(flat)
        for parameter, total in zip(
            parameters, flat.split([parameter.numel() for parameter in parameters]), strict=True
        ):
            optimizer.wide[parameter], parameter.grad = total.view_as(parameter), None


def buckets(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Few large parts instead of many small ones: each addition costs a round trip."""
    parts: list[list[nn.Parameter]] = []
    filled = BUCKET
    for parameter in parameters:
        if filled + parameter.numel() > BUCKET:
            parts.append([])
            filled = 0
        parts[-1].append(parameter)
        filled += parameter.numel()
    return parts
