"""The policy of several ranks: who computes which rollouts, and how the results are put together.

Every rank calls the same verbs with the same rollouts. Each computes its share; log-probabilities
and sums are exchanged and gradients added up, so that all ranks make the same update.
"""

from collections.abc import Sequence
from functools import partial
from itertools import groupby

import torch
import torch.distributed as dist
from torch import Tensor, nn

from reasoning_from_scratch.losses import Loss
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.policy import LocalPolicy, LossSums, UpdateResult
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.rollouts import Group, Judge, Rollout
from reasoning_from_scratch.sampling import Sampling
from rfs.scale.ranks import Ranks

BUCKET_SIZE = 2**25  # numbers that are added up in one go: 128 MB
MIN_GROUPS_PER_RANK = 4  # with this many groups per rank, whole groups are dealt out


class RanksPolicy(LocalPolicy):
    """Each rank holds the whole model and computes its own share of the rollouts."""

    optimizer: AdamW

    def __init__(self, ranks: Ranks, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.ranks = ranks

    def sample(
        self,
        problems: Sequence[Problem],
        config: Sampling,
        step: int = 0,
        places: Sequence[int] | None = None,
        judge: Judge | None = None,
    ) -> list[Group]:
        places = range(len(problems)) if places is None else places
        with self.full_model() as model:
            rank_sampler = self.sampling_policy(model)
            rank_sampler.max_rows = self.max_rows
            sample = partial(rank_sampler.sample, problems, config, step, places, judge)
            groups = self.ranks.gather_groups(sample)
        self.max_rows = rank_sampler.max_rows
        return groups

    def sampling_policy(self, model: Qwen3Model) -> LocalPolicy:
        return RankSampler(
            self.ranks, model, None, self.config, self.training_pass, self.tokenizer, self.engine
        )

    def logprobs(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        all_logprobs: list[Tensor] = [torch.empty(0)] * len(rollouts)
        places = self.rollouts_here(rollouts)
        rank_logprobs = super().logprobs([rollouts[place] for place in places])
        for placed in self.ranks.exchange(list(zip(places, rank_logprobs, strict=True))):
            for place, logprobs in placed:
                all_logprobs[place] = logprobs
        return all_logprobs

    def forward_backward(
        self,
        rollouts: Sequence[Rollout],
        config: Loss,
        denominator: float,
        logprobs_into: list[Tensor] | None = None,
    ) -> list[LossSums]:
        assert logprobs_into is None, "no rank computes all of them: call `logprobs`"
        rank_rollouts = [rollouts[place] for place in self.rollouts_here(rollouts)]
        return self.gather_sums(super().forward_backward(rank_rollouts, config, denominator))

    def optim_step(
        self, lr: float, grad_clip: float = 0.0, denominator: float = 1.0
    ) -> UpdateResult:
        self.sum_gradients()
        return super().optim_step(lr, grad_clip, denominator)

    def load_optimizer(self, state: dict[str, Tensor], updates: int) -> None:
        """Rank 0 has read `state`; every rank gets it."""
        if self.ranks.writes:
            self.optimizer.load_state_dict(state, updates)
        self.optimizer.updates = updates
        self.ranks.copy_from_first(self.optimizer.state)

    def rollouts_here(self, rollouts: Sequence[Rollout]) -> list[int]:
        """The places of this rank's rollouts: whole groups, whose rows share a prompt, or single
        rollouts if there are few groups."""
        of_groups = groupby(range(len(rollouts)), lambda place: rollouts[place].place[0])
        parts = [list(places) for _, places in of_groups]
        if len(parts) < MIN_GROUPS_PER_RANK * self.ranks.size:
            parts = [[place] for part in parts for place in part]
        sizes = [sum(len(rollouts[place]) for place in part) for part in parts]
        return [place for part in self.ranks.parts_here(sizes) for place in parts[part]]

    def gather_sums(self, all_sums: list[LossSums]) -> list[LossSums]:
        """The sums of all ranks' micro-batches; empty if no rank has a gradient."""
        rank_numbers: list[LossSums] = [
            {name: float(value) for name, value in sums.items()} for sums in all_sums
        ]
        return [sums for rank_sums in self.ranks.exchange(rank_numbers) for sums in rank_sums]

    def sum_gradients(self) -> None:
        """Replaces each rank's gradients by their sum over all ranks."""
        for bucket in buckets(self.optimizer.parameters):
            self.sum_bucket(bucket)

    @torch.no_grad()
    def sum_bucket(self, parameters: Sequence[nn.Parameter]) -> None:
        """In float32 from the micro-batches to the optimizer: bfloat16 would round each rank's sum,
        and then their total again."""
        parts = []
        for parameter in parameters:
            gradient = self.optimizer.gradient(parameter)  # None: this rank had no row in this step
            parts.append(
                (torch.zeros_like(parameter) if gradient is None else gradient).float().flatten()
            )
        flat = torch.cat(parts)
        with self.ranks.watching_ranks():
            dist.all_reduce(flat)
        for parameter, total in zip(
            parameters, flat.split([parameter.numel() for parameter in parameters]), strict=True
        ):
            self.optimizer.gradient_sums[parameter], parameter.grad = total.view_as(parameter), None


class RankSampler(LocalPolicy):
    """A policy on one of several ranks that sends the others nothing: it samples only this rank's
    problems. (So it may run in a thread, where ranks must not communicate.)"""

    def __init__(self, ranks: Ranks, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.ranks = ranks

    def sample(
        self,
        problems: Sequence[Problem],
        config: Sampling,
        step: int = 0,
        places: Sequence[int] | None = None,
        judge: Judge | None = None,
    ) -> list[Group]:
        numbers = self.ranks.places_here(range(len(problems)))
        rank_problems = [problems[number] for number in numbers]
        places = numbers if places is None else [places[number] for number in numbers]
        return super().sample(rank_problems, config, step, places, judge)


def buckets(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """A few large parts instead of many small ones: each addition costs a round trip."""
    parts: list[list[nn.Parameter]] = []
    filled = BUCKET_SIZE
    for parameter in parameters:
        if filled + parameter.numel() > BUCKET_SIZE:
            parts.append([])
            filled = 0
        parts[-1].append(parameter)
        filled += parameter.numel()
    return parts
