"""Top-p and top-k without sorting whole rows: what sampling.cut_by_sorting computes, faster.

A vocabulary has 150,000 tokens, and every token that is drawn needs the cut of such a row. On a
CPU a row's entries go into buckets by size, and only the bucket in which the cut falls is sorted;
for top-k only the largest entries are sorted, which may not be enough. On a GPU, looking among the
largest entries is five times as fast as any other way, but only by waiting for the GPU do we learn
whether they were enough. So a recorded draw (graphs.py) tries them first. If they were not enough,
or if the code does not wait, the cut is found digit by digit.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from reasoning_from_scratch.sampling import kept_tokens

# The cut is first sought among this many of the largest entries. A GPU finds 1,024 as fast.
CANDIDATES, GPU_CANDIDATES = 256, 1024
TINY = torch.finfo(torch.float32).tiny  # top_p 0, too, keeps the largest
BUCKETS = 0x3F80 + 1  # what the upper 16 bits of a float32 from 0 to 1 can be


def fast_cut(probs: Tensor, top_p: float, top_k: int) -> Tensor:
    """probs (B, V), 0 where top-p and top-k cut."""
    count = max(CANDIDATES, top_k + 1)
    if probs.shape[1] <= 8 * count:
        return probs * kept_tokens(probs, sorted_descending(probs), top_p, top_k)
    if probs.device.type == "cpu" and probs.dtype == torch.float32 and not top_k:
        return cut_by_buckets(probs, top_p)
    if probs.device.type in ("cpu", "mps"):
        return cut_by_candidates(probs, top_p, top_k, count)
    return cut_by_digits(probs, top_p, top_k)


def sorted_descending(probs: Tensor) -> Tensor:
    """A sorted copy. NumPy sorts plain values with SIMD, 20 times faster than torch on a CPU."""
    if probs.device.type == "cpu":
        return torch.from_numpy(np.sort(probs.detach().numpy(), axis=-1)).flip(-1)
    return probs.sort(dim=-1, descending=True).values


def cut_by_buckets(probs: Tensor, top_p: float) -> Tensor:
    weights = torch.empty_like(probs)
    for row, out in zip(probs.detach().numpy(), weights.numpy(), strict=True):
        cut_row(row, np.float32(max(top_p, TINY)), out)
    return weights


def cut_row(row: np.ndarray, top_p: np.float32, out: np.ndarray) -> None:
    """One row (V,), cut, into `out`. The upper 16 bits of a positive float32 grow with it, so
    they number its bucket."""
    buckets = (row.view(np.int32) >> 16).clip(0, BUCKETS - 1)  # NaN goes anywhere
    mass = np.bincount(buckets, row, BUCKETS)[::-1].cumsum()  # float64, from the top
    rank = min(int(mass.astype(np.float32).searchsorted(top_p)), BUCKETS - 1)
    at_cut = np.sort(row[buckets == BUCKETS - 1 - rank])[::-1]
    cumulative = at_cut.cumsum(dtype=np.float64) + (mass[rank - 1] if rank else 0.0)
    last = min(int(cumulative.astype(np.float32).searchsorted(top_p)), len(at_cut) - 1)
    threshold = at_cut[last] if len(at_cut) else np.float32(0)  # the smallest that is kept
    np.multiply(row, row >= threshold, out=out)
    too_many = np.count_nonzero(at_cut[last + 1 :] == threshold)
    if too_many:  # among equals the lower index stays
        out[np.flatnonzero(row == threshold)[-too_many:]] = 0


def cut_by_candidates(probs: Tensor, top_p: float, top_k: int, count: int) -> Tensor:
    """Looks at the `count` largest entries of each row, and at all only if these are too few."""
    weights, enough = cut_among_the_largest(probs, top_p, top_k, count)
    if not enough.all():
        rest = probs[~enough]
        weights[~enough] = rest * kept_tokens(rest, sorted_descending(rest), top_p, top_k)
    return weights


def cut_among_the_largest(
    probs: Tensor, top_p: float, top_k: int, count: int
) -> tuple[Tensor, Tensor]:
    """The rows (B, V), cut among their `count` largest entries; and whether these suffice (B,)."""
    ordered, ids = probs.topk(count, dim=-1)
    ids, order = ids.sort(dim=-1)  # among equals the lower index stays
    values = ordered.gather(-1, order)
    kept = kept_tokens(values, ordered, top_p, top_k)
    weights = torch.zeros_like(probs).scatter_(-1, ids, values * kept)
    # They suffice where the cut, ties included, falls among them.
    return weights, torch.where(kept, values, 2.0).amin(-1) > values.amin(-1)


# --- the same without waiting for the GPU

DIGITS = ((20, 11), (10, 10), (0, 10))  # of a positive float32: first bit, and how many bits
# A probability of 1 as an integer: sums of integers are exact in any order.
ONE_AS_INTEGER = 2.0**62


def cut_by_digits(probs: Tensor, top_p: float, top_k: int) -> Tensor:
    """The bits of a positive float32, as an integer, grow with it. So the smallest probability
    that is kept is looked up like a word in a dictionary: first digit, second digit, third digit.
    All shapes are fixed and nothing is read from the GPU, so a CUDA graph may contain this."""
    bits = probs.view(torch.int32) & 0x7FFFFFFF  # (B, V); NaN goes anywhere
    amounts = (probs * ONE_AS_INTEGER).long()
    top_p = max(top_p, TINY)
    target = probs.new_full((len(probs), 1), top_p)
    largest = None
    if top_k:
        largest = keep_while(bits, torch.ones_like(amounts), lambda before: before < top_k)
        amounts = amounts * largest
        target = to_mass(amounts.sum(-1, keepdim=True)) * top_p
    kept = keep_while(bits, amounts, lambda before: to_mass(before) < target)
    return probs * (kept if largest is None else kept & largest)


def to_mass(amounts: Tensor) -> Tensor:
    """Rounded once, as in kept_tokens."""
    return (amounts.double() / ONE_AS_INTEGER).float()


def keep_while(bits: Tensor, amounts: Tensor, too_small: Callable[[Tensor], Tensor]) -> Tensor:
    """Which entries (B, V) are kept: from the largest bits downward, among equals the lower index
    first, for as long as `too_small` is true of the sum of the amounts before."""
    leading = above = torch.zeros_like(amounts[:, :1])  # the digits so far; the amount above them
    for shift, size in DIGITS:
        matching = amounts * (bits >> (shift + size) == leading)
        digits = ((bits >> shift) & (2**size - 1)).long()
        sums = amounts.new_zeros(len(bits), 2**size).scatter_add_(1, digits, matching).flip(1)
        before = above + sums.cumsum(1) - sums  # of each digit, the highest first
        last = (too_small(before).sum(1, keepdim=True) - 1).clamp(min=0)  # the digit at the cut
        leading, above = leading * 2**size + (2**size - 1 - last), before.gather(1, last)
    equal = bits == leading
    equal_amounts = amounts * equal
    return (bits > leading) | (equal & too_small(above + equal_amounts.cumsum(1) - equal_amounts))
