"""Log-probabilities against the formula written out token by token."""

import math

import pytest
import torch

from reasoning_from_scratch.logprobs import pack_kept, token_logprobs

B, T, D, V = 2, 4, 3, 5
MASK = torch.tensor([[0, 1, 1, 0], [1, 0, 0, 1]])
SAMPLED = [(0, 1), (0, 2), (1, 0), (1, 3)]


def problem(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(B, T, D, generator=generator).to(dtype).requires_grad_()
    head = torch.randn(V, D, generator=generator).to(dtype).requires_grad_()
    return hidden, head, torch.randint(0, V, (B, T), generator=generator)


def distribution(logits, temperature, allowed):
    """p of each allowed token, by hand."""
    powers = {i: math.exp(logits[i] / temperature) for i in allowed}
    return {i: power / sum(powers.values()) for i, power in powers.items()}


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("sets", [None, [[0, 1], [], [4], [1, 2, 3]]])
def test_by_hand(temperature, sets):
    hidden, head, targets = problem()
    if sets:  # the token that was drawn is always among those that were kept
        sets = [
            sorted({*kept, int(targets[place])}) if kept else []
            for kept, place in zip(sets, SAMPLED, strict=True)
        ]
    kept = pack_kept(sets) if sets else None
    logprobs = token_logprobs(hidden, head, targets, MASK, temperature, kept)
    expected = torch.zeros(B, T).double()
    for number, place in enumerate(SAMPLED):
        logits = (head @ hidden[place]).tolist()
        allowed = sets[number] if sets and sets[number] else range(V)
        p = distribution(logits, temperature, allowed)
        expected[place] = math.log(p[int(targets[place])])
    torch.testing.assert_close(logprobs, expected)


def test_gradients():
    hidden, head, targets = problem()
    kept = pack_kept([[int(targets[place]), 0] for place in SAMPLED])

    def function(hidden, head):
        return token_logprobs(hidden, head, targets, MASK, 0.8, kept)

    assert torch.autograd.gradcheck(function, (hidden, head))


def test_gradient_is_zero_where_the_mask_is():
    hidden, head, targets = problem()
    with torch.no_grad():
        hidden[MASK == 0] = float("nan")  # junk there must not spread
    logprobs = token_logprobs(hidden, head, targets, MASK)
    logprobs.sum().backward()
    assert torch.isfinite(logprobs).all()
    assert hidden.grad[MASK == 0].eq(0).all() and torch.isfinite(head.grad).all()


def test_bfloat16_is_computed_in_float32():
    hidden, head, targets = problem(torch.bfloat16)
    logprobs = token_logprobs(hidden, head, targets, MASK)
    assert logprobs.dtype == torch.float32
    logits = (hidden @ head.T).float()
    expected = logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0] * MASK
    torch.testing.assert_close(logprobs, expected, rtol=1e-6, atol=1e-6)


def test_no_sampled_token_at_all():
    hidden, head, targets = problem()
    logprobs = token_logprobs(hidden, head, targets, torch.zeros_like(MASK))
    (logprobs.sum() + 0 * hidden.sum()).backward()
    assert logprobs.eq(0).all() and head.grad.eq(0).all()


def test_one_kept_token_is_certain():
    hidden, head, targets = problem()
    kept = pack_kept([[int(targets[place])] for place in SAMPLED])
    logprobs = token_logprobs(hidden, head, targets, MASK, kept=kept)
    logprobs.sum().backward()
    assert logprobs.abs().max() == 0
    assert hidden.grad.abs().max() == 0 and head.grad.abs().max() == 0
