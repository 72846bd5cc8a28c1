"""Sampling: the distribution that tokens are drawn from, and the loop that draws them.

First, one token: logits (B, V) -> temperature, top-k, top-p -> one uniform number per row -> a
token, with its log-probability. The uniform numbers are a function of (seed, step, problem,
rollout, position), so what is drawn never depends on what else is in the batch.

Then, many rollouts: `generate` keeps a batch full. Each prompt runs through the model once, and
its rollouts start from copies of its cache. Where a rollout ends, a waiting one takes its row:

    row 0  [A A A a a a a      ]      A, B, C: tokens of three prompts; a, b, c: sampled
    row 1  [A A A a a STOP     ]      row 1 has ended; one rollout of B and two of C wait
    row 2  [B B b b b b        ]

    row 0  [A A A a a a a      ]      row 1 starts again with a copy of B's cache;
    row 1  [B B b              ]      C is read as soon as its first rollout finds a row
    row 2  [B B b b b b        ]

When no rollout is waiting any more, the remaining rows close the gaps and the batch shrinks.
(fast/bursts.py draws several tokens at a time on a GPU, and leaves gaps for a while.)

A rollout may have a Partner that listens and speaks: an environment from tasks/. What it says
is read in one pass, like a prompt, and marked as not drawn.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from os.path import commonprefix
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from reasoning_from_scratch.config import Sampling, check_numbers
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import KVCache, Qwen3Model, room_for_answer
from reasoning_from_scratch.stops import Stops


def greedy(max_new_tokens: int) -> Sampling:
    """One answer to each prompt, always the most probable token."""
    return Sampling(max_new_tokens, temperature=0.0, rollouts=1)


@dataclass
class Rollout:
    """One sampled answer and everything computed for it. `generate` fills the fields from
    prompt_ids to kept, except text; an environment or a tool those from forced to outcome, and
    failure; rollouts.py, the judge and the trainer the rest. Tensors are (T,), one value for each
    token of the response."""

    problem: Problem | None = None
    prompt_ids: list[int] = field(default_factory=list)
    response_ids: list[int] = field(default_factory=list)  # the stop token included
    logprobs: list[float] = field(default_factory=list)  # under the distribution drawn from
    entropies: list[float] = field(default_factory=list)  # of that distribution
    text: str = ""
    finished: bool = False  # False: cut off at the length limit or the end of the context
    kept: list[list[int]] | None = None  # per token, what top-p and top-k kept; []: all
    forced: list[int] = field(default_factory=list)  # positions in response_ids that were not drawn
    turns: int = 1  # of the model, in a conversation with an environment
    ran_out: bool = False  # it used all of its turns
    outcome: dict[str, float] | None = None  # the environment's rewards; None: there is none
    rewards: dict[str, float] = field(default_factory=dict)
    failure: str = ""  # how your own verifier or environment failed on it
    reward: float = 0.0
    advantage: float = 0.0
    token_advantages: Tensor | None = None  # if each token has its own
    targets: Tensor | None = None  # tokens to predict instead of the response's
    start_logprobs: Tensor | None = None  # of the trainer before the step's first update
    ref_logprobs: Tensor | None = None  # of the reference model
    policy_version: int = 0  # steps that the weights had been trained for when sampling began
    place: tuple[int, int] = (0, 0)  # problem within the step, rollout within the group
    # Per token, the most likely ones and their log-probabilities, if a client of serve/ wants them.
    likely: list[list[tuple[int, float]]] = field(default_factory=list)

    @property
    def stop_reason(self) -> str:
        return "stop" if self.finished else "length"

    @property
    def text_ids(self) -> list[int]:
        """The response without the stop token."""
        return self.response_ids[:-1] if self.finished else self.response_ids

    @property
    def num_sampled(self) -> int:
        """Tokens of the response that the model drew itself."""
        return len(self.response_ids) - len(self.forced)

    def sampled_mask(self) -> Tensor:
        """(T,), 1 = a token of the response that the model drew itself."""
        mask = torch.ones(len(self.response_ids))
        mask[self.forced] = 0
        return mask

    def select_sampled(self, values: list) -> list:
        """Of `values`, one per token of the response, those of the tokens that were drawn."""
        forced = set(self.forced)
        return [value for i, value in enumerate(values) if i not in forced]

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)


# --- one uniform number per token, from a counter, not from a generator that has state ---

GOLDEN = -0x61C8864680B583EB  # 2^64 / golden ratio, as a signed 64-bit integer
SMALLEST_U = 2.0**-23


def _unsigned_shift(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """The finalizer of splitmix64: each input bit changes each output bit half the time."""
    x = (x ^ _unsigned_shift(x, 30)) * -0x40A7B892E31B1A47
    x = (x ^ _unsigned_shift(x, 27)) * -0x6B2FB644ECCEEE15
    return x ^ _unsigned_shift(x, 31)


def stream_key(seed, step, problem, rollout) -> Tensor:
    """64 bits that name a rollout's random stream. Takes numbers, or int64 tensors for many."""
    key = torch.zeros((), dtype=torch.long)
    for number in (seed, step, problem, rollout):
        if not isinstance(number, Tensor):
            number = (number + 2**63) % 2**64 - 2**63  # any seed fits into 64 bits with a sign
        key = _mix((key ^ number) + GOLDEN)
    return key


