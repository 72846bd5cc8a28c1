"""Attention in a training pass in bfloat16 on a CPU, with a backward pass of its own.

Torch computes both without ever holding all scores, a block of keys at a time. In float32 its
backward pass takes three times as long as the forward pass, as it should; in bfloat16 it takes
eight times as long, since its small products leave the processor's instructions for bfloat16
unused. training.c uses them.
"""

import ctypes
import logging
import math
from functools import cache

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from reasoning_from_scratch.fast.decoding import Attention, load_library
from reasoning_from_scratch.qwen3 import attention

log = logging.getLogger("reasoning_from_scratch")

TOLERANCE = 0.03  # of a gradient's length; torch's own differ by 0.003 to 0.007 from float64


def has_own_backward(queries: Tensor) -> bool:
    """Whether it is there for these queries in bfloat16."""
    return queries.device.type == "cpu" and queries.requires_grad and agrees_with_torch()


@cache
def agrees_with_torch() -> bool:
    """Tried on a few rows before it is used: a compiler may do it wrong."""
    if load_library(torch.bfloat16) is None:
        return False
    generator = torch.Generator().manual_seed(0)
    shapes = (2, 40, 6, 32), (2, 70, 4, 32), (2, 40, 6 * 32)
    queries, known, grad = (torch.randn(s, generator=generator).bfloat16() for s in shapes)
    mask = torch.arange(70) <= 30 + torch.arange(40)[:, None]  # (T, S)
    inputs = queries.requires_grad_(), known.requires_grad_()
    with torch.enable_grad():
        ours = NarrowAttention.apply(*inputs, mask, [30, 30])
        theirs = plain(*inputs, mask)
    both = (torch.autograd.grad(found, inputs, grad) for found in (ours, theirs))
    difference = max((one - other).norm() / other.norm() for one, other in zip(*both, strict=True))
    if not difference < TOLERANCE:  # true for NaN, too
        log.warning(
            "training is slower with torch's attention: that of training.c differs from it by "
            "%.1e; try another compiler (CC=clang)",
            difference,
        )
    return bool(difference < TOLERANCE)


def plain(queries: Tensor, known: Tensor, mask: Tensor | None) -> Tensor:
    keys, values = known.transpose(1, 2).chunk(2, dim=1)
    return attention(queries.transpose(1, 2), keys, values, mask)  # (b, T, heads * hd)


class NarrowAttention(torch.autograd.Function):
    """qwen3.attention of rows in which query t sees the first starts[row] + t + 1 keys. Queries
    (b, T, heads, hd); known (b, S, 2 groups, hd): for each token its keys, then its values."""

    @staticmethod
    def forward(ctx, queries, known, mask, starts):
        ctx.save_for_backward(queries, known)
        ctx.starts = starts
        return plain(queries, known, mask)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        asked, known, arriving = (x.contiguous() for x in (*ctx.saved_tensors, grad))
        to_asked, to_known = torch.empty_like(asked), torch.empty_like(known)
        starts = torch.tensor(ctx.starts)
        rows, queries, heads, size = asked.shape
        call = Attention(
            rows, heads, known.shape[2] // 2, queries, known.shape[1], size,
            torch.get_num_threads(), 1 / math.sqrt(size),
            *(x.data_ptr() for x in (starts, asked, arriving, known, to_asked, to_known)),
        )  # fmt: skip
        if load_library(asked.dtype).attention_gradient(ctypes.byref(call)):
            raise MemoryError("training.c found no memory for a training pass")
        return to_asked, to_known, None, None
