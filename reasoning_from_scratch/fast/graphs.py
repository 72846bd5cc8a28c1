"""On a GPU: decoding steps and draws that are recorded once and played back (CUDA graphs).

A decoding step of a small model is a thousand small operations. Python takes some 20 microseconds
to start one, the GPU 2 to compute it, so the GPU waits for Python most of the time. A recording
starts them all with one call. In return, nothing in it may change from step to step but the numbers
in its tensors: no tensor may move, no shape may grow, no Python number may depend on the step, and
nothing may be fetched from the GPU. So

    tokens, lengths     are separate tensors, written before each step
    keys, values        have room for later tokens; the KVCache gets views of them, so that what
                        it does in place (put another prompt into a row, drop rows) still works
    rows, width         identify a recording: there is one for 64 rows that see 256 slots, one
                        for 32 rows and 256 slots, ..., made when first needed

              width 256    512    768
    rows 64       *         *      *       a batch starts on the left, and moves down as its
         32                 *      *       rollouts end and right as the others grow; unused
         16                        *       rows and hidden slots are computed and ignored

A training run keeps its recordings from step to step (decoding.RecordingCache): the weights that
they read are overwritten by the new ones, and the next batch reuses the same keys and values.

What cannot be recorded, on an old GPU or without enough memory, is computed by the model's own
operations after one warning.
"""

import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from textwrap import shorten
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from reasoning_from_scratch.fast.cut import GPU_CANDIDATES, cut_among_the_largest
from reasoning_from_scratch.qwen3 import KVCache, RMSNorm, TransformerBlock, attention
from reasoning_from_scratch.sampling import Draw, sample_next_token

log = logging.getLogger("reasoning_from_scratch")

WIDTH_STEP = 256  # slots: a recording serves this many steps, with at most as many hidden slots
FIRST_CAPACITY = 1024  # slots that a row gets from the start, if its rollout may get that long
FREE_BYTES = 2**30  # bytes that a GPU should have free for a recording


