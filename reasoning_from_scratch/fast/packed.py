"""The training pass without padding: what several rollouts begin with is stored once.

    rows      [p p p a a . .]         one row per rollout, padded; all answer the same prompt p
              [p p p a b b b]
              [p p p c c c .]
    packed    [p p p a a b b b c c c]

The second answer begins as the first one does, so that token is not stored again: what the model
computes for a token depends only on that token and those before it. The more confident a model
gets, the more its answers to a problem have in common, and the less there is to compute.

Except for attention, the model treats each token by itself, so it can read the packed tokens as one
row (1, N). Attention needs to know which tokens come before which, so it puts rows together again.
The logits of all tokens would be the largest tensor by far, so they never exist all together:
log-probabilities and their gradient are computed for one block of the vocabulary after the other.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from reasoning_from_scratch.fast.memory import manage_memory
from reasoning_from_scratch.fast.narrow_attention import NarrowAttention, has_narrow_backward
from reasoning_from_scratch.fast.neighbors import watch_neighbors
from reasoning_from_scratch.logprobs import Kept, batch_kept
from reasoning_from_scratch.qwen3 import Qwen3Model, attention, rope_tables
from reasoning_from_scratch.rollouts import Batch

# Logits per block, whatever the vocabulary: 32 MiB in float32 stay in a CPU's cache; a GPU gets
# 256 MiB, which keep it busy for longer than Python needs to start some thirty operations.
BLOCK_ELEMENTS, GPU_BLOCK_ELEMENTS = 2**23, 2**26
SMALLEST_BLOCK = 1024  # tokens of the vocabulary; thinner matrix products are slow
BLOCK_STEP = 128  # a block is a multiple of it: products of an odd width take a GPU twice as long
# When the backward pass of F.embedding is fast: on these devices, or for at most this many indices.
FAST_EMBEDDING_BACKWARD, FEW_INDICES = ("cpu", "mps"), 3072
BEFORE_FIRST = -1  # comes before the first token of a rollout
MIN_QUERY_SHARE = 0.75  # of the longest row's queries, for a row to share its attention call


def packed_logprobs(
    model: Qwen3Model,
    batch: Batch,
    temperature: float = 1.0,
    hidden_states: Callable | None = None,
    operations: "BlockOperations | None" = None,
) -> Tensor:
    """Log-probabilities (B, T) of the sampled tokens, each at its own position, 0 elsewhere.

    The same as `padded_logprobs`. compiled.py passes in `hidden_states`, in place of the model's
    method, and `operations`, what is done with each block of logits.
    """
    if batch.token_ids.device.type == "cpu":
        manage_memory()
        watch_neighbors()
    packed = pack(batch)
    compute = hidden_states or model.hidden_states
    hidden = compute(packed.token_ids, plan=packed_plan(model, packed))[0]  # (N, D)
    unique_logprobs = blockwise_logprobs(
        F.embedding(packed.predictors, hidden),  # (U, D)
        model.out_head.weight,
        packed.targets,
        temperature,
        batch_kept(batch) if batch.kept else None,
        operations=operations or PLAIN_OPERATIONS,
    )  # (U,)
    logprobs = F.embedding(packed.unique_index, unique_logprobs[:, None])[:, 0]  # (M,)
    sampled = batch.mask[:, 1:].bool()  # (B, T - 1)
    zeros = logprobs.new_zeros(sampled.shape)  # (B, T - 1)
    return F.pad(zeros.masked_scatter(sampled, logprobs), (1, 0))  # (B, T)


# --- packing


class Gather(NamedTuple):
    """Which rows of a table (N, W) to take."""

    indices: Tensor  # (b, T) padded with 0
    # For the backward pass on a GPU: the places where row 0 went, then those of row 1, ..., and for
    # each row of the table, where its places begin in this list.
    places: Tensor | None  # (K,) of b * T, without the padding
    starts: Tensor | None  # (N,)

    def take(self, table: Tensor) -> Tensor:
        """(b, T, W)."""
        if self.places is None:
            return F.embedding(self.indices, table)
        return TakenRows.apply(table, *self)


class TakenRows(torch.autograd.Function):
    """F.embedding with another backward pass. The original sorts many indices on a GPU each time,
    in some twenty operations. Here they are sorted once for all layers. The gradients of a token
    that rollouts share are added up in float32, and always in the same order."""

    @staticmethod
    def forward(ctx, table, indices, places, starts):
        ctx.save_for_backward(places, starts)
        return F.embedding(indices, table)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        places, starts = ctx.saved_tensors
        rows = grad.flatten(0, 1).contiguous()  # (b * T, W)
        return F.embedding_bag(places, rows, starts, mode="sum"), None, None, None


def make_gather(indices: list[list[int]], rows: int, device: torch.device) -> Gather:
    """A Gather of these rows of indices, of any length, from a table of `rows` rows."""
    width = max(map(len, indices))
    padded = np.zeros((len(indices), width), dtype=np.int64)  # (b, T)
    for padded_row, row in zip(padded, indices, strict=True):
        padded_row[: len(row)] = row

    if device.type in FAST_EMBEDDING_BACKWARD or padded.size <= FEW_INDICES:
        return Gather(to_device(padded, device), None, None)
    lengths = np.array([len(row) for row in indices])
    real_places = (np.arange(width) < lengths[:, None]).ravel().nonzero()[0]  # (K,)
    taken_rows = padded.ravel()[real_places]
    counts = np.bincount(taken_rows, minlength=rows)
    places = real_places[taken_rows.argsort(kind="stable")]
    starts = counts.cumsum() - counts
    return Gather(to_device(padded, device), to_device(places, device), to_device(starts, device))


class AttentionCall(NamedTuple):
    """Rows of packed tokens that attention processes in one call."""

    keys: Gather  # (b, S)
    queries: Gather  # (b, T)
    mask: Tensor | None  # (b, 1, T, S) which keys a query sees; None: queries are keys, and causal
    starts: list[int]  # (b,) the position of a row's first query among its keys


class Packed(NamedTuple):
    """A batch of B rollouts with M sampled tokens, as N packed tokens, with U different ones to
    predict: the same token after the same beginning has the same probability in every rollout."""

    token_ids: Tensor  # (1, N)
    positions: Tensor  # (1, N) of each token in its rollout
    calls: list[AttentionCall]
    result_places: Gather  # (1, N) where a token's result is among the results of all calls
    predictors: Tensor  # (U,) the packed token that predicts each of them
    targets: Tensor  # (U,) what it predicts
    unique_index: Tensor  # (M,) for each sampled token, which of the U it is, row by row


def pack(batch: Batch) -> Packed:
    """Every shared beginning is stored once: a token and the packed one before it identify it. An
    answer's last token is omitted: it predicts nothing. Nothing is read back from a GPU."""
    device, batch = batch.token_ids.device, batch.cpu_copy or batch
    ids: list[int] = []
    positions: list[int] = []
    packed_number: dict[tuple[int, int], int] = {}  # (packed token before, token) -> its number
    rows: list[list[int]] = []  # for each rollout, its packed tokens
    rollouts = batch.token_ids.tolist()
    for tokens, length in zip(rollouts, batch.lengths.tolist(), strict=True):
        row: list[int] = []
        previous = BEFORE_FIRST
        for token in tokens[: length - 1]:
            if (previous, token) not in packed_number:
                packed_number[previous, token] = len(ids)
                ids.append(token)
                positions.append(len(row))
            previous = packed_number[previous, token]
            row.append(previous)
        rows.append(row)
    # The same token after the same one is predicted once, unless top-p cut each draw separately.
    targets_by_rollout = rollouts if batch.targets is None else batch.targets.tolist()
    per_rollout = zip(rows, targets_by_rollout, batch.mask.tolist(), strict=True)
    predictions = [
        (row[place - 1], targets[place], (n, place) if batch.kept else None)
        for n, (row, targets, mask) in enumerate(per_rollout)
        for place, sampled in enumerate(mask)
        if sampled
    ]
    unique_index = {key: number for number, key in enumerate(dict.fromkeys(predictions))}
    calls, result_places, result_count = attention_calls(rows)

    return Packed(
        to_device([ids], device),
        to_device([positions], device),
        [attention_call(call, len(ids), device) for call in calls],
        make_gather([result_places], result_count, device),
        to_device([key[0] for key in unique_index], device),
        to_device([key[1] for key in unique_index], device),
        to_device([unique_index[key] for key in predictions], device),
    )


