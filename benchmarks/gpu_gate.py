"""All that is hoped for on a GPU, measured on one, in at most ten minutes:

    uv run benchmarks/gpu_gate.py
    uv run --with transformers --with trl benchmarks/gpu_gate.py     with the peers' rows

Each part is a process of its own, ended hard at its deadline: an error of CUDA spoils what follows
in the same process, and a kernel that hangs cannot be interrupted. Each row is printed and written
to gpu_gate.jsonl as soon as it is there, so a run that is cut still tells something. What tells
most comes first; `--seconds` is for all, and what has no time left is named. `--only NAME ...` runs
some parts, `--list` names them. Without a GPU it runs in a small form, which shows that it runs;
its times mean nothing.
"""

import argparse
import json
import logging
import os
import platform
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))

import peers  # noqa: E402
from duel import (  # noqa: E402
    QWEN3_06B,
    TOY,
    Work,
    random_group,
    random_model,
    time_call,
    weight_matrices,
)

from reasoning_from_scratch.fast.compiled import CompiledPass  # noqa: E402
from reasoning_from_scratch.fast.decoding import Decoder, RecordingCache  # noqa: E402
from reasoning_from_scratch.fast.device import trusted_device  # noqa: E402
from reasoning_from_scratch.fast.graphs import (  # noqa: E402
    GraphDecoder,
    GraphDraw,
    Recorder,
    decode_block,
)
from reasoning_from_scratch.fast.packed import pack, packed_logprobs  # noqa: E402
from reasoning_from_scratch.optim.adamw import AdamW  # noqa: E402
from reasoning_from_scratch.policy import LocalPolicy  # noqa: E402
from reasoning_from_scratch.problems import Problem  # noqa: E402
from reasoning_from_scratch.qwen3 import QWEN_CONFIG_4_B, KVCache  # noqa: E402
from reasoning_from_scratch.rollouts import Group, grader, make_batch  # noqa: E402
from reasoning_from_scratch.sampling import (  # noqa: E402
    Sampling,
    SamplingEngine,
    generate,
    sample_next_token,
)
from reasoning_from_scratch.trainer import train_step  # noqa: E402
from rfs.config import RunConfig  # noqa: E402
from rfs.engine import FAST  # noqa: E402
from rfs.files.models import load_model_and_tokenizer  # noqa: E402
from rfs.scale.lag import async_rollouts  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
# Of the last norm: the logits then differ by 4.5 (standard deviation), and top-p 0.9 keeps some
# dozens of tokens, as of a trained model. Those of random weights are nearly equal.
LOGIT_SPREAD = 7.0


@dataclass(frozen=True)
class Form:
    """The sizes of the work."""

    device: str
    work: Work
    large: dict  # a model whose weights take several times as long to read
    large_layers: int
    rows: tuple[int, ...]  # rollouts side by side
    updates: tuple[tuple[int, int], ...]  # rollouts, and tokens of each after the prompt
    longest: int  # of the whole steps
    stops: int  # in whole steps, one token of the vocabulary in this many ends an answer


FULL = Form(
    "cuda",
    Work(QWEN3_06B, new_tokens=256),
    QWEN_CONFIG_4_B,
    36,
    (8, 64),
    ((8, 128), (64, 452)),
    512,
    256,
)
SMALL = Form(
    "cpu",
    replace(TOY, new_tokens=36),
    TOY.cfg,
    2,
    (2, 4),
    ((2, 8), (4, 24)),
    40,
    16,
)


