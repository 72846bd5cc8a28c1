"""Who looks at whom in one forward pass, and attention in each of its forms.

Tokens come in rows, alone or after those of a cache, or once each by a layout. Padding that
would go into a cache is never computed: then too, only attention sees rows.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from reasoning_from_scratch.kv_cache import Slots


class Rows(NamedTuple):
    """Rows that attention takes together: which token stands where, 0 for padding."""

    keys: Tensor  # (b, S)
    queries: Tensor  # (b, T)
    mask: Tensor | None  # (b, 1, T, S) where a query may look; None: queries are keys, and causal

    def to(self, device):
        return Rows(*(None if tensor is None else tensor.to(device) for tensor in self))


class Layout(NamedTuple):
    """Where the tokens of a batch lie that are stored once each and without padding, (1, N).

    Only attention sees rows: what several rollouts share costs everything else once.
    """

    positions: Tensor  # (1, N) of each token in its row
    parts: list[Rows]
    back: Tensor  # (N,) a place, counted through all queries, at which each token stands


class AttentionPlan(NamedTuple):
    """What all layers of one forward pass share."""

    cos: Tensor  # (B or 1, 1, T, head_dim)
    sin: Tensor
    mask: Tensor | None  # (B or 1, 1, T, S) -inf where a query may not look, else 0; None: all 0
    causal: bool  # token t sees tokens up to t, and no mask is needed to say so
    slots: Slots | None
    layout: Layout | None = None
    # (rows, columns), each (N,), of the tokens that are computed, (1, N), as others are padding
    real: tuple[Tensor, Tensor] | None = None


def _real_token_positions(attention_mask):
    return (attention_mask.long().cumsum(dim=1) - 1).clamp(min=0)  # (B, T)


def plan_without_cache(in_idx, attention_mask):
    """Positions (B or 1, T), mask, whether plain causal attention will do."""
    steps = torch.arange(in_idx.shape[1], device=in_idx.device)
    if attention_mask is None:
        return steps[None], None, True
    causal = steps[:, None] >= steps  # (T, T)
    itself = torch.eye(len(steps), dtype=torch.bool, device=in_idx.device)
    # A padding token may look at itself, because a softmax over nothing is NaN.
    mask = (causal & attention_mask.bool()[:, None, :]) | itself  # (B, T, T)
    return _real_token_positions(attention_mask), mask[:, None], False


def plan_with_cache(in_idx, cache, attention_mask):
    """The same, slots, and with a mask the real tokens, whose positions are (1, N) then."""
    batch, length = in_idx.shape
    device, real = in_idx.device, None
    if cache.lengths is None:
        cache.lengths = torch.zeros(batch, dtype=torch.long, device=device)
    steps = torch.arange(length, device=device)
    if attention_mask is None and cache.uniform:
        positions = (cache.width + steps)[None]  # (1, T)
        slots, new_tokens = Slots(cache.width + length, None), length
    elif attention_mask is None:
        positions = cache.lengths[:, None] + steps  # (B, T)
        rows = torch.arange(batch, device=device)[:, None]
        slots, new_tokens = Slots(cache.width + length, (rows, positions)), length
    else:
        positions = cache.lengths[:, None] + _real_token_positions(attention_mask)  # (B, T)
        real = attention_mask.bool().nonzero(as_tuple=True)  # rows and columns, each (N,)
        new_tokens = attention_mask.long().sum(dim=1)  # (B,)
        width = int((cache.lengths + new_tokens).max())
        slots = Slots(width, (real[0][None], positions[real][None]))
    causal = cache.width == 0 and slots.index is None
    mask = None
    if slots.index is not None or (length > 1 and not causal):
        slot_ids = torch.arange(slots.width, device=device)
        mask = (slot_ids <= positions[:, :, None])[:, None]  # (B or 1, 1, T, S)
    cache.lengths = cache.lengths + new_tokens
    cache.uniform = slots.index is None
    cache.width = slots.width
    return positions if real is None else slots.index[1], mask, causal, slots, real


def in_rows(x, real, batch, length):
    """What belongs to the real tokens (N, ...) in their rows (B, T, ...), zeros between them."""
    rows = x.new_zeros(batch, length, *x.shape[1:])
    rows[real] = x
    return rows


def attend(plan, queries, keys, values):
    """Queries (B, heads, T, head_dim) -> what they find (B, T, D)."""
    if plan.layout is not None:
        return _attend_once_each(plan.layout, queries, keys, values)
    if plan.real is None:
        return _attend(queries, keys, values, plan.mask, plan.causal).transpose(1, 2).flatten(2)
    batch, _, length, _ = plan.mask.shape
    queries = in_rows(queries[0].transpose(0, 1), plan.real, batch, length).transpose(1, 2)
    attended = _attend(queries, keys, values, plan.mask, False).transpose(1, 2)
    return attended[plan.real].flatten(1)[None]  # (1, N, D)


def _attend_once_each(layout, *heads):
    """Queries, keys and values (1, heads, N, head_dim) -> what they find (1, N, D)."""
    # An embedding is the gather whose backward pass, a sum over rollouts, is fast on a CPU.
    tables = [x[0].transpose(0, 1).flatten(1) for x in heads]  # (N, heads * head_dim)
    attended = []
    for rows in layout.parts:
        places = (rows.queries, rows.keys, rows.keys)
        taken = [F.embedding(*pair) for pair in zip(places, tables, strict=True)]
        taken = [x.unflatten(-1, (-1, heads[0].shape[-1])).transpose(1, 2) for x in taken]
        found = _attend(*taken, rows.mask, rows.mask is None)  # (b, heads, T, head_dim)
        attended.append(found.transpose(1, 2).flatten(2).flatten(0, 1))
    return F.embedding(layout.back[None], torch.cat(attended))


def _attend(queries, keys, values, mask, causal):
    """Scaled dot-product attention in which several query heads share one key head."""
    batch, heads, length, head_dim = queries.shape
    groups = keys.shape[1]
    if length > 1:
        return F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=causal, enable_gqa=heads != groups
        )
    # One new token: the heads of a group become the rows of one small matrix product.
    folded = queries.reshape(batch, groups, heads // groups, head_dim)
    return F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask).reshape(
        batch, heads, 1, head_dim
    )
