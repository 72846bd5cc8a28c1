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
    prefill_common_prefix,
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
        self.max_rows = self.max_prompts = sampling.sample_rows
        # The engine chooses a decoder by the number of steps, which has no limit here.
        self.decoder = engine.make_decoder(model, self.max_rows, MANY_STEPS)
        draw = engine.make_draw(model, self.max_rows, MANY_STEPS, self.keep_mask)
        self.draw = partial(self._draw_and_record_likely, draw)

    def join(
        self,
        prompt: list[int],
        max_new_tokens: int,
        keys: Sequence[int],
        partners: Sequence[Partner],
        num_likely: int = 0,
    ) -> list[Rollout]:
        """Rollouts of a prompt, one for each random stream in `keys`, each with its partner. They
        grow with every step, and record the `num_likely` most likely tokens at each position. If
        others wait with the same prompt, it is read once."""
        limit = room_for_answer(self.model, len(prompt), max_new_tokens)
        self._forget_read_prompts()
        number = self._prompt_number(prompt)
        self.max_length = max(self.max_length, len(prompt) + limit)
        if self.cache is not None:
            self.cache.max_length = self.max_length
        rollouts = [Rollout(prompt_ids=prompt) for _ in keys]
        place = sum(row.prompt_index <= number for row in self.waiting)  # prompts are read in order
        for rollout, key, partner in reversed(list(zip(rollouts, keys, partners, strict=True))):
            row = Row(rollout, number, key, limit, partner, num_likely=num_likely)
            self.waiting.insert(place, row)
        return rollouts

    def _prompt_number(self, prompt: list[int]) -> int:
        """The number of an equal prompt that is unread or still cached, else a new one."""
        first = self.cached_prompts.stop if self.prompt_cache is None else self.cached_prompts.start
        for number in range(first, len(self.prompts)):
            if self.prompts[number] == prompt:
                return number
        self.prompts.append(prompt)
        return len(self.prompts) - 1

    def _forget_read_prompts(self) -> None:
        """Those that are in no cache anymore; else a server would keep all that it ever read."""
        cached = self.cached_prompts
        dropped = cached.stop if self.prompt_cache is None else cached.start
        del self.prompts[:dropped]
        self.cached_prompts = range(cached.start - dropped, cached.stop - dropped)
        for row in [*self.waiting, *self.rows]:
            if row is not None:
                row.prompt_index -= dropped

    def _common_prefix(self, prompts: list[list[int]]) -> KVCache | None:
        return prefill_common_prefix(self.model, prompts)

    def _draw_and_record_likely(self, draw: Callable[..., Draw], logits: Tensor, *how) -> Draw:
        """Draws, and records the most likely tokens for those who asked for them."""
        self._record_likely(logits)
        return draw(logits, *how)

    def _record_likely(self, logits: Tensor) -> None:
        rows = [(i, row) for i, row in enumerate(self.rows) if row and row.num_likely]
        if not rows:
            return
        indices = self._tensor([i for i, _ in rows])
        temperature, top_p, top_k = self.distribution
        logprobs = (logits[indices].float() / (temperature or 1.0)).log_softmax(-1)
        if temperature > 0 and (top_p < 1.0 or top_k > 0):  # of the distribution drawn from
            weights = self.cut(logprobs.exp(), top_p, top_k)
            logprobs = (weights / weights.sum(-1, keepdim=True)).log()  # -inf where cut
        top = logprobs.topk(min(max(row.num_likely for _, row in rows), logprobs.shape[-1]))
        values, ids = top.values.tolist(), top.indices.tolist()
        for (_, row), numbers, tokens in zip(rows, values, ids, strict=True):
            pairs = list(zip(tokens, numbers, strict=True))[: row.num_likely]
            row.rollout.likely.append([pair for pair in pairs if pair[1] > -math.inf])

    @torch.no_grad()
    def step(self, around: Callable = nullcontext) -> bool:
        """One more token for each rollout; False if no rollout is left. `around` is entered with
        the model for the whole step, in which a few prompts may be read, too."""
        with around(self.model):
            if not self.fill():
                return False
            self.decode_step()
            if not self.rollouts:
                self.fill()  # with nothing: frees the cache until others join
        return True

    @property
    def rollouts(self) -> list[Rollout]:
        """Those that have not ended, whether they wait or are being sampled."""
        return [row.rollout for row in [*self.rows, *self.waiting] if row is not None]
