"""For sampling: prompts without padding, on a CPU decoding steps in C, on a GPU recorded ones.

sampling.py computes with a decoder: an object that reads prompts with `fill_cache`, as the model
does, and is called for each step after that, one token per row. By default that is the model
itself; `decoder_for` chooses one that gives the same numbers faster, apart from rounding. On a CPU
decode_library.py compiles decode.c once per processor and number format, in a few seconds, into
the user's cache folder. On a GPU graphs.py records steps and plays them back. The model's own
operations take the steps for models that neither knows, without a C compiler on a CPU, and without
enough memory on a GPU.

In bfloat16, rounding shows in the answers. For small random models, the model's own logits differ
from those in float64 by 0.3 to 0.6 % of their spread; decode.c's differ as much, but in other
directions. Two tokens whose logits are closer than that may swap places, and the answer differs
from there on. With either, about 70 % of the greedy answers of 60 tokens are the same as in
float64, and 30 % of those sampled at temperature 1.
"""

import ctypes
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from threading import Lock
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor, nn

from reasoning_from_scratch.fast.bursts import BurstBatch
from reasoning_from_scratch.fast.decode_library import NoLibrary, kept_library
from reasoning_from_scratch.fast.device import seeded_model
from reasoning_from_scratch.fast.graphs import GraphDecoder, GraphDraw
from reasoning_from_scratch.qwen3 import (
    FeedForward,
    GroupedQueryAttention,
    KVCache,
    Qwen3Model,
    RMSNorm,
    TransformerBlock,
    attention,
    rope_tables,
)
from reasoning_from_scratch.sampling import RunningBatch, sample_next_token

log = logging.getLogger("reasoning_from_scratch")


# Packing the weights, or recording, costs as much as it saves in about this many steps.
FEWEST_STEPS = 32
NARROW = 512  # features; Qwen3-0.6B has 1,024


def decoder_for(
    model: Qwen3Model, rows: int, steps: int, compiled: bool = False
) -> "Decoder | GraphDecoder":
    """The fastest decoder for batches of at most `rows` rows and about `steps` steps. `compiled`:
    on a GPU, torch.compile compiles the steps before they are recorded, which takes a while."""
    plain = Decoder(model)
    if steps < FEWEST_STEPS:
        return plain
    if on_gpu(model) and fits_graphs(model):
        return GraphDecoder(plain, compiled=compiled)
    library = load_library(model.tok_emb.weight.dtype) if fits_decode_c(model) else None
    return CompiledDecoder(model, library) if library else plain


def draw_for(model: Qwen3Model, rows: int, steps: int, keeps: bool = False) -> Callable:
    """Recorded draws if decoding steps are recorded. `keeps`: also return what top-p kept."""
    recorded = steps >= FEWEST_STEPS and on_gpu(model) and fits_graphs(model)
    return partial(GraphDraw(), keeps=keeps) if recorded else sample_next_token


def batch_for(model: Qwen3Model) -> type[RunningBatch]:
    """What holds the rollouts that are being sampled; looking at each token is free on a CPU."""
    return RunningBatch if model.tok_emb.weight.device.type == "cpu" else BurstBatch


class KeptRecordings:
    """For a run, which samples with the same model in every step: keeps its recordings, and their
    memory until something else needs that."""

    def __init__(self, compiled: bool = False) -> None:
        self.compiled, self.keeps = compiled, True
        self.kept: tuple[GraphDecoder, GraphDraw] | None = None

    def decoder(self, model: Qwen3Model, rows: int, steps: int) -> "Decoder | GraphDecoder":
        new = decoder_for(model, rows, steps, self.compiled)
        if not (self.keeps and isinstance(new, GraphDecoder)):
            return new
        kept = self.kept  # another thread may change it meanwhile
        if kept is None or kept[0].failed or kept[0].model is not model:
            kept = self.kept = new, GraphDraw()
        else:
            kept[0].renew()
        return kept[0]

    def draw(self, model: Qwen3Model, rows: int, steps: int, keeps: bool = False) -> Callable:
        """Another model, which may be sampling in another thread, gets separate draws."""
        draw, kept = draw_for(model, rows, steps, keeps), self.kept
        if draw is sample_next_token or kept is None or kept[0].model is not model:
            return draw
        return partial(kept[1], keeps=keeps)

    def let_go(self) -> bool:
        """Keep nothing from now on. Returns False if nothing was kept."""
        kept, self.kept, self.keeps = self.kept, None, False
        return kept is not None


