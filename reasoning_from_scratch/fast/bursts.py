"""On a GPU: several tokens are drawn before we look at them, and a row may stay empty.

Looking at what was drawn means waiting for the GPU, so 8 steps run before we look, and if no
rollout waits for a row, the next 8 have already begun by then. What a rollout draws after its end
is dropped. On a CPU, where looking is free, sampling.py's batch is better.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from reasoning_from_scratch.sampling import Draw, Row, RunningBatch, uniform_at


class Burst(NamedTuple):
    """Tokens that all rows drew, one after the other."""

    draws: list[Draw]
    columns: list[Tensor]  # tokens, log-probabilities and entropies, each (steps, B)
    copied: Any  # an event on the GPU, after which `columns`, on the CPU, are filled

    @classmethod
    def start_fetch(cls, draws: list[Draw]) -> "Burst":
        """Begin to copy these draws to the CPU. The event waits only for the work before it, not
        for what the GPU is given from now on."""
        columns = [torch.stack(values) for values in list(zip(*draws, strict=True))[:3]]
        if not columns[0].is_cuda:
            return cls(draws, columns, None)
        copies = [torch.empty_like(values, device="cpu", pin_memory=True) for values in columns]
        for copy, values in zip(copies, columns, strict=True):
            copy.copy_(values, non_blocking=True)
        return cls(draws, copies, torch.cuda.current_stream(columns[0].device).record_event())

    def fetch(self) -> list[list]:
        if self.copied is not None:
            self.copied.synchronize()
        return [values.tolist() for values in self.columns]


class BurstBatch(RunningBatch):
    """The rollouts that are being sampled, a burst at a time."""

    def __init__(self, model, prompts, waiting: list[Row], sampling, stop_ids, engine) -> None:
        super().__init__(model, prompts, waiting, sampling, stop_ids, engine)
        # A partner sees each token before the next one is drawn.
        self.steps_per_burst = 8 if engine.make_partner is None else 1
        # Rows without a rollout stay until at most this share of all rows has one. A GPU is as fast
        # with 40 rows as with 64, and compacting takes some 150 operations.
        self.compacts_at_share = 0.5
        self.next_burst: Burst | None = None  # drawn for these rows, but not looked at yet

    def _tensor(self, numbers: list) -> Tensor:
        pinned = self.device.type == "cuda"  # so that Python does not wait for the copy
        return torch.tensor(numbers, pin_memory=pinned).to(self.device, non_blocking=pinned)

    def decode_step(self) -> list[Row]:
        """Draw some tokens for each row. Returns the rows whose rollouts ended."""
        burst = self.next_burst or self.decode_burst()
        may_decode = self._may_decode_ahead(burst)
        self.next_burst = self.decode_burst(len(burst.draws)) if may_decode else None
        ended = self.record_burst(burst)
        if self.next_burst and self._is_worth_compacting():
            ended += self.record_burst(self.next_burst)
            self.next_burst = None
        self._read_replies()
        return ended

    def _may_decode_ahead(self, burst: Burst) -> bool:
        """Whether the GPU gets its next steps before we look at `burst`: not if rows will be
        refilled after it, and not if looking at it would wait for those steps, too."""
        if self.steps_per_burst == 1 or self.keep_mask or self.waiting:
            return False
        return min(row.room for row in self.rows if row) > len(burst.draws)

    def decode_burst(self, unseen_steps: int = 0) -> Burst:
        """Draw a few tokens for each row. `unseen_steps`: how many draws before these we have not
        looked at."""
        count = min(self.steps_per_burst, *(row.room - unseen_steps for row in self.rows if row))
        draw_positions = self.positions + torch.arange(count, device=self.device)  # (B, count)
        u = uniform_at(self.keys, draw_positions)
        if None in self.rows:
            u = u * self._tensor([[row is not None] for row in self.rows])  # 0: no rollout there
        self.positions = self.positions + count
        return Burst.start_fetch([self.draw_next(u[:, i]) for i in range(count)])

    def record_burst(self, burst: Burst) -> list[Row]:
        ended = []
        for draw, *columns in zip(burst.draws, *burst.fetch(), strict=True):
            ended += self.record(draw, *columns)
        return ended

    # -- rows without a rollout

    def fill(self) -> bool:
        if not self.next_burst:
            return super().fill()
        free = [i for i, row in enumerate(self.rows) if row is None]
        if free:  # the next burst is already drawn, for exactly these rows
            self._empty_rows(free)
        return True

    def _close_gaps(self, free: list[int]) -> None:
        if self._is_worth_compacting():
            super()._close_gaps(free)
        else:
            self._empty_rows(free)

    def _is_worth_compacting(self) -> bool:
        """Whether enough rows are free that computing them costs time."""
        filled = sum(row is not None for row in self.rows)
        return filled <= len(self.rows) * self.compacts_at_share

    def _empty_rows(self, free: list[int]) -> None:
        """Reset these rows to length 0: otherwise they would outgrow the limit of a row."""
        unseen_steps = len(self.next_burst.draws) if self.next_burst else 0
        longest = max(row.tokens_read for row in self.rows if row)
        self.cache.clear_rows(self._tensor(free), longest + unseen_steps)