def to_device(numbers: list | np.ndarray, device: torch.device) -> Tensor:
    return torch.as_tensor(numbers, dtype=torch.long).to(device, non_blocking=device.type == "cuda")


# --- attention


class PackedPlan(NamedTuple):
    """The model's AttentionPlan for packed tokens."""

    cos: Tensor  # (1, N, 1, head_dim)
    sin: Tensor
    calls: list[AttentionCall]
    result_places: Gather  # (1, N)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Queries (1, heads, N, head_dim), keys and values (1, kv groups, N, head_dim) ->
        (1, N, heads * head_dim). Each call gathers its rows from the packed tokens, and the
        results of all calls, one after the other, are gathered back."""
        head_dim = queries.shape[-1]
        q_table, *kv_tables = (x[0].transpose(0, 1).flatten(1) for x in (queries, keys, values))
        kv_table = torch.cat(kv_tables, dim=1)  # (N, 2 groups * head_dim): gathered together
        results = []
        for call in self.calls:
            rows = call.queries.take(q_table), call.keys.take(kv_table)  # (b, T, ...), (b, S, ...)
            q, kv = (x.unflatten(-1, (-1, head_dim)) for x in rows)  # (b, T, heads, head_dim), ...
            if q.dtype == torch.bfloat16 and has_narrow_backward(q):
                attended = NarrowAttention.apply(q, kv, call.mask, call.starts)
            else:
                k, v = kv.transpose(1, 2).chunk(2, dim=1)  # (b, groups, S, head_dim)
                attended = attention(q.transpose(1, 2), k, v, call.mask)
            results.append(attended.flatten(0, 1))  # (b * T, heads * head_dim)
        return self.result_places.take(torch.cat(results))


def packed_plan(model: Qwen3Model, packed: Packed) -> PackedPlan:
    cos, sin = rope_tables(packed.positions[..., None], model.cfg, model.tok_emb.weight.dtype)
    return PackedPlan(cos, sin, packed.calls, packed.result_places)


class AttentionRow(NamedTuple):
    """A row of an attention call: all its tokens are keys, those from `start` on also queries."""

    tokens: list[int]  # numbers of packed tokens
    start: int

    @property
    def queries(self) -> int:
        return len(self.tokens) - self.start

    @property
    def kind(self) -> int:
        """Only rows of the same kind share a call. Kind 0: all tokens are queries. The other kinds
        sort rows by length, each up to twice as long as the one before, because keys are padded
        as well as queries."""
        return len(self.tokens).bit_length() if self.start else 0

    def fits(self, longest: "AttentionRow") -> bool:
        """Whether it can share a call whose longest row is this one."""
        return self.kind == longest.kind and self.queries >= MIN_QUERY_SHARE * longest.queries


def attention_calls(rows: list[list[int]]) -> tuple[list[list[AttentionRow]], list[int], int]:
    """The calls that compute attention for every packed token; for each token, where its result is
    among theirs; and how many results there are. A token that rows share may be a query of several
    of them: any one of its results will do."""
    calls: list[list[AttentionRow]] = []
    for row in sorted(attention_rows(rows), key=lambda row: (row.kind, -row.queries)):
        if not (calls and row.fits(calls[-1][0])):
            calls.append([])
        calls[-1].append(row)
    result_places, count = [0] * (1 + max(map(max, filter(None, rows)), default=-1)), 0
    for call in calls:
        for row in call:
            for place, token in enumerate(row.tokens[row.start :], count):
                result_places[token] = place
            count += call[0].queries
    return calls, result_places, count


def attention_rows(rows: list[list[int]]) -> list[AttentionRow]:
    """If a row begins like an earlier one, either all its tokens are queries or only its own. All
    of them means wasted work, but then attention is causal and needs no mask. So the shared ones
    are skipped only if they are the larger part."""
    packed_rows, stored = [], 0
    for row in rows:
        shared = bisect_left(row, stored)  # its own tokens are the newest: from number `stored` on
        if shared < len(row):
            packed_rows.append(AttentionRow(row, shared if len(row) < 2 * shared else 0))
            stored = row[-1] + 1
    return packed_rows


def attention_call(rows: list[AttentionRow], tokens: int, device: torch.device) -> AttentionCall:
    keys = make_gather([row.tokens for row in rows], tokens, device)  # (b, S)
    starts = [row.start for row in rows]
    start_column = torch.tensor(starts)
    if not start_column.any():
        return AttentionCall(keys, keys, None, starts)
    queries = make_gather([row.tokens[row.start :] for row in rows], tokens, device)  # (b, T)
    positions = start_column[:, None] + torch.arange(queries.indices.shape[1])  # (b, T)
    mask = torch.arange(keys.indices.shape[1]) <= positions[:, :, None]  # (b, T, S)
    return AttentionCall(
        keys, queries, mask[:, None].to(device, non_blocking=device.type == "cuda"), starts
    )


# --- log-probabilities, a block of the vocabulary at a time


def block_sums(
    products: Tensor, cut: Tensor | None, temperature: float, largest: Tensor, total: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`largest` and `total` of BlockwiseLogprobs, after one more block's matrix product (M, C), and
    the block's e^(logit - largest)."""
    logits = as_logits(products, cut, temperature)
    before, largest = largest, torch.maximum(largest, logits.amax(-1, keepdim=True))
    total = total * (before - largest).exp()  # m - m' is -inf at the first block: 0 times 0
    weights = logits.sub_(largest).exp_()
    return largest, total + weights.sum(-1, keepdim=True), weights


