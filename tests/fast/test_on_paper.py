"""What a GPU is asked to do, and to hold, counted without one: each row of docs/gpu.md's table."""

import re
from functools import cache
from pathlib import Path

import pytest
import torch
from on_paper import OnPaper

from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.fast.cut import cut_by_digits
from reasoning_from_scratch.fast.decoding import Decoder
from reasoning_from_scratch.fast.graphs import GraphDecoder
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.optim import adamw
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.qwen3 import QWEN_CONFIG_06_B, KVCache, Qwen3Model
from reasoning_from_scratch.run.memory import checkpoint_blocks, fixed_bytes
from reasoning_from_scratch.sampling import Rollout, sample_next_token

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
def on_paper(updates, checkpointing, micro_batch_tokens, sample_rows):
    """Most bytes of an update and of sampling, and what the check at the start counts."""
    config = TrainConfig(
        max_new_tokens=ANSWER,
        micro_batch_tokens=micro_batch_tokens,
        low_precision_updates=updates,
        sample_rows=sample_rows,
    )
    with pytest.MonkeyPatch.context() as patch, OnPaper() as paper:
        patch.setattr(adamw, "stochastic_round", rounding_on_paper)
        with torch.device("meta"):
            model = Qwen3Model(QWEN_CONFIG_06_B)
        optimizer = AdamW(model, low_precision_updates=updates)
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
    cache = KVCache(model.cfg["n_layers"], PROMPT + ANSWER)
    like = torch.empty(rows, model.cfg["n_kv_groups"], 1, model.cfg["head_dim"], device="meta")
    cache.open(rows, "meta")
    for layer in range(cache.n_layers):
        cache._reserve(layer, like.bfloat16(), PROMPT)
    cache.advance(PROMPT)
    decoder = GraphDecoder(Decoder(model), recorded)
    tokens = torch.zeros(rows, 1, dtype=torch.long, device="meta")
    logits = decoder(tokens, cache=cache)[:, -1]
    assert not decoder.failed and decoder.keys[0].shape[2] == 768
    sample_next_token(logits, torch.zeros(rows, device="meta"), 1.0, 0.9, 0, cut_by_digits)
    return paper.most


def rows_of_the_page():
    """GiB of the GPU, flags, GB of an update and of sampling, as docs/gpu.md has them."""
    table = re.search(r"^\| memory of the GPU .*\n\|[-|]+\n((?:\|.*\n)+)", PAGE.read_text(), re.M)
    for line in table[1].splitlines():
        memory, _, flags, update, sampling = (cell.strip() for cell in line.strip("|").split("|"))
        yield int(re.match(r"\d+", memory)[0]), flags.strip("`"), float(update), float(sampling)


@pytest.mark.parametrize("memory, flags, update, sampling", list(rows_of_the_page()))
def test_a_row_of_the_page(memory, flags, update, sampling):
    def value(flag, default):
        found = re.search(rf"{flag} (\S+)", flags)
        return type(default)(found[1]) if found else default

    most_of_update, most_of_sampling, fixed = on_paper(
        value("--low-precision-updates", "master"),
        "--gradient-checkpointing" in flags,
        value("--micro-batch-tokens", TrainConfig().micro_batch_tokens),
        value("--sample-rows", TrainConfig().sample_rows),
    )
    assert round(most_of_update / 1e9, 1) == update
    assert round(most_of_sampling / 1e9, 1) == sampling
    assert fixed < most_of_update < memory * GIB - CONTEXT
    assert most_of_sampling < memory * GIB - CONTEXT


def test_what_the_check_at_the_start_counts_is_in_the_page():
    text = PAGE.read_text()
    for updates in ("master", "stochastic"):
        *_, fixed = on_paper(updates, True, 2048, 16)
        assert f"{fixed / 1e9:.1f} GB" in text.replace("9 GB with", "9.0 GB with")
