"""Log-probabilities by blocks of the vocabulary: the plain numbers and gradients, and what is
never allocated."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from reasoning_from_scratch.fast.packed import blockwise_logprobs
from reasoning_from_scratch.logprobs import pack_kept, token_logprobs

M, D, V = 11, 6, 40


def problem(dtype, count=M, vocabulary=V):
    """Hidden states (M, D), head (V, D), targets (M,)."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(count, D, generator=generator).to(dtype).requires_grad_()
    head = torch.randn(vocabulary, D, generator=generator).to(dtype).requires_grad_()
    return hidden, head, torch.randint(0, vocabulary, (count,), generator=generator)


def plain(hidden, head, targets, temperature=1.0, kept=None):
    mask = torch.ones_like(targets)[None]
    found = token_logprobs(hidden[None], head, targets[None], mask, temperature, kept)
    return [tensor[0] for tensor in found]


def gradients(logprobs, hidden, head):
    """Gradients for a random weight per token, signs mixed as advantages are."""
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(len(logprobs), generator=generator).to(logprobs.dtype)
    return torch.autograd.grad((weights * logprobs).sum(), (hidden, head))


@pytest.mark.parametrize("block", [1, 2, 5, 9, 1000, 0])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_same_values_and_gradients_as_the_plain_version(dtype, tolerance, temperature, block):
    hidden, head, targets = problem(dtype)
    logprobs, entropy = blockwise_logprobs(hidden, head, targets, temperature, block=block)
    expected, expected_entropy = plain(hidden, head, targets, temperature)
    close = dict(rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(logprobs, expected, **close)
    torch.testing.assert_close(entropy, expected_entropy, **close)
    for ours, theirs in zip(
        gradients(logprobs, hidden, head), gradients(expected, hidden, head), strict=True
    ):
        torch.testing.assert_close(ours, theirs, **close)
    assert not entropy.requires_grad


def kept_sets(targets):
    """Kept sets, every third uncut."""
    generator = torch.Generator().manual_seed(5)
    sets = []
    for number, target in enumerate(targets.tolist()):
        size = int(torch.randint(1, 12, (1,), generator=generator))
        ids = {*torch.randperm(V, generator=generator)[:size].tolist(), target}
        sets.append([] if number % 3 == 2 else sorted(ids))
    return pack_kept(sets)


def test_gradcheck_with_kept_tokens():
    hidden, head, targets = problem(torch.float64)

    def function(hidden, head):
        return blockwise_logprobs(hidden, head, targets, 0.8, kept_sets(targets), block=4)[0]

    assert torch.autograd.gradcheck(function, (hidden, head))


@pytest.mark.parametrize("block", [1, 4, 100])
def test_kept_tokens_are_renormalized_after_the_temperature(block):
    hidden, head, targets = problem(torch.float64)
    kept = kept_sets(targets)
    logprobs, entropy = blockwise_logprobs(hidden, head, targets, 0.6, kept, block)
    expected, expected_entropy = plain(hidden, head, targets, 0.6, kept)
    torch.testing.assert_close(logprobs, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(entropy, expected_entropy, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(
        gradients(logprobs, hidden, head), gradients(expected, hidden, head), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


def test_one_kept_token_is_certain():
    hidden, head, targets = problem(torch.float32)
    kept = pack_kept([[target] for target in targets.tolist()])
    logprobs, entropy = blockwise_logprobs(hidden, head, targets, kept=kept)
    assert logprobs.abs().max() == 0 and entropy.abs().max() == 0
    assert all(g.abs().max() == 0 for g in gradients(logprobs, hidden, head))


def test_bfloat16_is_no_further_from_float64_than_plain_autograd():
    hidden, head, targets = problem(torch.bfloat16)
    logprobs, entropy = blockwise_logprobs(hidden, head, targets, block=4)
    assert logprobs.dtype == entropy.dtype == torch.float32
    expected, _ = plain(hidden, head, targets)
    torch.testing.assert_close(logprobs, expected, rtol=1e-6, atol=1e-6)
    exact_inputs = [x.detach().double().requires_grad_() for x in (hidden, head)]
    exact = gradients(plain(*exact_inputs, targets)[0], *exact_inputs)
    ours, theirs = gradients(logprobs, hidden, head), gradients(expected, hidden, head)
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
    blockwise_logprobs(hidden, head, targets, block=1)[0].sum().backward()
    (exact,) = torch.autograd.grad(plain(hidden.double(), head.double(), targets)[0].sum(), hidden)
    torch.testing.assert_close(hidden.grad, exact, rtol=0.01, atol=0)


def test_a_frozen_head_gets_no_gradient_and_hidden_still_does():
    hidden, head, targets = problem(torch.float64)
    logprobs, _ = blockwise_logprobs(hidden, head.detach(), targets)
    logprobs.sum().backward()
    assert head.grad is None and float(hidden.grad.abs().max()) > 0


def test_no_sampled_token_at_all():
    hidden, head, targets = problem(torch.float32, count=0)
    logprobs, entropy = blockwise_logprobs(hidden, head, targets)
    logprobs.sum().backward()
    assert logprobs.shape == entropy.shape == (0,) and head.grad.eq(0).all()


# --- memory ---


class LargestTensor(TorchDispatchMode):
    """Remembers the largest number of elements that any operation returned."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for item in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(item, torch.Tensor):
                self.elements = max(self.elements, item.numel())
        return result


def largest(function, **keywords):
    inputs = problem(torch.float32, count=128, vocabulary=1000)
    with LargestTensor() as seen:
        function(*inputs, **keywords)[0].sum().backward()
    return seen.elements


def test_full_logits_never_exist_forward_or_backward():
    """128 positions x 1,000 words: no tensor is larger than one block of 100 words."""
    assert largest(plain) == 128 * 1000  # the probe does see what it should
    assert largest(blockwise_logprobs, block=100) == 128 * 100
