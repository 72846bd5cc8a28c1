"""Several processes train one model: `torchrun --nproc_per_node=N ...` starts N ranks.

Each rank samples its share of a step's problems. Then all rollouts are exchanged, so that
rewards, advantages, denominators and metrics are computed alike everywhere. Each rank computes
the gradient of its share of the rows; the gradients are added up (ranks_policy.py), and every rank
takes the same optimizer step. Nothing else is sent: the weights stay equal because all ranks make
the same updates. (Or each rank keeps only a slice of the weights: sharding.py.)
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.rollouts import Group, sort_by_place
from rfs.report.progress import write_to_terminal

T = TypeVar("T")


class Ranks:
    """All ranks, as one of them sees them; by default there is only one, and nothing is sent."""

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        device: str = "cpu",
        object_group: dist.ProcessGroup | None = None,
        restarted: bool = False,
    ) -> None:
        self.restarted = restarted  # torchrun has restarted these ranks, because one had died
        self.rank, self.size, self.device = rank, size, device
        self.writes = rank == 0  # it alone writes files and talks to people
        self.object_group = object_group  # the process group that sends Python objects
        self.advice = "--resume continues it"
        # Where Ctrl-C may end a rank's own work; `train` puts its Interrupts here.
        self.interruptible: Callable[[], AbstractContextManager] = nullcontext

    # -- who does what

    def places_here(self, places: Sequence[int]) -> list[int]:
        """The places of a step that this rank samples: every N-th."""
        return list(places)[self.rank :: self.size]

    def parts_here(self, sizes: Sequence[int]) -> list[int]:
        """Which parts are this rank's: the largest first, each to whichever has least so far."""
        loads, owned = [0] * self.size, []
        for number in sorted(range(len(sizes)), key=lambda number: (-sizes[number], number)):
            least = loads.index(min(loads))
            loads[least] += sizes[number]
            if least == self.rank:
                owned.append(number)
        return sorted(owned)

    # -- what ranks send each other

    def exchange(self, value: T) -> list[T]:
        """The values of all ranks, in the order of the ranks, on every rank."""
        if self.size == 1:
            return [value]
        values: list[T] = [None] * self.size
        with self.watching_ranks():
            dist.all_gather_object(values, value, group=self.object_group)
        return values

    def gather_groups(self, sample: Callable[[], list[Group]]) -> list[Group]:
        """The groups that all ranks sample, in the order of their places."""
        if self.size == 1:
            return sample()
        return sort_by_place(group for groups in self.run_on_all(sample) for group in groups)

    def run_on_first(self, function: Callable[[], T]) -> T:
        """Rank 0 calls `function`, and every rank gets the result."""
        if self.size == 1:
            return function()
        return self.run_on_all(function if self.rank == 0 else lambda: None)[0]

    def run_on_all(self, function: Callable[[], T]) -> list[T]:
        """What `function` returns on each rank. If it is interrupted or fails on one, all ranks
        end."""
        all_results: list[T] = []
        for outcome in self.exchange(self.outcome(function)):
            if isinstance(outcome, KeyboardInterrupt) or (
                outcome is not None and self.writes and isinstance(outcome, UserError)
            ):
                raise outcome
            if isinstance(outcome, UserError):
                raise SystemExit(2)  # rank 0 reports the error
            all_results.append(outcome)
        return all_results

    def value_of_first(self, value: T) -> T:
        """Rank 0's value, if the others' might differ."""
        return self.exchange(value)[0]

    def outcome(self, function: Callable[[], T]) -> T | KeyboardInterrupt | UserError:
        try:
            with self.interruptible():
                return function()
        except (KeyboardInterrupt, UserError) as error:
            return error

    @torch.no_grad()
    def copy_from_first(self, tensors: Mapping[str, Tensor]) -> None:
        """Overwrites these tensors with those of rank 0, one after the other."""
        if self.size == 1:
            return
        for tensor in tensors.values():
            sent = tensor.to(self.device).contiguous()
            with self.watching_ranks():
                dist.broadcast(sent, 0)
            tensor.copy_(sent)

    # -- when something goes wrong

    @contextmanager
    def watching_ranks(self) -> Iterator[None]:
        """Around whatever needs the other ranks: if one has ended, reports it and ends this one."""
        try:
            yield
        except RuntimeError as error:
            raise self.exit_for_lost_rank(error) from None

    def exit_for_lost_rank(self, error: RuntimeError) -> SystemExit:
        """Ranks 0 and 1 both report it: if the rank that died is one of them, the other does."""
        if self.rank < 2:
            reason = re.sub(r"^\[.*?\] ", "", str(error)).partition(". ")[0][:200]
            write_to_terminal(
                f"rank {self.rank}: another rank has ended ({reason}), so this one ends too; what "
                f"was saved is whole, and {self.advice}"
            )
        return SystemExit(1)