def block_gradient(
    products: Tensor,
    cut: Tensor | None,
    temperature: float,
    log_z: Tensor,
    column: Tensor,
    in_block: Tensor,
    scale: Tensor,
) -> Tensor:
    """The gradient (M, C) at a block's logits: scale times one-hot(target) - p."""
    dtype = products.dtype
    grad = as_logits(products, cut, temperature).sub_(log_z).exp_().mul_(-scale)  # -p, weighted
    return grad.scatter_add_(-1, column, scale * in_block).to(dtype)


class BlockOperations(NamedTuple):
    """What is done with each block of logits between its matrix products."""

    sums: Callable[..., tuple[Tensor, Tensor, Tensor]]
    gradient: Callable[..., Tensor]


PLAIN_OPERATIONS = BlockOperations(block_sums, block_gradient)


def blockwise_logprobs(
    hidden: Tensor,
    head_weight: Tensor,
    targets: Tensor,
    temperature: float = 1.0,
    kept: Kept | None = None,
    block: int = 0,
    operations: BlockOperations = PLAIN_OPERATIONS,
) -> Tensor:
    """Log-probabilities (M,) of M sampled tokens `targets` that hidden states (M, D) predict: what
    `token_logprobs` computes, without ever holding the logits (M, V).

    `block` is how many tokens of the vocabulary are processed together (default: as many as
    `elements_per_block` allows). Gradients reach hidden and head_weight (V, D).
    """
    if not block:
        size = elements_per_block(hidden.device) // max(1, len(hidden))
        block = max(SMALLEST_BLOCK, size - size % BLOCK_STEP)
    if kept is not None:
        kept = Kept(kept.ids.to(hidden.device), kept.counts.to(hidden.device))
    return BlockwiseLogprobs.apply(
        hidden, head_weight, targets, temperature, kept, block, operations
    )


