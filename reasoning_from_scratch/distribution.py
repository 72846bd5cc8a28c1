"""The distribution that tokens are drawn from, and how one is drawn.

logits (B, V) -> temperature, top-p, top-k -> one uniform number per row -> a token, with its
log-probability. `policy_distribution` says the same thing as a formula, for the trainer.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

# --- one uniform number per token, from a counter and not from a generator with a state ---

GOLDEN = -0x61C8864680B583EB  # 2^64 / golden ratio, as a signed 64-bit integer
SMALLEST_U = 2.0**-23


def _unsigned_shift(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """The finalizer of splitmix64: each input bit changes each output bit half the time."""
    x = (x ^ _unsigned_shift(x, 30)) * -0x40A7B892E31B1A47
    x = (x ^ _unsigned_shift(x, 27)) * -0x6B2FB644ECCEEE15
    return x ^ _unsigned_shift(x, 31)


def _int64(number: int | Tensor) -> Tensor:
    if isinstance(number, Tensor):
        return number
    return torch.tensor((number + 2**63) % 2**64 - 2**63)


def stream_key(seed, step, problem, rollout) -> Tensor:
    """64 bits that name a rollout's random stream; numbers, or int64 tensors for many of them."""
    key = _int64(0)
    for number in (seed, step, problem, rollout):
        key = _mix((key ^ _int64(number)) + GOLDEN)
    return key


def uniform_at(keys: Tensor, positions: Tensor) -> Tensor:
    bits = _mix(keys + (positions + 1) * GOLDEN)
    # The middles of 2^22 equal parts: never 0, which would draw the first token however
    # unlikely it is, and so far below 1 that u * total < total in float32.
    return _unsigned_shift(bits, 42).float() * 2.0**-22 + SMALLEST_U


def uniform(seed: int, step: int, problem: int, rollout: int, position) -> Tensor:
    """Numbers in (0, 1) for one rollout's tokens; `position` is an int or a tensor of them."""
    key = stream_key(seed, step, problem, rollout)
    return uniform_at(key, torch.as_tensor(position, dtype=torch.long))


# --- the distribution that is sampled from ---

CANDIDATES = 256  # top-p is looked for among this many tokens first, then among all


def _descending(values: Tensor) -> Tensor:
    """Sorted copy. NumPy sorts plain values with SIMD, 20 times faster than torch on a CPU."""
    if values.device.type == "cpu":
        return torch.from_numpy(np.sort(values.detach().numpy(), axis=-1)).flip(-1)
    return values.sort(dim=-1, descending=True).values


def _nucleus(probs: Tensor, top_p: float, top_k: int) -> Tensor:
    """Which of probs (B, K) are kept: the smallest set that holds top_p of the mass of the
    top_k largest. Among equals the lower index stays."""
    ordered = _descending(probs)
    # The sum is rounded once, at its end, so that .7 + .2 reaches .9 as it does on paper.
    exact = torch.float32 if probs.device.type == "mps" else torch.float64
    mass = ordered.cumsum(-1, dtype=exact).to(probs.dtype)  # (B, K)
    limit = min(top_k or mass.shape[1], mass.shape[1]) - 1
    target = mass[:, limit : limit + 1] * top_p if top_k else mass.new_full((len(mass), 1), top_p)
    last = torch.searchsorted(mass, target).clamp(max=limit)  # (B, 1)
    cut = ordered.gather(-1, last)
    above, equal = probs > cut, probs == cut
    room = last + 1 - above.sum(-1, keepdim=True)
    return above | (equal & (equal.cumsum(-1, dtype=torch.int32) <= room))


BUCKETS = 0x3F80 + 1  # what the upper 16 bits of a float32 from 0 to 1 can be