def uniform_at(keys: Tensor, positions: Tensor) -> Tensor:
    """The numbers in (0, 1) at these positions of the streams."""
    bits = _mix(keys + (positions + 1) * GOLDEN)
    # The middles of 2^22 equal parts: never 0, which would draw the first token, however unlikely,
    # and far enough below 1 that u * total < total in float32.
    return _unsigned_shift(bits, 42).float() * 2.0**-22 + SMALLEST_U


# --- the distribution that is sampled from ---


def kept_tokens(probs: Tensor, ordered: Tensor, top_p: float, top_k: int) -> Tensor:
    """Which of probs (B, V) to keep: the smallest set whose sum reaches top_p of the sum of the
    top_k largest. Among equals the lower index stays. `ordered`: probs, the largest first."""
    # The sum is rounded once, at the end, so that .7 + .2 reaches .9 as it does on paper.
    exact = torch.float32 if probs.device.type == "mps" else torch.float64
    cumulative = ordered.cumsum(-1, dtype=exact).to(probs.dtype)  # (B, V)
    limit = min(top_k or cumulative.shape[1], cumulative.shape[1]) - 1
    if top_k:
        target = cumulative[:, limit : limit + 1] * top_p  # (B, 1)
    else:
        target = cumulative.new_full((len(probs), 1), top_p)
    last = torch.searchsorted(cumulative, target).clamp(max=limit)  # (B, 1)
    smallest = ordered.gather(-1, last)  # the smallest probability that is kept
    above, equal = probs > smallest, probs == smallest
    room = last + 1 - above.sum(-1, keepdim=True)  # how many equal to it to keep
    return above | (equal & (equal.cumsum(-1, dtype=torch.int32) <= room))


def cut_by_sorting(probs: Tensor, top_p: float, top_k: int) -> Tensor:
    """probs (B, V), 0 where top-p and top-k cut. (fast/cut.py finds the same without sorting.)"""
    ordered = probs.sort(dim=-1, descending=True).values
    return probs * kept_tokens(probs, ordered, top_p, top_k)


# --- drawing one token per row ---


class Draw(NamedTuple):
    tokens: Tensor  # (B,)
    logprobs: Tensor  # (B,) under the distribution drawn from; at temperature 0: the model's own
    entropies: Tensor  # (B,) of the distribution drawn from; at temperature 0: the model's own
    weights: Tensor | None  # (B, V) 0 where cut; None where nothing is

    def kept_ids(self) -> list[list[int]]:
        """Per row, the tokens that top-p and top-k kept; []: all. Waits for a GPU only once."""
        if self.weights is None:
            return [[] for _ in self.tokens]
        rows, kept = self.weights.nonzero().T.cpu()  # (N,) of all rows together
        counts = rows.bincount(minlength=len(self.tokens))
        return [part.tolist() for part in kept.split(counts.tolist())]


