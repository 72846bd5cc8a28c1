"""For sampling on a CPU: decoding steps in C, where this machine has a C compiler.

decode_library.py compiles decode.c once per processor and number format, in a few seconds, into
the user's cache folder. Without a library, and for models that it does not know, there is twin.py.
"""

import ctypes
import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor, nn

from reasoning_from_scratch.fast.decode_library import NoLibrary, load_library, open_library
from reasoning_from_scratch.fast.device import seeded_model, threads
from reasoning_from_scratch.fast.twin import (
    FEWEST_STEPS,
    has_hooks,
    is_plain_norm,
    is_sharded,
    twin_for_decoding,
)
from reasoning_from_scratch.qwen3 import (
    FeedForward,
    GroupedQueryAttention,
    KVCache,
    Qwen3Model,
    TransformerBlock,
    rope_tables,
)

log = logging.getLogger("reasoning_from_scratch")


def decoder_for(model: nn.Module, rows: int, steps: int):
    """What decodes batches of about `rows` rows: decode.c, or a twin, or the model itself."""
    if steps >= FEWEST_STEPS and fits_decode_c(model):
        library = load_library(model.tok_emb.weight.dtype)
        if library:
            return CompiledDecoder(model, library)
    return twin_for_decoding(model, rows, steps)


# --- the model, as decode.c takes it ---


def _structure(name: str, **names: str) -> type[ctypes.Structure]:
    """Fields by kind, in the order of decode.c."""
    kinds = {"pointers": ctypes.c_void_p, "integers": ctypes.c_int64, "number": ctypes.c_double}
    fields = [(field, kinds[kind]) for kind, text in names.items() for field in text.split()]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


Layer = _structure(
    "Layer", pointers="qkv out gate_up down norm_1 norm_2 query_norm key_norm keys values"
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


def fits_decode_c(model: nn.Module) -> bool:
    """Whether decode.c computes what this model does: a Qwen3 as it is, its weights on the CPU,
    its sizes full registers."""
    leaves = [part for part in model.modules() if not list(part.children())]
    others = {type(part) for part in model.modules()} - {type(part) for part in leaves}
    if type(model) is not Qwen3Model or others - KNOWN or is_sharded(model) or has_hooks(model):
        return False
    norms = [part for part in leaves if is_plain_norm(part)]
    tables = [part for part in leaves if type(part) in (nn.Linear, nn.Embedding)]
    weights, dtype = list(model.parameters()), model.tok_emb.weight.dtype
    sizes = {size for part in tables for size in part.weight.shape}
    return (
        len(norms) + len(tables) == len(leaves)
        and len({norm.eps for norm in norms}) == 1
        and all(getattr(part, "bias", None) is None for part in tables)
        and all(weight.device.type == "cpu" and weight.dtype == dtype for weight in weights)
        and all(size % 32 == 0 for size in sizes)
        and model.cfg["head_dim"] % {torch.float32: 16, torch.bfloat16: 32}.get(dtype, 2**30) == 0
        # Where a processor multiplies tiles of bfloat16, oneDNN does, and decode.c does not.
        and not (dtype == torch.bfloat16 and torch.cpu._is_amx_tile_supported())
    )


class CompiledDecoder:
    """Computes what the model it is made of does, one token per row. It keeps a copy of the
    weights, so it is made anew after an update."""

    def __init__(self, model: Qwen3Model, library: ctypes.CDLL) -> None:
        self.original, self.in_c = model, True
        self.library, self.tok_emb, self.cfg = library, model.tok_emb, model.cfg
        self.kept: list[Tensor] = []  # what C points into
        self.packing: list[tuple[int, ...]] = []  # what pack() is to do
        self.layers = (Layer * len(model.trf_blocks))(*map(self._layer, model.trf_blocks))
        block, size, embedding = model.trf_blocks[0], model.cfg["head_dim"], model.tok_emb.weight
        heads, groups = (len(x.weight) // size for x in (block.att.W_query, block.att.W_key))
        self.model = Model(
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

    def _layer(self, block: nn.Module) -> ctypes.Structure:
        att, ff = block.att, block.ff
        norms = (block.norm1, block.norm2, att.q_norm, att.k_norm)
        matrices = (
            self._pack(att.W_query, att.W_key, att.W_value),
            self._pack(att.out_proj),
            self._pack(ff.fc1, ff.fc2, in_turn=True),
            self._pack(ff.fc3),
        )
        return Layer(*matrices, *map(self._scale, norms))

    def _keep(self, tensor: Tensor) -> int:
        self.kept.append(tensor.contiguous())
        return self.kept[-1].data_ptr()

    def _scale(self, norm: nn.Module) -> int:
        return self._keep(norm.scale.detach().float())

    def _pack(self, *linears: nn.Linear, in_turn: bool = False) -> int:
        """One packed matrix: the strips of several follow each other, or take turns."""
        weights = [linear.weight.detach() for linear in linears]
        packed = self._keep(weights[0].new_empty(sum(weight.numel() for weight in weights)))
        first = 0
        for weight in weights:
            by = len(weights) if in_turn else 1
            self.packing.append((self._keep(weight), *weight.shape, packed, first, by))
            first += 1 if in_turn else len(weight) // self.library.lanes()
        return packed

    def __call__(self, in_idx: Tensor, cache: KVCache) -> Tensor:
        """The next tokens (B, 1) are read; the logits of those after them (B, 1, V)."""
        if self.in_c:
            try:
                return self.decode(in_idx, cache)
            except MemoryError as error:
                log.warning("%s; torch goes on", error)
                self.in_c = False
        return self.original(in_idx, cache=cache)

    def decode(self, in_idx: Tensor, cache: KVCache) -> Tensor:
        cache.make_room()
        positions = cache.lengths  # (B,) the slot of each new token
        for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
            layer.keys, layer.values = keys.data_ptr(), values.data_ptr()
        dtype = self.tok_emb.weight.dtype
        cos, sin = rope_tables(positions, self.cfg["head_dim"], self.cfg["rope_base"], dtype)
        logits = torch.empty(len(in_idx), 1, self.model.vocab, dtype=dtype)
        tensors = (in_idx.contiguous(), positions, cos, sin, logits)
        pointers = [tensor.data_ptr() for tensor in tensors]
        step = Step(len(in_idx), cache.keys[0].shape[2], torch.get_num_threads(), *pointers)
        if self.library.decode(ctypes.byref(self.model), ctypes.byref(step)):
            raise MemoryError("decode.c found no memory for a decoding step")
        cache.advance(1)
        return logits


# --- its trial ---


def try_out(path: str, dtype: str) -> None:
    """What fast/decode_library.py runs in a process of its own."""
    try:
        print(decoding_difference(open_library(Path(path)), getattr(torch, dtype)))
    except (NoLibrary, MemoryError) as error:
        sys.exit(str(error))


@torch.no_grad()
def decoding_difference(library: ctypes.CDLL, dtype: torch.dtype) -> float:
    """How far its logits are from torch's, for a small model."""
    model = seeded_model().to(dtype)
    ids = torch.arange(24).view(3, 8)  # (B, T)
    decoder, found = CompiledDecoder(model, library), []
    for decode, count in ((model, 1), (decoder.decode, 1), (decoder.decode, 3)):
        cache = KVCache(n_layers=2)
        model.fill_cache(ids, cache)
        with threads(count):
            found.append(decode(ids[:, :1], cache=cache).float())  # (B, 1, V)
    wanted, *found = found
    return (torch.stack(found) - wanted).abs().max().item()
