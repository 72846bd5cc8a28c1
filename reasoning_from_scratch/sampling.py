"""Sampling: many prompts, several rollouts each, in one batch that is kept full.

Each prompt runs through the model once and its cache is shared by its rollouts; a rollout
that ends gives its row to one that waits. What is drawn depends on (seed, step, problem,
rollout, position) alone, never on what else is in the batch.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from os.path import commonprefix

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from reasoning_from_scratch.distribution import (
    Draw,
    policy_distribution,
    sample_next_token,
    stream_key,
    top_p_filter,
    uniform,
    uniform_at,
)
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast.decoding import decoder_for
from reasoning_from_scratch.fast.device import decoding_threads, threads
from reasoning_from_scratch.qwen3 import KVCache, room_for_answer

__all__ = [
    "Sample",
    "generate",
    "policy_distribution",
    "sample_next_token",
    "stream",
    "top_p_filter",
    "uniform",
]

PREFILL_TOKENS = 16_384  # at most this many prompt tokens, padding included, in one pass
WORTH_SHARING = 128  # a pass of its own for what all prompts begin with has to save so many tokens
NOT_FINITE = "the model's logits are not finite: its weights are damaged or it has diverged"
BURST = {"cpu": 1}  # decoding steps between two looks at the tokens, by device; else 8:
# a look makes a GPU wait, and costs at most 7 tokens of a rollout that has ended


class NotFinite(UserError):
    """The model's logits are no numbers any more."""


@dataclass
class Sample:
    """One rollout as it was drawn."""

    ids: list[int] = field(default_factory=list)  # the stop token included
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    finished: bool = False  # ended by itself, with a stop token
    stop_reason: str = ""  # "stop", or "length": the limit, or the model's context, was reached
    kept: list[list[int]] | None = None  # per token, what top-p and top-k left; []: all


@dataclass
class _Row:
    prompt: int
    key: int
    next_token: int  # what the model reads next: a row starts with its prompt's last token
    limit: int  # tokens that it may have
    sample: Sample

    @property
    def room(self) -> int:
        return self.limit - len(self.sample.ids)


class _Queue:
    """Rows that wait. Prompts are prefilled in order, some ahead of their use."""

    def __init__(self, model, prompts, rows, max_prompts, max_length):
        self.model, self.prompts = model, prompts
        self.waiting = deque(rows)
        self.max_prompts, self.max_length = max_prompts, max_length
        self.place = {}  # prompt -> its row in self.cache
        self.start = self._read_start()

    def take(self, count: int) -> tuple[list[_Row], Tensor]:
        """At most `count` rows, and where their prompts lie in self.cache."""
        if self.waiting[0].prompt not in self.place:
            self._prefill()
        rows = []
        while self.waiting and len(rows) < count and self.waiting[0].prompt in self.place:
            rows.append(self.waiting.popleft())
        return rows, torch.tensor([self.place[row.prompt] for row in rows])

    def _next_prompts(self) -> list[int]:
        chosen, longest = [], 0
        for prompt in range(self.waiting[0].prompt, len(self.prompts)):
            longest = max(longest, len(self.prompts[prompt]))
            full = len(chosen) == self.max_prompts or longest * (len(chosen) + 1) > PREFILL_TOKENS
            if chosen and full:
                break
            chosen.append(prompt)
        return chosen

    def _read_start(self) -> KVCache | None:
        """What all prompts begin with, such as the instructions of a template, is read once."""
        length = min(len(commonprefix(self.prompts)), min(map(len, self.prompts), default=0) - 1)
        if length * (len(self.prompts) - 1) < WORTH_SHARING:
            return None
        cache = KVCache(self.model.cfg["n_layers"], length)
        ids = torch.tensor([self.prompts[0][:length]], device=self.model.tok_emb.weight.device)
        self.model.fill_cache(ids, cache)
        return cache

    def _prefill(self):
        chosen = self._next_prompts()
        device = self.model.tok_emb.weight.device
        start = self.start.width if self.start else 0
        rest = [torch.tensor(self.prompts[i][start:]) for i in chosen]
        ids = pad_sequence(rest, batch_first=True)  # (B, T)
        lengths, width = torch.tensor([len(x) for x in rest]), ids.shape[1]
        mask = torch.arange(width) < lengths[:, None]
        self.cache = KVCache(self.model.cfg["n_layers"], start + width)
        if self.start:
            self.cache = self.start.take(torch.zeros(len(chosen), dtype=torch.long, device=device))
            self.cache.max_length = start + width
        self.model.fill_cache(ids.to(device), self.cache, None if mask.all() else mask.to(device))
        self.cache.forget_last()  # each sample reads the last prompt token itself
        self.cache.max_length = self.max_length  # only the copies that samples take will grow
        self.place = {prompt: row for row, prompt in enumerate(chosen)}


