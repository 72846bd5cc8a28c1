"""Beginnings stored once and no padding: the same numbers, fewer tokens."""

import pytest
import torch
from toy import toy_model

from reasoning_from_scratch.fast import packed as packed_module
from reasoning_from_scratch.fast.memory import checkpoint_blocks
from reasoning_from_scratch.fast.packed import (
    blockwise_logprobs,
    pack,
    packed_logprobs,
)
from reasoning_from_scratch.logprobs import pack_kept, padded_logprobs, token_logprobs
from reasoning_from_scratch.rollouts import Rollout, make_batch

TEMPERATURE = 0.8


def batch_of(*pairs):
    """Of prompts with their answers."""
    return make_batch([Rollout(None, *pair, [-1.0] * len(pair[1])) for pair in pairs])


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


def test_what_rollouts_begin_with_is_there_once_and_padding_is_not():
    batch = batch_of(
        ([1, 2, 3], [4, 5]), ([1, 2, 3], [6]), ([7], [8, 9, 10]), ([1, 2, 3], [4, 5]), ([7], [8])
    )
    packed = pack(batch)
    assert packed.token_ids.tolist() == [[1, 2, 3, 4, 7, 8, 9]]  # without last tokens
    assert packed.positions.tolist() == [[0, 1, 2, 3, 0, 1, 2]]
    (whole,) = packed.calls  # the other three rows have no token of their own
    assert whole.queries is whole.keys
    assert whole.keys.indices.tolist() == [[0, 1, 2, 3], [4, 5, 6, 0]]
    assert found_at(packed) == list(range(7))
    # Of nine sampled tokens six are different, or follow something else.
    assert packed.predictors.tolist() == [2, 3, 2, 4, 5, 6]
    assert packed.targets.tolist() == [4, 5, 6, 8, 9, 10]
    assert packed.unique_index.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 3]


def found_at(packed):
    """The token whose query gave the result that each token takes: it should be itself."""
    asked = torch.cat([call.queries.indices.flatten() for call in packed.calls])
    return asked[packed.result_places.indices[0]].tolist()


def few_shot_batch():
    """Five prompts that begin with the same 12 tokens; one of them has a long answer."""
    start = list(range(1, 13))
    pairs = [([*start, 20 + i, 13], [7 + i, 8, 9][: 1 + j]) for i in range(4) for j in range(3)]
    return batch_of(*pairs, ([*start, 30], [14] * 20), ([*start, 30], [15] * 4))


def alike_batch():
    """What a sure model writes: some answers twice, others that part late."""
    pairs = [([1, 2, 3], [4, 5, 6, 7, 8][: 2 + i % 3] + [9 + i % 4]) for i in range(12)]
    return batch_of(*pairs, ([1, 2], [3, 4, 5]))


def as_on_a_gpu(patch):
    """There the backward pass adds up what it has sorted once."""
    patch.setattr(packed_module, "FAST_EMBEDDING_BACKWARD", ())
    patch.setattr(packed_module, "FEW_INDICES", 0)


BATCHES = [random_batch, few_shot_batch, alike_batch]


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("made", BATCHES)
def test_the_same_log_probabilities_and_gradients(made, checkpointing):
    model, batch = toy_model(tie_embeddings=True).double(), made()
    expected = padded_logprobs(model, batch, TEMPERATURE)
    expected_gradient = gradient(model, expected, batch)
    if checkpointing:
        checkpoint_blocks(model)
    found = packed_logprobs(model, batch, TEMPERATURE)
    assert made is random_batch or pack(batch).token_ids.numel() < batch.lengths.sum() / 2
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert (found[batch.mask == 0] == 0).all()
    difference = gradient(model, found, batch) - expected_gradient
    assert difference.abs().max() <= 1e-5 * expected_gradient.abs().max()


@pytest.mark.parametrize("made", BATCHES)
def test_the_gradient_that_a_gpu_computes(made, monkeypatch):
    model, batch = toy_model(tie_embeddings=True).double(), made()
    wanted = gradient(model, packed_logprobs(model, batch, TEMPERATURE), batch)
    as_on_a_gpu(monkeypatch)
    found = gradient(model, packed_logprobs(model, batch, TEMPERATURE), batch)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)


def test_the_same_token_may_have_been_drawn_from_two_choices():
    """Top-p of a sampler whose weights moved in between: each is renormalized by its own."""
    model, batch = toy_model(tie_embeddings=True), batch_of(*[([1, 2], [3, 4])] * 2)
    batch.kept = [[[3, 5], [4, 6]], [[3, 7, 8], []]]
    found = packed_logprobs(model, batch, TEMPERATURE)
    torch.testing.assert_close(found, padded_logprobs(model, batch, TEMPERATURE))
    assert (found[0, 2:] != found[1, 2:]).all()


def test_an_empty_answer_to_one_token():
    """It predicts nothing, so nothing of it is packed."""
    model = toy_model()
    rollouts = [Rollout(None, [5], []), Rollout(None, [5], [1, 2], [-1.0, -1.0])]
    batch = make_batch(rollouts)
    found = packed_logprobs(model, batch, TEMPERATURE)
    torch.testing.assert_close(found, padded_logprobs(model, batch, TEMPERATURE))
    assert not found[0].any() and found[1, 1:].all()


def test_a_batch_without_a_sampled_token():
    """A rank that has nothing left to do passes a row along, with an empty mask."""
    model, batch = toy_model(), random_batch()
    batch.mask.zero_()
    found = packed_logprobs(model, batch, TEMPERATURE)
    assert not found.any()
    found.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