def _inverse_cdf(weights: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse CDF: the index (B, 1) at which the running sum passes u (B, 1) of the total,
    and the fraction of that entry's weight that lies below that point."""
    cumulative = weights.cumsum(-1)  # (B, V)
    target = u * cumulative[:, -1:]  # (B, 1)
    index = torch.searchsorted(cumulative, target, right=True).clamp_(max=weights.shape[1] - 1)
    weight = weights.gather(-1, index)
    if weights.device.type != "cpu":
        # A parallel sum is not quite monotonic and could end at a token of weight 0.
        index = torch.where(weight > 0, index, weights.argmax(-1, keepdim=True))
    return index, (target - cumulative.gather(-1, index) + weight) / weight


def _draw_index(weights: Tensor, u: Tensor, block: int = 128) -> Tensor:
    """One index per row, (B, 1). A running sum over a row of 150,000 entries would be slow and
    lose digits. So in wide rows a block of entries is drawn first, then an entry within it, with
    what is left of the uniform number."""
    count = weights.shape[1]
    if count <= 8 * block:
        return _inverse_cdf(weights, u)[0]
    if count % block:  # Qwen3's 151,936 tokens need no copy
        weights = F.pad(weights, (0, -count % block))
    blocks = weights.unflatten(-1, (-1, block))  # (B, V / block, block)
    block_index, rest = _inverse_cdf(blocks.sum(-1), u)  # (B, 1)
    rows = torch.arange(len(blocks), device=blocks.device)
    entries = blocks[rows, block_index[:, 0]]  # (B, block)
    index = block_index * block + _inverse_cdf(entries, rest.clamp(SMALLEST_U, 1 - SMALLEST_U))[0]
    return index.clamp_(max=count - 1)  # NaN weights lead into the padding


def sample_next_token(
    logits: Tensor,
    u: Tensor,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    cut: Callable[[Tensor, float, int], Tensor] = cut_by_sorting,
) -> Draw:
    """Draw one token per row of logits (B, V) with one uniform number each, u (B,).

    Temperature 0 takes the most probable token, the lowest id among equals. Logits that are
    not finite give a log-probability that is not finite; the caller must check.
    """
    scaled = logits.float() / (temperature or 1.0)  # (B, V)
    probs = scaled.softmax(-1)  # (B, V)
    narrowed = temperature > 0 and (top_p < 1.0 or top_k > 0)
    weights = cut(probs, top_p, top_k) if narrowed else probs  # (B, V)
    if temperature == 0:
        tokens = logits.argmax(-1, keepdim=True)  # (B, 1)
    else:
        tokens = _draw_index(weights, u[:, None])  # (B, 1)
    logprobs = probs.gather(-1, tokens)[:, 0].log()  # (B,)
    # Entropy is -sum p log p with log p = scaled - normalizer, after a cut also minus the log of
    # the mass that was kept. Clamped, because 0 * -inf is NaN.
    normalizer = scaled.gather(-1, tokens)[:, 0] - logprobs  # (B,)
    energy = torch.linalg.vecdot(weights, scaled.clamp_(min=-1e30))  # (B,)
    if not narrowed:
        return Draw(tokens[:, 0], logprobs, normalizer - energy, None)
    kept_mass = weights.sum(-1)  # (B,)
    entropies = normalizer + kept_mass.log() - energy / kept_mass
    return Draw(tokens[:, 0], logprobs - kept_mass.log(), entropies, weights)


# --- many rollouts ---

PREFILL_TOKENS = 16_384  # at most this many prompt tokens, padding included, in one pass
WORTH_SHARING = 128  # a separate pass for the common beginning must save this many tokens
# Logits divided by less could be too large for float32. Above 0, it is as good as 0.
SMALLEST_TEMPERATURE = 1e-30
NOT_FINITE = "the model's logits are not finite: its weights are damaged or it has diverged"


class NotFinite(UserError):
    """The model's logits are no longer finite numbers."""


@dataclass(frozen=True)
class SamplingEngine:
    """How the model computes while sampling: by default plainly; fast/ has a faster engine."""

    # (model, rows, steps) -> a decoder for about this many rows and steps in all. It has a
    # fill_cache and is called like the model: (tokens (B, 1), cache) -> logits (B, 1, V).
    make_decoder: Callable = lambda model, rows, steps: model
    # The same for `sampling_weights="int8"`, or an error if this model cannot be sampled so.
    make_int8_decoder: Callable | None = None
    cut: Callable[[Tensor, float, int], Tensor] = cut_by_sorting
    # (model, rows, steps, keeps) -> the function that draws: `sample_next_token`, or a recording of
    # it, which returns a draw's weights only if `keeps`.
    make_draw: Callable = lambda model, rows, steps, keeps: sample_next_token
    # Frees the memory that is kept from one batch to the next; False: there is none.
    free_memory: Callable[[], bool] = lambda: False
    # model -> a context around each decoding step, which may lower the number of threads. If it
    # raises, sampling ends, even in the middle of a rollout.
    step_context: Callable[[Qwen3Model], AbstractContextManager] = nullcontext
    # Who replies to the model, if `sampling` wants replies: (sampling, tokenizer, problems) -> a
    # function that makes a rollout's Partner from its problem's number; see tasks/environments/.
    make_partners: Callable | None = None
    make_partner: Callable[[int], "Partner"] | None = None
    # model -> the class of what holds the rollouts that are being sampled.
    batch_class: "Callable[[Qwen3Model], type[RunningBatch]]" = lambda model: RunningBatch

    def choose_decoder(self, sampling: Sampling) -> Callable:
        """The function that makes the decoder, for the precision that `sampling` asks for."""
        if sampling.sampling_weights == "same":
            return self.make_decoder
        if self.make_int8_decoder is None:
            raise UserError("the plain engine has no weights in 8 bits: pass FAST, or drop int8")
        return self.make_int8_decoder

    def with_partners(self, sampling: Sampling, tokenizer, problems: Sequence) -> "SamplingEngine":
        """The same engine with the partners that `sampling` needs, if any."""
        if not sampling.has_replies or self.make_partners is None:
            return self
        return replace(self, make_partner=self.make_partners(sampling, tokenizer, problems))


PLAIN_ENGINE = SamplingEngine()


class Partner(Protocol):
    """Listens to one rollout and may speak: the model reads what it says, but did not draw it."""

    def begin(self, prompt_ids: list[int], most: int) -> list[int]:
        """Before the first token: return the prompt, or at most `most` tokens to replace it."""
        return prompt_ids

    def hear(self, response_ids: list[int], stopped: bool) -> list[int] | None:
        """After each drawn token: return the tokens to add after it, [] for none. `stopped`: it was
        a stop token, so the rollout ends unless tokens are added. None ends it immediately."""

    def leave(self, rollout: Rollout) -> None:
        """The rollout is over: record the result in it."""


@dataclass
class Row:
    """A rollout, and what the loop needs to know about it."""

    rollout: Rollout
    prompt_index: int  # of what it begins with, among the prompts to read
    key: int  # of its random stream
    limit: int  # most tokens that its response may have
    partner: Partner | None = None
    unread: int = 1  # number of its last tokens that the model has yet to read
    num_likely: int = 0  # most likely tokens to record at each position
    group_index: int = 0  # of its prompt, among those that `generate` was given

    def append_forced(self, token_ids: list[int], keep_mask: bool | None) -> None:
        """Append tokens that the model reads but did not draw."""
        rollout, count = self.rollout, len(token_ids)
        first = len(rollout.response_ids)
        rollout.forced += range(first, first + count)
        rollout.response_ids += token_ids
        rollout.logprobs += [0.0] * count
        rollout.entropies += [0.0] * count
        if keep_mask:
            rollout.kept += [[] for _ in token_ids]
        rollout.finished, self.unread = False, 1 + count

    @property
    def room(self) -> int:
        return self.limit - len(self.rollout.response_ids)

    @property
    def tokens_read(self) -> int:
        """By the model: all but the last, which it reads in its next step."""
        return len(self.rollout.prompt_ids) + len(self.rollout.response_ids) - 1

    @property
    def last_token(self) -> int:
        """What the model reads next."""
        return (self.rollout.response_ids or self.rollout.prompt_ids)[-1]


def _prompts_of_next_pass(prompts: list[list[int]], first: int, max_prompts: int) -> range:
    """Which prompts to read in one pass: number `first` and as many after it as are allowed."""
    longest = 0
    for i in range(first, len(prompts)):
        longest = max(longest, len(prompts[i]))
        too_many = i - first == max_prompts or longest * (i - first + 1) > PREFILL_TOKENS
        if i > first and too_many:
            return range(first, i)
    return range(first, len(prompts))


def pad_rows(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Rows of tokens, padded on the right, and a mask of the real ones, both (B, T)."""
    tensors = [torch.tensor(row) for row in rows]
    ids = pad_sequence(tensors, batch_first=True)
    return ids, torch.arange(ids.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]


def prefill_common_prefix(model, prompts: list[list[int]]) -> KVCache | None:
    """Read what all prompts begin with, such as a template's instructions, once for all of them, if
    it is long enough. At least one token of each prompt is left to read."""
    length = min(len(commonprefix(prompts)), min(map(len, prompts), default=0) - 1)
    if length * (len(prompts) - 1) < WORTH_SHARING:
        return None
    cache = KVCache(model.cfg["n_layers"], length)
    ids = torch.tensor([prompts[0][:length]], device=model.tok_emb.weight.device)
    model.fill_cache(ids, cache)
    return cache


def _prefill(model, decoder, prompts: list[list[int]], prefix: KVCache | None) -> KVCache:
    """One pass over some prompts, padded to the longest; `prefix` has their common beginning."""
    device, width = model.tok_emb.weight.device, prefix.width if prefix else 0
    ids, mask = pad_rows([prompt[width:] for prompt in prompts])  # (B, T)
    cache = KVCache(model.cfg["n_layers"])
    if prefix:
        cache = prefix.select_rows(torch.zeros(len(prompts), dtype=torch.long, device=device))
    cache.max_length = width + ids.shape[1]
    decoder.fill_cache(ids.to(device), cache, None if mask.all() else mask.to(device))
    cache.drop_last_token()  # a rollout's first step reads it again, for its logits
    return cache


class RunningBatch:
    """The rollouts that are being sampled, and those that wait, in the order of their prompts.

    Row i of the cache belongs to rows[i], which is None from the end of its rollout until `fill`
    finds another one or closes the gap. `prompt_cache` holds the prompts with the indices
    `cached_prompts`, those of the rollouts that are next in line.
    """

    def __init__(self, model, prompts, waiting: list[Row], sampling, stop_ids, engine) -> None:
        n_rows = min(max(1, sampling.sample_rows), len(waiting))
        # Rows are refilled when rollouts end: about this many steps, if none ends early.
        steps = math.ceil(sum(row.limit for row in waiting) / max(1, n_rows))
        self.model, self.prompts, self.waiting = model, prompts, deque(waiting)
        self.max_rows = n_rows
        self.decoder, self.cut = engine.choose_decoder(sampling)(model, n_rows, steps), engine.cut
        self.draw = engine.make_draw(model, n_rows, steps, sampling.keep_sampling_mask)
        self.device = model.tok_emb.weight.device
        self.distribution = (sampling.temperature, sampling.top_p, sampling.top_k)
        self.keep_mask, self.stops = sampling.keep_sampling_mask, Stops.of(stop_ids)
        self.prefix_cache = prefill_common_prefix(model, prompts)
        self.max_prompts = math.ceil(n_rows * len(prompts) / max(1, len(waiting)))  # in one pass
        self.cached_prompts = range(0)
        self.prompt_cache: KVCache | None = None
        self.max_length = max(
            (len(prompts[row.prompt_index]) + row.limit for row in waiting), default=0
        )
        self.rows: list[Row | None] = []
        self.cache: KVCache | None = None

    def _tensor(self, numbers: list) -> Tensor:
        return torch.tensor(numbers, device=self.device)

    def _take_waiting(self, count: int) -> tuple[list[Row], Tensor]:
        """At most `count` waiting rows, and the rows of prompt_cache that hold their prompts."""
        if self.waiting[0].prompt_index not in self.cached_prompts:
            self.prompt_cache = None  # frees its memory first
            self.cached_prompts = _prompts_of_next_pass(
                self.prompts, self.cached_prompts.stop, self.max_prompts
            )
            prompts = self.prompts[self.cached_prompts.start : self.cached_prompts.stop]
            prefix = self._common_prefix(prompts)
            self.prompt_cache = _prefill(self.model, self.decoder, prompts, prefix)
            self.prompt_cache.max_length = self.max_length  # only copies of its rows will grow
        rows: list[Row] = []
        while (
            self.waiting
            and len(rows) < count
            and self.waiting[0].prompt_index in self.cached_prompts
        ):
            rows.append(self.waiting.popleft())
        return rows, self._tensor([row.prompt_index - self.cached_prompts.start for row in rows])

    def _common_prefix(self, prompts: list[list[int]]) -> KVCache | None:
        """The cache of what the prompts of a pass begin with, if it has been read already."""
        return self.prefix_cache

    def fill(self) -> bool:
        """Give free rows to waiting rollouts, or drop the rows. False if no row is left."""
        free = [i for i, row in enumerate(self.rows) if row is None]
        missing = min(len(self.waiting) - len(free), self.max_rows - len(self.rows))
        if missing > 0:
            free += range(len(self.rows), len(self.rows) + missing)
            self.rows += [None] * missing
            if self.cache is not None:
                self.cache.append_rows(missing)
        if not free:
            return bool(self.rows)
        while free and self.waiting:
            rows, prompt_rows = self._take_waiting(len(free))
            if self.cache is None:  # the first time: fills all rows; some are overwritten below
                self.cache = self.prompt_cache.select_rows(
                    F.pad(prompt_rows, (0, len(free) - len(prompt_rows)))
                )
                self.cache.shared_slots = self.prefix_cache.width if self.prefix_cache else 0
            else:
                self.cache.write_rows(
                    self._tensor(free[: len(rows)]), self.prompt_cache.select_rows(prompt_rows)
                )
            for row in rows:
                self.rows[free.pop(0)] = row
        if not self.waiting:
            self.prompt_cache = None  # frees memory that is no longer needed
        if free:
            self._close_gaps(free)
        if self.rows:
            self._load_row_state()
        return bool(self.rows)

    def _load_row_state(self) -> None:
        """Note what each row reads next, and its rollout's position in its random stream."""
        self.tokens = self._tensor([row.last_token if row else 0 for row in self.rows])  # (B,)
        self.keys = self._tensor([[row.key if row else 0] for row in self.rows])  # (B, 1)
        drawn = [[len(row.rollout.response_ids) if row else 0] for row in self.rows]
        self.positions = self._tensor(drawn)  # (B, 1)

    def _close_gaps(self, free: list[int]) -> None:
        """Move the last rows into the free ones and shrink the batch."""
        keep = len(self.rows) - len(free)
        holes = [i for i in free if i < keep]
        movers = [i for i in range(keep, len(self.rows)) if self.rows[i] is not None]
        if holes:
            self.cache.write_rows(self._tensor(holes), self.cache.select_rows(self._tensor(movers)))
        for hole, mover in zip(holes, movers, strict=True):
            self.rows[hole] = self.rows[mover]
        self.rows = self.rows[:keep]
        self.cache.keep_first_rows(keep)
        if not keep:
            self.cache = None

    def decode_step(self) -> list[Row]:
        """Draw a token for each row. Returns the rows whose rollouts ended."""
        u = uniform_at(self.keys, self.positions)[:, 0]  # (B,)
        draw = self.draw_next(u)
        self.positions = self.positions + 1
        columns = draw.tokens.tolist(), draw.logprobs.tolist(), draw.entropies.tolist()
        ended = self.record(draw, *columns)
        self._read_replies()
        return ended

    def draw_next(self, u: Tensor) -> Draw:
        """One decoding step: every row reads its last token, and draws the next with u (B,)."""
        logits = self.decoder(self.tokens[:, None], cache=self.cache)[:, -1]  # (B, V)
        draw = self.draw(logits, u, *self.distribution, self.cut)
        self.tokens = draw.tokens
        return draw

    def record(
        self, draw: Draw, tokens: list[int], logprobs: list[float], entropies: list[float]
    ) -> list[Row]:
        """Append a draw to its rollouts. Returns the rows whose rollouts ended."""
        ended = []
        kept = draw.kept_ids() if self.keep_mask else []
        for i, row in enumerate(self.rows):
            if row is None:
                continue  # no rollout is here
            rollout = row.rollout
            if not math.isfinite(logprobs[i]):
                where = f"prompt {row.prompt_index}, after {len(rollout.response_ids)}"
                raise NotFinite(f"{NOT_FINITE} ({where} sampled tokens)")
            rollout.response_ids.append(tokens[i])
            rollout.logprobs.append(logprobs[i])
            rollout.entropies.append(entropies[i])
            if self.keep_mask:
                rollout.kept.append(kept[i])
            rollout.finished = self.stops.reached(rollout.response_ids)
            if self._continues(row):
                continue
            if row.partner:
                row.partner.leave(rollout)
            ended.append(row)
            self.rows[i] = None
        return ended

    def _continues(self, row: Row) -> bool:
        """Whether a rollout, which has just drawn a token, draws more."""
        if row.partner is None:
            return not row.rollout.finished and row.room > 0
        reply_ids = row.partner.hear(row.rollout.response_ids, row.rollout.finished)
        if reply_ids is None or (row.rollout.finished and not reply_ids):
            return False
        if row.room <= len(reply_ids):  # nothing could be drawn after it
            row.rollout.finished = False
            return False
        row.append_forced(reply_ids, self.keep_mask)
        return True

    def _read_replies(self) -> None:
        """One pass over the partners' replies but the last token, which the next step reads."""
        indices = [i for i, row in enumerate(self.rows) if row and row.unread > 1]
        if not indices:
            return
        rows = [self.rows[i] for i in indices]
        ids, mask = pad_rows([row.rollout.response_ids[-row.unread : -1] for row in rows])
        cache = self.cache.select_rows(self._tensor(indices))
        cache.max_length = self.cache.max_length
        self.decoder.fill_cache(ids.to(self.device), cache, mask.to(self.device))
        self.cache.write_rows(self._tensor(indices), cache)
        for row in rows:
            row.unread = 1
        if None not in self.rows:  # otherwise `fill` does it
            self._load_row_state()


def check_request(model, prompts: list[list[int]], sampling: Sampling) -> None:
    """Raise a UserError for what cannot be sampled."""
    if sampling.max_new_tokens is None:
        raise UserError("how long may an answer be? Give max_new_tokens")
    check_numbers(sampling, Sampling)
    if 0 < sampling.temperature < SMALLEST_TEMPERATURE:
        raise UserError(f"temperature is {sampling.temperature}, too small to divide by; 0 is fine")
    vocabulary = model.cfg["vocab_size"]
    for i, prompt in enumerate(prompts):
        if not prompt:
            raise UserError(f"prompt {i} has no tokens; there is nothing to continue")
        if not 0 <= min(prompt) <= max(prompt) < vocabulary:
            raise UserError(
                f"prompt {i} has a token outside of the model's vocabulary of {vocabulary}; "
                "its tokenizer belongs to another model"
            )


def generate(
    model,
    prompts: list[list[int]],
    sampling: Sampling,
    *,
    stop_ids: Collection[int] | Stops,
    streams: list[tuple[int, int]] | None = None,
    engine: SamplingEngine = PLAIN_ENGINE,
) -> list[list[Rollout]]:
    """`sampling.rollouts` rollouts for each prompt; temperature 0 means greedy decoding.

    A rollout ends with a stop token or text, after `max_new_tokens`, or where the model's context
    is full.
    `streams` names the random stream of each prompt as (step, problem), by default (0, its index).
    """
    ended = generate_each(
        model, prompts, sampling, stop_ids=stop_ids, streams=streams, engine=engine
    )
    groups = dict(ended)
    return [groups[i] for i in range(len(prompts))]


@torch.no_grad()
def generate_each(
    model,
    prompts: list[list[int]],
    sampling: Sampling,
    *,
    stop_ids: Collection[int] | Stops,
    streams: list[tuple[int, int]] | None = None,
    engine: SamplingEngine = PLAIN_ENGINE,
) -> Iterator[tuple[int, list[Rollout]]]:
    """Like `generate`, but yields a prompt's index and its rollouts as soon as all of them have
    ended. A caller that stops iterating ends the sampling."""
    check_request(model, prompts, sampling)
    if sampling.has_replies and engine.make_partner is None:
        option = "calculator" if sampling.calculator else "environment"
        raise UserError(f"{option} needs an engine with partners, as rfs.Policy has")
    streams = [(0, i) for i in range(len(prompts))] if streams is None else streams
    if len(streams) != len(prompts):
        raise UserError(f"{len(streams)} random streams for {len(prompts)} prompts")
    count = sampling.rollouts
    steps, problems = torch.tensor(streams, dtype=torch.long).view(-1, 2, 1).unbind(1)  # (P, 1)
    keys = stream_key(sampling.seed, steps, problems, torch.arange(count))  # (P, G)
    for i, prompt in enumerate(prompts):
        room_for_answer(model, len(prompt), sampling.max_new_tokens, f"prompt {i}")
    groups: list[list[Rollout]] = [[] for _ in prompts]
    rows: list[Row] = []
    # Prompts to read; rollouts of a group that begin alike share one.
    distinct_prompts: list[list[int]] = []
    for i, prompt in enumerate(prompts):
        first = len(distinct_prompts)
        for key in keys[i].tolist():
            partner = engine.make_partner(i) if engine.make_partner else None
            ids = partner.begin(prompt, model.cfg["context_length"] - 1) if partner else prompt
            if ids not in distinct_prompts[first:]:
                distinct_prompts.append(ids)
            rollout = Rollout(prompt_ids=ids, kept=[] if sampling.keep_sampling_mask else None)
            limit = room_for_answer(model, len(ids), sampling.max_new_tokens)
            index = distinct_prompts.index(ids, first)
            row = Row(rollout, index, key, limit, partner, group_index=i)
            groups[i].append(rollout)
            rows.append(row)
    rows.sort(key=lambda row: row.prompt_index)  # prompts are read in order
    batch = engine.batch_class(model)(model, distinct_prompts, rows, sampling, stop_ids, engine)
    rollouts_left = [count] * len(prompts)
    while batch.fill():
        with engine.step_context(model):
            ended = batch.decode_step()
        for row in ended:
            rollouts_left[row.group_index] -= 1
            if not rollouts_left[row.group_index]:
                yield row.group_index, groups[row.group_index]