def _cut_row(row: np.ndarray, top_p: np.float32, out: np.ndarray) -> None:
    """`row * _nucleus(row)` of one wide row on a CPU, into `out`, without sorting the row: its
    entries go into buckets by their upper bits, and only the bucket with the cut is sorted."""
    buckets = (row.view(np.int32) >> 16).clip(0, BUCKETS - 1)  # of NaN: somewhere
    mass = np.bincount(buckets, row, BUCKETS)[::-1].cumsum()  # float64, from the top
    place = min(int(mass.astype(np.float32).searchsorted(top_p)), BUCKETS - 1)
    inside = np.sort(row[buckets == BUCKETS - 1 - place])[::-1]
    running = inside.cumsum(dtype=np.float64) + (mass[place - 1] if place else 0.0)
    last = min(int(running.astype(np.float32).searchsorted(top_p)), len(inside) - 1)
    cut = inside[last] if len(inside) else np.float32(0)
    np.multiply(row, row >= cut, out=out)
    too_many = np.count_nonzero(inside[last + 1 :] == cut)
    if too_many:  # among equals the lower index stays
        out[np.flatnonzero(row == cut)[-too_many:]] = 0


def _cut_wide(probs: Tensor, top_p: float, top_k: int) -> Tensor:
    """`probs * _nucleus(probs)` of rows too wide to sort at each token."""
    if top_k or probs.device.type != "cpu" or probs.dtype != torch.float32:
        return probs * _nucleus(probs, top_p, top_k)
    weights = torch.empty_like(probs)
    for row, out in zip(probs.numpy(), weights.numpy(), strict=True):
        _cut_row(row, np.float32(top_p), out)
    return weights


def _cut(probs: Tensor, top_p: float, top_k: int) -> tuple[Tensor, Tensor | None]:
    """Weights that are 0 where top-p and top-k cut, and the token ids they belong to
    (ascending; None: weights are over the whole vocabulary)."""
    count = max(CANDIDATES, top_k + 1)
    if probs.shape[1] <= 8 * count:
        return probs * _nucleus(probs, top_p, top_k), None
    if probs.device.type == "cpu" and not top_k and (count * probs.amax(-1) < top_p).all():
        return _cut_wide(probs, top_p, top_k), None  # the candidates cannot suffice
    values, ids = probs.topk(count, dim=-1, sorted=False)
    ids, order = ids.sort(dim=-1)
    values = values.gather(-1, order)
    kept = _nucleus(values, top_p, top_k)
    # The candidates suffice where the cut, ties included, falls among them.
    inside = torch.where(kept, values, 2.0).amin(-1) > values.amin(-1)  # (B,)
    found = int(inside.sum())  # one look at a GPU for each token: the one that sampling needs
    if found == len(probs):
        return values * kept, ids
    if not found:
        return _cut_wide(probs, top_p, top_k), None
    weights = torch.zeros_like(probs).scatter_(-1, ids, values * kept)
    weights[~inside] = _cut_wide(probs[~inside], top_p, top_k)
    return weights, None


def _spread(probs: Tensor, top_p: float, top_k: int) -> Tensor:
    """`_cut` over the whole vocabulary: (..., V) -> weights (..., V)."""
    flat = probs.reshape(-1, probs.shape[-1])
    weights, ids = _cut(flat, top_p, top_k)
    if ids is not None:
        weights = torch.zeros_like(flat).scatter_(-1, ids, weights)
    return weights.view(probs.shape)


def top_p_filter(probas: Tensor, top_p: float | None) -> Tensor:
    """Keep the smallest set of tokens whose mass is at least top_p; rows sum to 1 again."""
    if top_p is None or top_p >= 1.0:
        return probas
    exact = probas if probas.dtype == torch.float64 else probas.float()
    weights = _spread(exact, top_p, 0)
    return (weights / weights.sum(-1, keepdim=True)).to(probas.dtype)


def policy_distribution(
    logits: Tensor, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0
) -> Tensor:
    """Log-probabilities (..., V) of what the sampler draws from, -inf where it cuts.

    Divide by the temperature, keep the top_k largest, of these the smallest set with top_p
    of their mass, and renormalize. Gradients pass as if the kept set were fixed.
    """
    if temperature <= 0:
        raise ValueError("temperature must be > 0; at 0 nothing is drawn, the argmax is taken")
    scaled = logits.float() / temperature
    if top_p < 1.0 or top_k:
        with torch.no_grad():
            weights = _spread(scaled.softmax(-1), top_p, top_k)
        scaled = scaled.masked_fill(weights == 0, -torch.inf)
    return scaled.log_softmax(-1)


