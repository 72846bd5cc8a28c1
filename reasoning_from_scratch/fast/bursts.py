"""On a GPU: several tokens are drawn before anybody looks at them, and a row may stay empty.

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
    arrived: Any  # an event on the GPU, after which `columns`, on the CPU, are filled

    @classmethod
    def of(cls, draws: list[Draw]) -> "Burst":
        """Start to fetch them. Whoever waits for the event waits only for the work before it; what
        the GPU is given from now on may still be running."""
        columns = [torch.stack(values) for values in list(zip(*draws, strict=True))[:3]]
        if not columns[0].is_cuda:
            return cls(draws, columns, None)
        there = [torch.empty_like(values, device="cpu", pin_memory=True) for values in columns]
        for place, values in zip(there, columns, strict=True):
            place.copy_(values, non_blocking=True)
        return cls(draws, there, torch.cuda.current_stream(columns[0].device).record_event())

    def fetch(self) -> list[list]:
        if self.arrived is not None:
            self.arrived.synchronize()
        return [values.tolist() for values in self.columns]


class BurstBatch(RunningBatch):
    """The rollouts that are being sampled, a burst at a time."""

    def __init__(self, model, prompts, waiting: list[Row], sampling, stop_ids, engine) -> None:
        super().__init__(model, prompts, waiting, sampling, stop_ids, engine)
        # A partner hears each token before the next is drawn.
        self.steps_per_look = 8 if engine.make_partner is None else 1
        # Rows without a rollout stay until at most this share of all rows has one. A GPU is as fast
        # with 40 rows as with 64, and moving rows together takes some 150 operations.
        self.closes_gaps_at = 0.5
        self.ahead: Burst | None = None  # drawn for these rows, but not looked at yet

    def _tensor(self, numbers: list) -> Tensor:
        pinned = self.device.type == "cuda"  # so that Python does not wait for the copy
        return torch.tensor(numbers, pin_memory=pinned).to(self.device, non_blocking=pinned)

    def decode_step(self) -> list[Row]:
        """Draw some tokens for each row. Returns the rows whose rollouts ended."""
        burst = self.ahead or self.decode()
        self.ahead = self.decode(len(burst.draws)) if self._may_go_ahead(burst) else None
        ended = self.record_all(burst)
        if self.ahead and self._gaps_count():
            ended += self.record_all(self.ahead)
            self.ahead = None
        self._read_replies()
        return ended

    def _may_go_ahead(self, burst: Burst) -> bool:
        """Whether the GPU gets its next steps before we look at `burst`: not if rows will be
        refilled after it, and not if looking at it would wait for those steps, too."""
        if self.steps_per_look == 1 or self.keep_mask or self.waiting:
            return False
        return min(row.room for row in self.rows if row) > len(burst.draws)

    def decode(self, unseen: int = 0) -> Burst:
        """Draw a few tokens for each row. `unseen`: how many draws before these have not been
        looked at."""
        count = min(self.steps_per_look, *(row.room - unseen for row in self.rows if row))
        places = self.positions + torch.arange(count, device=self.device)  # (B, count)
        u = uniform_at(self.keys, places)
        if None in self.rows:
            u = u * self._tensor([[row is not None] for row in self.rows])  # 0: no rollout there
        self.positions = self.positions + count
        return Burst.of([self.draw_next(u[:, i]) for i in range(count)])

    def record_all(self, burst: Burst) -> list[Row]:
        ended = []
        for draw, *columns in zip(burst.draws, *burst.fetch(), strict=True):
            ended += self.record(draw, *columns)
        return ended

    # -- rows without a rollout

    def fill(self) -> bool:
        if not self.ahead:
            return super().fill()
        free = [i for i, row in enumerate(self.rows) if row is None]
        if free:  # the next burst is already drawn, for exactly these rows
            self._empty(free)
        return True

    def _close_gaps(self, free: list[int]) -> None:
        if self._gaps_count():
            super()._close_gaps(free)
        else:
            self._empty(free)

    def _gaps_count(self) -> bool:
        """Whether enough rows are free that computing them costs time."""
        left = sum(row is not None for row in self.rows)
        return left <= len(self.rows) * self.closes_gaps_at

    def _empty(self, free: list[int]) -> None:
        """Reset these rows to length 0: else they would outgrow the limit of a row."""
        unseen = len(self.ahead.draws) if self.ahead else 0
        longest = max(row.tokens_read for row in self.rows if row)
        self.cache.clear_rows(self._tensor(free), longest + unseen)
