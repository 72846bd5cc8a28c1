"""Prompts stored once and answers without padding: the same numbers, fewer tokens."""

import pytest
import torch
from toy import toy_model

from reasoning_from_scratch.fast.packed import attention_calls, pack, packed_logprobs
from reasoning_from_scratch.logprobs import padded_logprobs
from reasoning_from_scratch.rollouts import Rollout, make_batch
from reasoning_from_scratch.run.memory import checkpoint_blocks

TEMPERATURE = 0.8


def batch_of(*rollouts):
    return make_batch(
        [
            Rollout(None, prompt, answer, [-1.0] * len(answer), [], "", True)
            for prompt, answer in rollouts
        ]
    )


def random_batch(seed=0):
    """Three prompts, one of them a part of another, answers of 1 to 12 tokens."""
    generator = torch.Generator().manual_seed(seed)
    numbers = lambda count: torch.randint(1, 40, (count,), generator=generator).tolist()  # noqa: E731
    prompts = [numbers(5), numbers(9)]
    prompts.append(prompts[1][:4])
    lengths = torch.randint(1, 13, (10,), generator=generator).tolist()
    return batch_of(*[(prompts[i % 3], numbers(n)) for i, n in enumerate(lengths)])


def gradient(model, logprobs, batch):
    weights = torch.linspace(-1, 1, batch.mask.numel()).view(batch.mask.shape)
    model.zero_grad()
    (logprobs * weights).sum().backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_same_log_probabilities_and_gradients(checkpointing):
    model, batch = toy_model(tie_embeddings=True), random_batch()
    expected = padded_logprobs(model, batch, TEMPERATURE)
    expected_gradient = gradient(model, expected, batch)
    if checkpointing:
        checkpoint_blocks(model)
    found = packed_logprobs(model, batch, TEMPERATURE)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert (found[batch.mask == 0] == 0).all()
    difference = gradient(model, found, batch) - expected_gradient
    assert difference.abs().max() <= 1e-5 * expected_gradient.abs().max()


def test_each_prompt_is_there_once_and_padding_is_not():
    batch = batch_of(
        ([1, 2, 3], [4, 5]), ([1, 2, 3], [6]), ([7], [8, 9, 10]), ([1, 2, 3], [4, 5]), ([7], [8])
    )
    packed = pack(batch)
    assert packed.token_ids.tolist() == [[1, 2, 3, 4, 7, 8, 9, 4]]  # without last tokens
    assert packed.positions.tolist() == [[0, 1, 2, 3, 0, 1, 2, 3]]
    whole, after = packed.calls
    # Answers to [1, 2, 3] are shorter than it: it is a row of its own, and of them only the
    # answers are queries.
    assert whole.keys.tolist() == whole.queries.tolist() == [[4, 5, 6], [0, 1, 2]]
    assert after.keys.tolist() == [[0, 1, 2, 3], [0, 1, 2, 7]]
    assert after.queries.tolist() == [[3], [7]] and whole.mask is None and after.mask.all()
    assert packed.predictors.tolist() == [2, 3, 2, 4, 5, 6, 2, 7, 4]
    assert found_at(packed) == list(range(8))


def found_at(packed):
    """The token whose query gave the result that each token takes: it should be itself."""
    return torch.cat([call.queries.flatten() for call in packed.calls])[packed.found].tolist()


def test_answers_shorter_than_their_prompt_leave_its_queries_out():
    prompt, other = list(range(1, 7)), [9, 9]
    batch = batch_of((prompt, [7] * 10), (prompt, [8] * 3), (prompt, [7] * 5), (other, [7] * 2))
    packed = pack(batch)
    whole, single, longer, shorter = packed.calls
    assert whole.queries.shape == (1, 15) and whole.mask is None  # the prompt's queries, too
    assert single.queries.tolist() == [[21, 22, 23]]  # nobody shares its prompt
    assert longer.queries.tolist() == [[17, 18, 19, 20]]
    assert shorter.keys.tolist() == [[0, 1, 2, 3, 4, 5, 15, 16]]
    assert shorter.mask.long().sum(-1).tolist() == [[[7, 8]]]  # all before, and itself
    assert found_at(packed) == list(range(packed.token_ids.numel()))


def test_a_long_prompt_does_not_lengthen_the_others():
    """Its answers may be as short as theirs; side by side, all would get keys for 200 tokens."""
    pairs = [(list(range(1, 201)), [7] * 5)] * 2 + [([9] * 20, [8] * 5)] * 2
    calls = pack(batch_of(*pairs)).calls
    shapes = [(tuple(call.queries.shape), tuple(call.keys.shape)) for call in calls]
    assert shapes == [((1, 200),) * 2, ((1, 20),) * 2, ((2, 4), (2, 24)), ((2, 4), (2, 204))]


def test_rows_of_similar_length_are_padded_together():
    rows, start = [], 0
    for length in (10, 40, 30, 7, 29, 8):
        rows.append(list(range(start, start + length)))
        start += length
    calls, found = attention_calls(rows, [1] * len(rows))
    assert [tuple(call.queries.shape) for call in calls] == [(2, 40), (1, 29), (2, 10), (1, 7)]
    flat = torch.cat([call.queries.flatten() for call in calls])
    assert flat[torch.tensor(found)].tolist() == list(range(start))


def test_a_batch_without_a_sampled_token():
    """A rank that has nothing left to do passes a row along, with an empty mask."""
    model, batch = toy_model(), random_batch()
    batch.mask.zero_()
    found = packed_logprobs(model, batch, TEMPERATURE)
    assert not found.any()
    found.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())
