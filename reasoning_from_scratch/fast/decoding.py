"""For sampling: prompts without padding, on a CPU decoding steps in C, on a GPU recorded ones.

sampling.py computes with a decoder: an object that reads prompts with `fill_cache`, as the model
does, and is called for each step after that, one token per row. By default that is the model
itself; `decoder_for` chooses one that gives the same numbers faster, apart from rounding. On a CPU
decode_library.py compiles decode.c once per processor and number format, in a few seconds, into
the user's cache folder. On a GPU graphs.py records steps and plays them back. The model's own
operations take the steps for models that neither knows, without a C compiler on a CPU, and without
enough memory on a GPU.

In bfloat16, rounding shows in the answers. For small random models, the model's own logits differ
from those in float64 by 0.3 to 0.6% of their spread; decode.c's differ as much, but in other
directions. Two tokens whose logits are closer than that may swap places, and the answer differs
from there on. With either, about 70% of the greedy answers of 60 tokens are the same as in
float64, and 30% of those sampled at temperature 1.
"""

import ctypes
import logging
import math
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from threading import Lock
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast.bursts import BurstBatch
from reasoning_from_scratch.fast.decode_library import (
    FLAGS_BY_DTYPE,
    LibraryUnavailable,
    cached_library,
)
from reasoning_from_scratch.fast.device import NARROW, seeded_model
from reasoning_from_scratch.fast.graphs import GraphDecoder, GraphDraw
from reasoning_from_scratch.fast.memory import manage_memory
from reasoning_from_scratch.fast.neighbors import watch_neighbors
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
from reasoning_from_scratch.sampling import Draw, RunningBatch, sample_next_token

log = logging.getLogger("reasoning_from_scratch")


# Packing the weights, or recording, costs as much as it saves in about this many steps.
MIN_STEPS = 32
WIDE_VOCABULARY = 8192  # tokens of a vocabulary; from a smaller one, torch draws in next to no time


def decoder_for(
    model: Qwen3Model, rows: int, steps: int, compiled: bool = False
) -> "Decoder | GraphDecoder":
    """The fastest decoder for batches of at most `rows` rows and about `steps` steps. `compiled`:
    on a GPU, torch.compile compiles the steps before they are recorded, which takes a while."""
    fallback, gpu = Decoder(model), on_gpu(model)
    if on_cpu(model):
        manage_memory()
        watch_neighbors()
    if steps < MIN_STEPS or not (gpu or on_cpu(model)):
        return fallback
    reason = reason_against_graphs(model) if gpu else reason_against_decode_c(model)
    if reason:
        log_once(f"sampling takes the model's own steps, several times slower, since {reason}")
        return fallback
    if gpu:
        return GraphDecoder(fallback, compiled=compiled)
    library = load_library(model.tok_emb.weight.dtype)
    return CompiledDecoder(model, library) if library else fallback


def int8_decoder_for(model: Qwen3Model, rows: int, steps: int) -> "CompiledDecoder":
    """For runs that sample in 8 bits: however short the job."""
    library = library_for_int8(model)
    return CompiledDecoder(model, library, int8=True)


def library_for_int8(model: Qwen3Model) -> ctypes.CDLL:
    """decode.c, or a UserError that says why this model cannot be sampled in 8 bits here: there is
    no other way to do it."""
    device = model.tok_emb.weight.device.type
    reason = f"the model is on {device}, and 8 bits are for a CPU" if device != "cpu" else None
    if reason := reason or reason_against_decode_c(model):
        raise UserError(f"--sampling-weights int8 does not work here: {reason}; drop it")
    library = load_library(model.tok_emb.weight.dtype)
    if library is None:
        raise UserError(
            "--sampling-weights int8 needs decode.c, which is not there (the warning above says "
            "why): drop it, or mend that"
        )
    return library


@cache
def log_once(line: str) -> None:
    log.warning(line)


def draw_for(model: Qwen3Model, rows: int, steps: int, keeps: bool = False) -> Callable:
    """Recorded draws if decoding steps are recorded; for a wide vocabulary on a CPU, draws in C.
    `keeps`: also return what top-p kept."""
    if steps >= MIN_STEPS and on_gpu(model) and reason_against_graphs(model) is None:
        return partial(GraphDraw(), keeps=keeps)
    weight = model.tok_emb.weight
    if on_cpu(model) and weight.dtype in FLAGS_BY_DTYPE and len(weight) >= WIDE_VOCABULARY:
        return partial(draw_in_c, keeps=keeps)
    return sample_next_token


