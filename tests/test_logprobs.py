"""Chunked log-probabilities against the plain formula, and what is never allocated."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from reasoning_from_scratch.logprobs import Kept, pack_kept, token_logprobs

B, T, D, V = 3, 8, 6, 40


def problem(dtype, seed=0):
    """Hidden states, head, targets and a mask with ragged answers (one row has none)."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(B, T, D, generator=generator).to(dtype).requires_grad_()
    head = torch.randn(V, D, generator=generator).to(dtype).requires_grad_()
    targets = torch.randint(0, V, (B, T), generator=generator)
    mask = torch.zeros(B, T)
    mask[0, 2:7] = 1
    mask[1, 4:] = 1
    return hidden, head, targets, mask


def plain(hidden, head, targets, mask, temperature=1.0, cut=None):
    """The same by log_softmax over the full logits (B, T, V)."""
    logits = (hidden @ head.T).to(torch.promote_types(hidden.dtype, torch.float32)) / temperature
    if cut is not None:
        logits = logits.masked_fill(cut, float("-inf"))
    logprobs = logits.log_softmax(-1)
    chosen = logprobs.gather(-1, targets[..., None])[..., 0]
    entropy = torch.special.entr(logprobs.exp()).sum(-1)
    return torch.where(mask.bool(), chosen, 0.0), torch.where(mask.bool(), entropy, 0.0)


def gradients(logprobs, hidden, head, seed=1):
    """Gradients for a random weight per token, signs mixed as advantages are."""
    weights = torch.randn(B, T, generator=torch.Generator().manual_seed(seed)).to(logprobs.dtype)
    return torch.autograd.grad((weights * logprobs).sum(), (hidden, head))


