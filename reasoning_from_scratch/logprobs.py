"""Log-probabilities of sampled tokens, without ever holding the full logits.

A batch of B x T tokens over a vocabulary of V has B * T * V logits: 8 answers of 1,024
tokens of Qwen3 are 5 GB in float32, and autograd would keep several such tensors. So the
last matrix product is taken here, only where the mask has a sampled token, for a block of
the vocabulary at a time, and once more in the backward pass instead of being remembered.
"""

from itertools import chain
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_ELEMENTS = 2**23  # logits at a time: 32 MiB in float32, whatever the vocabulary
SMALLEST_BLOCK = 1024  # tokens of the vocabulary; thinner matrix products are slow


class Kept(NamedTuple):
    """The tokens that top-p or top-k left over, for N sampled tokens in the mask's row order.

    `ids` holds the N sets one after the other, `counts` their sizes; a size of 0 means that
    nothing was cut there. A fixed width would have to fit the widest set of the batch.
    """

    ids: Tensor  # (sum of counts,)
    counts: Tensor  # (N,)


def pack_kept(kept_sets: list[list[int]]) -> Kept:
    """One list of kept token ids per sampled token (an empty list: all kept) -> Kept."""
    counts = torch.tensor([len(ids) for ids in kept_sets], dtype=torch.long)
    ids = torch.tensor([i for ids in kept_sets for i in ids], dtype=torch.long)
    return Kept(ids, counts)


def padded_logprobs(model, batch, temperature: float = 1.0) -> Tensor:
    """Log-probabilities (B, T) of a batch's sampled tokens, each at its own position, 0 elsewhere.

    The plain training pass: rows are padded on the right, and the model reads the padding, too.
    No real token looks at it. `fast/packed.py` computes the same without it.
    """
    hidden = model.hidden_states(batch.token_ids[:, :-1])  # (B, T - 1, D)
    logprobs, _ = token_logprobs(
        hidden,
        model.out_head.weight,
        batch.token_ids[:, 1:],
        batch.mask[:, 1:],
        temperature,
        kept_of(batch),
    )
    return F.pad(logprobs, (1, 0))  # the token at position t is predicted at t - 1


def kept_of(batch) -> Kept | None:
    """What top-p and top-k left over, for all sampled tokens of a batch; None: nothing was cut."""
    return None if batch.kept is None else pack_kept(list(chain.from_iterable(batch.kept)))


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
    Gradients reach hidden and head_weight (V, D) through logprobs; entropy has none. `chunk` is
    how many tokens of the vocabulary are looked at together (default: what CHUNK_ELEMENTS allows).
    """
    mask = mask.bool()
    rows = hidden[mask]  # (N, D)
    chunk = chunk or max(SMALLEST_BLOCK, CHUNK_ELEMENTS // max(1, len(rows)))
    if kept is not None:
        kept = Kept(kept.ids.to(hidden.device), kept.counts.to(hidden.device))
    values, entropies = _BlockwiseLogprobs.apply(
        rows, head_weight, targets[mask], temperature, kept, chunk
    )
    zeros = values.new_zeros(mask.shape)  # (B, T)
    return zeros.masked_scatter(mask, values), zeros.masked_scatter(mask, entropies)


class _BlockwiseLogprobs(torch.autograd.Function):
    """rows (N, D), head (V, D), targets (N,) -> log-probabilities (N,), entropies (N,)."""

    @staticmethod
    def forward(ctx, rows, head, targets, temperature, kept, chunk):
        # Of e^(logit - largest), over the blocks so far: its sum and that of (logit - largest) e^.
        largest = rows.new_full((len(rows), 1), -torch.inf, dtype=_wide(rows.dtype))  # (N, 1)
        total, weighted = torch.zeros_like(largest), torch.zeros_like(largest)
        own = torch.zeros_like(largest)  # the targets' logits
        for block in _blocks(len(head), chunk):
            logits = _scaled_logits(rows, head, temperature, kept, block)  # (N, C)
            at, inside = _targets_in(targets, block)
            own += logits.gather(-1, at) * inside
            before, largest = largest, torch.maximum(largest, logits.amax(-1, keepdim=True))
            down = (before - largest).clamp_(min=LOWEST)
            weighted = down.exp() * (weighted + total * down)
            total = total * down.exp()
            logits.sub_(largest)
            parts = logits.exp()
            total += parts.sum(-1, keepdim=True)
            weighted += torch.linalg.vecdot(parts, logits)[:, None]
        normalizer = largest + total.log()  # (N, 1)
        ctx.save_for_backward(rows, head, targets, normalizer)
        ctx.settings = temperature, kept, chunk
        entropies = (total.log() - weighted / total)[:, 0]
        ctx.mark_non_differentiable(entropies)
        return (own - normalizer)[:, 0], entropies

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_values, _grad_entropies):
        rows, head, targets, normalizer = ctx.saved_tensors
        temperature, kept, chunk = ctx.settings
        # Blocks are added up in float32: in bfloat16 the later ones would round away.
        grad_rows = torch.zeros_like(rows, dtype=_wide(rows.dtype))
        grad_head = torch.empty_like(head) if ctx.needs_input_grad[1] else None
        scale = grad_values[:, None] / temperature  # (N, 1)
        for block in _blocks(len(head), chunk):
            logits = _scaled_logits(rows, head, temperature, kept, block)  # (N, C)
            # d log p[target] / d logits = (one-hot(target) - p) / temperature
            grad = logits.sub_(normalizer).exp_().mul_(-scale)
            at, inside = _targets_in(targets, block)
            grad.scatter_add_(-1, at, scale * inside)
            grad = grad.to(rows.dtype)
            grad_rows += grad @ head[block]
            if grad_head is not None:
                grad_head[block] = grad.T @ rows
        return grad_rows.to(rows.dtype), grad_head, *[None] * 4


LOWEST = -1e30  # instead of -inf, which turns into NaN where it meets 0


def _scaled_logits(rows, head, temperature, kept, block) -> Tensor:
    """Logits (N, C) of a block of the vocabulary over the temperature; LOWEST where cut."""
    logits = (rows @ head[block].T).to(_wide(rows.dtype))
    if temperature != 1:
        logits.div_(temperature)
    if kept is not None:
        logits.masked_fill_(_cut_mask(kept, block), LOWEST)
    return logits


def _cut_mask(kept: Kept, block: slice) -> Tensor:
    """Which tokens of the block were cut, (N, C)."""
    numbers = torch.arange(len(kept.counts), device=kept.ids.device)
    here = (kept.ids >= block.start) & (kept.ids < block.stop)
    cut = (kept.counts > 0)[:, None].repeat(1, block.stop - block.start)
    cut[numbers.repeat_interleave(kept.counts)[here], kept.ids[here] - block.start] = False
    return cut


def _targets_in(targets: Tensor, block: slice) -> tuple[Tensor, Tensor]:
    """Where the targets lie in the block, and which do, both (N, 1)."""
    inside = (targets >= block.start) & (targets < block.stop)
    return ((targets - block.start) * inside)[:, None], inside[:, None]


def _blocks(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def _wide(dtype: torch.dtype) -> torch.dtype:
    """float64 stays, everything narrower is computed in float32."""
    return torch.promote_types(dtype, torch.float32)