class _Batch:
    """The rows that are being decoded; row i of the cache belongs to rows[i]."""

    def __init__(self, model, n_rows, stop_ids, policy, keep_sets):
        self.model, self.policy, self.keep_sets = model, policy, keep_sets
        self.stop_ids = frozenset(stop_ids)
        self.device = model.tok_emb.weight.device
        self.rows: list[_Row | None] = [None] * n_rows
        self.cache = None

    def _index(self, numbers) -> Tensor:
        return torch.tensor(numbers, device=self.device)

    def fill(self, queue: _Queue) -> bool:
        """Rows that have ended go to waiting ones, or leave the batch. False if none is left."""
        free = [i for i, row in enumerate(self.rows) if row is None]
        if not free:
            return bool(self.rows)
        while free and queue.waiting:
            rows, place = queue.take(len(free))
            if self.cache is None:
                place = F.pad(place, (0, len(free) - len(place)))  # all rows exist from now on
                self.cache = queue.cache.take(place.to(self.device))
            else:
                taken = queue.cache.take(place.to(self.device))
                self.cache.put(self._index(free[: len(rows)]), taken)
            for i, row in zip(free, rows, strict=False):
                self.rows[i] = row
            free = free[len(rows) :]
        if not queue.waiting:
            queue.cache = None
        self._close_gaps(free)
        if self.rows:
            self.tokens = self._index([row.next_token for row in self.rows])
            self.keys = self._index([[row.key] for row in self.rows])
            self.positions = self._index([[len(row.sample.ids)] for row in self.rows])
        return bool(self.rows)

    def _close_gaps(self, free: list[int]) -> None:
        if not free:
            return
        keep = len(self.rows) - len(free)
        holes = [i for i in free if i < keep]
        movers = [i for i in range(keep, len(self.rows)) if self.rows[i] is not None]
        if holes:
            self.cache.put(self._index(holes), self.cache.take(self._index(movers)))
        for hole, mover in zip(holes, movers, strict=True):
            self.rows[hole] = self.rows[mover]
        self.rows = self.rows[:keep]
        self.cache.shrink(keep)

    def decode(self) -> list[Draw]:
        """One token per row, or on a GPU a few, so that it need not wait for us each time."""
        burst = min(BURST.get(self.device.type, 8), *(row.room for row in self.rows))
        steps = torch.arange(burst, device=self.device)
        u = uniform_at(self.keys, self.positions + steps)  # (B, burst)
        self.positions = self.positions + burst
        draws = []
        for i in range(burst):
            logits = self.model(self.tokens[:, None], cache=self.cache)[:, -1]  # (B, V)
            draws.append(sample_next_token(logits, u[:, i], *self.policy))
            self.tokens = draws[-1].tokens
        return draws

    def record(self, draws: list[Draw]) -> list[_Row]:
        """Append the draws to their samples; the rows that ended with them."""
        columns = [torch.stack(values).tolist() for values in list(zip(*draws, strict=True))[:3]]
        ended = []
        for draw, *lists in zip(draws, *columns, strict=True):
            lists.append(draw.kept_ids() if self.keep_sets else [None] * len(self.rows))
            for i, values in enumerate(zip(*lists, strict=True)):
                if self.rows[i] is not None and self._append(self.rows[i], *values):
                    ended.append(self.rows[i])
                    self.rows[i] = None
        return ended

    def _append(self, row: _Row, token, logprob, entropy, kept: list[int] | None) -> bool:
        """True if the sample ends here."""
        sample = row.sample
        if not math.isfinite(logprob):
            where = f"prompt {row.prompt}, after {len(sample.ids)} sampled tokens"
            raise NotFinite(f"{NOT_FINITE} ({where})")
        sample.ids.append(token)
        sample.logprobs.append(logprob)
        sample.entropies.append(entropy)
        if kept is not None:
            sample.kept.append(kept)
        row.next_token = token
        if token in self.stop_ids:
            sample.finished, sample.stop_reason = True, "stop"
        elif not row.room:
            sample.stop_reason = "length"
        return bool(sample.stop_reason)


