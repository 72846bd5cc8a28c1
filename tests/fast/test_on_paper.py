"""What a GPU is asked to do, and to hold, counted without one: each row of docs/gpu.md's table."""

import re
from functools import cache
from pathlib import Path

import pytest
import torch
from on_paper import OnPaper

from reasoning_from_scratch.fast.cut import (
    GPU_CANDIDATES,
    cut_among_the_largest,
    cut_by_digits,
)
from reasoning_from_scratch.fast.decoding import Decoder
from reasoning_from_scratch.fast.graphs import GraphDecoder
from reasoning_from_scratch.fast.memory import (
    activation_bytes_per_token,
    checkpoint_blocks,
    fixed_bytes,
)
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.optim import adamw
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.optim.lora import add_lora
from reasoning_from_scratch.policy import MICRO_BATCH_TOKENS, LocalPolicy
from reasoning_from_scratch.qwen3 import QWEN_CONFIG_06_B, KVCache, Qwen3Model
from reasoning_from_scratch.sampling import Rollout, sample_next_token
from rfs.config import RunConfig

PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"
GIB, CONTEXT = 2**30, 0.6e9  # bytes that CUDA takes for itself, of any program
PROMPT, ANSWER, ROLLOUTS = 60, 512, 64


def rollouts(count, answer=ANSWER):
    """Eight to a problem; no two begin alike."""
    generator = torch.Generator().manual_seed(0)
    answers = torch.randint(1, 150_000, (count, answer), generator=generator).tolist()
    return [
        Rollout(prompt_ids=[1 + i // 8] * PROMPT, response_ids=ids, logprobs=[-1.0] * answer)
        for i, ids in enumerate(answers)
    ]


def rounding_on_paper(values, seed):
    """adamw.stochastic_round without its generator, which the meta device does not have."""
    draws = torch.empty(-(-values.numel() // 4), dtype=torch.int64, device=values.device)
    noise = draws.view(torch.int16)[: values.numel()].view(values.shape).int() & 0xFFFF
    bits = values.contiguous().view(torch.int32) + noise
    return (bits & ~0xFFFF).view(torch.float32).to(torch.bfloat16)


@cache
def on_paper(updates, checkpointing, micro_batch_tokens, sample_rows, dtype=torch.bfloat16):
    """Most bytes of an update and of sampling, and what the check at the start counts."""
    config = RunConfig(
        max_new_tokens=ANSWER,
        micro_batch_tokens=micro_batch_tokens,
        low_precision_updates=updates,
        sample_rows=sample_rows,
    )
    with pytest.MonkeyPatch.context() as patch, OnPaper() as paper:
        patch.setattr(adamw, "stochastic_round", rounding_on_paper)
        with torch.device("meta"):
            model = Qwen3Model(QWEN_CONFIG_06_B | {"dtype": dtype})
        optimizer = AdamW(model, low_precision_updates=updates)
        assert optimizer.state  # as from the first update on
        sampling = sampling_on_paper(paper, model, sample_rows)
        if checkpointing:
            checkpoint_blocks(model)
        paper.most = paper.held
        policy = LocalPolicy(model, optimizer, config, packed_logprobs)
        # The second micro-batch makes the sum of gradients wide: from the third on all is there.
        enough = rollouts(3 * (micro_batch_tokens // (PROMPT + ANSWER)))
        policy.forward_backward(enough, config, denominator=1.0)
        optimizer.step(1e-6)
    return paper.most, sampling, fixed_bytes(model, config)


def recorded(step):
    """What a step gives stays where it is, as that of a CUDA graph."""
    found = step()
    return lambda: found


@torch.no_grad()
def sampling_on_paper(paper, model, rows):
    """Most bytes while so many rows are sampled: joined weights, keys and values, a draw."""
    cache, tokens = prompts_read(model, rows)
    decoder = GraphDecoder(Decoder(model), recorded)
    logits = decoder(tokens, cache=cache)[:, -1]
    assert not decoder.failed and decoder.keys[0].shape[2] == 768
    sample_next_token(logits, torch.zeros(rows, device="meta"), 1.0, 0.9, 0, cut_by_digits)
    return paper.most


def prompts_read(model, rows):
    """A cache of so many prompts, and the tokens that follow."""
    cache = KVCache(model.cfg["n_layers"], PROMPT + ANSWER)
    like = torch.empty(rows, model.cfg["n_kv_groups"], 1, model.cfg["head_dim"], device="meta")
    cache.start_rows(rows, "meta")
    for layer in range(cache.n_layers):
        cache._reserve(layer, like.to(model.cfg["dtype"]), PROMPT)
    cache.advance(PROMPT)
    return cache, torch.zeros(rows, 1, dtype=torch.long, device="meta")


def table_under(start):
    """The cells of the page's table whose head begins so, row by row."""
    table = re.search(rf"^\| {start} .*\n\|[-|]+\n((?:\|.*\n)+)", PAGE.read_text(), re.M)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()]


def value(flags, flag, default):
    found = re.search(rf"{flag} ([\w.]+)", flags)
    return type(default)(found[1]) if found else default


@pytest.mark.parametrize("row", table_under("memory of the GPU"), ids=lambda row: row[0])
def test_the_memory_of_a_row(row):
    memory, _, flags, update, sampling = row
    most_of_update, most_of_sampling, fixed = on_paper(
        value(flags, "--low-precision-updates", "master"),
        "--gradient-checkpointing" in flags,
        value(flags, "--micro-batch-tokens", MICRO_BATCH_TOKENS),
        value(flags, "--sample-rows", RunConfig().sample_rows),
        torch.float32 if "float32" in memory else torch.bfloat16,
    )
    assert (round(most_of_update / 1e9, 1), round(most_of_sampling / 1e9, 1)) == (
        float(update),
        float(sampling),
    )
    room = int(re.match(r"\d+", memory)[0]) * GIB - CONTEXT
    assert fixed < most_of_update < room and most_of_sampling < room


@pytest.mark.parametrize("row", table_under("card"), ids=lambda row: row[0])
def test_the_least_time_of_a_row(row):
    """Reading matrices, keys and values, as the page says, with the flags for its memory."""
    _, memory, speed, numbers, seconds, minutes, _ = row
    others = table_under("memory of the GPU")
    (flags,) = (other[2] for other in others if other[0].startswith(memory[:2]))
    rows, width = value(flags, "--sample-rows", RunConfig().sample_rows), 2
    if numbers == "float32":
        width = 4
    with torch.device("meta"):
        model = Qwen3Model(QWEN_CONFIG_06_B)
    matrices = sum(p.weight.numel() for p in model.modules() if isinstance(p, torch.nn.Linear))
    key_and_value = 2 * 28 * 8 * 128 * width
    step = matrices * width + rows * (PROMPT + ANSWER // 2) * key_and_value
    least = ROLLOUTS / rows * ANSWER * step / (float(speed) * 1e9)
    assert float(seconds) == (round(least) if least >= 10 else round(least, 1))
    assert float(minutes) == (round(50 * least / 60) if least > 20 else round(50 * least / 60, 1))


@pytest.mark.parametrize("recompute", [False, True])
def test_a_token_takes_as_much_as_memory_py_counts(recompute):
    """At most, and not half as much: it chooses the size of a micro-batch on a CPU."""
    most = []
    for count in (2, 4):  # rollouts
        with OnPaper() as paper:
            with torch.device("meta"):
                model = Qwen3Model(QWEN_CONFIG_06_B | {"n_layers": 4, "vocab_size": 1024})
                add_lora(model, 2, 32.0)  # nearly no gradients: what grows is the pass
            if recompute:
                checkpoint_blocks(model)
            paper.most = paper.held
            policy = LocalPolicy(model, AdamW(model), RunConfig(), packed_logprobs)
            policy.forward_backward(rollouts(count, 128), RunConfig(), denominator=1.0)
        most.append(paper.most)
    grown = (most[1] - most[0]) / (2 * (PROMPT + 128))
    assert (
        activation_bytes_per_token(model, recompute) / 2
        < grown
        < activation_bytes_per_token(model, recompute)
    )


def test_what_the_check_at_the_start_counts_is_in_the_page():
    text = PAGE.read_text()
    with torch.device("meta"):
        model = Qwen3Model(QWEN_CONFIG_06_B)
    for updates in ("master", "stochastic"):
        fixed = fixed_bytes(model, RunConfig(low_precision_updates=updates))
        assert f"{fixed / 1e9:.1f} GB" in text


def test_how_many_kernels_a_step_starts():
    """Of Qwen3-0.6B's size: a GPU waits for Python more than it computes, so each one counts. With
    the model's own operations a decoding step is 801; recorded ones took 599 before queries and
    keys were turned in three operations and products added to what was there."""
    with pytest.MonkeyPatch.context() as patch, OnPaper() as paper:
        patch.setattr(adamw, "stochastic_round", rounding_on_paper)

        def kernels(call):
            paper.kernels.clear()
            call()
            return sum(paper.kernels.values())

        with torch.device("meta"):
            model = Qwen3Model(QWEN_CONFIG_06_B)
        with torch.no_grad():
            cache, tokens = prompts_read(model, 8)
            plain, recorded = Decoder(model), GraphDecoder(Decoder(model), lambda step: step)
            recorded(tokens, cache=cache)
            assert kernels(lambda: plain(tokens, cache=cache)) == 801
            assert kernels(lambda: recorded(tokens, cache=cache)) <= 459
            logits = torch.empty(8, 151_936, dtype=torch.bfloat16, device="meta")
            u, top_p = torch.empty(8, device="meta"), (1.0, 0.9, 0, cut_by_digits)
            assert kernels(lambda: sample_next_token(logits, u)) <= 42
            assert kernels(lambda: sample_next_token(logits, u, *top_p)) <= 135
            largest = lambda *given: cut_among_the_largest(*given, GPU_CANDIDATES)[0]  # noqa: E731
            assert kernels(lambda: sample_next_token(logits, u, *top_p[:3], largest)) <= 74
        optimizer = AdamW(model)
        assert optimizer.state  # made once
        config = RunConfig(max_new_tokens=128)
        policy = LocalPolicy(model, optimizer, config, packed_logprobs)
        both_ways = kernels(lambda: policy.forward_backward(rollouts(8, 128), config, 1.0))
        assert both_ways <= 2460
        assert kernels(lambda: optimizer.step(1e-6)) <= 741
