"""--compile: once for all blocks and lengths, the same numbers, one warning where it fails."""

from functools import partial

import pytest
import torch
from small_model import small_model
from torch._dynamo.utils import counters
from toy import toy_model

from reasoning_from_scratch.fast import graphs
from reasoning_from_scratch.fast.compiled import CompiledPass
from reasoning_from_scratch.fast.decoding import Decoder
from reasoning_from_scratch.fast.graphs import GraphDecoder
from reasoning_from_scratch.fast.memory import checkpoint_blocks
from reasoning_from_scratch.fast.packed import pack, packed_logprobs
from reasoning_from_scratch.optim.lora import add_lora
from reasoning_from_scratch.qwen3 import KVCache
from reasoning_from_scratch.rollouts import Rollout, make_batch


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    """The part of torch.compile that needs a C compiler and a minute is left out."""
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    graphs.compiled_block.cache_clear()
    yield
    graphs.compiled_block.cache_clear()
    torch._dynamo.reset()


def compilations():
    return counters["stats"]["unique_graphs"]


def fresh_batch(seed):
    """Ten answers to three prompts, of other lengths for each seed."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(most):
        count = int(torch.randint(1, most, (1,), generator=generator))
        return torch.randint(1, 40, (count,), generator=generator).tolist()

    prompts = [numbers(30) for _ in range(3)]
    rollouts = [Rollout(prompt_ids=prompts[i % 3], response_ids=numbers(40)) for i in range(10)]
    for rollout in rollouts:
        rollout.logprobs = [-1.0] * len(rollout.response_ids)
    return make_batch(rollouts)


def gradients(model, training_pass, batch):
    model.zero_grad()
    logprobs = training_pass(model, batch, 0.8)
    (logprobs * torch.linspace(-1, 1, logprobs.numel()).view(logprobs.shape)).sum().backward()
    found = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return logprobs.detach(), torch.cat(found)


@pytest.mark.parametrize("lora", [False, True])
def test_twenty_micro_batches_of_fresh_lengths_are_compiled_for_once(lora):
    model = toy_model(n_layers=3)
    if lora:
        add_lora(model, 2, 4.0)
        checkpoint_blocks(model)
    training_pass, calls, counts = CompiledPass(model), set(), []
    for seed in range(20):
        batch = fresh_batch(seed)
        calls.add(len(pack(batch).calls))
        logprobs, gradient = gradients(model, training_pass, batch)
        wanted = gradients(model, packed_logprobs, batch)
        torch.testing.assert_close(logprobs, wanted[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(gradient, wanted[1], rtol=0, atol=1e-5 * wanted[1].abs().max())
        counts.append(compilations())
    assert len(calls) > 2, "numbers of attention calls"
    # The two halves of a block and the two of the head; with LoRA also the halves of the first
    # block, whose input has no gradient.
    assert counts[0] == counts[-1] <= (6 if lora else 4)
    with torch.no_grad():
        training_pass(model, batch, 0.8)
        asked = compilations()
        training_pass(model, fresh_batch(20), 0.8)
    assert compilations() == asked <= counts[-1] + 2


def broken(graph, inputs):
    raise RuntimeError("no C compiler\nat all")


def backward_breaks(graph, inputs):
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(fw_compiler=lambda graph, _: graph, bw_compiler=broken)(graph, inputs)


@pytest.mark.parametrize("breaks", [broken, backward_breaks])
def test_a_compiler_that_fails_costs_one_warning(breaks, monkeypatch, caplog):
    monkeypatch.setattr(torch, "compile", partial(torch.compile.func, backend=breaks))
    model = toy_model()
    training_pass = CompiledPass(model)
    for seed in range(3):
        found = gradients(model, training_pass, fresh_batch(seed))
        wanted = gradients(model, packed_logprobs, fresh_batch(seed))
        assert all(map(torch.equal, found, wanted))
    ours = [line for line in caplog.records if line.name == "reasoning_from_scratch"]
    (warning,) = [line.getMessage() for line in ours]
    assert warning.startswith("torch.compile fails, training continues without it")
    assert "no C compiler" in warning and "\n" not in warning


def test_the_reference_is_not_compiled():
    model, reference = toy_model(), toy_model(seed=3)
    batch = fresh_batch(0)
    with torch.no_grad():
        found = CompiledPass(model)(reference, batch, 1.0)
        assert torch.equal(found, packed_logprobs(reference, batch))
    assert compilations() == 0


@torch.no_grad()
def test_recorded_steps_of_all_sizes_are_compiled_for_once():
    """And compute the same. All layers and widths have one in common. Of rows, one is special to
    torch, and a number that something else happens to have; at worst each number has its own."""
    model = small_model(n_layers=3).requires_grad_(False)
    decoder, counts = GraphDecoder(Decoder(model), lambda step: step, compiled=True), []
    for rows in (8, 5, 4, 1):
        cache = KVCache(3, 1024)
        model.fill_cache(torch.ones(rows, 250, dtype=torch.long), cache)
        plain, tokens = cache.select_rows(torch.arange(rows)), torch.ones(rows, 1, dtype=torch.long)
        for _ in range(14):
            found, wanted = decoder(tokens, cache=cache), model(tokens, cache=plain)
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        counts.append(compilations())
    assert decoder.compiled and not decoder.failed
    assert counts[0] == 1 and counts[-1] <= len(counts) < len(decoder.recordings) + 2
