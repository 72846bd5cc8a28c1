"""Rows at Qwen3-0.6B's geometry: sampling, the training part of a step, long answers."""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

import peers
import torch
import torch.nn.functional as F
from duel import (
    Result,
    Work,
    compare_speed,
    format_seconds,
    make_prompt,
    random_group,
    random_model,
    time_call,
    time_in_turn,
    weight_matrices,
)

from reasoning_from_scratch import ch06
from reasoning_from_scratch.fast.decoding import Decoder, decoder_for
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.qwen3 import KVCache, Qwen3Model
from reasoning_from_scratch.sampling import Sampling, generate, sample_next_token
from reasoning_from_scratch.trainer import train_step
from rfs.config import RunConfig
from rfs.engine import FAST
from rfs.files.models import load_model_and_tokenizer

FIGURE = Path(__file__).parent / "cost_per_token.png"


class NoText:
    """Stands in for a tokenizer: ch06.sample_response takes text, this work has only tokens."""

    eos_token_id = -1

    def __init__(self, prompt):
        self.prompt = prompt

    def encode(self, _text):
        return self.prompt

    def decode(self, _ids):
        return ""


def sampling(work: Work) -> list[Result]:
    """Tokens per second with top-p 0.9 against three sides."""
    model, prompt = random_model(work.cfg, work.layers), make_prompt(work)
    peer = peers.hf_model(model) if peers.are_installed("transformers") else None
    # One rollout at a time costs the same for each, and so do steps of bare products: these two
    # sides do an eighth, and their time is taken times eight.
    eighth, rows, tokens = work.new_tokens // 8, work.rollouts, work.new_tokens
    settings = Sampling(tokens, top_p=0.9, rollouts=rows)
    sides = {
        "ours": lambda: generate(model, [prompt], settings, stop_ids=set(), engine=FAST),
        "products": lambda: multiply_matrices(model, rows, eighth),
        "plain": lambda: ch06.sample_response(model, NoText(prompt), "", "cpu", eighth, 1.0, 0.9),
    }
    caches = ("dynamic", "static") if peer else ()
    for cache in caches:
        peers.hf_generate(peer, [prompt], rows, eighth, 0.9, cache)  # warm
        sides[cache] = partial(peers.hf_generate, peer, [prompt], rows, tokens, 0.9, cache)
    generate(model, [prompt], replace(settings, max_new_tokens=eighth), stop_ids=set(), engine=FAST)
    times = time_in_turn(sides, work.rounds, warm_up=False)
    ours, one_by_one, products_alone = (
        times["ours"],
        8 * rows * times["plain"],
        8 * times["products"],
    )
    title = f"(b) sampling, {work.layers} layers, {rows} x {work.new_tokens} tokens"
    results = [
        compare_speed(title, ours, one_by_one, "plain chapter 6", 8),
        Result(
            title,
            format_seconds(ours),
            f"its bare products: {format_seconds(products_alone)}",
            products_alone / ours,
            ">= 0.75",
            products_alone >= 0.75 * ours,
        ),
    ]
    if peer:
        best = min(caches, key=times.get)  # the peer at its fastest
        results.insert(
            0, compare_speed(title, ours, times[best], f"transformers, {best} cache", 2.5)
        )
    return results


def decoding(work: Work) -> list[Result]:
    """A decoding step in C against the same step in operations of torch."""
    rows = []
    for name, model, count, tokens in (
        ("tiny model", load_model_and_tokenizer("tiny-base")[0], 64, min(64, work.new_tokens)),
        (
            f"{work.layers} layers",
            random_model(work.cfg, work.layers),
            work.rollouts,
            work.new_tokens,
        ),
    ):
        steps = {
            "C": decoder_for(model, count, tokens),
            "torch": Decoder(model),
        }
        times = time_in_turn(
            {
                kind: partial(decode_tokens, model, decode, count, tokens)
                for kind, decode in steps.items()
            },
            work.rounds,
        )
        rows.append(
            Result(
                f"a decoding step of {count} rows, {name}",
                format_seconds(times["C"] / tokens),
                f"torch: {format_seconds(times['torch'] / tokens)}",
                times["torch"] / times["C"],
            )
        )
    return rows


@torch.no_grad()
def decode_tokens(model, decode_step, rows: int, tokens: int) -> None:
    """Steps after a prompt of 60 tokens, without drawing."""
    cache = KVCache(model.cfg["n_layers"])
    ids = torch.ones(rows, 60, dtype=torch.long)
    model.fill_cache(ids, cache)
    for _ in range(tokens):
        decode_step(ids[:, :1], cache=cache)


@torch.no_grad()
def multiply_matrices(model, rows: int, steps: int) -> None:
    """The matrix products of `steps` decoding steps and nothing else."""
    weights = weight_matrices(model)
    inputs = {w.shape[1]: torch.randn(rows, w.shape[1]).to(w.dtype) for w in weights}
    for _ in range(steps):
        for weight in weights:
            inputs[weight.shape[1]] @ weight.T