def elements_per_block(device: torch.device) -> int:
    return BLOCK_ELEMENTS if device.type == "cpu" else GPU_BLOCK_ELEMENTS


class BlockwiseLogprobs(torch.autograd.Function):
    """Two passes over the blocks of the vocabulary: one forward, and one backward, in which each
    block's logits are computed again instead of being remembered. If the head is not trained, one
    pass is enough: the gradient at the hidden states needs only the head's mean row under p, which
    is summed up on the way. The target's row is left out of that sum and added at the end:
    where p is almost 1, rounding would drown the little that the two differ by."""

    @staticmethod
    def forward(ctx, hidden, head, targets, temperature, kept, block, operations):
        """log p[target] = logit[target] - log Z, with Z = sum over the vocabulary of e^logit.

        e^logit may be too large for a float, so sums are kept relative to the largest logit m so
        far, total = sum of e^(logit - m), so that Z = total * e^m. When a block has a larger one,
        m', what was summed is multiplied by e^(m - m').
        """
        largest = hidden.new_full((len(hidden), 1), -torch.inf, dtype=at_least_float32(hidden))
        total, target_logits = torch.zeros_like(largest), torch.zeros_like(largest)
        other_rows = None  # (M, D) sum of e^(logit - m) times the head's rows, without the target's
        if ctx.needs_input_grad[0] and not ctx.needs_input_grad[1]:
            other_rows = torch.zeros_like(hidden, dtype=at_least_float32(hidden))
        for span in blocks(len(head), block):
            products = hidden @ head[span].T  # (M, C)
            column, in_block = target_columns(targets, span)
            target_logits += as_logits(products.gather(-1, column), None, temperature) * in_block
            cut, before = cut_mask(kept, span), largest
            largest, total, weights = operations.sums(products, cut, temperature, before, total)
            if other_rows is not None:
                weights.scatter_(-1, column, weights.gather(-1, column) * ~in_block)
                other_rows.mul_((before - largest).exp()).add_(
                    weights.to(hidden.dtype) @ head[span]
                )
        log_z = largest + total.log()  # (M, 1)
        ctx.settings = temperature, kept, block, operations, hidden.dtype
        if other_rows is None:
            ctx.save_for_backward(hidden, head, targets, log_z)
        else:  # (1 - p[target]) times the target's row, minus p times each other row
            target_rows = F.embedding(targets, head)  # (M, D)
            ctx.save_for_backward(
                target_rows * -(target_logits - log_z).expm1() - other_rows / total
            )
        return (target_logits - log_z)[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_logprobs):
        """d log p[target] / d logits = (one-hot(target) - p) / temperature, a row per token."""
        temperature, kept, block, operations, dtype = ctx.settings
        scale = grad_logprobs[:, None] / temperature  # (M, 1)
        if len(ctx.saved_tensors) == 1:  # the head is not trained
            return (scale * ctx.saved_tensors[0]).to(dtype), *[None] * 6
        hidden, head, targets, log_z = ctx.saved_tensors
        # The blocks' shares are added up in float32: in bfloat16 the later ones would round away.
        grad_hidden = torch.zeros_like(hidden, dtype=at_least_float32(hidden))
        grad_head = torch.empty_like(head) if ctx.needs_input_grad[1] else None
        for span in blocks(len(head), block):
            products = hidden @ head[span].T  # (M, C)
            column, in_block = target_columns(targets, span)
            cut = cut_mask(kept, span)
            grad = operations.gradient(products, cut, temperature, log_z, column, in_block, scale)
            grad_hidden += grad @ head[span]
            if grad_head is not None:
                grad_head[span] = grad.T @ hidden
        return grad_hidden.to(hidden.dtype), grad_head, *[None] * 5


