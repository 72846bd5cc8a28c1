"""A batch of rollouts for the training pass: each prompt once, and no padding.

All rollouts of a group begin with the same prompt, and they end at different lengths. As padded
rows, 64 answers of the tiny model are 7,000 tokens; stored once each they are 1,700.
"""

import torch
from torch import Tensor

from reasoning_from_scratch.attention import Layout
from reasoning_from_scratch.rollouts import Batch

SHORTEST = 0.75  # attention pads rows together that are at least so long, beside the longest


def shared_prompts(batch: Batch) -> tuple[Tensor, Layout, Tensor]:
    """What the model reads to predict every token of the batch: ids (1, N), and where they lie;
    and which of the N tokens predicts each sampled token, in the mask's row order (M,)."""
    ids: list[int] = []
    positions: list[int] = []
    at: list[tuple[int, int]] = []  # row and position at which each token first stands
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
        at += [(row, position) for position in new]
    device = batch.token_ids.device
    parts, first = parts_by_length(rows)
    back = torch.tensor([first[row] + position for row, position in at])
    before = [row[position - 1] for row, masked in zip(rows, batch.mask.tolist(), strict=True)
              for position, one in enumerate(masked) if one]  # fmt: skip
    layout = Layout(torch.tensor([positions], device=device), [x.to(device) for x in parts],
                    back.to(device))  # fmt: skip
    return torch.tensor([ids], device=device), layout, torch.tensor(before, device=device).long()


def parts_by_length(rows: list[list[int]]) -> tuple[list[Tensor], dict[int, int]]:
    """Rows of similar length as padded tensors, and at which place among all each row begins."""
    parts: list[list[int]] = []
    for row in sorted(range(len(rows)), key=lambda row: -len(rows[row])):
        if not parts or len(rows[row]) < SHORTEST * len(rows[parts[-1][0]]):
            parts.append([])
        parts[-1].append(row)
    padded, first, places = [], {}, 0
    for part in parts:
        width = len(rows[part[0]])
        padded.append(torch.tensor([rows[row] + [0] * (width - len(rows[row])) for row in part]))
        first |= {row: places + number * width for number, row in enumerate(part)}
        places += len(part) * width
    return padded, first