def training(work: Work) -> list[Result]:
    """Forward, backward, update on rollouts that are there already."""
    layers = work.train_layers
    model = random_model(work.cfg, layers)
    group = random_group(work, work.new_tokens)
    config = train_config(work, work.new_tokens)
    optimizer = AdamW(model, low_precision_updates=config.low_precision_updates)
    policy = LocalPolicy(model, optimizer, config, packed_logprobs)

    def ours(_step: int = 0) -> None:
        train_step(policy, [group], config, 1e-6)

    title = f"(b) training part, {layers} layers, {work.rollouts} x ({work.prompt} + "
    title += f"{work.new_tokens}) tokens"
    if not peers.are_installed("transformers", "trl"):
        return [Result(title, format_seconds(time_in_turn({"ours": ours}, work.rounds)["ours"]))]
    mine, theirs = time_against_trl(work, model, group, ours, work.new_tokens)
    return [compare_speed(title, mine, theirs, "trl", 2)]


def time_against_trl(work: Work, model, group, ours, length: int) -> tuple[float, float]:
    """Seconds of our update and of trl's, of the same weights on the same rollouts."""
    from transformers import AutoTokenizer

    folder = str(Path(__file__).parents[1] / "checkpoints" / "tiny-base")
    settings = {
        "per_device_train_batch_size": work.rollouts,
        "num_generations": work.rollouts,
        "max_completion_length": length,
    }
    return peers.time_grpo_steps(
        peers.hf_model(model),
        AutoTokenizer.from_pretrained(folder),
        [{"prompt": "", "answer": ""}] * work.rollouts,
        ours,
        work.rounds,
        settings,
        fixed_batch=peers.trl_batch(group, str(model.tok_emb.weight.device)),
    )


def train_config(work: Work, length: int) -> RunConfig:
    return RunConfig(
        max_new_tokens=length,
        rollouts=work.rollouts,
        problems_per_step=1,
        top_p=1.0,
        length_constant=float(length),
        low_precision_updates="stochastic",
    )


def growth(work: Work) -> list[Result]:
    """Cost of a token as the answer grows, beside two bounds: attention timed alone, and what
    reading keys and values as fast as the weights would cost.

    A seventh of the depth and of the vocabulary, so that blocks and head keep their shares.
    """
    layers, vocabulary = max(1, work.layers // 7), work.cfg["vocab_size"] // 7 // 32 * 32
    model = random_model(work.cfg | {"vocab_size": vocabulary}, layers)
    ticks: list[float] = []

    def draw(*arguments):  # once after each decoding step
        ticks.append(perf_counter())
        return sample_next_token(*arguments)

    sampling = Sampling(work.longest_answer, rollouts=work.rollouts)
    engine = replace(FAST, make_draw=lambda *_: draw)
    generate(model, [make_prompt(work)], sampling, stop_ids=set(), engine=engine)
    costs = [after - before for before, after in pairwise(ticks)]
    lengths = [2**k for k in range(4, 20) if 2**k <= work.longest_answer]
    window = min(32, work.longest_answer // 4)
    measured = [median(costs[max(0, length - window) : length]) for length in lengths]
    base = lengths.index(min(64, lengths[-1]))
    attention_seconds = [attention_alone(work, layers, work.prompt + length) for length in lengths]
    bytes_by_length = [bytes_read(work, model, work.prompt + length) for length in lengths]
    bounds = {
        "attention timed alone": [
            measured[base] + cost - attention_seconds[base] for cost in attention_seconds
        ],
        "bytes of weights, keys and values": [
            measured[base] * read / bytes_by_length[base] for read in bytes_by_length
        ],
    }
    if work.longest_answer >= 1024:
        draw_growth(lengths, measured, bounds)
    title = f"cost per token at {lengths[-1]} against {lengths[base]} tokens, {layers} layers"
    ours = f"{format_seconds(measured[base])} -> {format_seconds(measured[-1])}"
    ratio, rows = measured[-1] / measured[base], []
    for name, bound in bounds.items():
        allowed = bound[-1] / bound[base]
        rows.append(
            Result(
                title,
                ours,
                f"{name} x {allowed:.2f}",
                ratio,
                f"<= {allowed:.2f}x",
                ratio <= allowed,
            )
        )
    return rows


@torch.no_grad()
def attention_alone(work: Work, layers: int, tokens: int) -> float:
    """A decoding step's attention over so many tokens, in all layers, and nothing else."""
    rows, groups, width = work.rollouts, work.cfg["n_kv_groups"], work.cfg["head_dim"]
    numbers = partial(torch.randn, dtype=work.cfg["dtype"])
    caches = [[numbers(rows, groups, tokens, width) for _ in "kv"] for _ in range(layers)]
    queries = numbers(rows, groups, work.cfg["n_heads"] // groups, width)
    return median(
        time_call(lambda: [F.scaled_dot_product_attention(queries, *cache) for cache in caches])
        for _ in range(32)
    )


def bytes_read(work: Work, model: Qwen3Model, tokens: int) -> int:
    """What a decoding step cannot do without: all weights, and each row's keys and values."""
    weights = sum(w.nbytes for w in weight_matrices(model))
    per_token = 2 * len(model.trf_blocks) * work.cfg["n_kv_groups"] * work.cfg["head_dim"] * 2
    return weights + per_token * work.rollouts * tokens


def draw_growth(lengths, measured, bounds) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(lengths, [1e3 * value for value in measured], "o-", label="measured")
    for (name, values), style in zip(bounds.items(), (":", "--"), strict=True):
        axes.plot(lengths, [1e3 * value for value in values], style, label=name)
    axes.set(xlabel="tokens of the answer", ylabel="ms per decoding step of 8 rollouts", ylim=0)
    axes.set_title("What a token costs as the answer grows")
    axes.legend()
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(FIGURE, dpi=110)
    plt.close(figure)