def batch_for(model: Qwen3Model) -> type[RunningBatch]:
    """The class for a running batch: on a CPU, looking at each token is free."""
    return RunningBatch if on_cpu(model) else BurstBatch


class RecordingCache:
    """The recordings of a run, which samples with the same model in every step. They keep their
    memory until something else needs it."""

    def __init__(self, compiled: bool = False) -> None:
        self.compiled, self.enabled = compiled, True
        self.cached: tuple[GraphDecoder, GraphDraw] | None = None

    def decoder(self, model: Qwen3Model, rows: int, steps: int) -> "Decoder | GraphDecoder":
        new = decoder_for(model, rows, steps, self.compiled)
        if not (self.enabled and isinstance(new, GraphDecoder)):
            return new
        cached = self.cached  # another thread may change it meanwhile
        if cached is None or cached[0].failed or cached[0].model is not model:
            cached = self.cached = new, GraphDraw()
        else:
            cached[0].renew()
        return cached[0]

    def draw(self, model: Qwen3Model, rows: int, steps: int, keeps: bool = False) -> Callable:
        """Another model, which may be sampling in another thread, gets separate draws."""
        draw, cached = draw_for(model, rows, steps, keeps), self.cached
        if draw is sample_next_token or cached is None or cached[0].model is not model:
            return draw
        return partial(cached[1], keeps=keeps)

    def free_memory(self) -> bool:
        """Keep nothing from now on. Returns False if nothing was kept."""
        cached, self.cached, self.enabled = self.cached, None, False
        return cached is not None


def on_gpu(model: Qwen3Model) -> bool:
    return model.tok_emb.weight.device.type == "cuda"


def on_cpu(model: Qwen3Model) -> bool:
    return model.tok_emb.weight.device.type == "cpu"


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
    return torch_threads(1 if model.cfg["emb_dim"] < NARROW else torch.get_num_threads())


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
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
        attended = attention(rows.transpose(1, 2), keys, values, self.mask)  # (B, T, heads * hd)
        return attended[self.real][None]


def prompt_plan(model: Qwen3Model, cache: KVCache, attention_mask: Tensor) -> PromptPlan:
    """The plan for prompts that continue what the cache already holds for each row."""
    cache.start_rows(len(attention_mask), attention_mask.device)
    row, column = attention_mask.bool().nonzero(as_tuple=True)
    count = attention_mask.long().cumsum(dim=1)  # (B, T) real tokens up to each
    positions = cache.lengths[:, None] + (count - 1).clamp(min=0)  # (B, T)
    width = int((cache.lengths + count[:, -1]).max())
    hidden = torch.arange(width, device=positions.device) > positions[:, None, :, None]
    dtype, new_positions = model.tok_emb.weight.dtype, positions[row, column][None]  # (1, N)
    mask = torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, -torch.inf)
    cos, sin = rope_tables(new_positions[:, :, None], model.cfg, dtype)
    return PromptPlan(cos, sin, mask, width, (row[None], new_positions), (row, column))


# --- the model in decode.c's structures ---


C_TYPES = {"pointers": ctypes.c_void_p, "integers": ctypes.c_int64, "numbers": ctypes.c_double}


def _fields(kind: str | type, names: str) -> list[tuple[str, type]]:
    """Fields of one kind, in the order of decode.c."""
    return [(name, C_TYPES[kind] if isinstance(kind, str) else kind) for name in names.split()]


class Matrix(ctypes.Structure):
    _fields_ = [
        *_fields("integers", "outputs inputs"),
        *_fields("pointers", "weights int8 bias"),
        *_fields("integers", "rank"),
        *_fields("pointers", "lora_a lora_b"),
        *_fields("numbers", "scale"),
    ]


class Layer(ctypes.Structure):
    _fields_ = [
        *_fields(Matrix, "qkv out gate_up down"),
        *_fields("pointers", "norm_1 norm_2 query_norm key_norm keys values"),
    ]


