"""Log-probabilities of sampled tokens, without ever holding the full logits.

A batch of B x T tokens over a vocabulary of V has B * T * V logits: 8 answers of 1,024
tokens of Qwen3 are 5 GB in float32, and autograd would keep several such tensors. So the
last matrix product is taken here, a chunk of positions at a time, only where the mask has
a sampled token, and once more in the backward pass instead of being remembered.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_ELEMENTS = 2**25  # logits per chunk: 128 MiB in float32, whatever the vocabulary


class Kept(NamedTuple):
    """The tokens that top-p or top-k left over, for N sampled tokens in the mask's row order.

    `ids` holds the N sets one after the other, `counts` their sizes; a size of 0 means that
    nothing was cut there. A fixed width would have to fit the widest set of the batch.
    """

    ids: Tensor     # (sum of counts,)
    counts: Tensor  # (N,)


def pack_kept(kept_sets: list[list[int]]) -> Kept:
    """One list of kept token ids per sampled token (an empty list: all kept) -> Kept."""
    counts = torch.tensor([len(ids) for ids in kept_sets], dtype=torch.long)
    ids = torch.tensor([i for ids in kept_sets for i in ids], dtype=torch.long)
    return Kept(ids, counts)


def token_logprobs(
    hidden: Tensor,
    head_weight: Tensor,
    targets: Tensor,
    mask: Tensor,
    temperature: float = 1.0,
    kept: Kept | None = None,
    chunk: int = 0,
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy of each sampled token, both (B, T) float32, 0 where mask is 0.

    `hidden[:, t]` (B, T, D) predicts `targets[:, t]` (B, T). For a batch of token_ids (B, T+1):

        hidden = model.hidden_states(token_ids[:, :-1])
        logprobs, entropy = token_logprobs(
            hidden, model.out_head.weight, token_ids[:, 1:], mask[:, 1:], temperature)

    The distribution is softmax(logits / temperature), over the tokens in `kept` if given.
    Gradients reach hidden and head_weight (V, D) through logprobs; entropy has none.
    """
    mask = mask.bool()
    chunk = chunk or max(1, CHUNK_ELEMENTS // head_weight.shape[0])
    if kept is not None:
        kept = Kept(kept.ids.to(hidden.device), kept.counts.to(hidden.device))
    rows = hidden[mask]  # (N, D)
    values, entropies = _ChunkedLogprobs.apply(
        rows, head_weight, targets[mask], temperature, kept, chunk
    )
    zeros = values.new_zeros(mask.shape)  # (B, T)
    return zeros.masked_scatter(mask, values), zeros.masked_scatter(mask, entropies)


class _ChunkedLogprobs(torch.autograd.Function):
    """rows (N, D), head (V, D), targets (N,) -> log-probabilities (N,), entropies (N,)."""

    @staticmethod
    def forward(ctx, rows, head, targets, temperature, kept, chunk):
        ctx.save_for_backward(rows, head, targets)
        ctx.settings = temperature, kept, chunk
        values = rows.new_empty(len(rows), dtype=_wide(rows.dtype))  # (N,)
        entropies = torch.empty_like(values)
        for part in _chunks(len(rows), chunk):
            logits = _scaled_logits(rows[part], head, temperature, kept, part)  # (C, V)
            logprobs = logits - logits.logsumexp(-1, keepdim=True)
            values[part] = logprobs.gather(-1, targets[part, None])[:, 0]
            entropies[part] = torch.special.entr(logprobs.exp_()).sum(-1)
        ctx.mark_non_differentiable(entropies)
        return values, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_values, _grad_entropies):
        rows, head, targets = ctx.saved_tensors
        temperature, kept, chunk = ctx.settings
        grad_rows = torch.empty_like(rows) if ctx.needs_input_grad[0] else None
        # Chunks are added up in float32: in bfloat16 the later ones would round away.
        grad_head = (
            torch.zeros_like(head, dtype=_wide(head.dtype)) if ctx.needs_input_grad[1] else None
        )
        for part in _chunks(len(rows), chunk):
            logits = _scaled_logits(rows[part], head, temperature, kept, part)
            # d log p[target] / d logits = (one-hot(target) - p) / temperature
            grad = torch.softmax(logits, -1).neg_()
            grad.scatter_add_(-1, targets[part, None], torch.ones_like(grad[:, :1]))
            grad.mul_(grad_values[part, None] / temperature)
            grad = grad.to(rows.dtype)
            if grad_rows is not None:
                grad_rows[part] = grad @ head
            if grad_head is not None:
                grad_head += grad.T @ rows[part]
        return grad_rows, None if grad_head is None else grad_head.to(head.dtype), *[None] * 4


def _scaled_logits(rows, head, temperature, kept, part) -> Tensor:
    """Logits (C, V) of one chunk over the temperature; -inf for tokens that were cut."""
    logits = (rows @ head.T).to(_wide(rows.dtype)) / temperature
    if kept is not None:
        counts = kept.counts[part]
        start = int(kept.counts[: part.start].sum())
        ids = kept.ids[start : start + int(counts.sum())]
        cut = (counts > 0)[:, None].repeat(1, logits.shape[1])  # (C, V)
        cut[torch.arange(len(counts), device=ids.device).repeat_interleave(counts), ids] = False
        logits.masked_fill_(cut, float("-inf"))
    return logits


def _chunks(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def _wide(dtype: torch.dtype) -> torch.dtype:
    """float64 stays, everything narrower is computed in float32."""
    return torch.promote_types(dtype, torch.float32)
