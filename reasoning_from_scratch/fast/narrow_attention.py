"""Attention in a training pass in bfloat16 on a CPU, with a backward pass of its own.

Torch computes both without ever holding all scores, a block of keys at a time. In float32 its
backward pass takes three times as long as the forward pass, as it should; in bfloat16 it takes
eight times as long, since its small products leave the processor's instructions for bfloat16
unused. training.c uses them.
"""

import ctypes
import math

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from reasoning_from_scratch.fast.decoding import Attention, load_library
from reasoning_from_scratch.qwen3 import attention


def has_own_backward(queries: Tensor) -> bool:
    narrow = queries.dtype == torch.bfloat16 and queries.device.type == "cpu"
    return narrow and queries.requires_grad and load_library(queries.dtype) is not None


class NarrowAttention(torch.autograd.Function):
    """qwen3.attention of rows in which query t sees the first starts[row] + t + 1 keys. Queries
    (b, T, heads, hd); known (b, S, 2 groups, hd): for each token its keys, then its values."""

    @staticmethod
    def forward(ctx, queries, known, mask, starts):
        ctx.save_for_backward(queries, known)
        ctx.starts = starts
        keys, values = known.transpose(1, 2).chunk(2, dim=1)
        return attention(queries.transpose(1, 2), keys, values, mask)  # (b, T, heads * hd)

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
