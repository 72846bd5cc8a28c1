"""Log-probabilities of sampled tokens: log softmax of the logits, at the token that was drawn.

This is the plain version, for reading and for small models: it holds the logits of all sampled
tokens in memory. With Qwen3's vocabulary those of 8 answers of 1,024 tokens take 5 GB in float32,
and autograd keeps more than one such tensor; fast/packed.py computes the same in blocks.
"""

from itertools import chain
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Kept(NamedTuple):
    """What top-p or top-k kept for each of N sampled tokens, in the mask's order, row by row.

    The sets differ in size, so they are stored one after the other, without padding:
    {3, 1}, everything, {7} is ids = [3, 1, 7], counts = [2, 0, 1]. A count of 0 means that
    nothing was cut.
    """

    ids: Tensor  # (sum of counts,)
    counts: Tensor  # (N,)


def pack_kept(kept_sets: list[list[int]]) -> Kept:
    """One list of kept token ids per sampled token (an empty list: all kept) -> Kept."""
    counts = torch.tensor([len(ids) for ids in kept_sets], dtype=torch.long)
    ids = torch.tensor([i for ids in kept_sets for i in ids], dtype=torch.long)
    return Kept(ids, counts)


def batch_kept(batch) -> Kept | None:
    """What top-p and top-k kept, for all sampled tokens of a batch; None: nothing was cut."""
    return None if batch.kept is None else pack_kept(list(chain.from_iterable(batch.kept)))


def padded_logprobs(model, batch, temperature: float = 1.0) -> Tensor:
    """Log-probabilities (B, T) of a batch's sampled tokens, each at its own position, 0 elsewhere.

    The plain training pass: rows are padded on the right. The model computes the padding, too, but
    no real token attends to it. `fast/packed.py` computes the same without padding.
    """
    hidden = model.hidden_states(batch.token_ids[:, :-1])  # (B, T - 1, D)
    logprobs = token_logprobs(
        hidden,
        model.out_head.weight,
        batch.predicted[:, 1:],
        batch.mask[:, 1:],
        temperature,
        batch_kept(batch),
    )
    return F.pad(logprobs, (1, 0))  # the token at position t is predicted at t - 1


def token_logprobs(
    hidden: Tensor,
    head_weight: Tensor,
    targets: Tensor,
    mask: Tensor,
    temperature: float = 1.0,
    kept: Kept | None = None,
) -> Tensor:
    """Log-probability of each sampled token, (B, T) float32, 0 where mask is 0.

    `hidden[:, t]` (B, T, D) predicts `targets[:, t]` (B, T). For a batch of token_ids (B, T+1):

        hidden = model.hidden_states(token_ids[:, :-1])
        logprobs = token_logprobs(
            hidden, model.out_head.weight, token_ids[:, 1:], mask[:, 1:], temperature)

    The distribution is softmax(logits / temperature), over the tokens in `kept` if given.
    Gradients reach hidden and head_weight (V, D).
    """
    mask = mask.bool()
    logits = hidden[mask] @ head_weight.T  # (N, V), N sampled tokens
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    if kept is not None:
        logits = logits.masked_fill(cut_mask(kept, logits.shape[1]).to(logits.device), -torch.inf)
    logprobs = logits.log_softmax(dim=-1)  # (N, V)
    sampled_N = logprobs.gather(-1, targets[mask][:, None])[:, 0]  # (N,)
    return sampled_N.new_zeros(mask.shape).masked_scatter(mask, sampled_N)  # (B, T)


def cut_mask(kept: Kept, vocab_size: int) -> Tensor:
    """Which tokens of the vocabulary were cut, for each sampled token, (N, V)."""
    cut = (kept.counts > 0)[:, None].repeat(1, vocab_size)  # (N, V)
    cut[torch.arange(len(cut)).repeat_interleave(kept.counts), kept.ids] = False
    return cut