class Model(ctypes.Structure):
    _fields_ = [
        *_fields("integers", "layers emb heads groups head_dim hidden vocab"),
        *_fields("numbers", "eps"),
        *_fields("pointers", "embedding final_norm"),
        *_fields(Matrix, "head"),
        *_fields("pointers", "layer"),
        *_fields("integers", "rank"),
    ]


class Step(ctypes.Structure):
    _fields_ = [
        *_fields("integers", "rows capacity threads shared"),
        *_fields("pointers", "tokens positions cos sin logits"),
    ]


class Drawing(ctypes.Structure):
    _fields_ = [
        *_fields("integers", "rows vocab threads top_k"),
        *_fields("numbers", "temperature top_p"),
        *_fields("pointers", "logits uniform tokens logprobs entropies kept counts"),
    ]


class Attention(ctypes.Structure):
    _fields_ = [
        *_fields("integers", "rows heads groups queries keys size threads"),
        *_fields("numbers", "scale"),
        *_fields("pointers", "starts asked arriving known to_asked to_known"),
    ]


MODEL_CLASSES = {Qwen3Model, nn.ModuleList, TransformerBlock, GroupedQueryAttention, FeedForward}


def reason_against_decode_c(model: Qwen3Model) -> str | None:
    """Why decode.c cannot compute this model, or None: it computes exactly our class, of any
    family, with or without LoRA, with weights on the CPU and sizes that fill registers."""
    leaves = [part for part in model.modules() if not list(part.children())]
    containers = {type(part) for part in model.modules()} - {type(part) for part in leaves}
    if type(model) is not Qwen3Model or containers - MODEL_CLASSES:
        return "it is not a plain Qwen3Model"
    if has_hooks(model):
        return "a hook waits for its layers to be called"
    attention_parts = [block.att for block in model.trf_blocks]
    head_norms = [norm for att in attention_parts for norm in (att.q_norm, att.k_norm)]
    identities = [norm for norm in head_norms if type(norm) is nn.Identity]
    qkv = [m for att in attention_parts for m in (att.W_query, att.W_key, att.W_value)]
    norms = [part for part in leaves if is_plain_norm(part)]
    weights, dtype = list(model.parameters()), model.tok_emb.weight.dtype
    matrices: list[Any] = [p for p in leaves if type(p) is nn.Linear or type(p) is nn.Embedding]
    matrices += [part for part in leaves if has_lora(part)]
    if not (
        len(norms) + len(matrices) + len(identities) == len(leaves)
        and len(identities) in (0, 2 * len(attention_parts))
        and len({norm.eps for norm in norms}) == 1
        and len({part.bias is None for part in qkv}) == 1
        and all(getattr(part, "bias", None) is None for part in matrices if part not in qkv)
        and all(
            len({scale_of(m) for m in parts if has_lora(m)}) <= 1 for parts in fused_matrices(model)
        )
    ):
        return "its layers have parts that Qwen3, Qwen2.5 and Llama do not have"
    if any(weight.device.type != "cpu" or weight.dtype != dtype for weight in weights):
        return "its weights are in several places or number formats"
    if dtype not in FLAGS_BY_DTYPE:
        return f"its weights are in {str(dtype).removeprefix('torch.')}"
    sizes = {size for part in matrices for size in part.weight.shape}
    if any(size % 32 for size in sizes) or model.cfg["head_dim"] % REGISTER_SIZE[dtype]:
        return "its sizes are no multiples of 32, which fill a processor's registers"
    return None


REGISTER_SIZE = {torch.float32: 16, torch.bfloat16: 32}  # numbers of a head that are taken together


def fused_matrices(model: Qwen3Model) -> list[tuple[nn.Module, ...]]:
    """The matrices that decode.c multiplies as one, because their inputs are the same."""
    blocks = [(block.att, block.ff) for block in model.trf_blocks]
    by_block = [((a.W_query, a.W_key, a.W_value), (f.fc1, f.fc2)) for a, f in blocks]
    return [matrices for fused in by_block for matrices in fused]


def has_lora(part: nn.Module) -> bool:
    """Whether it is what optim/lora.py puts in place of a linear layer."""
    return hasattr(part, "lora_A")


def scale_of(lora: Any) -> float:
    return lora.alpha / lora.rank