# --- drawing ---


class Draw(NamedTuple):
    tokens: Tensor  # (B,)
    logprobs: Tensor  # (B,) under the distribution drawn from; at temperature 0: the model's own
    entropies: Tensor  # (B,) of the distribution drawn from; at temperature 0: the model's own
    weights: Tensor | None  # (B, K) 0 where cut; None where nothing is
    ids: Tensor | None  # (B, K) tokens of the weights; None: all, in order

    def kept_ids(self) -> list[list[int]]:
        """Per row, the tokens that top-p and top-k left; []: all. A GPU is asked once for all."""
        if self.weights is None:
            return [[] for _ in self.tokens]
        rows, places = self.weights.nonzero(as_tuple=True)  # (N,) of all rows together
        kept = places if self.ids is None else self.ids[rows, places]
        rows, kept = torch.stack([rows, kept]).cpu()
        counts = rows.bincount(minlength=len(self.tokens))
        return [part.tolist() for part in kept.split(counts.tolist())]


def _pick(weights: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse CDF: the index (B, 1) at which the running sum passes u (B, 1) of the total,
    and which fraction of that entry's own weight was passed."""
    mass = weights.cumsum(-1)
    target = u * mass[:, -1:]
    index = torch.searchsorted(mass, target, right=True).clamp_(max=weights.shape[1] - 1)
    own = weights.gather(-1, index)
    if weights.device.type != "cpu":
        # A parallel sum is not quite monotonic and could end at a token of weight 0.
        index = torch.where(own > 0, index, weights.argmax(-1, keepdim=True))
    return index, (target - mass.gather(-1, index) + own) / own


def _draw_index(weights: Tensor, u: Tensor, block: int = 128) -> Tensor:
    """One index per row, (B, 1). Wide rows first choose a block of entries, then an entry:
    a running sum over 150,000 entries is slow and loses digits."""
    count = weights.shape[1]
    if count <= 8 * block:
        return _pick(weights, u)[0]
    if count % block:  # Qwen3's 151,936 tokens need no copy
        weights = F.pad(weights, (0, -count % block))
    blocks = weights.unflatten(-1, (-1, block))
    chosen, rest = _pick(blocks.sum(-1), u)
    inner = blocks[torch.arange(len(blocks), device=chosen.device), chosen[:, 0]]  # (B, block)
    index = chosen * block + _pick(inner, rest.clamp(SMALLEST_U, 1 - SMALLEST_U))[0]
    return index.clamp_(max=count - 1)  # NaN weights lead into the padding


def sample_next_token(
    logits: Tensor, u: Tensor, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0
) -> Draw:
    """Draw one token per row of logits (B, V) with one uniform number each, u (B,).

    Temperature 0 takes the most probable token, the lowest id among equals. Logits that are
    not finite give a log-probability that is not finite; the caller is to look.
    """
    scaled = logits.float() / (temperature or 1.0)  # (B, V)
    probs = scaled.softmax(-1)
    weights = ids = None
    if temperature == 0:
        tokens = logits.argmax(-1, keepdim=True)
    elif top_p >= 1.0 and not top_k:
        tokens = _draw_index(probs, u[:, None])
    else:
        weights, ids = _cut(probs, top_p, top_k)
        index = _draw_index(weights, u[:, None])
        tokens = index if ids is None else ids.gather(-1, index)
    own = probs.gather(-1, tokens)[:, 0].log()
    if weights is None:
        # -sum p log p, where log p = scaled - normalizer; clamped because 0 * -inf is not 0.
        normalizer = scaled.gather(-1, tokens)[:, 0] - own
        entropies = normalizer - torch.linalg.vecdot(probs, scaled.clamp_(min=-1e30))
        return Draw(tokens[:, 0], own, entropies, None, None)
    mass = weights.sum(-1)  # (B,)
    entropies = mass.log() + torch.special.entr(weights).sum(-1) / mass
    return Draw(tokens[:, 0], own - mass.log(), entropies, weights, ids)
