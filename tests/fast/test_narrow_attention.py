"""Attention's own backward pass in bfloat16 is as near to float64 as torch's."""

import platform
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from reasoning_from_scratch.fast import narrow_attention
from reasoning_from_scratch.fast.decode_library import FLAGS
from reasoning_from_scratch.fast.decoding import load_library
from reasoning_from_scratch.fast.narrow_attention import NarrowAttention, has_narrow_backward
from tests.fast.test_decoding import compiled_with

needs_compiler = pytest.mark.skipif(
    load_library(torch.bfloat16) is None, reason="this machine has no C compiler"
)
INPUTS = "queries", "keys", "values"


def rows_of(count, length, heads, size=32):
    """(B, T, heads, hd), as the model makes them."""
    return torch.randn(count, length, heads, size).to(torch.bfloat16)


def visible(starts, queries, keys):
    """(B, 1, T, S)"""
    places = torch.tensor(starts)[:, None] + torch.arange(queries)
    return (torch.arange(keys) <= places[:, :, None])[:, None]


def torchs(queries, keys_values, mask):
    q, kv = queries.transpose(1, 2), keys_values.transpose(1, 2)
    k, v = kv.chunk(2, dim=1)
    found = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
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
@pytest.mark.parametrize("heads, groups, size", [(4, 4, 32), (6, 2, 64), (14, 2, 48), (3, 1, 6)])
def test_gradients_are_as_near_to_float64_as_torchs(starts, queries, keys, heads, groups, size):
    compare_gradients(starts, queries, keys, heads, groups, size)


@needs_compiler
@pytest.mark.parametrize("instructions", ["haswell", "x86-64"])
def test_on_processors_without_instructions_for_it(instructions, monkeypatch):
    if platform.machine() != "x86_64" or load_library(torch.bfloat16).lanes() < 8:
        pytest.skip("this processor cannot play those")
    library = compiled_with(torch.bfloat16, *FLAGS, f"-march={instructions}")
    monkeypatch.setattr(narrow_attention, "load_library", lambda _: library)
    compare_gradients([3, 300, 17], queries=50, keys=350, heads=6, groups=2, size=64)


def compare_gradients(starts, queries, keys, heads, groups, size):
    torch.manual_seed(0)
    count = len(starts)
    inputs = rows_of(count, queries, heads, size), rows_of(count, keys, 2 * groups, size)
    grad = torch.randn(count, queries, heads * size).to(torch.bfloat16)
    mask = visible(starts, queries, keys)
    ours, theirs, exact = (
        [x.detach().to(dtype).requires_grad_() for x in inputs]
        for dtype in (torch.bfloat16, torch.bfloat16, torch.float64)
    )
    found = NarrowAttention.apply(*ours, mask if any(starts) else None, starts)
    assert torch.equal(found, torchs(*theirs, mask))
    by_us = in_parts(torch.autograd.grad(found, ours, grad))
    by_torch = in_parts(torch.autograd.grad(torchs(*theirs, mask), theirs, grad))
    wanted = in_parts(torch.autograd.grad(torchs(*exact, mask), exact, grad.double()))
    for name, truth, near, this in zip(INPUTS, wanted, by_torch, by_us, strict=True):
        size = truth.norm() + 1e-6  # with a single key, the first two gradients are 0
        error, torchs_error = (this - truth).norm() / size, (near - truth).norm() / size
        assert error < 2 * torchs_error + 2e-3, name
        assert error < 0.01, name


def in_parts(gradients):
    """Those at queries, keys and values."""
    queries, keys_values = gradients
    return queries, *keys_values.chunk(2, dim=2)


@needs_compiler
def test_threads_do_not_change_a_bit_nor_does_what_nobody_asked_for():
    """Rows are computed alone, and lines at which no gradient arrives are skipped."""
    torch.manual_seed(0)
    queries, keys_values = (rows_of(3, n, h).requires_grad_() for n, h in ((50, 6), (90, 4)))
    grad, mask = torch.randn(3, 50, 6 * 32).to(torch.bfloat16), visible([40] * 3, 50, 90)
    grad[1, 20:] = 0
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            result = NarrowAttention.apply(queries, keys_values, mask, [40] * 3)
            found.append(torch.autograd.grad(result, (queries, keys_values), grad))
    finally:
        torch.set_num_threads(threads)
    for one, three in zip(*found, strict=True):
        assert torch.equal(one, three)
    to_queries, to_known = found[0]
    assert to_queries[1, :20].any() and not to_queries[1, 20:].any()
    assert to_known[1, :60].any() and not to_known[1, 60:].any()


@needs_compiler
def test_only_where_a_gradient_is_wanted():
    some = rows_of(1, 3, 2)
    assert not has_narrow_backward(some)
    assert has_narrow_backward(some.clone().requires_grad_())


@needs_compiler
def test_not_if_it_differs_from_torch(monkeypatch, caplog):
    """As it would after a compiler's mistake."""
    broken = SimpleNamespace(attention_gradient=lambda call: 0)  # writes nothing
    monkeypatch.setattr(narrow_attention, "load_library", lambda _: broken)
    narrow_attention.agrees_with_torch.cache_clear()
    assert not has_narrow_backward(rows_of(1, 3, 2).requires_grad_())
    assert "training is slower with torch's attention" in caplog.text
    narrow_attention.agrees_with_torch.cache_clear()