def round_up_slots(tokens: int) -> int:
    return -(-tokens // WIDTH_STEP) * WIDTH_STEP


def rows_to_compute(rows: int, max_rows: int) -> int:
    """How many rows to compute for the `rows` that are left: a power of two, at most `max_rows`."""
    return min(1 << (rows - 1).bit_length(), max_rows)


# --- recording


class Recorder:
    """Makes recordings that share their memory, so that only one may be played at a time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.pool: Any = None  # the first recording's memory; torch frees it with the last one

    def __call__(self, step: Callable) -> Callable:
        """A function that repeats what `step` did, on what the tensors hold by then. Each call
        overwrites the result of the one before."""
        if torch.cuda.mem_get_info(self.device)[0] < FREE_BYTES:
            # A recording cannot use memory that torch keeps in reserve, nor make torch free it.
            torch.cuda.empty_cache()
        stream, current = recording_stream(self.device), torch.cuda.current_stream(self.device)
        graph = torch.cuda.CUDAGraph()
        stream.wait_stream(current)
        try:
            with torch.cuda.stream(stream):
                step()  # loads kernels and libraries, which a recording must not do
                # Other threads may allocate memory meanwhile: the trainer, with a lagging sampler.
                graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
                try:
                    result = step()
                except BaseException:  # Ctrl-C, too: the stream must be usable again
                    with suppress(RuntimeError):  # the first error says more
                        graph.capture_end()
                    raise
                graph.capture_end()
        finally:
            current.wait_stream(stream)
        self.pool = graph.pool()

        def play() -> object:
            graph.replay()
            return result

        return play


STREAMS = threading.local()


def recording_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream in which this thread records: always the same, since each stream holds separate
    memory for matrix products."""
    if not hasattr(STREAMS, "of_device"):
        STREAMS.of_device = {}
    if device not in STREAMS.of_device:
        STREAMS.of_device[device] = torch.cuda.Stream(device)
    return STREAMS.of_device[device]


@cache
def warn_once(what: str, reason: str) -> None:
    log.warning("%s: %s", what, reason)


def in_one_line(error: Exception) -> str:
    return shorten(str(error) or type(error).__name__, 200, placeholder=" ...")


# --- the model, with fewer and larger matrix products


class FusedLinear(NamedTuple):
    """Linear layers that read the same input, as one matrix product."""

    weight: Tensor  # (outputs of all, inputs)
    bias: Tensor | None
    lora: tuple[Tensor, Tensor] | None  # (ranks of all, inputs), (outputs of all, ranks of all)

    def __call__(self, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """With `onto`, the result is added to it in place, in the same operation. Layers for which
        that is used have no bias in any family."""
        if onto is None:
            out = F.linear(x, self.weight, self.bias)
        else:
            out = onto.addmm_(x, self.weight.t())
        return out if self.lora is None else out + F.linear(F.linear(x, self.lora[0]), self.lora[1])


def fuse_linears(*linears: Any) -> FusedLinear:
    """`linears`: nn.Linear, or what LoRA has put in its place."""
    weights = [linear.weight.detach() for linear in linears]
    biases = [getattr(linear, "bias", None) for linear in linears]
    if any(bias is not None for bias in biases):
        pairs = zip(biases, weights, strict=True)
        biases = [w.new_zeros(len(w)) if bias is None else bias.detach() for bias, w in pairs]
        bias = torch.cat(biases)
    else:
        bias = None
    lora = None
    if all(hasattr(linear, "lora_A") for linear in linears):  # not merged: W would round it off
        up = [linear.lora_B.detach() * (linear.alpha / linear.rank) for linear in linears]
        lora = torch.cat([linear.lora_A.detach() for linear in linears]), torch.block_diag(*up)
    return FusedLinear(weights[0] if len(weights) == 1 else torch.cat(weights), bias, lora)


class Norm(NamedTuple):
    scale: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """RMSNorm: on a GPU one kernel, which also computes in float32."""
        return F.rms_norm(x, self.scale.shape, self.scale, self.eps)


def norm_weights(norm: Any) -> Norm:
    return Norm(norm.scale.detach(), norm.eps)


class HeadNorm(NamedTuple):
    """The norms of queries and keys, for the heads of both together."""

    scale: Tensor  # (heads + kv groups, head_dim)
    eps: float

    def __call__(self, heads: Tensor) -> Tensor:
        """In heads (B, heads + 2 groups, head_dim), the values come last. They are normalized, too,
        and dropped: excluding them would mean copying the others first."""
        normed = F.rms_norm(heads, heads.shape[-1:], None, self.eps)
        return normed[:, : len(self.scale)] * self.scale


def head_norm_weights(att: Any) -> HeadNorm | None:
    if not isinstance(att.q_norm, RMSNorm):
        return None
    pairs = ((att.q_norm, att.W_query), (att.k_norm, att.W_key))
    counts = [len(linear.weight) // att.head_dim for _, linear in pairs]
    scales = [norm.scale.detach().expand(n, -1) for (norm, _), n in zip(pairs, counts, strict=True)]
    return HeadNorm(torch.cat(scales), att.q_norm.eps)


class Block(NamedTuple):
    """The weights of a TransformerBlock."""

    norm1: Norm
    qkv: FusedLinear
    head_norm: HeadNorm | None
    out: FusedLinear
    norm2: Norm
    gate_up: FusedLinear
    down: FusedLinear


def block_weights(block: TransformerBlock) -> Block:
    att, ff = block.att, block.ff
    return Block(
        norm_weights(block.norm1),
        fuse_linears(att.W_query, att.W_key, att.W_value),
        head_norm_weights(att),
        fuse_linears(att.out_proj),
        norm_weights(block.norm2),
        fuse_linears(ff.fc1, ff.fc2),
        fuse_linears(ff.fc3),
    )


def tensors_in(part: Any) -> Iterator[Tensor]:
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, tuple):
        for inner in part:
            yield from tensors_in(inner)


def overwrite(old: tuple, new: tuple) -> None:
    """Copy new joined weights to where recordings read them."""
    for target, values in zip(tensors_in(old), tensors_in(new), strict=True):
        if target.data_ptr() != values.data_ptr():  # else it is a weight itself, already updated
            target.copy_(values)


class Step(NamedTuple):
    """What all blocks share in a step of B rows that see W slots."""

    rows: Tensor  # (B,) 0, 1, ...
    slots: Tensor  # (B,) where each row's new token goes: its length so far
    cos: Tensor  # (B, 1, head_dim)
    sin: Tensor  # the same, negative in the first half: see `rotate`
    mask: Tensor  # (B, 1, 1, W) 0, or -inf on slots that the row has not filled


def rotate(x: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """apply_rope in three operations: [a b] cos + [-b a] sin is [a b] cos + [b a] [-sin sin]."""
    first, second = x.chunk(2, dim=-1)
    return torch.addcmul(x * cos, torch.cat([second, first], dim=-1), signed_sin)


def decode_block(x: Tensor, block: Block, keys: Tensor, values: Tensor, step: Step) -> Tensor:
    """x (B, D) -> (B, D); the new token's key and value are written to the cache's `keys` and
    `values` (B, kv groups, capacity, head_dim)."""
    groups, size, width = keys.shape[1], keys.shape[3], step.mask.shape[-1]
    heads = block.qkv(block.norm1(x)).unflatten(-1, (-1, size))  # (B, heads + 2 groups, head_dim)
    queries_keys, value = heads.split([heads.shape[1] - groups, groups], dim=1)
    if block.head_norm:
        queries_keys = block.head_norm(heads)
    queries_keys = rotate(queries_keys, step.cos, step.sin)
    query, key = queries_keys.split([queries_keys.shape[1] - groups, groups], dim=1)
    keys[step.rows, :, step.slots] = key
    values[step.rows, :, step.slots] = value
    seen = keys[:, :, :width], values[:, :, :width]
    attended = attention(query[:, :, None], *seen, step.mask)[:, 0]  # (B, heads * head_dim)
    x = block.out(attended, onto=x)
    gate, up = block.gate_up(block.norm2(x)).chunk(2, dim=-1)
    return block.down(F.silu(gate) * up, onto=x)


@cache
def compiled_block() -> Callable:
    """decode_block in a few kernels; compiled once for all layers, rows and widths."""
    return torch.compile(decode_block, dynamic=True)


# --- the decoder


class GraphDecoder:
    """Takes a model's decoding steps by playing recordings. It keeps joined copies of the weights:
    after an update, make a new one or call `renew`. Later steps overwrite the logits that it
    returns.

    `fallback` reads the prompts, and decodes if nothing can be recorded. `record` is for tests,
    which record by other means without a GPU.
    """

    def __init__(self, fallback, record: Callable | None = None, compiled: bool = False) -> None:
        self.fallback, self.model, self.compiled = fallback, fallback.model, compiled
        self.new_recorder = (lambda device: record) if record else Recorder
        self.fill_cache = fallback.fill_cache
        self.failed = False
        self.release()

    def release(self) -> None:
        """Drop everything that takes memory."""
        self.recordings: dict[tuple[int, int], Callable] = {}
        self.keys: list[Tensor] = []  # per layer (B, kv groups, capacity, head_dim)
        self.values: list[Tensor] = []
        self.blocks: list[Block] = []
        self.outer_weights: tuple = ()  # embedding, last norm and head
        self.weight_addresses: list[int] = []  # addresses of the weights that recordings read
        self.cache_in_use: Callable[[], KVCache | None] = lambda: None  # the one that uses these

    @torch.no_grad()
    def renew(self) -> None:
        """The weights have changed, and a new batch begins. Joined weights are copies, which are
        overwritten; the others are read in place, so if any has moved, everything is dropped."""
        if self.weight_addresses != self._weight_addresses():
            self.release()
        for old, block in zip(self.blocks, self.model.trf_blocks, strict=False):
            overwrite(old, block_weights(block))

    def _weight_addresses(self) -> list[int]:
        return [weight.data_ptr() for weight in self.model.parameters()]

    def _outer_weights(self) -> tuple:
        model = self.model
        embedding, norm = model.tok_emb.weight.detach(), norm_weights(model.final_norm)
        return embedding, norm, fuse_linears(model.out_head)

    def __call__(self, in_idx: Tensor, cache: KVCache) -> Tensor:
        """Read the next tokens (B, 1); returns the logits (B, 1, V) of the ones after them."""
        play = None if self.failed else self._recording(in_idx, cache)
        if play is None:
            return self.fallback(in_idx, cache=cache)
        logits = play()[: len(in_idx), None]
        cache.advance(1)
        return logits

    def _recording(self, in_idx: Tensor, cache: KVCache) -> Callable | None:
        """The recording for this step, its inputs in place; None if it cannot be made."""
        try:
            if not self._has_adopted(cache):
                self._adopt(cache)
            # Before a recording is made: its first run writes to the slots in `lengths`.
            self.tokens[: len(in_idx)].copy_(in_idx[:, 0])
            self.lengths[: len(in_idx)].copy_(cache.lengths)
            size = rows_to_compute(len(in_idx), len(self.lengths)), round_up_slots(cache.width + 1)
            if size not in self.recordings:
                self.recordings[size] = self._record(*size)
            return self.recordings[size]
        except Exception as error:  # whatever a driver, or a GPU without memory, has to say
            self.failed = True
            self.release()
            what = "decoding steps cannot be recorded and are slower, operation by operation"
            warn_once(what, in_one_line(error))
            return None

    def _record(self, rows: int, width: int) -> Callable:
        if self.compiled:
            try:
                return self.record(partial(self._step, rows, width, compiled_block()))
            except torch.cuda.OutOfMemoryError:
                raise
            except Exception as error:  # of the compiler, or of the compiler's compiler
                self.compiled = False
                warn_once("torch.compile fails, decoding continues without it", in_one_line(error))
        return self.record(partial(self._step, rows, width, decode_block))

    def _has_adopted(self, cache: KVCache) -> bool:
        """Whether the keys and values of this cache are ours, with room for one more token."""
        first = self.keys[0] if self.keys else None
        adopted = first is not None and cache.keys[0].data_ptr() == first.data_ptr()
        return adopted and cache.width < first.shape[2]

    @torch.no_grad()
    def _adopt(self, cache: KVCache) -> None:
        """Give the cache keys and values that have room and never move: the ones already here, if
        no other cache is using them."""
        rows, width = len(cache.lengths), cache.width
        # Doubling, as the cache itself does: a limit of many tokens costs nothing at first.
        doubled = max(2 * width, FIRST_CAPACITY)
        capacity = round_up_slots(max(width + 1, min(doubled, cache.max_length or doubled)))
        reusable = self.cache_in_use() in (None, cache) and bool(self.keys)
        if not reusable or rows > len(self.lengths) or capacity > self.keys[0].shape[2]:
            self._make_room(cache, rows, capacity)
        for ours, theirs in ((self.keys, cache.keys), (self.values, cache.values)):
            for layer, (store, old) in enumerate(zip(ours, theirs, strict=True)):
                store.zero_()
                store[:rows, :, :width] = old[:, :, :width]
                theirs[layer] = store[:rows]
        self.cache_in_use = weakref.ref(cache)

    def _make_room(self, cache: KVCache, rows: int, capacity: int) -> None:
        """Make tensors for new recordings; frees those of earlier recordings."""
        device = cache.lengths.device
        self.recordings, self.keys, self.values = {}, [], []
        self.record = self.new_recorder(device)
        for ours, theirs in ((self.keys, cache.keys), (self.values, cache.values)):
            ours += [old.new_empty(rows, old.shape[1], capacity, old.shape[3]) for old in theirs]
        self.tokens = torch.zeros(rows, dtype=torch.long, device=device)
        self.lengths = torch.zeros_like(self.tokens)
        self.numbers = torch.arange(max(rows, capacity), device=device)
        # The model's own tables, whatever its angles are: (1, capacity, 1, head_dim).
        positions, dtype = self.numbers[None, :capacity], self.model.tok_emb.weight.dtype
        plan = self.model._plan(positions, None, dtype)
        self.cos, sin = plan.cos[0, :, 0], plan.sin[0, :, 0]  # (capacity, head_dim)
        self.sin = torch.cat([-sin[:, : sin.shape[1] // 2], sin[:, sin.shape[1] // 2 :]], dim=1)
        self.blocks = self.blocks or [block_weights(block) for block in self.model.trf_blocks]
        self.outer_weights, self.weight_addresses = self._outer_weights(), self._weight_addresses()

    @torch.no_grad()
    def _step(self, rows: int, width: int, block_step: Callable) -> Tensor:
        """What is recorded: logits (rows, V), from the tensors of this decoder alone."""
        slots, (embedding, last_norm, head) = self.lengths[:rows], self.outer_weights
        hidden = self.numbers[:width] > slots[:, None, None, None]  # (rows, 1, 1, width)
        x = F.embedding(self.tokens[:rows], embedding)  # (rows, D)
        mask = torch.zeros_like(hidden, dtype=x.dtype).masked_fill_(hidden, -torch.inf)
        cos, sin = (F.embedding(slots, table)[:, None] for table in (self.cos, self.sin))
        step = Step(self.numbers[:rows], slots, cos, sin, mask)
        for block, keys, values in zip(self.blocks, self.keys, self.values, strict=True):
            x = block_step(x, block, keys[:rows], values[:rows], step)
        return head(last_norm(x))


class RecordedDraw(NamedTuple):
    """A recording of sample_next_token, and the tensors that it reads."""

    play: Callable[[], tuple[Draw, Tensor | None]]  # also for which rows the draw is valid, (B,)
    logits: Tensor  # (B, V)
    u: Tensor  # (B,)


class GraphDraw:
    """sample_next_token from recordings: some sixty operations, more than half for the cut."""

    def __init__(self, record: Callable | None = None) -> None:
        self.record, self.failed = record, False
        self.recordings: dict[tuple, RecordedDraw] = {}
        self.max_rows = 0

    def __call__(self, logits: Tensor, u: Tensor, *policy, keeps: bool = False) -> Draw:
        """`policy` is what sample_next_token takes after logits (B, V) and u (B,), which is 0 for
        a row without a rollout. The draw has `weights` (B, V), which are as large as the logits,
        only if `keeps`."""
        if self.failed:
            return sample_next_token(logits, u, *policy)
        self.max_rows = max(self.max_rows, len(logits))
        rows = rows_to_compute(len(logits), self.max_rows)
        try:
            draw, suffices = self._draw(
                logits, u, rows, policy, may_cut_among_largest(logits, *policy)
            )
            # This waits for the GPU.
            if suffices is not None and not (suffices[: len(u)] | (u == 0)).all():
                draw, _ = self._draw(logits, u, rows, policy, False)
        except Exception as error:  # as in GraphDecoder
            self.failed, self.recordings = True, {}
            warn_once("draws cannot be recorded and are slower", in_one_line(error))
            return sample_next_token(logits, u, *policy)
        # Copies: a few draws are looked at together, and the next one overwrites this.
        *drawn, weights = draw
        drawn.append(weights if keeps else None)
        return Draw(*(None if x is None else x[: len(logits)].clone() for x in drawn))

    def _draw(
        self, logits: Tensor, u: Tensor, rows: int, policy: tuple, among_largest: bool
    ) -> tuple:
        """The draw, cut among all or only the largest entries; and where these suffice (B,)."""
        key = rows, policy, among_largest
        if key not in self.recordings:
            self.recordings[key] = self._record(logits, u, *key)
        recorded = self.recordings[key]
        recorded.logits[: len(logits)].copy_(logits)
        recorded.u[: len(u)].copy_(u)
        return recorded.play()

    @torch.no_grad()
    def _record(
        self, logits: Tensor, u: Tensor, rows: int, policy: tuple, among_largest: bool
    ) -> RecordedDraw:
        recorded_logits = logits.new_zeros(rows, logits.shape[1])
        recorded_u = u.new_full((rows,), 0.5)
        temperature, top_p, top_k, exact = policy
        suffices: list[Tensor] = []

        def cut(probs: Tensor, top_p: float, top_k: int) -> Tensor:
            weights, enough = cut_among_the_largest(probs, top_p, top_k, GPU_CANDIDATES)
            suffices.append(enough)
            return weights

        def step() -> tuple[Draw, Tensor | None]:
            suffices.clear()
            chosen_cut = cut if among_largest else exact
            draw = sample_next_token(
                recorded_logits, recorded_u, temperature, top_p, top_k, chosen_cut
            )
            return draw, (suffices[0] if among_largest else None)

        self.record = self.record or Recorder(logits.device)
        return RecordedDraw(self.record(step), recorded_logits, recorded_u)


def may_cut_among_largest(
    logits: Tensor, temperature: float, top_p: float, top_k: int, cut: Callable
) -> bool:
    """Whether there is a cut, and it may fall among the largest entries of a much longer row."""
    has_cut = temperature > 0 and (top_p < 1 or top_k > 0)
    return has_cut and top_k < GPU_CANDIDATES and logits.shape[1] > 8 * GPU_CANDIDATES