LOWEST = -1e30  # in place of -inf, because -inf minus -inf is NaN


def blocks(vocabulary: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, vocabulary)) for start in range(0, vocabulary, size)]


def as_logits(products: Tensor, cut: Tensor | None, temperature: float) -> Tensor:
    """A block's matrix product (M, C) divided by the temperature; LOWEST where cut. Overwrites
    its input, unless that is narrower than float32."""
    logits = products.to(at_least_float32(products))
    if temperature != 1:
        logits.div_(temperature)
    if cut is not None:
        logits.masked_fill_(cut, LOWEST)
    return logits


def cut_mask(kept: Kept | None, span: slice) -> Tensor | None:
    """Which tokens of the block were cut, (M, C): all that are not among the kept ids, for those
    sampled tokens that have kept ids. None: nothing was cut."""
    if kept is None:
        return None
    in_block = (kept.ids >= span.start) & (kept.ids < span.stop)
    tokens = torch.arange(len(kept.counts), device=kept.ids.device)
    rows = tokens.repeat_interleave(kept.counts)  # the sampled token that each kept id belongs to
    cut = (kept.counts > 0)[:, None].repeat(1, span.stop - span.start)
    cut[rows[in_block], kept.ids[in_block] - span.start] = False
    return cut


def target_columns(targets: Tensor, span: slice) -> tuple[Tensor, Tensor]:
    """The targets' columns within the block (0 for those outside of it), and which of them are
    inside, both (M, 1)."""
    in_block = (targets >= span.start) & (targets < span.stop)
    return ((targets - span.start) * in_block)[:, None], in_block[:, None]


def at_least_float32(tensor: Tensor) -> torch.dtype:
    """float64 stays, everything narrower is computed in float32."""
    return torch.promote_types(tensor.dtype, torch.float32)
