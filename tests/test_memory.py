"""The memory budget chooses what fits and says what does not."""

import pytest
import torch
from toy import toy_config, toy_model, toy_world

from reasoning_from_scratch.config import resolved
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.memory import (
    activation_bytes,
    cache_bytes,
    checkpoint_blocks,
    fit_memory,
    parse_size,
    resident_bytes,
)
from reasoning_from_scratch.optim import AdamW
from reasoning_from_scratch.trainer import train


def test_sizes():
    assert parse_size("8GB") == 8_000_000_000 and parse_size("1.5 GiB") == 1_610_612_736
    assert parse_size("300mb") == 300_000_000
    for wrong in ("", "8 parsecs", "GB", "-1GB"):
        with pytest.raises(UserError, match="is not a size"):
            parse_size(wrong)


def test_what_is_always_there():
    model = toy_model()
    weights = sum(p.numel() for p in model.parameters())
    assert resident_bytes(model, AdamW(model), copies=1) == 4 * (2 + 2) * weights
    assert resident_bytes(model, AdamW(model), copies=2) == 4 * (3 + 2) * weights
    half = toy_model(dtype=torch.bfloat16)
    assert resident_bytes(half, AdamW(half), copies=1) == (2 + 2 + 12) * weights
    assert cache_bytes(model, 100) == 100 * 2 * 2 * 2 * 8 * 4


def test_activations_grow_with_length_and_leave_no_gradient():
    model = toy_model()
    short, long = activation_bytes(model, 50), activation_bytes(model, 200)
    assert 3 * short < long < 20 * short
    assert all(p.grad is None for p in model.parameters())


def test_smaller_budgets_mean_smaller_batches_then_checkpointing_then_an_error(tmp_path):
    model = toy_model()
    optimizer = AdamW(model)
    fixed = resident_bytes(model, optimizer, copies=1)
    plain = activation_bytes(model, 300)

    def fit(room):
        config = resolved(toy_config(tmp_path, memory_budget=f"{(fixed + room) / 1e6:.6f}MB"))
        return fit_memory(model, optimizer, config, 300)

    roomy = fit(100 * plain)
    assert roomy.micro_batch_tokens == 8192 and not roomy.gradient_checkpointing
    medium = fit(4 * plain)
    assert 300 <= medium.micro_batch_tokens < 4 * 300 and not medium.gradient_checkpointing
    assert medium.sample_rows <= 64
    tight = fit(0.9 * plain)
    assert tight.gradient_checkpointing and tight.micro_batch_tokens >= 300
    with pytest.raises(UserError, match="too small.*--max-new-tokens"):
        fit(0.1 * plain)


def test_checkpointed_blocks_keep_less_and_compute_the_same():
    plain, frugal = toy_model(), toy_model()
    checkpoint_blocks(frugal)
    ids = torch.arange(30)[None] % 40
    for model in (plain, frugal):
        model(ids).square().mean().backward()
    for a, b in zip(plain.parameters(), frugal.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)
    with torch.no_grad():
        assert torch.equal(plain(ids), frugal(ids))


def test_a_run_with_a_budget(tmp_path):
    config = toy_config(tmp_path / "run", memory_budget="50MB", steps=2)
    result = train(config, quiet=True, **toy_world(tmp_path))
    assert len(result.rows) == 2
    assert "memory budget 50MB" in (tmp_path / "run" / "logs.log").read_text()
