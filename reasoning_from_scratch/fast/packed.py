"""A batch of rollouts for the training pass: each prompt once, and no padding.

All rollouts of a group begin with the same prompt, and they end at different lengths. As padded
rows, 64 answers of the tiny model are 7,000 tokens; stored once each they are 1,700. Short
answers look at their prompt's keys and values, and the prompt looks at itself once for them all.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from reasoning_from_scratch.attention import Layout, Rows
from reasoning_from_scratch.logprobs import kept_of, token_logprobs
from reasoning_from_scratch.rollouts import Batch

SHORTEST = 0.75  # a row that asks for less, beside the longest, is not padded together with it


class Asker(NamedTuple):
    """A row, and the position from which on its tokens ask what they find in it."""

    row: list[int]
    start: int

    @property
    def count(self) -> int:
        return len(self.row) - self.start

    @property
    def kind(self) -> int:
        """0 for whole rows. Others differ by less than twice in length if they are of one kind:
        keys are padded, too, and a long prompt must not make those of all rows as many."""
        return len(self.row).bit_length() if self.start else 0

    def fits(self, longest: "Asker") -> bool:
        """May be padded to it."""
        return self.kind == longest.kind and self.count >= SHORTEST * longest.count


def packed_logprobs(
    model: nn.Module, batch: Batch, temperature: float = 1.0, hidden_states: Callable | None = None
) -> Tensor:
    """The training pass without padding: log-probabilities (B, T) of the sampled tokens, each at
    its own position, 0 elsewhere. `hidden_states`: the model's, compiled."""
    token_ids, layout, before = shared_prompts(batch)
    hidden = (hidden_states or model.hidden_states)(token_ids, layout=layout)[0]  # (N, D)
    sampled = batch.mask[:, 1:].bool()  # (B, T - 1)
    targets = batch.token_ids[:, 1:][sampled]  # (M,)
    logprobs, _ = token_logprobs(
        F.embedding(before, hidden)[None],  # (1, M, D)
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


def shared_prompts(batch: Batch) -> tuple[Tensor, Layout, Tensor]:
    """What the model reads to predict every token of the batch: ids (1, N), and where they lie;
    and which of the N tokens predicts each sampled token, in the mask's row order (M,)."""
    ids: list[int] = []
    positions: list[int] = []
    rows: list[list[int]] = []
    place: dict[tuple[int, ...], int] = {}  # prompt -> where its tokens begin in `ids`
    prompt_lengths = batch.mask.argmax(dim=1).tolist()  # the first sampled token's position
    lengths = batch.lengths.tolist()
    for row, tokens in enumerate(batch.token_ids.tolist()):
        prompt = tuple(tokens[: prompt_lengths[row]])
        known = len(prompt) if prompt in place else 0
        start = place.setdefault(prompt, len(ids))
        new = range(known, lengths[row] - 1)  # the last token predicts nothing
        rows.append([*range(start, start + known), *range(len(ids), len(ids) + len(new))])
        ids += tokens[known : lengths[row] - 1]
        positions += new
    before = [
        row[position - 1]
        for row, masked in zip(rows, batch.mask.tolist(), strict=True)
        for position, one in enumerate(masked)
        if one
    ]
    parts, back = attention_rows(rows, prompt_lengths)
    device = batch.token_ids.device
    layout = Layout(
        torch.tensor([positions], device=device),
        [part.to(device) for part in parts],
        torch.tensor(back, device=device),
    )
    return torch.tensor([ids], device=device), layout, torch.tensor(before, device=device).long()


def attention_rows(
    rows: list[list[int]], prompt_lengths: list[int]
) -> tuple[list[Rows], list[int]]:
    """What attention takes together, and for each token a place at which it asks."""
    parts: list[list[Asker]] = []
    by_kind = lambda asker: (asker.kind, -asker.count)  # noqa: E731
    for asker in sorted(who_asks(rows, prompt_lengths), key=by_kind):
        if not (parts and asker.fits(parts[-1][0])):
            parts.append([])
        parts[-1].append(asker)
    back, places = [0] * (1 + max(map(max, rows))), 0
    for part in parts:
        for asker in part:
            for place, token in enumerate(asker.row[asker.start :], places):
                back[token] = place
            places += part[0].count
    return [_padded(part) for part in parts], back


def who_asks(rows: list[list[int]], prompt_lengths: list[int]) -> list[Asker]:
    """Everyone who asks in any row.

    An answer that is shorter than its prompt asks alone, because that of a whole row, in which
    the prompt asks once more, takes longer. A prompt whose answers all do so is a row of its own.
    """
    sharing = Counter(row[0] for row in rows)  # where a prompt begins says which one it is
    askers, prompts = [], {}
    for row, length in zip(rows, prompt_lengths, strict=True):
        alone = sharing[row[0]] > 1 and len(row) < 2 * length
        askers.append(Asker(row, length if alone else 0))
        prompts[row[0]] = Asker(row[:length], 0)
    asked = {asker.row[0] for asker in askers if not asker.start}
    askers += [prompt for first, prompt in prompts.items() if first not in asked]
    return [asker for asker in askers if asker.count]


def _padded(part: list[Asker]) -> Rows:
    keys = pad_sequence([torch.tensor(asker.row) for asker in part], batch_first=True)
    starts = torch.tensor([asker.start for asker in part])
    if not starts.any():
        return Rows(keys, keys, None)
    own = [torch.tensor(asker.row[asker.start :]) for asker in part]
    queries = pad_sequence(own, batch_first=True)
    positions = starts[:, None] + torch.arange(queries.shape[1])  # (b, T)
    mask = torch.arange(keys.shape[1]) <= positions[:, :, None]  # (b, T, S)
    return Rows(keys, queries, mask[:, None])
