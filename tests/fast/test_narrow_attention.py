"""Attention's own backward pass in bfloat16 is as near to float64 as torch's."""

import pytest
import torch
import torch.nn.functional as F

from reasoning_from_scratch.fast import narrow_attention as own
from reasoning_from_scratch.fast.decoding import load_library
from reasoning_from_scratch.fast.narrow_attention import NarrowAttention, has_own_backward

needs_compiler = pytest.mark.skipif(
    load_library(torch.bfloat16) is None, reason="this machine has no C compiler"
)
INPUTS = "queries", "keys", "values"


def rows_of(count, heads, length):
    """(B, heads, T, hd), in memory (B, T, heads, hd), as the model makes them."""
    return torch.randn(count, length, heads, 32).to(torch.bfloat16).transpose(1, 2)


def visible(starts, queries, keys):
    """(B, 1, T, S)"""
    places = torch.tensor(starts)[:, None] + torch.arange(queries)
    return (torch.arange(keys) <= places[:, :, None])[:, None]


def torchs(queries, keys, values, mask):
    found = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=True)
    return found.transpose(1, 2).flatten(2)


@needs_compiler
@pytest.mark.parametrize(
    "starts, queries, keys",
    [
        ([0], 1, 1),
        ([0, 0], 7, 7),  # causal
        ([0], 200, 200),  # in pieces, of which the first ones see fewer keys
        ([40, 40, 40], 20, 60),
        ([3, 300, 17], 50, 350),  # the shorter ones have padding behind them
    ],
)
@pytest.mark.parametrize("heads, groups", [(4, 4), (6, 2)])
def test_gradients_are_as_near_to_float64_as_torchs(
    starts, queries, keys, heads, groups, monkeypatch
):
    monkeypatch.setattr(own, "MOST_QUERIES", 64)
    torch.manual_seed(0)
    count = len(starts)
    inputs = [rows_of(count, heads, queries), *(rows_of(count, groups, keys) for _ in range(2))]
    grad = torch.randn(count, queries, heads * 32).to(torch.bfloat16)
    mask = visible(starts, queries, keys)
    ours, theirs, exact = (
        [x.detach().to(dtype).requires_grad_() for x in inputs]
        for dtype in (torch.bfloat16, torch.bfloat16, torch.float64)
    )
    found = NarrowAttention.apply(*ours, mask if any(starts) else None, starts)
    assert torch.equal(found, torchs(*theirs, mask))
    wanted = torch.autograd.grad(torchs(*exact, mask), exact, grad.double())
    by_torch = torch.autograd.grad(torchs(*theirs, mask), theirs, grad)
    by_us = torch.autograd.grad(found, ours, grad)
    for name, truth, near, this in zip(INPUTS, wanted, by_torch, by_us, strict=True):
        size = truth.norm() + 1e-6  # with a single key, the first two gradients are 0
        error, torchs_error = (this - truth).norm() / size, (near - truth).norm() / size
        assert error < 2 * torchs_error + 2e-3, name
        assert error < 0.01, name


@needs_compiler
def test_threads_do_not_change_a_bit():
    torch.manual_seed(0)
    scores = torch.randn(2, 3 * 50, 90).to(torch.bfloat16)
    before, found, threads = (
        torch.randn(2, 3 * 50, 90).to(torch.bfloat16),
        [],
        torch.get_num_threads(),
    )
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append((scores.clone(), before.clone()))
            own.soften(*found[-1], queries=50, start=40, size=32)
    finally:
        torch.set_num_threads(threads)
    for one, three in zip(*found, strict=True):
        assert torch.equal(one, three)
    assert found[0][0].sum(-1).float().allclose(torch.ones(()), atol=0.02)  # probabilities


@needs_compiler
def test_only_in_bfloat16_and_where_a_gradient_is_wanted():
    some = rows_of(1, 2, 3)
    assert not has_own_backward(some)
    assert has_own_backward(some.clone().requires_grad_())
    assert not has_own_backward(some.float().requires_grad_())
