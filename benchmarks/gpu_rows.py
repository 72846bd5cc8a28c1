"""Rows that need a CUDA GPU: shares of its memory bandwidth and of its peak arithmetic."""

import time
from collections.abc import Iterator

import peers
import torch
from duel import (
    Result,
    Work,
    faster,
    in_turn,
    matrices,
    prompt_of,
    random_group,
    random_model,
    seconds,
    timed,
)

from reasoning_from_scratch.fast.engine import FAST
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.sampling import Sampling, generate
from reasoning_from_scratch.trainer import train_step

BATCHES = (1, 8, 64, 256)
SKIPPED = "left out: torch.cuda is not available here"


def gpu_sampling(work: Work) -> Iterator[Result]:
    """Sampling for batches of 1 to 256 against transformers."""
    if not torch.cuda.is_available():
        yield Result("sampling on a GPU, batches of 1 to 256", SKIPPED)
        return
    model = random_model(work.cfg, work.layers, "cuda")
    peer = peers.hf_model(model) if peers.have("transformers") else None
    bandwidth = measured_bandwidth()
    for batch in BATCHES:
        yield from one_batch(work, model, peer, batch, bandwidth)


def one_batch(work: Work, model, peer, batch: int, bandwidth: float) -> list[Result]:
    prompt, count = prompt_of(work), work.new_tokens
    sampling = Sampling(count, top_p=0.9, rollouts=batch, sample_rows=batch)
    sides = {"ours": lambda: generate(model, [prompt], sampling, stop_ids=set(), engine=FAST)}
    if peer is not None:
        sides["peer"] = lambda: peers.hf_generate(peer, prompt, batch, count, 0.9, "dynamic")
    times = in_turn(sides, work.rounds)
    title, lines = f"sampling on the GPU, batch {batch}", []
    speed = f"{batch * count / times['ours']:,.0f} tokens/s"
    if peer is not None:
        ratio = times["peer"] / times["ours"]
        least = 5 if batch == 64 else None
        lines.append(
            Result(
                title,
                speed,
                f"transformers: {seconds(times['peer'])}",
                ratio,
                f">= {least}x" if least else "",
                ratio >= least if least else None,
            )
        )
    share = bytes_read(work, model, batch) * count / times["ours"] / bandwidth
    least = 0.5 if batch == 8 else None
    return lines + [
        Result(
            title,
            speed,
            f"of {bandwidth / 1e9:,.0f} GB/s copied",
            share,
            f">= {least}" if least else "",
            share >= least if least else None,
        )
    ]


def bytes_read(work: Work, model, batch: int) -> float:
    """Of one decoding step: every weight once, and the keys and values of half the answer."""
    weights = sum(w.numel() * w.element_size() for w in matrices(model))
    cfg = model.cfg
    per_token = 2 * cfg["n_layers"] * cfg["n_kv_groups"] * cfg["head_dim"] * 2
    return weights + batch * per_token * (work.prompt + work.new_tokens / 2)


def measured_bandwidth() -> float:
    """Bytes per second of a large copy, which reads and writes."""
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy = lambda: [target.copy_(source) for _ in range(20)]  # noqa: E731
    copy()
    return 2 * 20 * source.numel() / timed(copy)


def gpu_training(work: Work) -> Iterator[Result]:
    """The training part's share of what large matrix products reach, and against trl."""
    if not torch.cuda.is_available():
        yield Result("training step on a GPU", SKIPPED)
        return
    for length in (work.new_tokens, work.longest):
        yield from training_part(work, length)


def training_part(work: Work, length: int) -> list[Result]:
    from qwen_rows import against_trl, train_config

    model = random_model(work.cfg, work.layers, "cuda")
    group, config = random_group(work, length), train_config(work, length)
    optimizer = AdamW(model, low_precision_updates="stochastic")
    policy = LocalPolicy(model, optimizer, config, packed_logprobs)

    def ours(_step: int = 0) -> None:
        train_step(policy, [group], config, 1e-6)

    title = f"training part on the GPU, {work.rollouts} x ({work.prompt} + {length}) tokens"
    lines = []
    if peers.have("transformers", "trl"):
        mine, theirs = against_trl(work, model, group, ours, length)
        lines.append(faster(title, mine, theirs, "trl", 2))
    else:
        mine = in_turn({"ours": ours}, work.rounds)["ours"]
    parameters = sum(w.numel() for w in matrices(model))
    share = 6 * parameters * work.rollouts * (work.prompt + length) / mine / peak_flops()
    about = "6 x weights x tokens, of a large product's FLOP/s"
    return [*lines, Result(title, seconds(mine), about, share)]


def peak_flops() -> float:
    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    matrix @ matrix
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(10):
        matrix @ matrix
    torch.cuda.synchronize()
    return 10 * 2 * 8192**3 / (time.perf_counter() - start)
