"""A GPU on paper: tensors of the meta device have sizes and no numbers. What a GPU would be asked
to compute is counted, and the bytes that are held at once."""

import weakref
from collections import Counter
from contextlib import ExitStack
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from reasoning_from_scratch.qwen3 import RMSNorm

# These only look at memory in another way, or ask for some: no kernel is started.
NO_KERNEL = set(
    "view _unsafe_view _reshape_alias slice select unsqueeze squeeze expand permute transpose t "
    "detach alias split split_with_sizes unbind as_strided unfold lift_fresh chunk is_same_size "
    "empty empty_like new_empty empty_strided new_empty_strided empty_permuted".split()
)


class OnPaper(TorchDispatchMode):
    """While entered, counts `kernels` by name, and `most` bytes held at once beside what was there
    before."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: Counter[str] = Counter()
        self.held = self.most = 0
        self.known: dict[int, weakref.ref] = {}

    def __enter__(self):
        """What is one kernel on a GPU is one here."""
        self.stack = ExitStack()
        self.stack.enter_context(mock.patch.object(RMSNorm, "forward", norm_of(self)))
        self.stack.enter_context(mock.patch.object(F, "rms_norm", fused(self, RMS)))
        name = "scaled_dot_product_attention"
        self.stack.enter_context(mock.patch.object(F, name, attention_of(self)))
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.stack.close()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name not in NO_KERNEL:
            self.kernels[name] += 1
        torch.utils._pytree.tree_map_only(Tensor, self.note, out)
        return out

    def note(self, tensor):
        if tensor.device.type != "meta":
            return
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.known:
            return
        self.held += size
        self.most = max(self.most, self.held)

        def freed(_, key=key, size=size):
            self.held -= size
            del self.known[key]

        self.known[key] = weakref.ref(storage, freed)


class RMS(torch.autograd.Function):
    """One kernel each way, as on a GPU; between them it keeps x and a number for each row."""

    @staticmethod
    def forward(ctx, paper, x, scale):
        paper.kernels["rms_norm"] += 1
        ctx.paper = paper
        ctx.save_for_backward(x, x.new_empty(x.shape[:-1], dtype=torch.float32), scale)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, gradient):
        x, _, scale = ctx.saved_tensors
        ctx.paper.kernels["rms_norm_backward"] += 1
        return None, torch.empty_like(x), torch.empty_like(scale)


class Attention(torch.autograd.Function):
    """Without scores: one kernel each way."""

    @staticmethod
    def forward(ctx, paper, queries, keys, values, mask):
        paper.kernels["attention"] += 1
        found = torch.empty_like(queries)
        rows = queries.new_empty(queries.shape[:-1], dtype=torch.float32)
        ctx.paper = paper
        ctx.save_for_backward(queries, keys, values, found, rows, mask)
        return found

    @staticmethod
    def backward(ctx, gradient):
        ctx.paper.kernels["attention_backward"] += 1
        return None, *map(torch.empty_like, ctx.saved_tensors[:3]), None


def fused(paper, function):
    return lambda x, shape, scale=None, eps=None: function.apply(paper, x, scale)


def norm_of(paper):
    return lambda norm, x: RMS.apply(paper, x, norm.scale)


def attention_of(paper):
    def attention(queries, keys, values, attn_mask=None, is_causal=False, enable_gqa=False):
        if attn_mask is not None and attn_mask.dtype == torch.bool:  # torch makes it a number
            attn_mask = torch.zeros_like(attn_mask, dtype=queries.dtype)
        return Attention.apply(paper, queries, keys, values, attn_mask)

    return attention