@pytest.mark.parametrize("chunk", [1, 2, 5, 9, 1000, 0])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_same_values_and_gradients_as_plain_autograd(dtype, tolerance, temperature, chunk):
    hidden, head, targets, mask = problem(dtype)
    inputs = hidden, head, targets, mask, temperature
    logprobs, entropy = token_logprobs(*inputs, chunk=chunk)
    expected, expected_entropy = plain(*inputs)
    close = dict(rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(logprobs, expected, **close)
    torch.testing.assert_close(entropy, expected_entropy, **close)
    for ours, theirs in zip(
        gradients(logprobs, hidden, head), gradients(expected, hidden, head), strict=True
    ):
        torch.testing.assert_close(ours, theirs, **close)
    assert not entropy.requires_grad and logprobs[mask == 0].eq(0).all()


def test_gradcheck_with_kept_tokens():
    hidden, head, targets, mask = problem(torch.float64)
    kept, _ = kept_sets(targets, mask)

    def function(hidden, head):
        return token_logprobs(hidden, head, targets, mask, 0.8, kept, chunk=4)[0]

    assert torch.autograd.gradcheck(function, (hidden, head))


def test_bfloat16_is_no_further_from_float64_than_plain_autograd():
    hidden, head, targets, mask = problem(torch.bfloat16)
    logprobs, entropy = token_logprobs(hidden, head, targets, mask, chunk=4)
    assert logprobs.dtype == entropy.dtype == torch.float32
    expected, _ = plain(hidden, head, targets, mask)
    torch.testing.assert_close(logprobs, expected, rtol=1e-6, atol=1e-6)
    exact_inputs = [x.detach().double().requires_grad_() for x in (hidden, head)]
    exact = gradients(plain(*exact_inputs, targets, mask)[0], *exact_inputs)
    ours, theirs = gradients(logprobs, hidden, head), gradients(expected, hidden, head)
    for mine, other, truth in zip(ours, theirs, exact, strict=True):
        assert mine.dtype == torch.bfloat16
        error = (mine.double() - truth).norm() / truth.norm()
        assert error < 0.01 and error < 1.5 * (other.double() - truth).norm() / truth.norm()


def test_bfloat16_chunks_are_added_up_in_float32():
    """1,000 equal contributions: a bfloat16 sum would stop growing at 256 times the first."""
    hidden = torch.ones(1, 1000, D, dtype=torch.bfloat16)
    head = torch.zeros(V, D, dtype=torch.bfloat16, requires_grad=True)
    targets = torch.zeros(1, 1000, dtype=torch.long)
    token_logprobs(hidden, head, targets, torch.ones(1, 1000), chunk=1)[0].sum().backward()
    expected = torch.full((D,), 1000 * (1 - 1 / V), dtype=torch.bfloat16)
    torch.testing.assert_close(head.grad[0], expected, rtol=0.01, atol=0)


def test_a_frozen_head_gets_no_gradient_and_hidden_still_does():
    hidden, head, targets, mask = problem(torch.float64)
    logprobs, _ = token_logprobs(hidden, head.detach(), targets, mask)
    logprobs.sum().backward()
    assert head.grad is None and float(hidden.grad.abs().max()) > 0


def test_gradient_is_zero_where_the_mask_is():
    hidden, head, targets, mask = problem(torch.float64)
    with torch.no_grad():
        hidden[mask == 0] = float("nan")  # junk there must not spread
    logprobs, entropy = token_logprobs(hidden, head, targets, mask)
    logprobs.sum().backward()
    assert torch.isfinite(logprobs).all() and torch.isfinite(entropy).all()
    assert hidden.grad[mask == 0].eq(0).all() and torch.isfinite(head.grad).all()


def test_no_sampled_token_at_all():
    hidden, head, targets, mask = problem(torch.float32)
    logprobs, entropy = token_logprobs(hidden, head, targets, torch.zeros_like(mask))
    (logprobs.sum() + 0 * hidden.sum()).backward()
    assert logprobs.eq(0).all() and entropy.eq(0).all() and head.grad.eq(0).all()


# --- kept tokens ---


def kept_sets(targets, mask):
    """Kept sets per sampled token in row order (every third uncut), and the same as a table."""
    generator = torch.Generator().manual_seed(5)
    sets, cut = [], torch.zeros(B, T, V, dtype=torch.bool)
    for number, (b, t) in enumerate(mask.nonzero().tolist()):
        if number % 3 == 2:
            sets.append([])
            continue
        size = int(torch.randint(1, 12, (1,), generator=generator))
        ids = {*torch.randperm(V, generator=generator)[:size].tolist(), int(targets[b, t])}
        sets.append(sorted(ids))
        cut[b, t] = True
        cut[b, t, sorted(ids)] = False
    return pack_kept(sets), cut


@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_kept_tokens_are_renormalized_after_the_temperature(chunk):
    hidden, head, targets, mask = problem(torch.float64)
    kept, cut = kept_sets(targets, mask)
    logprobs, entropy = token_logprobs(hidden, head, targets, mask, 0.6, kept, chunk=chunk)
    expected, expected_entropy = plain(hidden, head, targets, mask, 0.6, cut)
    torch.testing.assert_close(logprobs, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(entropy, expected_entropy, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(
        gradients(logprobs, hidden, head), gradients(expected, hidden, head), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


def test_one_kept_token_is_certain():
    hidden, head, targets, mask = problem(torch.float32)
    kept = pack_kept([[int(i)] for i in targets[mask.bool()]])
    logprobs, entropy = token_logprobs(hidden, head, targets, mask, kept=kept)
    assert logprobs.abs().max() == 0 and entropy.abs().max() == 0
    assert all(g.abs().max() == 0 for g in gradients(logprobs, hidden, head))


def test_pack_kept():
    kept = pack_kept([[3, 1], [], [7]])
    assert kept.ids.tolist() == [3, 1, 7] and kept.counts.tolist() == [2, 0, 1]
    assert isinstance(kept, Kept) and pack_kept([]).ids.shape == (0,)


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


def largest(function, vocabulary=1000, rows=4, width=32, chunk=100):
    hidden = torch.randn(rows, width, D, requires_grad=True)
    head = torch.randn(vocabulary, D, requires_grad=True)
    targets = torch.randint(0, vocabulary, (rows, width))
    mask = torch.ones(rows, width)
    keywords = {} if function is plain else {"chunk": chunk}
    with LargestTensor() as seen:
        function(hidden, head, targets, mask, **keywords)[0].sum().backward()
    return seen.elements


def test_full_logits_never_exist_forward_or_backward():
    """128 positions x 1,000 words: no tensor is larger than one block of 100 words."""
    assert largest(plain) == 128 * 1000  # the probe does see what it should
    assert largest(token_logprobs) == 128 * 100


def test_positions_outside_the_mask_cost_nothing():
    hidden = torch.randn(4, 32, D, requires_grad=True)
    head, targets = torch.randn(1000, D), torch.zeros(4, 32, dtype=torch.long)
    mask = torch.zeros(4, 32)
    mask[0, :3] = 1
    with LargestTensor() as seen:
        token_logprobs(hidden, head, targets, mask)[0].sum().backward()
    assert seen.elements <= 1000 * D  # three rows of logits are less than the head itself
