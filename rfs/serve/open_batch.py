"""A batch for a server: rollouts join it while others are running; the tokens do not change."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor

from reasoning_from_scratch.fast.bursts import BurstBatch
from reasoning_from_scratch.qwen3 import KVCache, room_for_answer
from reasoning_from_scratch.sampling import (
    Draw,
    Partner,
    Rollout,
    Row,
    Sampling,
    SamplingEngine,
    read_start,
)

MANY_STEPS = 2**30


class OpenBatch(BurstBatch):
    """A batch that rollouts may join between two tokens: `generate` knows all of its prompts
    before it begins, a server does not. All of its rollouts have the same temperature, top-p and
    top-k. Each has a Partner, which decides where it ends and may drop it.

        batch = OpenBatch(model, sampling, engine)
        rollouts = batch.join(prompt, 100, keys, partners)
        while batch.step():
            ...                 # others join here
    """

    def __init__(self, model, sampling: Sampling, engine: SamplingEngine) -> None:
        super().__init__(model, [], [], sampling, (), engine)
        self.steps_per_burst = 1  # each rollout has a partner
        if self.device.type == "cpu":  # where an empty row costs as much as any other
            self.compacts_at_share = 1.0
        self.most_rows = self.max_prompts = sampling.sample_rows
        # The engine chooses a decoder by the number of steps, which has no limit here.
        self.decoder = engine.decoder(model, self.most_rows, MANY_STEPS)
        draw = engine.draw(model, self.most_rows, MANY_STEPS, self.keeps)
        self.draw = partial(self._noting_likely, draw)

    def join(
        self,
        prompt: list[int],
        max_new_tokens: int,
        keys: Sequence[int],
        partners: Sequence[Partner],
        likely: int = 0,
    ) -> list[Rollout]:
        """Rollouts of a prompt, one for each random stream in `keys`, each with its partner. They
        grow with every step, and record the `likely` most likely tokens at each position. If
        others wait with the same prompt, it is read once."""
        limit = room_for_answer(self.model, len(prompt), max_new_tokens)
        self._forget_read_prompts()
        number = self._number_of(prompt)
        self.max_length = max(self.max_length, len(prompt) + limit)
        if self.cache is not None:
            self.cache.max_length = self.max_length
        rollouts = [Rollout(prompt_ids=prompt) for _ in keys]
        place = sum(row.prompt <= number for row in self.waiting)  # prompts are read in order
        for rollout, key, partner in reversed(list(zip(rollouts, keys, partners, strict=True))):
            row = Row(rollout, number, key, limit, partner, likely=likely)
            self.waiting.insert(place, row)
        return rollouts

    def _number_of(self, prompt: list[int]) -> int:
        """The number of an equal prompt that is unread or still cached, else a new one."""
        first = self.read.stop if self.prompt_cache is None else self.read.start
        for number in range(first, len(self.prompts)):
            if self.prompts[number] == prompt:
                return number
        self.prompts.append(prompt)
        return len(self.prompts) - 1

    def _forget_read_prompts(self) -> None:
        """Those that are in no cache anymore; else a server would keep all that it ever read."""
        gone = self.read.stop if self.prompt_cache is None else self.read.start
        del self.prompts[:gone]
        self.read = range(self.read.start - gone, self.read.stop - gone)
        for row in [*self.waiting, *self.rows]:
            if row is not None:
                row.prompt -= gone

    def _common_start(self, prompts: list[list[int]]) -> KVCache | None:
        return read_start(self.model, prompts)

    def _noting_likely(self, draw: Callable[..., Draw], logits: Tensor, *how) -> Draw:
        """Draws, and records the most likely tokens for those who asked for them."""
        self._note_likely(logits)
        return draw(logits, *how)

    def _note_likely(self, logits: Tensor) -> None:
        rows = [(i, row) for i, row in enumerate(self.rows) if row and row.likely]
        if not rows:
            return
        places = self._index([i for i, _ in rows])
        temperature, top_p, top_k = self.policy
        logprobs = (logits[places].float() / (temperature or 1.0)).log_softmax(-1)
        if temperature > 0 and (top_p < 1.0 or top_k > 0):  # of the distribution drawn from
            weights = self.cut(logprobs.exp(), top_p, top_k)
            logprobs = (weights / weights.sum(-1, keepdim=True)).log()  # -inf where cut
        best = logprobs.topk(min(max(row.likely for _, row in rows), logprobs.shape[-1]))
        values, ids = best.values.tolist(), best.indices.tolist()
        for (_, row), numbers, tokens in zip(rows, values, ids, strict=True):
            pairs = list(zip(tokens, numbers, strict=True))[: row.likely]
            row.rollout.likely.append([one for one in pairs if one[1] > -math.inf])

    @torch.no_grad()
    def step(self, around: Callable = nullcontext) -> bool:
        """One more token for each rollout; False if no rollout is left. `around` is entered with
        the model for the whole step, in which a few prompts may be read, too."""
        with around(self.model):
            if not self.fill():
                return False
            self.take_step()
            if not self.rollouts:
                self.fill()  # with nothing: frees the cache until others join
        return True

    @property
    def rollouts(self) -> list[Rollout]:
        """Those that have not ended, whether they wait or are being sampled."""
        return [row.rollout for row in [*self.rows, *self.waiting] if row is not None]
