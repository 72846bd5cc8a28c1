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


def has_narrow_backward(queries: Tensor) -> bool:
    """Whether training.c computes the backward pass for these queries in bfloat16."""
    return queries.device.type == "cpu" and queries.requires_grad and agrees_with_torch()


@cache
def agrees_with_torch() -> bool:
    """Whether a trial on a few rows agrees: a compiler may translate training.c wrongly."""
    if load_library(torch.bfloat16) is None:
        return False
    generator = torch.Generator().manual_seed(0)
    shapes = (2, 40, 6, 32), (2, 70, 4, 32), (2, 40, 6 * 32)
    queries, keys_values, grad = (torch.randn(s, generator=generator).bfloat16() for s in shapes)
    mask = torch.arange(70) <= 30 + torch.arange(40)[:, None]  # (T, S)
    inputs = queries.requires_grad_(), keys_values.requires_grad_()
    with torch.enable_grad():
        ours = NarrowAttention.apply(*inputs, mask, [30, 30])
        theirs = torch_attention(*inputs, mask)
    gradients = (torch.autograd.grad(output, inputs, grad) for output in (ours, theirs))
    difference = max((a - b).norm() / b.norm() for a, b in zip(*gradients, strict=True))
    if not difference < TOLERANCE:  # true for NaN, too
        log.warning(
            "training is slower with torch's attention: that of training.c differs from it by "
            "%.1e; try another compiler (CC=clang)",
            difference,
        )
    return bool(difference < TOLERANCE)


def torch_attention(queries: Tensor, keys_values: Tensor, mask: Tensor | None) -> Tensor:
    keys, values = keys_values.transpose(1, 2).chunk(2, dim=1)
    return attention(queries.transpose(1, 2), keys, values, mask)  # (b, T, heads * hd)


class NarrowAttention(torch.autograd.Function):
    """qwen3.attention of rows in which query t sees the first starts[row] + t + 1 keys. Queries
    (b, T, heads, hd); keys_values (b, S, 2 groups, hd): each token's keys, then its values."""

    @staticmethod
    def forward(ctx, queries, keys_values, mask, starts):
        ctx.save_for_backward(queries, keys_values)
        ctx.starts = starts
        return torch_attention(queries, keys_values, mask)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        queries, keys_values, grad = (x.contiguous() for x in (*ctx.saved_tensors, grad))
        grad_queries, grad_keys_values = torch.empty_like(queries), torch.empty_like(keys_values)
        starts = torch.tensor(ctx.starts)
        rows, length, heads, size = queries.shape
        tensors = (starts, queries, grad, keys_values, grad_queries, grad_keys_values)
        call = Attention(
            rows, heads, keys_values.shape[2] // 2, length, keys_values.shape[1], size,
            torch.get_num_threads(), 1 / math.sqrt(size),
            *(x.data_ptr() for x in tensors),
        )  # fmt: skip
        if load_library(queries.dtype).attention_gradient(ctypes.byref(call)):
            raise MemoryError("training.c found no memory for a training pass")
        return grad_queries, grad_keys_values, None, None