def _check_request(model, prompts, num_samples, max_new_tokens, temperature, top_p, top_k, streams):
    for name, value, good in (
        ("num_samples", num_samples, num_samples >= 1),
        ("max_new_tokens", max_new_tokens, max_new_tokens >= 1),
        ("temperature", temperature, 0 <= temperature < math.inf),
        ("top_p", top_p, 0 < top_p <= 1),
        ("top_k", top_k, top_k >= 0),
    ):
        if not good:
            raise UserError(f"{name}={value} is out of range")
    if streams is not None and len(streams) != len(prompts):
        raise UserError(f"{len(streams)} random streams for {len(prompts)} prompts")
    vocabulary = model.cfg["vocab_size"]
    for i, prompt in enumerate(prompts):
        if not prompt:
            raise UserError(f"prompt {i} has no tokens; there is nothing to continue")
        if max(prompt) >= vocabulary or min(prompt) < 0:
            raise UserError(
                f"prompt {i} has a token outside of the model's vocabulary of {vocabulary}; "
                "its tokenizer belongs to another model"
            )


@torch.no_grad()
def generate(
    model,
    prompts: list[list[int]],
    num_samples: int = 1,
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    seed: int = 0,
    streams: list[tuple[int, int]] | None = None,
    stop_ids: set[int],
    max_rows: int = 64,
    on_group: Callable[[int, list[Sample]], None] | None = None,
    first_sample: int = 0,
    keep_sets: bool = False,
    before_step: Callable[[], None] | None = None,
) -> list[list[Sample]]:
    """`num_samples` rollouts for each prompt; temperature 0 is greedy.

    A rollout ends with a stop token, after `max_new_tokens`, or where the model's context is full.
    At most `max_rows` rollouts are decoded at a time. `streams` names the random stream of each
    prompt as (step, problem), by default (0, its index); `first_sample` numbers its first rollout,
    so that more can be drawn later. `on_group(prompt index, samples)` is called when all samples
    of a prompt have ended. `keep_sets` records for each token those that top-p and top-k left.
    `before_step()` is called before each look at the model: what it raises ends the sampling.
    """
    _check_request(model, prompts, num_samples, max_new_tokens, temperature, top_p, top_k, streams)
    streams = streams or [(0, i) for i in range(len(prompts))]
    groups = [[Sample(kept=[] if keep_sets else None) for _ in range(num_samples)] for _ in prompts]
    steps, problems = torch.tensor(streams, dtype=torch.long).view(-1, 2, 1).unbind(1)  # (P, 1)
    keys = stream_key(seed, steps, problems, torch.arange(num_samples) + first_sample)  # (P, n)
    limits = [
        room_for_answer(model, len(prompt), max_new_tokens, f"prompt {i}")
        for i, prompt in enumerate(prompts)
    ]
    rows = [
        _Row(i, key, prompts[i][-1], limits[i], sample)
        for i, some in enumerate(keys.tolist())
        for key, sample in zip(some, groups[i], strict=True)
    ]
    lengths = [len(prompt) + limit for prompt, limit in zip(prompts, limits, strict=True)]
    max_length = max(lengths, default=0)
    n_rows = min(max(1, max_rows), len(rows))
    queue = _Queue(model, prompts, rows, math.ceil(n_rows / num_samples), max_length)
    decoder = decoder_for(model, n_rows, max(limits, default=0))
    policy = (temperature, top_p, top_k)
    batch = _Batch(decoder, n_rows, stop_ids, policy, keep_sets)
    unfinished, count = [num_samples] * len(prompts), decoding_threads(model)
    while batch.fill(queue):
        if before_step:
            before_step()
        with threads(count):
            ended = batch.record(batch.decode())
        for row in ended:
            unfinished[row.prompt] -= 1
            if on_group and not unfinished[row.prompt]:
                on_group(row.prompt, groups[row.prompt])
    return groups


@torch.no_grad()
def stream(
    model,
    prompt: list[int],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    seed: int = 0,
    stop_ids: set[int],
) -> Iterator[int]:
    """The tokens of one rollout as they are drawn, the stop token left out: the same tokens
    as generate(model, [prompt], ...) gives."""
    _check_request(model, [prompt], 1, max_new_tokens, temperature, top_p, top_k, None)
    limit = room_for_answer(model, len(prompt), max_new_tokens)
    device = model.tok_emb.weight.device
    u = uniform(seed, 0, 0, 0, torch.arange(limit)).to(device)
    cache = KVCache(model.cfg["n_layers"], len(prompt) + limit)
    hidden = model.hidden_states(torch.tensor([prompt], device=device), cache=cache)
    logits = model.out_head(hidden[:, -1])
    for position in range(limit):
        draw = sample_next_token(logits, u[position : position + 1], temperature, top_p, top_k)
        if not draw.logprobs.isfinite().item():
            raise NotFinite(f"{NOT_FINITE} (after {position} sampled tokens)")
        if draw.tokens.item() in stop_ids:
            return
        yield draw.tokens.item()
        logits = model(draw.tokens[:, None], cache=cache)[:, -1]
