"""The training pass without padding: each prompt of the batch once, each answer once.

    rows      [p p p a a . .]         one row per rollout, padded; a and b answer the same prompt p
              [p p p b b b b]
    packed    [p p p a a b b b b]     the same tokens, the prompt once, and no padding

As padded rows, 64 answers of the tiny model are 7,000 tokens; packed, they are 1,700. All of the
model but attention treats each token by itself, so it can read the packed tokens as one row
(1, N). Attention needs to know which tokens stand before which: it puts rows together again.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from reasoning_from_scratch.logprobs import kept_of, token_logprobs
from reasoning_from_scratch.qwen3 import attention, rope_tables
from reasoning_from_scratch.rollouts import Batch

PADS_WELL = 0.75  # share of a call's longest row that each of its rows has; others get more padding


def packed_logprobs(
    model: nn.Module, batch: Batch, temperature: float = 1.0, hidden_states: Callable | None = None
) -> Tensor:
    """Log-probabilities (B, T) of the sampled tokens, each at its own position, 0 elsewhere.

    The same as `padded_logprobs`. `hidden_states` is the model's method, or that compiled.
    """
    packed = pack(batch)
    compute = hidden_states or model.hidden_states
    hidden = compute(packed.token_ids, plan=packed_plan(model, packed))[0]  # (N, D)
    sampled = batch.mask[:, 1:].bool()  # (B, T - 1)
    targets = batch.token_ids[:, 1:][sampled]  # (M,)
    logprobs, _ = token_logprobs(
        F.embedding(packed.predictors, hidden)[None],  # (1, M, D)
        model.out_head.weight,
        targets[None],
        torch.ones_like(targets)[None],
        temperature,
        kept_of(batch),
    )
    zeros = logprobs.new_zeros(sampled.shape)  # (B, T - 1)
    return F.pad(zeros.masked_scatter(sampled, logprobs), (1, 0))  # (B, T)


def compiled_pass(model: nn.Module) -> Callable[[nn.Module, Batch, float], Tensor]:
    """`packed_logprobs` with torch.compile for this model, plain for another (the reference)."""
    compiled = torch.compile(model.hidden_states, dynamic=True)

    def training_pass(asked: nn.Module, batch: Batch, temperature: float) -> Tensor:
        return packed_logprobs(asked, batch, temperature, compiled if asked is model else None)

    return training_pass


# --- packing


class AttentionCall(NamedTuple):
    """Rows that attention takes together: numbers of packed tokens, padded with 0."""

    keys: Tensor  # (b, S)
    queries: Tensor  # (b, T)
    mask: Tensor | None  # (b, 1, T, S) which keys a query sees; None: queries are keys, and causal

    def to(self, device: torch.device) -> "AttentionCall":
        return AttentionCall(*(None if tensor is None else tensor.to(device) for tensor in self))


class Packed(NamedTuple):
    """A batch of B rollouts with M sampled tokens, as N packed tokens."""

    token_ids: Tensor  # (1, N)
    positions: Tensor  # (1, N) of each token in its rollout
    calls: list[AttentionCall]
    found: Tensor  # (N,) where a token's result stands among the results of all calls
    predictors: Tensor  # (M,) the packed token that predicts each sampled token, row by row


def pack(batch: Batch) -> Packed:
    """Each prompt is stored once, before its first answer. The last token of an answer is left
    out: it predicts nothing."""
    ids: list[int] = []
    positions: list[int] = []
    rows: list[list[int]] = []  # for each rollout, the numbers of its packed tokens
    prompt_starts: dict[tuple[int, ...], int] = {}  # where a prompt is stored
    prompt_lengths = batch.mask.argmax(dim=1).tolist()  # the position of the first sampled token
    lengths = batch.lengths.tolist()
    for row, tokens in enumerate(batch.token_ids.tolist()):
        prompt = tuple(tokens[: prompt_lengths[row]])
        known = len(prompt) if prompt in prompt_starts else 0
        start = prompt_starts.setdefault(prompt, len(ids))
        new = range(known, lengths[row] - 1)
        rows.append([*range(start, start + known), *range(len(ids), len(ids) + len(new))])
        ids += tokens[known : lengths[row] - 1]
        positions += new
    predictors = [
        row[position - 1]
        for row, mask in zip(rows, batch.mask.tolist(), strict=True)
        for position, sampled in enumerate(mask)
        if sampled
    ]
    calls, found = attention_calls(rows, prompt_lengths)
    device = batch.token_ids.device
    return Packed(
        torch.tensor([ids], device=device),
        torch.tensor([positions], device=device),
        [call.to(device) for call in calls],
        torch.tensor(found, device=device),
        torch.tensor(predictors, dtype=torch.long, device=device),
    )


# --- attention


class PackedPlan(NamedTuple):
    """The model's AttentionPlan for packed tokens."""

    cos: Tensor  # (1, 1, N, head_dim)
    sin: Tensor
    calls: list[AttentionCall]
    found: Tensor  # (N,)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Queries (1, heads, N, head_dim), keys and values (1, kv groups, N, head_dim) ->
        (1, N, heads * head_dim). Each call gathers its rows from the packed tokens, and the
        results of all calls, one after the other, are gathered back.

        `F.embedding` gathers. Its backward pass adds up what the rollouts that share a token send
        back to it, and is faster on a CPU than that of an index.
        """
        head_dim = queries.shape[-1]
        tables = [x[0].transpose(0, 1).flatten(1) for x in (queries, keys, values)]  # (N, ...)
        results = []
        for call in self.calls:
            numbers = (call.queries, call.keys, call.keys)
            rows = [F.embedding(*pair) for pair in zip(numbers, tables, strict=True)]  # (b, T, ...)
            heads = [x.unflatten(-1, (-1, head_dim)).transpose(1, 2) for x in rows]
            results.append(attention(*heads, call.mask).flatten(0, 1))  # (b * T, heads * head_dim)
        return F.embedding(self.found[None], torch.cat(results))


def packed_plan(model: nn.Module, packed: Packed) -> PackedPlan:
    size, base, dtype = model.cfg["head_dim"], model.cfg["rope_base"], model.tok_emb.weight.dtype
    cos, sin = rope_tables(packed.positions[:, None], size, base, dtype)
    return PackedPlan(cos, sin, packed.calls, packed.found)


class AttentionRow(NamedTuple):
    """A row of an attention call: all of its tokens are keys, those from `start` on queries."""

    tokens: list[int]  # numbers of packed tokens
    start: int

    @property
    def queries(self) -> int:
        return len(self.tokens) - self.start

    @property
    def kind(self) -> int:
        """Only rows of one kind share a call. Those whose tokens are all queries are of kind 0.
        Of the others, each kind has up to twice as many keys as the one before, because keys are
        padded as well as queries."""
        return len(self.tokens).bit_length() if self.start else 0

    def fits(self, longest: "AttentionRow") -> bool:
        """Whether it can share a call whose longest row is this one."""
        return self.kind == longest.kind and self.queries >= PADS_WELL * longest.queries


def attention_calls(
    rows: list[list[int]], prompt_lengths: list[int]
) -> tuple[list[AttentionCall], list[int]]:
    """The calls that compute attention for every packed token, and for each token a place of its
    result among theirs: a prompt may be among the queries of several rows, with the same result."""
    calls: list[list[AttentionRow]] = []
    for row in sorted(attention_rows(rows, prompt_lengths), key=lambda x: (x.kind, -x.queries)):
        if not (calls and row.fits(calls[-1][0])):
            calls.append([])
        calls[-1].append(row)
    found, places = [0] * (1 + max(map(max, rows))), 0
    for call in calls:
        for row in call:
            for place, token in enumerate(row.tokens[row.start :], places):
                found[token] = place
            places += call[0].queries
    return [padded_call(call) for call in calls], found


def attention_rows(rows: list[list[int]], prompt_lengths: list[int]) -> list[AttentionRow]:
    """Of an answer p p p a a either the whole row is queries, or only the answer.

    The whole row repeats the prompt's queries, which is wasted work for all but one of the
    answers to a prompt; so an answer that is shorter than its prompt leaves them out. A prompt
    whose answers all leave it out becomes a row of its own.
    """
    sharing = Counter(row[0] for row in rows)  # a prompt is known by its first packed token
    found, prompts = [], {}
    for row, length in zip(rows, prompt_lengths, strict=True):
        answer_only = sharing[row[0]] > 1 and len(row) < 2 * length
        found.append(AttentionRow(row, length if answer_only else 0))
        prompts[row[0]] = AttentionRow(row[:length], 0)
    covered = {row.tokens[0] for row in found if not row.start}
    found += [prompt for first, prompt in prompts.items() if first not in covered]
    return [row for row in found if row.queries]


def padded_call(rows: list[AttentionRow]) -> AttentionCall:
    keys = pad_sequence([torch.tensor(row.tokens) for row in rows], batch_first=True)  # (b, S)
    starts = torch.tensor([row.start for row in rows])
    if not starts.any():
        return AttentionCall(keys, keys, None)
    own = [torch.tensor(row.tokens[row.start :]) for row in rows]
    queries = pad_sequence(own, batch_first=True)  # (b, T)
    positions = starts[:, None] + torch.arange(queries.shape[1])  # (b, T)
    mask = torch.arange(keys.shape[1]) <= positions[:, :, None]  # (b, T, S)
    return AttentionCall(keys, queries, mask[:, None])
