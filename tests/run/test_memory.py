"""The memory budget chooses what fits and says what does not."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from toy import toy_config, toy_model, toy_world

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.optim.lora import add_lora
from reasoning_from_scratch.run.memory import (
    HOLES,
    PROCESS_BYTES,
    activation_bytes,
    cache_bytes,
    checkpoint_blocks,
    fit_memory,
    gradient_bytes,
    logit_bytes,
    parse_size,
    resident_bytes,
    return_freed_memory,
)
from reasoning_from_scratch.run.options import resolved
from reasoning_from_scratch.run.start import train


@pytest.fixture(autouse=True)
def quick_memory():
    """Later tests of this process need not give back what they free."""
    yield
    return_freed_memory(at_once=False)


def test_sizes():
    assert parse_size("8GB") == 8_000_000_000 and parse_size("1.5 GiB") == 1_610_612_736
    assert parse_size("300mb") == 300_000_000
    for wrong in ("", "8 parsecs", "GB", "-1GB", "1.2.3GB", ".GB", "٣GB"):
        with pytest.raises(UserError, match="is not a size"):
            parse_size(wrong)


def test_what_is_always_there():
    model = toy_model()
    weights = sum(p.numel() for p in model.parameters())
    head = model.out_head.weight.numel()
    assert resident_bytes(model, AdamW(model)) == PROCESS_BYTES + 12 * weights
    larger = toy_model(n_layers=5)  # a reference may have more weights than the model
    more = sum(4 * p.numel() for p in larger.parameters())
    assert resident_bytes(model, AdamW(model), larger) == PROCESS_BYTES + 12 * weights + more
    assert gradient_bytes(model) == 4 * (weights + head)
    half = toy_model(dtype=torch.bfloat16)
    assert resident_bytes(half, AdamW(half)) == PROCESS_BYTES + (2 + 12) * weights
    tied = toy_model(tie_embeddings=True)
    assert gradient_bytes(tied) == 4 * (weights - head + 2 * head)
    add_lora(tied, rank=2, alpha=4.0)
    assert gradient_bytes(tied) == sum(4 * p.numel() for p in tied.parameters() if p.requires_grad)
    assert cache_bytes(model, 100) == 100 * 2 * 2 * 2 * 8 * 4


def test_activations_grow_with_length_and_leave_no_gradient():
    model = toy_model()
    short, long = activation_bytes(model, 50), activation_bytes(model, 200)
    assert 3 * short < long < 20 * short
    assert all(p.grad is None for p in model.parameters())


def test_smaller_budgets_mean_smaller_batches_then_checkpointing_then_an_error(tmp_path):
    model = toy_model()
    optimizer = AdamW(model)
    fixed = resident_bytes(model, optimizer) - PROCESS_BYTES + gradient_bytes(model)
    fixed += logit_bytes(model, toy_config(tmp_path).micro_batch_tokens)
    plain = activation_bytes(model, 300)

    def fit(room):
        budget = (PROCESS_BYTES + HOLES * (fixed + room)) / 1e6
        config = resolved(toy_config(tmp_path, memory_budget=f"{budget:.6f}MB"))
        return fit_memory(model, optimizer, config, 300)

    roomy = fit(100 * plain)
    assert roomy.micro_batch_tokens == 8192 and not roomy.gradient_checkpointing
    medium = fit(3.9 * plain)
    assert 300 <= medium.micro_batch_tokens < 4 * 300 and not medium.gradient_checkpointing
    assert medium.sample_rows <= 64
    tight = fit(0.9 * plain)
    assert tight.gradient_checkpointing and tight.micro_batch_tokens >= 300
    with pytest.raises(UserError, match="too small.*--max-new-tokens"):
        fit(-fixed / 3)


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
    config = toy_config(tmp_path / "run", memory_budget="1000MB", steps=2)
    result = train(config, quiet=True, **toy_world(tmp_path))
    assert len(result.rows) == 2
    assert "memory budget 1000MB" in (tmp_path / "run" / "logs.log").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="reads a process's peak from /proc")
@pytest.mark.parametrize("budget", [2.25e9, 1.8e9])  # without checkpointing, and with it
def test_a_budget_is_kept(budget):
    """By all of the process, Python and torch included."""
    job = [sys.executable, Path(__file__).parents[1] / "budget_job.py", f"{budget / 1e9}GB"]
    done = subprocess.run(job, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    peak, rows = map(int, done.stdout.split())
    assert 1.1e9 < peak < budget
    assert 1 <= rows < 8  # it was the budget that kept it