def reason_against_graphs(model: Qwen3Model) -> str | None:
    """Why graphs.py cannot record this model, or None: it records any of our dense models, with or
    without LoRA, whose weights are all on one device."""
    parts = list(model.modules())
    lora = [part for part in parts if has_lora(part)]
    known_classes = {
        *MODEL_CLASSES,
        nn.Linear,
        nn.Embedding,
        nn.Identity,
        *{type(part) for part in lora},
    }
    if type(model) is not Qwen3Model:
        return "it is not a plain Qwen3Model"
    if has_hooks(model):
        return "a hook waits for its layers to be called"
    if not all(type(part) in known_classes or is_plain_norm(part) for part in parts):
        return "its layers have parts that Qwen3, Qwen2.5 and Llama do not have"
    if len(lora) not in (0, 7 * len(model.trf_blocks)):
        return "its LoRA is on some of the blocks' matrices and not on others"
    if len({(weight.device, weight.dtype) for weight in model.parameters()}) != 1:
        return "its weights are in several places or number formats"
    return None


def is_plain_norm(norm: nn.Module) -> TypeGuard[RMSNorm]:
    return type(norm) is RMSNorm and norm.qwen3_compatible and norm.shift is None


def has_hooks(model: Qwen3Model) -> bool:
    """Hooks run when their module is called, but decode.c and recordings do not call modules."""
    return any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


# Frozen weights, packed: with LoRA, a run packs them once. Each belongs to the first of the weights
# that were packed together, and is valid for one version of all of them. (A run that samples in 8
# bits packs them anew after an evaluation, which does not.) Change frozen weights under
# torch.no_grad(), not through .data, which leaves their version as it was.
PACKED_WEIGHTS: MutableMapping[Tensor, tuple[list, Tensor]] = WeakIdKeyDictionary()


def int8_bytes(inputs: int) -> int:
    """Bytes of an output's weights in 8 bits: one each, and a float for each of decode.c's blocks,
    which have 128 inputs or, where that does not divide them, 64 or 32."""
    return inputs + 4 * inputs // math.gcd(inputs, 128)


