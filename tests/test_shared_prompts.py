"""Prompts stored once and answers without padding: the same numbers, fewer tokens."""

import pytest
import torch
import torch.nn.functional as F
from toy import toy_model

from reasoning_from_scratch import gradients
from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.logprobs import token_logprobs
from reasoning_from_scratch.memory import checkpoint_blocks
from reasoning_from_scratch.rollouts import Rollout, make_batch
from reasoning_from_scratch.shared_prompts import parts_by_length, shared_prompts

CONFIG = TrainConfig(temperature=0.8)


def batch_of(*rollouts):
    return make_batch([
        Rollout(None, prompt, answer, [-1.0] * len(answer), [], "", True)
        for prompt, answer in rollouts
    ])  # fmt: skip


def random_batch(seed=0):
    """Three prompts, one of them a part of another, answers of 1 to 12 tokens."""
    generator = torch.Generator().manual_seed(seed)
    numbers = lambda count: torch.randint(1, 40, (count,), generator=generator).tolist()  # noqa: E731
    prompts = [numbers(5), numbers(9)]
    prompts.append(prompts[1][:4])
    lengths = torch.randint(1, 13, (10,), generator=generator).tolist()
    return batch_of(*[(prompts[i % 3], numbers(n)) for i, n in enumerate(lengths)])


def padded_logprobs(model, batch):
    """The plain way: every row with its prompt, padded to the longest."""
    hidden = model.hidden_states(batch.token_ids[:, :-1])
    logprobs, _ = token_logprobs(
        hidden, model.out_head.weight, batch.token_ids[:, 1:], batch.mask[:, 1:], CONFIG.temperature
    )
    return F.pad(logprobs, (1, 0))


def gradient(model, logprobs, batch):
    weights = torch.linspace(-1, 1, batch.mask.numel()).view(batch.mask.shape)
    model.zero_grad()
    (logprobs * weights).sum().backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_same_log_probabilities_and_gradients(checkpointing):
    model, batch = toy_model(tie_embeddings=True), random_batch()
    expected = padded_logprobs(model, batch)
    expected_gradient = gradient(model, expected, batch)
    if checkpointing:
        checkpoint_blocks(model)
    found = gradients.batch_logprobs(model, batch, CONFIG)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert (found[batch.mask == 0] == 0).all()
    difference = gradient(model, found, batch) - expected_gradient
    assert difference.abs().max() <= 1e-5 * expected_gradient.abs().max()


def test_each_prompt_is_there_once_and_padding_is_not():
    batch = batch_of(([1, 2, 3], [4, 5]), ([1, 2, 3], [6]), ([7], [8, 9, 10]), ([1, 2, 3], [4, 5]),
                     ([7], [8]))  # fmt: skip
    ids, layout, before = shared_prompts(batch)
    assert ids.tolist() == [[1, 2, 3, 4, 7, 8, 9, 4]]  # the last tokens predict nothing
    assert layout.positions.tolist() == [[0, 1, 2, 3, 0, 1, 2, 3]]
    long, short = (rows.tolist() for rows in layout.rows)
    assert long == [[0, 1, 2, 3], [0, 1, 2, 7], [0, 1, 2, 0], [4, 5, 6, 0]] and short == [[4]]
    assert before.tolist() == [2, 3, 2, 4, 5, 6, 2, 7, 4]
    places = torch.cat([rows.flatten() for rows in layout.rows])[layout.back]
    assert places.tolist() == list(range(8))  # each token is found where `back` says


def test_rows_of_similar_length_are_padded_together():
    rows = [list(range(length)) for length in (10, 40, 30, 7, 29, 8)]
    parts, first = parts_by_length(rows)
    assert [tuple(part.shape) for part in parts] == [(2, 40), (1, 29), (2, 10), (1, 7)]
    flat = torch.cat([part.flatten() for part in parts])
    for row, start in first.items():
        assert flat[start : start + len(rows[row])].tolist() == rows[row]


def test_a_batch_without_a_sampled_token():
    """A rank that has nothing left to do passes a row along, with an empty mask."""
    model, batch = toy_model(), random_batch()
    batch.mask.zero_()
    found = gradients.batch_logprobs(model, batch, CONFIG)
    assert not found.any()
    found.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())