# --- log-probabilities by blocks of the vocabulary ---
M, D, V = 11, 6, 40


def head_inputs(dtype):
    """Hidden states (M, D), head (V, D), targets (M,)."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(M, D, generator=generator).to(dtype).requires_grad_()
    head = torch.randn(V, D, generator=generator).to(dtype).requires_grad_()
    return hidden, head, torch.randint(0, V, (M,), generator=generator)


def plain(hidden, head, targets, temperature=1.0, kept=None):
    mask = torch.ones_like(targets)[None]
    return token_logprobs(hidden[None], head, targets[None], mask, temperature, kept)[0]


def token_gradients(logprobs, hidden, head):
    """Gradients for a random weight per token, signs mixed as advantages are."""
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(len(logprobs), generator=generator).to(logprobs.dtype)
    return torch.autograd.grad((weights * logprobs).sum(), (hidden, head))


def kept_sets(targets):
    """Kept sets, every third uncut."""
    generator = torch.Generator().manual_seed(5)
    sets = []
    for number, target in enumerate(targets.tolist()):
        size = int(torch.randint(1, 12, (1,), generator=generator))
        ids = {*torch.randperm(V, generator=generator)[:size].tolist(), target}
        sets.append([] if number % 3 == 2 else sorted(ids))
    return pack_kept(sets)


@pytest.mark.parametrize("block", [1, 9, 0])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("sets", [None, kept_sets])
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-11), (torch.float32, 2e-6)])
def test_a_frozen_head_needs_no_second_pass(dtype, tolerance, sets, temperature, block):
    hidden, head, targets = head_inputs(dtype)
    kept = sets and sets(targets)
    logprobs = blockwise_logprobs(hidden, head.detach(), targets, temperature, kept, block)
    expected = plain(hidden, head, targets, temperature, kept)
    torch.testing.assert_close(logprobs, expected, rtol=tolerance, atol=tolerance)
    weights = torch.arange(1.0, 1 + len(targets), dtype=dtype)
    (found,) = torch.autograd.grad((logprobs * weights).sum(), hidden)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), hidden)
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=10 * tolerance)


def test_a_frozen_head_in_bfloat16_keeps_what_a_confident_token_still_teaches():
    """At p = 0.999 the gradient is a thousandth of the head's rows: rounded like those, it would be
    lost."""
    torch.manual_seed(0)
    head = torch.randn(64, 32, dtype=torch.bfloat16)
    hidden = (0.4 * head[:8].float() + 0.05 * torch.randn(8, 32)).bfloat16().requires_grad_()
    targets = torch.arange(8)
    exact_inputs = hidden.detach().double().requires_grad_(), head.double()
    truth = plain(*exact_inputs, targets)
    assert truth.exp().median() > 0.9
    (exact,) = torch.autograd.grad(truth.sum(), exact_inputs[0])
    found = blockwise_logprobs(hidden, head, targets, block=16)
    (ours,) = torch.autograd.grad(found.sum(), hidden)
    errors = (ours.double() - exact).norm(dim=-1) / exact.norm(dim=-1)
    assert errors.max() < 0.05


@pytest.mark.parametrize("block", [1, 9, 0])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("sets", [None, kept_sets])
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-11), (torch.float32, 2e-6)])
def test_same_values_and_gradients_as_the_plain_version(dtype, tolerance, sets, temperature, block):
    hidden, head, targets = head_inputs(dtype)
    kept = sets and sets(targets)
    logprobs = blockwise_logprobs(hidden, head, targets, temperature, kept, block)
    expected = plain(hidden, head, targets, temperature, kept)
    found, wanted = (
        [values, *token_gradients(values, hidden, head)] for values in (logprobs, expected)
    )
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def test_bfloat16_is_no_further_from_float64_than_plain_autograd():
    hidden, head, targets = head_inputs(torch.bfloat16)
    logprobs = blockwise_logprobs(hidden, head, targets, block=4)
    assert logprobs.dtype == torch.float32
    expected = plain(hidden, head, targets)
    torch.testing.assert_close(logprobs, expected, rtol=1e-6, atol=1e-6)
    exact_inputs = [x.detach().double().requires_grad_() for x in (hidden, head)]
    exact = token_gradients(plain(*exact_inputs, targets), *exact_inputs)
    ours, theirs = token_gradients(logprobs, hidden, head), token_gradients(expected, hidden, head)
    for mine, other, truth in zip(ours, theirs, exact, strict=True):
        assert mine.dtype == torch.bfloat16
        error = (mine.double() - truth).norm() / truth.norm()
        assert error < 0.01 and error < 1.5 * (other.double() - truth).norm() / truth.norm()


def test_bfloat16_blocks_are_added_up_in_float32():
    """1,000 equal contributions: a bfloat16 sum would stop growing at 256 times the first."""
    hidden = torch.ones(1, D, dtype=torch.bfloat16, requires_grad=True)
    head = torch.full((1000, D), -1.0, dtype=torch.bfloat16)
    head[0] = 0
    targets = torch.zeros(1, dtype=torch.long)
    blockwise_logprobs(hidden, head, targets, block=1).sum().backward()
    (exact,) = torch.autograd.grad(plain(hidden.double(), head.double(), targets).sum(), hidden)
    torch.testing.assert_close(hidden.grad, exact, rtol=0.01, atol=0)
