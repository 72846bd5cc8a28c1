"""Attention in a training pass in bfloat16 on a CPU, with a backward pass of its own.

Torch computes both without ever holding all scores, a block of keys at a time. In float32 its
backward pass takes three times as long as the forward pass, as it should; in bfloat16 it takes
eight times as long, since its small products leave the processor's instructions for bfloat16
unused. So here the backward pass makes five large products of each row, which use them, and
decode.c computes what stands between them: the scores become probabilities, and what arrives at
these becomes what arrives at the scores.
"""

import ctypes
import math

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from reasoning_from_scratch.fast.decoding import Softening, load_library
from reasoning_from_scratch.qwen3 import attention

MOST_QUERIES = 192  # at a time: their scores stay in the processor's cache


def has_own_backward(queries: Tensor) -> bool:
    narrow = queries.dtype == torch.bfloat16 and queries.device.type == "cpu"
    return narrow and queries.requires_grad and load_library(queries.dtype) is not None


class NarrowAttention(torch.autograd.Function):
    """qwen3.attention of rows in which query t sees the first starts[row] + t + 1 keys."""

    @staticmethod
    def forward(ctx, queries, keys, values, mask, starts):
        ctx.save_for_backward(queries, keys, values)
        ctx.starts = starts
        return attention(queries, keys, values, mask)  # (b, T, heads * hd)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        queries, keys, values = ctx.saved_tensors
        groups, length = keys.shape[1], queries.shape[2]
        grad = grad.unflatten(-1, (queries.shape[1], -1)).transpose(1, 2)  # (b, heads, T, hd)
        together = math.ceil(length / math.ceil(length / MOST_QUERIES))
        # In memory (b, T, heads, hd), as these are: what comes next reads them so.
        to_queries = torch.empty_like(queries.transpose(1, 2)).transpose(1, 2)
        # The shares of several pieces are added up in float32.
        to_keys = torch.zeros_like(keys, dtype=torch.float32)  # (b, groups, S, hd)
        to_values = torch.zeros_like(to_keys)
        for row, start in enumerate(ctx.starts):
            for first in range(0, length, together):
                piece = slice(first, min(length, first + together))
                seen = slice(0, min(keys.shape[2], start + piece.stop))
                # The heads of a group become the rows of one product: (groups, heads * T, hd).
                q, d = (of_group(x[row, :, piece], groups) for x in (queries, grad))
                k, v = keys[row, :, seen], values[row, :, seen]  # (groups, S, hd)
                # (groups, heads * T, S): scores, and what arrives at the probabilities; after
                # `soften`, the probabilities, and what arrives at the scores.
                p, ds = q @ k.mT, d @ v.mT
                soften(p, ds, queries=piece.stop - first, start=start + first, size=k.shape[-1])
                to_values[row, :, seen] += p.mT @ d
                to_keys[row, :, seen] += ds.mT @ q
                to_queries[row, :, piece] = (ds @ k).view_as(queries[row, :, piece])
        return to_queries, to_keys.to(keys.dtype), to_values.to(values.dtype), None, None


def of_group(x: Tensor, groups: int) -> Tensor:
    """(heads, T, hd) -> (groups, heads of a group * T, hd)."""
    return x.unflatten(0, (groups, -1)).flatten(1, 2)


def soften(scores: Tensor, gradients: Tensor, queries: int, start: int, size: int) -> None:
    """In place, both (groups, heads * queries, S): q k^T becomes the probabilities, and what
    arrives at these becomes what arrives at q k^T."""
    library = load_library(scores.dtype)
    groups, lines, seen = scores.shape
    softening = Softening(
        groups * lines,
        queries,
        seen,
        start,
        torch.get_num_threads(),
        1 / math.sqrt(size),
        scores.data_ptr(),
        gradients.data_ptr(),
    )
    if library.soften(ctypes.byref(softening)):
        raise MemoryError("decode.c found no memory for a training pass")