class CompiledDecoder(Decoder):
    """Takes decoding steps in C. It packs the weights anew unless they are frozen, so each update
    needs a new one. LoRA's small matrices are not merged: bfloat16 would round them away.

    With `int8` it rounds the matrices of layers and head to 8 bits as it packs them; embeddings,
    norms, attention and LoRA stay as they are."""

    def __init__(self, model: Qwen3Model, library: ctypes.CDLL, int8: bool = False) -> None:
        super().__init__(model)
        self.library, self.uses_c, self.int8 = library, True, int8
        self.kept_alive: list[Tensor] = []  # C points into these
        self.pack_calls: list[Callable[[], None]] = []  # calls of C, made together at the end
        self.newly_packed: list[tuple[Tensor, tuple[list, Tensor]]] = []  # for PACKED_WEIGHTS
        self.layers = (Layer * len(model.trf_blocks))(*map(self._layer, model.trf_blocks))
        block, size, embedding = model.trf_blocks[0], model.cfg["head_dim"], model.tok_emb.weight
        heads, groups = (len(x.weight) // size for x in (block.att.W_query, block.att.W_key))
        matrices = [getattr(x, n) for x in self.layers for n in ("qkv", "out", "gate_up", "down")]
        self.weights = Model(
            len(self.layers),
            embedding.shape[1],
            heads,
            groups,
            size,
            len(block.ff.fc1.weight),
            len(model.out_head.weight),
            model.final_norm.eps,
            self._keep_alive(embedding.detach()),
            self._norm_scale(model.final_norm),
            self._matrix(model.out_head),
            ctypes.addressof(self.layers),
            max(matrix.rank for matrix in matrices),
        )
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            list(pool.map(lambda pack: pack(), self.pack_calls))
        for weight, packed in self.newly_packed:  # not earlier: another thread may look for them
            PACKED_WEIGHTS[weight] = packed

    def _layer(self, block: TransformerBlock) -> Layer:
        att, ff = block.att, block.ff
        norms = (block.norm1, block.norm2, att.q_norm, att.k_norm)
        matrices = (
            self._matrix(att.W_query, att.W_key, att.W_value),
            self._matrix(att.out_proj),
            self._matrix(ff.fc1, ff.fc2, interleaved=True),
            self._matrix(ff.fc3),
        )
        return Layer(*matrices, *map(self._norm_scale, norms))

    def _keep_alive(self, tensor: Tensor) -> int:
        self.kept_alive.append(tensor.contiguous())
        return self.kept_alive[-1].data_ptr()

    def _norm_scale(self, norm: nn.Module) -> int | None:
        return self._keep_alive(norm.scale.detach().float()) if isinstance(norm, RMSNorm) else None

    def _matrix(self, *linears: Any, interleaved: bool = False) -> Matrix:
        """Matrices with the same inputs become one: the strips of several follow each other or,
        if `interleaved`, alternate."""
        weights = [linear.weight.detach() for linear in linears]
        outputs, inputs = sum(map(len, weights)), weights[0].shape[1]
        biases = [linear.bias for linear in linears]
        bias = None if biases[0] is None else self._keep_alive(torch.cat(biases).detach().float())
        # Weights made in torch.inference_mode() have no version: they are packed each time, too.
        frozen = not any(x.weight.requires_grad or x.weight.is_inference() for x in linears)
        pointer = (
            self._pack_once(linears, interleaved)
            if frozen
            else self._pack_all(weights, interleaved)
        )
        weight_pointers = (None, pointer) if self.int8 else (pointer, None)
        lora = self._lora([x if has_lora(x) else None for x in linears], weights, interleaved)
        return Matrix(outputs, inputs, *weight_pointers, bias, *lora)

    def _pack_once(self, linears: Sequence[Any], interleaved: bool) -> int:
        """A snapshot may overwrite frozen weights; then their version changes."""
        key = linears[0].weight
        versions = [(linear.weight.data_ptr(), linear.weight._version) for linear in linears]
        state = [self.library, self.int8, *versions]
        packed_state, packed = PACKED_WEIGHTS.get(key, (None, None))
        if packed_state != state:
            self._pack_all([linear.weight.detach() for linear in linears], interleaved)
            packed = self.kept_alive[-1]
            self.newly_packed.append((key, (state, packed)))
        return self._keep_alive(packed)

    def _pack_all(self, weights: Sequence[Tensor], interleaved: bool) -> int:
        if not self.int8:
            return self._pack(weights, interleaved)
        outputs, inputs = sum(map(len, weights)), weights[0].shape[1]
        packed = torch.empty(outputs * int8_bytes(inputs), dtype=torch.uint8)
        return self._pack_into(packed, self.library.pack_int8, weights, interleaved)

    def _pack(self, weights: Sequence[Tensor], interleaved: bool = False) -> int:
        packed = weights[0].new_empty(sum(weight.numel() for weight in weights))
        return self._pack_into(packed, self.library.pack, weights, interleaved)

    def _pack_into(
        self, packed: Tensor, pack: Callable, weights: Sequence[Tensor], interleaved: bool
    ) -> int:
        first = 0
        for weight in weights:
            stride = len(weights) if interleaved else 1
            arguments = self._keep_alive(weight), *weight.shape, packed.data_ptr(), first, stride
            self.pack_calls.append(partial(pack, *arguments))
            first += 1 if interleaved else len(weight) // self.library.lanes()
        return self._keep_alive(packed)

    def _lora(self, layers: Sequence[Any], weights: Sequence[Tensor], interleaved: bool) -> tuple:
        """Rank, A, B and scale of matrices that become one, as one: rows of A follow each other;
        B has zeros where an output belongs to another matrix. The rank grows to whole tiles."""
        ranks = [layer.rank if layer else 0 for layer in layers]
        if not any(ranks):
            return 0, None, None, 0.0
        rank = -(-sum(ranks) // 32) * 32
        a = weights[0].new_zeros(rank, weights[0].shape[1])
        bs = [weight.new_zeros(len(weight), rank) for weight in weights]
        first = 0
        for layer, layer_rank, b in zip(layers, ranks, bs, strict=True):
            if layer:
                a[first : first + layer_rank] = layer.lora_A.detach()
                b[:, first : first + layer_rank] = layer.lora_B.detach()
            first += layer_rank
        scale = next(scale_of(layer) for layer in layers if layer)
        return rank, self._pack([a]), self._pack(bs, interleaved), scale

    def __call__(self, in_idx: Tensor, cache: KVCache) -> Tensor:
        if self.uses_c:
            try:
                return self.decode(in_idx, cache)
            except MemoryError as error:
                log.warning("%s; torch takes over", error)
                self.uses_c = False
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
        capacity, shared = cache.keys[0].shape[2], cache.shared_slots // 16 * 16  # whole tiles
        step = Step(len(in_idx), capacity, torch.get_num_threads(), shared, *pointers)
        if self.library.decode(ctypes.byref(self.weights), ctypes.byref(step)):
            raise MemoryError("decode.c found no memory for a decoding step")
        cache.advance(1)
        return logits


# --- drawing tokens in C ---


class CompiledDraw(NamedTuple):
    """sampling.Draw without its weights."""

    tokens: Tensor  # (B,)
    logprobs: Tensor  # (B,)
    entropies: Tensor  # (B,)
    kept: list[list[int]] | None  # per row, the tokens that top-p and top-k kept

    def kept_ids(self) -> list[list[int]]:
        return self.kept or [[] for _ in self.tokens]


def draw_in_c(
    logits: Tensor,
    u: Tensor,
    temperature: float,
    top_p: float,
    top_k: int,
    cut: Callable,
    keeps: bool = False,
) -> "CompiledDraw | Draw":
    """sampling.sample_next_token for rows of a wide vocabulary (B, V), without float32 copies."""
    library = load_library(logits.dtype)
    if library is None:
        return sample_next_token(logits, u, temperature, top_p, top_k, cut)
    rows, vocab = logits.shape
    logits, u = logits.contiguous(), u.contiguous()
    tokens = torch.empty(rows, dtype=torch.long)
    logprobs, entropies = (torch.empty(rows, dtype=torch.float32) for _ in range(2))
    returns_kept = keeps and temperature > 0 and (top_p < 1 or top_k > 0)
    kept = torch.empty(rows, vocab, dtype=torch.int32) if returns_kept else None  # mostly untouched
    counts = torch.empty(rows, dtype=torch.long) if returns_kept else None
    tensors = (logits, u, tokens, logprobs, entropies, kept, counts)
    drawing = Drawing(
        rows,
        vocab,
        torch.get_num_threads(),
        top_k,
        temperature,
        top_p,
        *(None if tensor is None else tensor.data_ptr() for tensor in tensors),
    )
    if library.draw(ctypes.byref(drawing)):
        raise MemoryError("decode.c found no memory for drawing tokens")
    ids = None
    if returns_kept:
        ids = [row[:count].tolist() for row, count in zip(kept, counts.tolist(), strict=True)]
    return CompiledDraw(tokens, logprobs, entropies, ids)


# --- the library ---

LIBRARY_LOCK = Lock()  # a sampler beside the trainer (scale/lag.py) may want the library, too


@cache
def load_library(dtype: torch.dtype) -> ctypes.CDLL | None:
    """decode.c for models of this number format, or None; then the log says why."""
    try:
        with LIBRARY_LOCK:
            return cached_library(dtype, partial(logit_differences, dtype=dtype))
    except LibraryUnavailable as error:
        log.warning("sampling is several times slower without decode.c: %s", error)
        return None


@torch.no_grad()
def logit_differences(library: ctypes.CDLL, dtype: torch.dtype) -> dict[torch.dtype, float]:
    """How far its logits are from torch's, for a small model of each kind: with weights in this
    number format, and in 8 bits."""
    kinds: tuple[dict, ...] = ({}, {"qk_norm": False, "qkv_bias": True})
    models = [seeded_model(**kind).to(dtype) for kind in kinds]
    return {
        weights: max(
            max_logit_difference(CompiledDecoder(model, library, int8)) for model in models
        )
        for weights, int8 in ((dtype, False), (torch.int8, True))
    }


def max_logit_difference(decoder: CompiledDecoder) -> float:
    model, results = decoder.model, []
    ids = torch.arange(24).view(3, 8)  # (B, T)
    for decode, count in ((model, 1), (decoder.decode, 1), (decoder.decode, 3)):
        cache = KVCache(n_layers=2)
        model.fill_cache(ids, cache)
        with torch_threads(count):
            results.append(decode(ids[:, :1], cache=cache).float())  # (B, 1, V)
    expected, *computed = results
    return (torch.stack(computed) - expected).abs().max().item()