class Gate:
    """Prints rows and writes them down."""

    def __init__(self, form: Form, path: Path, part: str = "", start: float | None = None) -> None:
        self.form, self.path, self.part = form, path, part
        self.start = time.time() if start is None else start

    def row(self, what: str, value: object, unit: str = "", goal: str = "") -> None:
        if isinstance(value, float):
            value = float(f"{value:.4g}")
        at = round(time.time() - self.start, 1)
        line = {"part": self.part, "what": what, "value": value, "unit": unit, "goal": goal}
        print(
            f"{at:6.1f} s  {self.part:<14}{what}: {value} {unit}{f'  (goal: {goal})' * bool(goal)}",
            flush=True,
        )
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line | {"at": at}) + "\n")

    def run_part(self, work: Callable[["Gate"], None]) -> None:
        """Runs a part in this process; an error becomes a row, too."""
        try:
            if self.form.device == "cuda":
                trusted_device("cuda")  # its settings are those of every run
            work(self)
        except Exception as error:  # the other parts should still run
            self.row("failed", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")

    def run_part_in_process(self, name: str, seconds: float) -> None:
        """Runs a part in a process of its own, which is killed after this many seconds."""
        command = [sys.executable, sys.argv[0], "--out", str(self.path), "--part", name]
        process = subprocess.Popen(
            [*command, "--start", str(self.start)],
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # with all that it starts itself
        )
        self.part = name
        try:
            if code := process.wait(seconds):
                self.row("failed", f"the process ended with {code}")
        except subprocess.TimeoutExpired:
            self.row("cut off", f"after {seconds:.0f} s")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class Warnings(logging.Handler):
    """Makes a row of each warning: a recording or a compiler that failed is one."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(logging.WARNING)
        self.gate = gate

    def emit(self, record: logging.LogRecord) -> None:
        self.gate.row("warning", record.getMessage())


# --- the parts


def describe_machine(gate: Gate) -> None:
    """What is measured here, and what its memory and its matrix products can do."""
    gate.row("python, torch", f"{platform.python_version()}, {torch.__version__}")
    if gate.form.device == "cpu":
        gate.row("no CUDA GPU", "the small form: its times mean nothing")
        return
    card = torch.cuda.get_device_properties(0)
    gate.row("card", f"{card.name}, {card.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}")
    driver_query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver_version = subprocess.run(driver_query, capture_output=True, text=True).stdout.strip()
    gate.row("driver, cuDNN", f"{driver_version}, {torch.backends.cudnn.version()}")
    gate.row("copying", measured_bandwidth() / 1e9, "GB/s")
    gate.row("matrix products in bfloat16", peak_flops() / 1e12, "TFLOP/s")
    x = torch.zeros(8, device="cuda")
    gate.row("a launch", 1e3 * best_seconds(lambda: [x.add_(1) for _ in range(1000)]), "us")


def measured_bandwidth() -> float:
    """Bytes per second of a large copy, which reads and writes."""
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy = lambda: [target.copy_(source) for _ in range(20)]  # noqa: E731
    copy()
    return 2 * 20 * source.numel() / time_call(copy)


def peak_flops() -> float:
    """Operations per second of a large matrix product in bfloat16."""
    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    matrix @ matrix
    return 10 * 2 * 8192**3 / time_call(lambda: [matrix @ matrix for _ in range(10)])


def engine_of(kind: str, device: str) -> SamplingEngine:
    """Operation by operation, recorded, or recorded after torch.compile."""
    if kind == "eager":
        return replace(
            FAST,
            make_decoder=lambda model, *_: Decoder(model),
            make_draw=lambda *_: sample_next_token,
        )
    record = None if device == "cuda" else lambda step: step
    return replace(
        FAST,
        make_decoder=lambda model, *_: GraphDecoder(Decoder(model), record, kind == "compiled"),
        make_draw=lambda model, rows, steps, keeps: partial(GraphDraw(record), keeps=keeps),
    )


def compare_with_cpu(gate: Gate, kind: str = "recorded") -> None:
    """A small model in float32: the CPU's answers; twice the same to the last bit."""
    model = random_model(TOY.cfg | {"dtype": torch.float32}, 2)
    model.final_norm.scale.data.fill_(LOGIT_SPREAD)
    sampling = Sampling(100, top_p=0.9, rollouts=6, sample_rows=8)
    prompts = [[5, 6, 7], [8, 9, 10, 11], list(range(40))]

    def sampled(kind: str, device: str) -> tuple[list, list]:
        groups = generate(
            model.to(device),
            prompts,
            sampling,
            stop_ids=set(range(20)),
            engine=engine_of(kind, device),
        )
        rollouts = [rollout for group in groups for rollout in group]
        return [r.response_ids for r in rollouts], [r.logprobs for r in rollouts]

    cpu_answers, _ = sampled("eager", "cpu")
    first, second = (sampled(kind, gate.form.device) for _ in range(2))
    equal = sum(x == y for x, y in zip(first[0], cpu_answers, strict=True))
    gate.row(f"{kind}: answers as on the CPU", f"{equal} of {len(cpu_answers)}")
    gate.row(f"{kind}: twice the same to the last bit", first == second, goal="True")


def spread_model(cfg: dict, layers: int, device: str):
    model = random_model(cfg, layers, device)
    model.final_norm.scale.data.fill_(LOGIT_SPREAD)
    return model


def best_seconds(call: Callable[[], object], times: int = 3) -> float:
    """The shortest of a few calls, after one that does not count."""
    call()
    return min(time_call(call) for _ in range(times))


def tokens_per_second(
    gate: Gate, model, rows: int, kind: str, tokens: int, times: int = 2
) -> float:
    """Tokens per second of a whole `generate` with top-p 0.9."""
    sampling = Sampling(tokens, top_p=0.9, rollouts=rows, sample_rows=rows)
    prompt, engine = [list(range(100, 160))], engine_of(kind, gate.form.device)
    seconds = best_seconds(
        lambda: generate(model, prompt, sampling, stop_ids=set(), engine=engine), times
    )
    gate.row(f"{rows} rows, {kind}: a step", 1e3 * seconds / tokens, "ms")
    return rows * tokens / seconds


def seconds_of_products(model, rows: int, device: str) -> float:
    """Seconds of the matrix products of one step, captured in one graph, and nothing else."""
    dtype = model.tok_emb.weight.dtype
    pairs = [
        (torch.ones(rows, w.shape[1], dtype=dtype, device=device), w)
        for w in weight_matrices(model)
    ]

    @torch.no_grad()
    def step() -> list:
        return [F.linear(x, w) for x, w in pairs]

    play = Recorder(torch.device(device))(step) if device == "cuda" else step
    return best_seconds(lambda: [play() for _ in range(20)]) / 20


@torch.no_grad()
def fill_prompt_cache(model, rows: int, device: str) -> tuple[KVCache, torch.Tensor]:
    """A cache of `rows` prompts of 60 tokens, and the tokens (B, 1) that come next."""
    cache, tokens = KVCache(model.cfg["n_layers"], 160), torch.full((rows, 1), 7, device=device)
    model.fill_cache(tokens.repeat(1, 60), cache)
    return cache, tokens


@torch.no_grad()
def time_step_parts(gate: Gate, model, rows: int, kind: str) -> None:
    """Decoding alone and drawing alone, each started again and again."""
    device = gate.form.device
    engine, (cache, tokens) = engine_of(kind, device), fill_prompt_cache(model, rows, device)
    decoder, draw = engine.make_decoder(model, rows, 64), engine.make_draw(model, rows, 64, False)
    first = time_call(lambda: decoder(tokens, cache=cache))
    gate.row(f"{rows} rows, {kind}: the first step, with what it takes to record", first, "s")
    logits = decoder(tokens, cache=cache)[:, -1].clone()
    u = torch.full((rows,), 0.5, device=device)
    policy = (1.0, 0.9, 0, FAST.cut)
    decoding = best_seconds(lambda: [decoder(tokens, cache=cache) for _ in range(16)])
    drawing = best_seconds(lambda: [draw(logits, u, *policy) for _ in range(16)])
    gate.row(f"{rows} rows, {kind}: decoding alone", 1e3 * decoding / 16, "ms")
    gate.row(f"{rows} rows, {kind}: the draw alone, top-p 0.9", 1e3 * drawing / 16, "ms")


def sampling(gate: Gate, rows: int, kind: str) -> None:
    """0.6B: a step, its two halves, a whole `generate`, against its bare products."""
    form = gate.form
    model = spread_model(form.work.cfg, form.work.layers, form.device)
    bare = seconds_of_products(model, rows, form.device)
    gate.row(f"{rows} rows: bare products in one graph", 1e3 * bare, "ms")
    time_step_parts(gate, model, rows, kind)
    speed = tokens_per_second(gate, model, rows, kind, form.work.new_tokens)
    gate.row(f"{rows} rows, {kind}", speed, "tokens/s", ">= 12,000" if rows == 64 else "")
    share = bare * speed / rows
    gate.row(f"{rows} rows, {kind}: of bare products", share, "", ">= 0.6" if rows == 8 else "")


def many_rows_part(kind: str) -> Callable[[Gate], None]:
    return lambda gate: sampling(gate, gate.form.rows[1], kind)


def few_rows_part(kind: str) -> Callable[[Gate], None]:
    return lambda gate: sampling(gate, gate.form.rows[0], kind)


def time_kept_recordings(gate: Gate) -> None:
    """What a run's first, second and third sampling take, and what torch then holds."""
    form, recordings = gate.form, RecordingCache()
    model = spread_model(form.work.cfg, form.work.layers, form.device)
    engine = replace(FAST, make_decoder=recordings.decoder, make_draw=recordings.draw)
    rows = form.rows[1]
    policy = Sampling(form.work.new_tokens, top_p=0.9, rollouts=rows, sample_rows=rows)
    for number in (1, 2, 3):
        prompt = [list(range(100, 160 + number))]
        seconds = time_call(
            lambda p=prompt: generate(model, p, policy, stop_ids=set(), engine=engine)
        )
        gate.row(f"generate {number}", seconds, "s")
        if form.device == "cuda":
            gate.row(f"held after generate {number}", torch.cuda.memory_reserved() / 1e9, "GB")


def against_transformers(gate: Gate) -> None:
    """64 rows, its static cache."""
    if not peers.are_installed("transformers"):
        gate.row("left out", "transformers is not installed")
        return
    form, rows = gate.form, gate.form.rows[-1]
    model = spread_model(form.work.cfg, form.work.layers, form.device)
    tokens = min(64, form.work.new_tokens)
    ours = tokens_per_second(gate, model, rows, "recorded", tokens)
    peer = peers.hf_model(model)
    prompt = list(range(100, 160))
    seconds = best_seconds(
        lambda: peers.hf_generate(peer, [prompt], rows, tokens, 0.9, "static"), 1
    )
    gate.row(f"{rows} rows, transformers, static cache", rows * tokens / seconds, "tokens/s")
    gate.row(f"{rows} rows, recorded: times as fast", ours * seconds / (rows * tokens), "", ">= 5")


def fresh_group(work: Work, length: int, seed: int) -> Group:
    """Rollouts of up to `length` tokens: one repeated shape would hide what each new one costs."""
    group, draw = random_group(work, length), random.Random(seed)
    for rollout in group.rollouts[1:]:
        count = draw.randint(3 * length // 4, length)
        rollout.response_ids, rollout.logprobs, rollout.entropies = (
            values[:count] for values in (rollout.response_ids, rollout.logprobs, rollout.entropies)
        )
    return group


def attention_kernels(call: Callable[[], object]) -> str:
    """Which of torch's kernels compute attention."""
    with torch.profiler.profile() as profile:
        call()
    names = {event.key for event in profile.key_averages() if "_attention" in event.key}
    return ", ".join(
        sorted(
            name.removeprefix("aten::")
            for name in names
            if "_for_" in name
            or ("flash" in name or "efficient" in name or "cudnn" in name or "math" in name)
        )
    )


def slowest_kernels(gate: Gate, what: str, call: Callable[[], object]) -> None:
    """The kernels that take longest; on a CPU, the operations."""
    with torch.profiler.profile() as profile:
        call()
    events = profile.key_averages()
    kind = torch.autograd.DeviceType.CUDA if gate.form.device == "cuda" else None
    kernels = [event for event in events if kind in (None, event.device_type)]

    def seconds(event) -> float:
        return (event.self_device_time_total if kind else event.self_cpu_time_total) / 1e6

    count, total = sum(event.count for event in kernels), sum(map(seconds, kernels))
    gate.row(f"{what}: kernels, together", f"{count}, {1e3 * total:.2f}", "ms")
    for event in sorted(kernels, key=seconds, reverse=True)[:12]:
        gate.row(f"{what}: {event.count} of {event.key[:90]}", 1e3 * seconds(event), "ms")


def profile_kernels(gate: Gate) -> None:
    """Where the time goes: a decoding step, a draw, and an update."""
    form, rows = gate.form, gate.form.rows[1]
    model = spread_model(form.work.cfg, form.work.layers, form.device)
    decoder = engine_of("recorded", form.device).make_decoder(model, rows, 64)
    cache, tokens = fill_prompt_cache(model, rows, form.device)
    logits = decoder(tokens, cache=cache)[:, -1].clone()
    slowest_kernels(gate, "a step", lambda: decoder._step(rows, 256, decode_block))
    u = torch.full((rows,), 0.5, device=form.device)
    draw = partial(sample_next_token, logits, u, 1.0, 0.9, 0, FAST.cut)
    draw()
    slowest_kernels(gate, "a draw, digit by digit", draw)
    policy, groups, config = make_update(form, 1)
    run = partial(train_step, policy, config=config, lr=1e-6)
    run(groups[:1])
    slowest_kernels(gate, "an update", lambda: run(groups[1:2]))


def make_update(form: Form, size: int, compiled: bool = False, tokens: int = 0) -> tuple:
    """A policy, four groups of fresh lengths for one update each, and the configuration."""
    count, length = form.updates[size]
    work = replace(form.work, rollouts=count)
    model = random_model(work.cfg, work.layers, form.device)
    config = RunConfig(
        max_new_tokens=length, rollouts=count, problems_per_step=1, length_constant=float(length)
    )
    config = replace(config, micro_batch_tokens=tokens or config.micro_batch_tokens)
    training_pass = CompiledPass(model) if compiled else packed_logprobs
    policy = LocalPolicy(model, AdamW(model), config, training_pass)
    return policy, [fresh_group(work, length, seed) for seed in range(4)], config


def time_update(gate: Gate, size: int, compiled: bool = False, tokens: int = 0) -> None:
    """Updates of fresh lengths: milliseconds, share of the card's matrix rate, most memory."""
    form, (count, length) = gate.form, gate.form.updates[size]
    work = replace(form.work, rollouts=count)
    policy, groups, config = make_update(form, size, compiled, tokens)
    model, optimizer, title = policy.model, policy.optimizer, f"{count} x {work.prompt + length}"
    run = partial(train_step, policy, config=config, lr=1e-6)
    if size == 0 and not compiled:
        time_update_parts(gate, model, optimizer, groups[0], title)
        batch = make_batch(groups[0].rollouts, torch.device(form.device))
        kernels = attention_kernels(lambda: packed_logprobs(model, batch).sum().backward())
        gate.row("attention by", kernels)
        optimizer.zero_grad()
    gate.row(
        f"{title}: the first", 1e3 * time_call(lambda: run([random_group(work, length)])), "ms"
    )
    if form.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    fresh = [time_call(lambda group=group: run([group])) for group in groups * 2]
    gate.row(f"{title}, of fresh lengths: each", json.dumps([round(1e3 * x, 1) for x in fresh]))
    gate.row(f"{title}, of fresh lengths: median", 1e3 * median(fresh), "ms", "<= 65" * (size == 0))
    seconds = min(time_call(lambda: run([random_group(work, length)])) for _ in range(2))
    gate.row(f"{title}: update", 1e3 * seconds, "ms")
    if form.device == "cuda":
        products = 6 * sum(w.numel() for w in weight_matrices(model))  # a token's, both ways
        share = products * count * (work.prompt + length) / seconds / peak_flops()
        gate.row(f"{title}: of the card's matrix rate", share, "", ">= 0.35" if size else "")
        most_memory = torch.cuda.max_memory_allocated() / 1e9
        gate.row(f"{title}: most memory", most_memory, "GB", "< 45" if size else "")


def with_cudnn(part: Callable[[Gate], None]) -> Callable[[Gate], None]:
    """The same part, with cuDNN's attention where torch prefers it."""

    def work(gate: Gate) -> None:
        torch.backends.cuda.enable_cudnn_sdp(True)
        part(gate)

    return work


def time_update_parts(gate: Gate, model, optimizer, group, title: str) -> None:
    batch = make_batch(group.rollouts, torch.device(gate.form.device))
    gate.row(f"{title}: packing", 1e3 * best_seconds(lambda: pack(batch)), "ms")
    forward = best_seconds(lambda: packed_logprobs(model, batch))
    gate.row(f"{title}: forward", 1e3 * forward, "ms")
    forward_and_backward = best_seconds(lambda: packed_logprobs(model, batch).sum().backward())
    gate.row(f"{title}: backward", 1e3 * (forward_and_backward - forward), "ms")
    stochastic = AdamW(model, low_precision_updates="stochastic")
    stochastic.gradient_sums = optimizer.gradient_sums  # the first one has taken the gradients
    for name, other in (("float32 masters", optimizer), ("stochastic rounding", stochastic)):
        gate.row(f"{title}: AdamW, {name}", 1e3 * best_seconds(lambda o=other: o.step(1e-6)), "ms")
    optimizer.zero_grad()


def step_config(form: Form, **changes) -> RunConfig:
    """64 rollouts of up to 512 tokens, some of which end before."""
    on_gpu = form.device == "cuda"
    return RunConfig(
        steps=3,
        problems_per_step=8 if on_gpu else 2,
        rollouts=8 if on_gpu else 2,
        max_new_tokens=form.longest,
        overlong_penalty=form.longest // 2,  # rewards that differ: nobody solves a problem
        length_constant=float(form.longest),
        **changes,
    )


def step_policy(form: Form, config: RunConfig) -> LocalPolicy:
    """A policy with random weights. One token in `form.stops` ends an answer, among those that the
    tokenizer knows, so one of them is drawn now and then."""
    model = spread_model(form.work.cfg, form.work.layers, form.device)
    tokenizer = load_model_and_tokenizer("tiny-base")[1]
    stops = range(3, 1024)[: form.work.cfg["vocab_size"] // form.stops]
    tokenizer.other_stop_ids = frozenset(stops)
    recordings = RecordingCache(config.compile)
    engine = replace(
        FAST,
        make_decoder=recordings.decoder,
        make_draw=recordings.draw,
        free_memory=recordings.free_memory,
    )
    training_pass = CompiledPass(model) if config.compile else packed_logprobs
    return LocalPolicy(model, AdamW(model), config, training_pass, tokenizer, engine)


def make_problems(config: RunConfig) -> list[Problem]:
    return [Problem(f"{i}", f"{i} + {i + 5}", f"{2 * i + 5}") for i in range(8)][
        : config.problems_per_step
    ]


def time_steps(gate: Gate, **changes) -> None:
    """Three GRPO steps; the first also records or compiles."""
    config = step_config(gate.form, **changes)
    policy = step_policy(gate.form, config)
    for step in range(config.steps):
        start = time.perf_counter()
        groups = policy.sample(make_problems(config), config, step, judge=grader)
        sampled = time.perf_counter()
        train_step(policy, groups, config, 1e-6)  # ends with numbers fetched from the GPU
        ended = time.perf_counter()
        goal = "<= 4 s" if step == 2 and not changes else ""
        gate.row(f"step {step + 1}", ended - start, "s", goal)
        gate.row(f"step {step + 1}: sampling", sampled - start, "s")
        gate.row(f"step {step + 1}: update", ended - sampled, "s")
        lengths = [len(rollout.response_ids) for group in groups for rollout in group.rollouts]
        gate.row(f"step {step + 1}: tokens, longest", f"{sum(lengths)}, {max(lengths)}")
        if gate.form.device == "cuda":
            gate.row(f"step {step + 1}: most memory", torch.cuda.max_memory_allocated() / 1e9, "GB")


def time_lagged_steps(gate: Gate) -> None:
    """Three steps whose sampling runs beside the training."""
    config = step_config(gate.form, max_steps_off_policy=1)
    policy = step_policy(gate.form, config)
    rollouts = async_rollouts(policy, make_problems(config), config, 0, grader)
    start = time.perf_counter()
    try:
        for step, groups in zip(range(config.steps), rollouts, strict=False):
            train_step(policy, list(groups), config, 1e-6)
            start, before = time.perf_counter(), start
            gate.row(f"step {step + 1}", start - before, "s")
    finally:
        rollouts.close()


def compiled_steps(gate: Gate) -> None:
    """Three steps with --compile."""
    time_steps(gate, compile=True)


def time_1_and_256_rows(gate: Gate) -> None:
    """0.6B with one row and with 256."""
    form = gate.form
    model = spread_model(form.work.cfg, form.work.layers, form.device)
    for rows in (1, 256) if form.device == "cuda" else (1, 3):
        speed = tokens_per_second(
            gate, model, rows, "recorded", min(128, form.work.new_tokens), times=1
        )
        gate.row(f"{rows} rows, recorded", speed, "tokens/s")


def bytes_read(work: Work, model, batch: int) -> float:
    """Of one decoding step: every weight once, and the keys and values of half the answer."""
    weights = sum(w.numel() * w.element_size() for w in weight_matrices(model))
    cfg = model.cfg
    per_token = 2 * cfg["n_layers"] * cfg["n_kv_groups"] * cfg["head_dim"] * 2
    return weights + batch * per_token * (work.prompt + work.new_tokens / 2)


def time_large_model(gate: Gate) -> None:
    """4B, 8 rows: a share of what copying memory reaches."""
    form, rows = gate.form, min(8, gate.form.rows[0])
    model = spread_model(form.large, form.large_layers, form.device)
    tokens = min(128, form.work.new_tokens)
    speed = tokens_per_second(gate, model, rows, "recorded", tokens, times=1)
    gate.row(f"{rows} rows, recorded", speed, "tokens/s")
    if form.device == "cuda":
        work = replace(form.work, cfg=form.large, new_tokens=tokens)
        share = bytes_read(work, model, rows) * speed / rows / measured_bandwidth()
        gate.row(f"{rows} rows, recorded: of the copying speed", share, "", ">= 0.5")


def gpu_tests(gate: Gate) -> None:
    """The tests that want a GPU."""
    # Neither the tests' own settings nor their plugins, which a bare machine does not have.
    command = ["-m", "pytest", "-q", "--noconftest", "-o", "addopts=", "-p", "no:nbval"]
    command += ["tests/fast/test_gpu.py", "-k", "cuda or real"]
    tests = subprocess.run(
        [sys.executable, *command, "-p", "no:cacheprovider"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
    )
    gate.row("tests/fast/test_gpu.py", (tests.stdout.strip().splitlines() or [tests.stderr])[-1])


def against_trl(gate: Gate) -> None:
    """The update of 8 x 188 tokens, in turn with trl's."""
    if not peers.are_installed("transformers", "trl"):
        gate.row("left out", "transformers or trl is not installed")
        return
    import qwen_rows

    form = gate.form
    count, length = form.updates[0]
    work = replace(form.work, rollouts=count)
    model = random_model(work.cfg, work.layers, form.device)
    group, config = random_group(work, length), qwen_rows.train_config(work, length)
    policy = LocalPolicy(model, AdamW(model), config, packed_logprobs)

    def ours(_step: int = 0) -> None:
        train_step(policy, [group], config, 1e-6)

    ours()
    mine, theirs = qwen_rows.time_against_trl(work, model, group, ours, length)
    gate.row("update", 1e3 * mine, "ms")
    gate.row("trl's", 1e3 * theirs, "ms")
    gate.row("times as fast", theirs / mine, "", ">= 1.5")


# What tells most comes first; seconds that each may take.
PARTS: dict[str, tuple[Callable[[Gate], None], float]] = {
    "machine": (describe_machine, 30),
    "same": (compare_with_cpu, 40),
    "rows-64": (many_rows_part("recorded"), 50),
    "rows-8": (few_rows_part("recorded"), 40),
    "update-64": (lambda gate: time_update(gate, 1), 45),
    "update-8": (lambda gate: time_update(gate, 0), 40),
    "steps": (time_steps, 60),
    "steps-cudnn": (with_cudnn(time_steps), 60),
    "update-cudnn": (with_cudnn(lambda gate: time_update(gate, 0)), 40),
    "kept": (time_kept_recordings, 40),
    "eager-64": (many_rows_part("eager"), 50),
    "eager-8": (few_rows_part("eager"), 40),
    "update-wide": (lambda gate: time_update(gate, 1, tokens=16384), 45),
    "kernels": (profile_kernels, 60),
    "update-compiled": (lambda gate: time_update(gate, 1, compiled=True), 90),
    "rows-compiled": (many_rows_part("compiled"), 90),
    "same-compiled": (lambda gate: compare_with_cpu(gate, "compiled"), 60),
    "steps-compiled": (compiled_steps, 110),
    "trl": (against_trl, 90),
    "transformers": (against_transformers, 60),
    "one-and-many": (time_1_and_256_rows, 45),
    "large": (time_large_model, 60),
    "lag": (time_lagged_steps, 60),
    "tests": (gpu_tests, 90),
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="NAME", help="only these parts")
    parser.add_argument("--list", action="store_true", help="name the parts")
    parser.add_argument("--out", type=Path, default=Path("gpu_gate.jsonl"), help="for the rows")
    parser.add_argument("--seconds", type=float, default=580.0, help="for all parts together")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)  # in this process
    parser.add_argument("--start", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.list:
        for name, (_, seconds) in PARTS.items():
            print(f"{name:<16}{seconds:4.0f} s at most")
        return 0
    form = FULL if torch.cuda.is_available() else SMALL
    if options.part:
        gate = Gate(form, options.out, options.part, options.start)
        logging.getLogger("reasoning_from_scratch").addHandler(Warnings(gate))
        gate.run_part(PARTS[options.part][0])
        return 0
    gate = Gate(form, options.out)
    options.out.write_text("")
    for name in options.only or PARTS:
        seconds_left = options.seconds - (time.time() - gate.start)
        if seconds_left < 10:
            gate.part = name
            gate.row("left out", "no time is left: --only runs it alone")
        else:
            gate.run_part_in_process(name, min(PARTS[name][1], seconds_left))
    gate.part = ""
    gate.row("the rows are in", str(options.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