def on_gpu(model: Qwen3Model) -> bool:
    return model.tok_emb.weight.device.type == "cuda"


class Decoder:
    """Reads prompts without their padding, and takes the model's own decoding steps."""

    def __init__(self, model: Qwen3Model) -> None:
        self.model = model

    def fill_cache(
        self, in_idx: Tensor, cache: KVCache, attention_mask: Tensor | None = None
    ) -> None:
        """`model.fill_cache`, but it computes only the real tokens of padded prompts (B, T)."""
        if attention_mask is None:
            self.model.fill_cache(in_idx, cache)
        else:
            plan = prompt_plan(self.model, cache, attention_mask)
            self.model.fill_cache(in_idx[plan.real][None], cache, attention_mask, plan)

    def __call__(self, in_idx: Tensor, cache: KVCache) -> Tensor:
        """Read the next tokens (B, 1); returns the logits (B, 1, V) of the ones after them."""
        return self.model(in_idx, cache=cache)


def decoding_threads(model: Qwen3Model) -> AbstractContextManager:
    """Decoding with a small model takes thousands of small matrix products. Two threads are no
    faster at it than one, and twenty times slower if another program needs a core: they wait for
    each other at every product."""
    return threads(1 if model.cfg["emb_dim"] < NARROW else torch.get_num_threads())


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class PromptPlan(NamedTuple):
    """The model's AttentionPlan for the N real tokens of padded prompts (B, T).

        in_idx    [a a a .]        read as (1, N)    [a a a b b b b]
                  [b b b b]

    Each token is computed by itself, without padding; only attention puts rows together again.
    """

    cos: Tensor  # (1, N, 1, head_dim)
    sin: Tensor
    mask: Tensor  # (B, 1, T, S)
    width: int  # S
    slots: tuple[Tensor, Tensor]  # in the cache: rows and slots, both (1, N)
    real: tuple[Tensor, Tensor]  # in the prompts: rows and columns, both (N,)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Queries (1, heads, N, head_dim), keys and values (B, kv groups, S, head_dim) ->
        (1, N, heads * head_dim)."""
        batch, _, length, _ = self.mask.shape
        rows = queries.new_zeros(batch, length, queries.shape[1], queries.shape[3])
        rows[self.real] = queries[0].transpose(0, 1)
        found = attention(rows.transpose(1, 2), keys, values, self.mask)  # (B, T, heads * hd)
        return found[self.real][None]


def prompt_plan(model: Qwen3Model, cache: KVCache, attention_mask: Tensor) -> PromptPlan:
    """The plan for prompts that continue what the cache already holds for each row."""
    cache.open(len(attention_mask), attention_mask.device)
    row, column = attention_mask.bool().nonzero(as_tuple=True)
    count = attention_mask.long().cumsum(dim=1)  # (B, T) real tokens up to each
    positions = cache.lengths[:, None] + (count - 1).clamp(min=0)  # (B, T)
    width = int((cache.lengths + count[:, -1]).max())
    hidden = torch.arange(width, device=positions.device) > positions[:, None, :, None]
    dtype, places = model.tok_emb.weight.dtype, positions[row, column][None]  # (1, N)
    mask = torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, -torch.inf)
    cos, sin = rope_tables(places[:, :, None], model.cfg, dtype)
    return PromptPlan(cos, sin, mask, width, (row[None], places), (row, column))


# --- the model, as decode.c takes it ---


def _structure(name: str, **names: str) -> type[ctypes.Structure]:
    """Fields by kind, in the order of decode.c."""
    kinds = {"pointers": ctypes.c_void_p, "integers": ctypes.c_int64, "number": ctypes.c_double}
    fields = [(field, kinds[kind]) for kind, text in names.items() for field in text.split()]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


Layer = _structure(
    "Layer",
    pointers="qkv out gate_up down norm_1 norm_2 query_norm key_norm qkv_bias keys values",
)
Model = _structure(
    "Model",
    integers="layers emb heads groups head_dim hidden vocab",
    number="eps",
    pointers="embedding final_norm head layer",
)
Step = _structure(
    "Step", integers="rows capacity threads", pointers="tokens positions cos sin logits"
)


KNOWN = {Qwen3Model, nn.ModuleList, TransformerBlock, GroupedQueryAttention, FeedForward}


def fits_decode_c(model: Qwen3Model) -> bool:
    """Whether decode.c computes what this model does: exactly our class, of any family, with its
    weights on the CPU and sizes that fill registers. decode.c gets weights with LoRA merged into
    them, for which only float32 is fine enough: bfloat16 would round LoRA away."""
    leaves = [part for part in model.modules() if not list(part.children())]
    others = {type(part) for part in model.modules()} - {type(part) for part in leaves}
    if type(model) is not Qwen3Model or others - KNOWN or has_hooks(model):
        return False
    attention_parts = [block.att for block in model.trf_blocks]
    absent = [norm for att in attention_parts for norm in (att.q_norm, att.k_norm)]
    absent = [norm for norm in absent if type(norm) is nn.Identity]
    may_add = [m for att in attention_parts for m in (att.W_query, att.W_key, att.W_value)]
    norms = [part for part in leaves if is_plain_norm(part)]
    weights, dtype = list(model.parameters()), model.tok_emb.weight.dtype
    tables: list[Any] = [p for p in leaves if type(p) is nn.Linear or type(p) is nn.Embedding]
    tables += [part for part in leaves if has_lora(part) and dtype == torch.float32]
    sizes = {size for part in tables for size in part.weight.shape}
    return (
        len(norms) + len(tables) + len(absent) == len(leaves)
        and len(absent) in (0, 2 * len(attention_parts))
        and len({norm.eps for norm in norms}) == 1
        and len({part.bias is None for part in may_add}) == 1
        and all(getattr(part, "bias", None) is None for part in tables if part not in may_add)
        and all(weight.device.type == "cpu" and weight.dtype == dtype for weight in weights)
        and all(size % 32 == 0 for size in sizes)
        and model.cfg["head_dim"] % {torch.float32: 16, torch.bfloat16: 32}.get(dtype, 2**30) == 0
        # If a processor can multiply tiles of bfloat16, oneDNN uses that; decode.c does not.
        and not (dtype == torch.bfloat16 and torch.cpu._is_amx_tile_supported())
    )


def has_lora(part: nn.Module) -> bool:
    """Whether it is what optim/lora.py puts in place of a linear layer."""
    return hasattr(part, "lora_A")


def fits_graphs(model: Qwen3Model) -> bool:
    """Whether graphs.py computes what this model does: any of our dense models, with or without
    LoRA, whose weights are all on one device."""
    parts = list(model.modules())
    weights = list(model.parameters())
    lora = [part for part in parts if has_lora(part)]
    known = {*KNOWN, nn.Linear, nn.Embedding, nn.Identity, *{type(part) for part in lora}}
    return (
        type(model) is Qwen3Model
        and all(type(part) in known or is_plain_norm(part) for part in parts)
        and len(lora) in (0, 7 * len(model.trf_blocks))  # all of a block's matrices, or none
        and len({(weight.device, weight.dtype) for weight in weights}) == 1
        and not has_hooks(model)
    )


def is_plain_norm(norm: nn.Module) -> TypeGuard[RMSNorm]:
    return type(norm) is RMSNorm and norm.qwen3_compatible and norm.shift is None


def has_hooks(model: Qwen3Model) -> bool:
    """A hook runs when its module is called. decode.c and recordings do not call modules."""
    return any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


class CompiledDecoder(Decoder):
    """Takes decoding steps in C. It keeps a copy of the weights, so each update needs a new one."""

    def __init__(self, model: Qwen3Model, library: ctypes.CDLL) -> None:
        super().__init__(model)
        self.library, self.in_c = library, True
        self.kept: list[Tensor] = []  # what C points into
        self.packing: list[tuple[int, ...]] = []  # arguments for the calls of pack()
        self.layers = (Layer * len(model.trf_blocks))(*map(self._layer, model.trf_blocks))
        block, size, embedding = model.trf_blocks[0], model.cfg["head_dim"], model.tok_emb.weight
        heads, groups = (len(x.weight) // size for x in (block.att.W_query, block.att.W_key))
        self.weights = Model(
            len(self.layers),
            embedding.shape[1],
            heads,
            groups,
            size,
            len(block.ff.fc1.weight),
            len(model.out_head.weight),
            model.final_norm.eps,
            self._keep(embedding.detach()),
            self._scale(model.final_norm),
            self._pack(model.out_head),
            ctypes.addressof(self.layers),
        )
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            list(pool.map(lambda arguments: library.pack(*arguments), self.packing))

    def _layer(self, block: TransformerBlock) -> ctypes.Structure:
        att, ff = block.att, block.ff
        norms = (block.norm1, block.norm2, att.q_norm, att.k_norm)
        biases = [linear.bias for linear in (att.W_query, att.W_key, att.W_value)]
        bias = None if biases[0] is None else self._keep(torch.cat(biases).detach().float())
        matrices = (
            self._pack(att.W_query, att.W_key, att.W_value),
            self._pack(att.out_proj),
            self._pack(ff.fc1, ff.fc2, in_turn=True),
            self._pack(ff.fc3),
        )
        return Layer(*matrices, *map(self._scale, norms), bias)

    def _keep(self, tensor: Tensor) -> int:
        self.kept.append(tensor.contiguous())
        return self.kept[-1].data_ptr()

    def _scale(self, norm: nn.Module) -> int | None:
        return self._keep(norm.scale.detach().float()) if isinstance(norm, RMSNorm) else None

    def _pack(self, *linears: Any, in_turn: bool = False) -> int:
        """One packed matrix: the strips of several follow each other or, `in_turn`, alternate."""
        weights = [
            (linear.merged_weight() if has_lora(linear) else linear.weight).detach()
            for linear in linears
        ]
        packed = self._keep(weights[0].new_empty(sum(weight.numel() for weight in weights)))
        first = 0
        for weight in weights:
            by = len(weights) if in_turn else 1
            self.packing.append((self._keep(weight), *weight.shape, packed, first, by))
            first += 1 if in_turn else len(weight) // self.library.lanes()
        return packed

    def __call__(self, in_idx: Tensor, cache: KVCache) -> Tensor:
        if self.in_c:
            try:
                return self.decode(in_idx, cache)
            except MemoryError as error:
                log.warning("%s; torch takes over", error)
                self.in_c = False
        return super().__call__(in_idx, cache)

    def decode(self, in_idx: Tensor, cache: KVCache) -> Tensor:
        cache.make_room()
        positions = cache.lengths  # (B,) the slot of each new token
        for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
            layer.keys, layer.values = keys.data_ptr(), values.data_ptr()
        dtype = self.model.tok_emb.weight.dtype
        cos, sin = rope_tables(positions, self.model.cfg, dtype)
        logits = torch.empty(len(in_idx), 1, self.weights.vocab, dtype=dtype)
        tensors = (in_idx.contiguous(), positions, cos, sin, logits)
        pointers = [tensor.data_ptr() for tensor in tensors]
        step = Step(len(in_idx), cache.keys[0].shape[2], torch.get_num_threads(), *pointers)
        if self.library.decode(ctypes.byref(self.weights), ctypes.byref(step)):
            raise MemoryError("decode.c found no memory for a decoding step")
        cache.advance(1)
        return logits


# --- the library ---

MAKING = Lock()  # a sampler beside the trainer (scale/lag.py) may want the library, too


@cache
def load_library(dtype: torch.dtype) -> ctypes.CDLL | None:
    """decode.c for models of this number format, or None; then the log says why."""
    try:
        with MAKING:
            return kept_library(dtype, partial(decoding_difference, dtype=dtype))
    except NoLibrary as error:
        log.warning("sampling is several times slower without decode.c: %s", error)
        return None


@torch.no_grad()
def decoding_difference(library: ctypes.CDLL, dtype: torch.dtype) -> float:
    """How far its logits are from torch's, for a small model of each kind."""
    kinds: tuple[dict, ...] = ({}, {"qk_norm": False, "qkv_bias": True})
    return max(difference_for(library, seeded_model(**kind).to(dtype)) for kind in kinds)


def difference_for(library: ctypes.CDLL, model: Qwen3Model) -> float:
    ids = torch.arange(24).view(3, 8)  # (B, T)
    decoder, found = CompiledDecoder(model, library), []
    for decode, count in ((model, 1), (decoder.decode, 1), (decoder.decode, 3)):
        cache = KVCache(n_layers=2)
        model.fill_cache(ids, cache)
        with threads(count):
            found.append(decode(ids[:, :1], cache=cache).float())  # (B, 1, V)
    wanted, *found = found
    return (torch.stack(found) - wanted).abs().max().item()
