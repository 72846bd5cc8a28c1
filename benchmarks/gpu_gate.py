"""All that is hoped for on a GPU, measured on one, in at most ten minutes:

    uv run benchmarks/gpu_gate.py
    uv run --with transformers --with trl benchmarks/gpu_gate.py     with the peers' rows

Each row is printed and written to gpu_gate.jsonl as soon as it is there, and each part has a
deadline and its own failure, so that a run which is cut still tells something. `--only NAME ...`
runs some parts, `--list` names them. Without a GPU it runs in a small form, which shows that it
runs; its times mean nothing.
"""

import _thread
import argparse
import gc
import json
import logging
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))

import peers  # noqa: E402
from duel import QWEN3_06B, TOY, Work, matrices, random_group, random_model, timed  # noqa: E402
from gpu_rows import bytes_read, measured_bandwidth, peak_flops  # noqa: E402

from reasoning_from_scratch.commands.cli import with_home
from reasoning_from_scratch.config import TrainConfig  # noqa: E402
from reasoning_from_scratch.fast.decoding import Decoder  # noqa: E402
from reasoning_from_scratch.fast.engine import FAST  # noqa: E402
from reasoning_from_scratch.fast.graphs import GraphDecoder, GraphDraw, Recorder  # noqa: E402
from reasoning_from_scratch.fast.packed import (  # noqa: E402
    compiled_pass,
    pack,
    packed_logprobs,
)
from reasoning_from_scratch.files.weights import (  # noqa: E402
    GENERATION_FILE,
    load_model_and_tokenizer,
    save_hf_folder,
)
from reasoning_from_scratch.optim.adamw import AdamW  # noqa: E402
from reasoning_from_scratch.policy import LocalPolicy  # noqa: E402
from reasoning_from_scratch.qwen3 import QWEN_CONFIG_4_B, KVCache  # noqa: E402
from reasoning_from_scratch.rollouts import make_batch  # noqa: E402
from reasoning_from_scratch.run.start import train  # noqa: E402
from reasoning_from_scratch.sampling import (  # noqa: E402
    Sampling,
    SamplingEngine,
    generate,
    sample_next_token,
)
from reasoning_from_scratch.trainer import train_step  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
# Of the last norm: the logits then differ by 4.5 (standard deviation), and top-p 0.9 keeps some
# dozens of tokens, as of a trained model. Those of random weights are nearly equal.
SPREAD = 7.0


@dataclass(frozen=True)
class Form:
    """How much of everything."""

    device: str
    work: Work
    large: dict  # a model whose weights take several times as long to read
    large_layers: int
    rows: tuple[int, ...]  # rollouts side by side
    updates: tuple[tuple[int, int], ...]  # rollouts, and tokens of each after the prompt
    longest: int  # of the whole steps
    stops: int  # every so-manieth token ends an answer there
    kinds: tuple[str, ...]


FULL = Form(
    "cuda",
    Work(QWEN3_06B, new_tokens=256),
    QWEN_CONFIG_4_B,
    36,
    (8, 64),
    ((8, 128), (64, 452)),
    512,
    256,
    ("eager", "recorded", "compiled"),
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
    ("eager", "recorded"),
)


class Gate:
    """Prints rows and writes them down, part by part."""

    def __init__(self, form: Form, path: Path) -> None:
        self.form, self.file, self.part = form, path.open("w", encoding="utf-8"), ""
        self.start = time.perf_counter()

    def row(self, what: str, value: object, unit: str = "", goal: str = "") -> None:
        if isinstance(value, float):
            value = float(f"{value:.4g}")
        at = round(time.perf_counter() - self.start, 1)
        line = {"part": self.part, "what": what, "value": value, "unit": unit, "goal": goal}
        print(
            f"{at:6.1f} s  {self.part:<14}{what}: {value} {unit}{f'  (goal: {goal})' * bool(goal)}",
            flush=True,
        )
        self.file.write(json.dumps(line | {"at": at}) + "\n")
        self.file.flush()

    def run(self, name: str, work: Callable[["Gate"], None], seconds: float) -> None:
        """One part; what goes wrong in it is a row, too."""
        self.part, expired = name, threading.Event()

        def interrupt() -> None:
            expired.set()
            _thread.interrupt_main()

        deadline = threading.Timer(seconds, interrupt)
        deadline.daemon = True
        deadline.start()
        try:
            work(self)
        except KeyboardInterrupt:
            if not expired.is_set():
                raise
            self.row("cut off", f"after {seconds:.0f} s")
        except Exception as error:  # a gate that stops at the first failure tells nothing more
            self.row("failed", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
        finally:
            deadline.cancel()
            gc.collect()  # a model of the next part must find room
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


class Warnings(logging.Handler):
    """Makes a row of each warning: a recording or a compiler that failed is one."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(logging.WARNING)
        self.gate = gate

    def emit(self, record: logging.LogRecord) -> None:
        self.gate.row("warning", record.getMessage())


# --- the parts


def machine(gate: Gate) -> None:
    """What is measured here, and what its memory and its matrix products can do."""
    gate.row("python, torch", f"{platform.python_version()}, {torch.__version__}")
    if gate.form.device == "cpu":
        gate.row("no CUDA GPU", "the small form: its times mean nothing")
        return
    card = torch.cuda.get_device_properties(0)
    gate.row("card", f"{card.name}, {card.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}")
    gate.row("copying", measured_bandwidth() / 1e9, "GB/s")
    gate.row("matrix products in bfloat16", peak_flops() / 1e12, "TFLOP/s")


def engine_of(kind: str, device: str) -> SamplingEngine:
    """Operation by operation, recorded, or recorded after torch.compile."""
    if kind == "eager":
        return replace(
            FAST, decoder=lambda model, *_: Decoder(model), draw=lambda *_: sample_next_token
        )
    record = None if device == "cuda" else lambda step: step
    return replace(
        FAST,
        decoder=lambda model, *_: GraphDecoder(Decoder(model), record, kind == "compiled"),
        draw=lambda *_: GraphDraw(record),
    )


def same(gate: Gate) -> None:
    """A small model in float32: all ways give the CPU's answers; twice the same to the last bit."""
    model = random_model(TOY.cfg | {"dtype": torch.float32}, 2)
    model.final_norm.scale.data.fill_(SPREAD)
    sampling = Sampling(100, top_p=0.9, rollouts=6, sample_rows=8)
    prompts = [[5, 6, 7], [8, 9, 10, 11], list(range(40))]

    def sampled(kind: str, device: str) -> tuple[list, list]:
        found = generate(
            model.to(device),
            prompts,
            sampling,
            stop_ids=set(range(20)),
            engine=engine_of(kind, device),
        )
        rollouts = [rollout for group in found for rollout in group]
        return [r.response_ids for r in rollouts], [r.logprobs for r in rollouts]

    wanted, _ = sampled("eager", "cpu")
    for kind in gate.form.kinds:
        first, second = (sampled(kind, gate.form.device) for _ in range(2))
        equal = sum(x == y for x, y in zip(first[0], wanted, strict=True))
        gate.row(f"{kind}: answers as on the CPU", f"{equal} of {len(wanted)}")
        gate.row(f"{kind}: twice the same to the last bit", first == second, goal="True")


def spread_model(cfg: dict, layers: int, device: str):
    model = random_model(cfg, layers, device)
    model.final_norm.scale.data.fill_(SPREAD)
    return model


def seconds_of(call: Callable[[], object], times: int = 3) -> float:
    """The shortest of a few, after one that does not count."""
    call()
    return min(timed(call) for _ in range(times))


def speed(gate: Gate, model, rows: int, kind: str, tokens: int, times: int = 2) -> float:
    """Tokens per second of a whole `generate` with top-p 0.9."""
    sampling = Sampling(tokens, top_p=0.9, rollouts=rows, sample_rows=rows)
    prompt, engine = [list(range(100, 160))], engine_of(kind, gate.form.device)
    took = seconds_of(
        lambda: generate(model, prompt, sampling, stop_ids=set(), engine=engine), times
    )
    gate.row(f"{rows} rows, {kind}: a step", 1e3 * took / tokens, "ms")
    return rows * tokens / took


def bare_products(model, rows: int, device: str) -> float:
    """Seconds of the matrix products of one step, captured in one graph, and nothing else."""
    dtype = model.tok_emb.weight.dtype
    pairs = [(torch.ones(rows, w.shape[1], dtype=dtype, device=device), w) for w in matrices(model)]

    @torch.no_grad()
    def step() -> list:
        return [F.linear(x, w) for x, w in pairs]

    play = Recorder(torch.device(device))(step) if device == "cuda" else step
    return seconds_of(lambda: [play() for _ in range(20)]) / 20


@torch.no_grad()
def parts_of_a_step(gate: Gate, model, rows: int, kind: str) -> None:
    """Decoding alone and drawing alone, each started again and again."""
    device = gate.form.device
    engine, cache = engine_of(kind, device), KVCache(model.cfg["n_layers"], 160)
    tokens = torch.full((rows, 1), 7, device=device)
    model.fill_cache(tokens.repeat(1, 60), cache)
    decoder, draw = engine.decoder(model, rows, 64), engine.draw(model, rows, 64)
    first = timed(lambda: decoder(tokens, cache=cache))
    gate.row(f"{rows} rows, {kind}: the first step, with what it takes to record", first, "s")
    logits = decoder(tokens, cache=cache)[:, -1].clone()
    u = torch.full((rows,), 0.5, device=device)
    policy = (1.0, 0.9, 0, FAST.cut)
    decoding = seconds_of(lambda: [decoder(tokens, cache=cache) for _ in range(16)])
    drawing = seconds_of(lambda: [draw(logits, u, *policy) for _ in range(16)])
    gate.row(f"{rows} rows, {kind}: decoding alone", 1e3 * decoding / 16, "ms")
    gate.row(f"{rows} rows, {kind}: the draw alone, top-p 0.9", 1e3 * drawing / 16, "ms")


def sampling(gate: Gate) -> None:
    """0.6B, in all ways, against its bare products."""
    form = gate.form
    model = spread_model(form.work.cfg, form.work.layers, form.device)
    for rows in form.rows:
        bare = bare_products(model, rows, form.device)
        gate.row(f"{rows} rows: bare products in one graph", 1e3 * bare, "ms")
        for kind in form.kinds:
            parts_of_a_step(gate, model, rows, kind)
            found = speed(gate, model, rows, kind, form.work.new_tokens)
            goal = ">= 12,000" if rows == 64 else ""
            gate.row(f"{rows} rows, {kind}", found, "tokens/s", goal)
            goal = ">= 0.6" if rows == 8 else ""
            gate.row(f"{rows} rows, {kind}: of bare products", bare * found / rows, "", goal)


def against_transformers(gate: Gate) -> None:
    """64 rows, its static cache."""
    if not peers.have("transformers"):
        gate.row("left out", "transformers is not installed")
        return
    form, rows = gate.form, gate.form.rows[-1]
    model = spread_model(form.work.cfg, form.work.layers, form.device)
    tokens = min(64, form.work.new_tokens)
    ours = speed(gate, model, rows, form.kinds[-1], tokens)
    peer = peers.hf_model(model)
    prompt = list(range(100, 160))
    took = seconds_of(lambda: peers.hf_generate(peer, prompt, rows, tokens, 0.9, "static"), 1)
    gate.row(f"{rows} rows, transformers, static cache", rows * tokens / took, "tokens/s")
    gate.row(
        f"{rows} rows, {form.kinds[-1]}: times as fast", ours * took / (rows * tokens), "", ">= 5"
    )


def updates(gate: Gate) -> None:
    """8 x 188 and 64 x 512 tokens, split, whole, and as a share of the card's matrix rate."""
    form = gate.form
    peak = peak_flops() if form.device == "cuda" else float("nan")
    for count, length in form.updates:
        work = replace(form.work, rollouts=count)
        model = random_model(work.cfg, work.layers, form.device)
        group, optimizer = random_group(work, length), AdamW(model)
        title = f"{count} x {work.prompt + length} tokens"
        if (count, length) == form.updates[0]:
            split_update(gate, model, optimizer, group, title)
        config = TrainConfig(
            max_new_tokens=length,
            rollouts=count,
            problems_per_step=1,
            length_constant=float(length),
        )
        passes = {"eager": packed_logprobs}
        if form.device == "cuda":
            passes["compiled"] = compiled_pass(model)
        for name, training_pass in passes.items():
            if form.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            policy = LocalPolicy(model, optimizer, config, training_pass)
            update = partial(train_step, policy, [group], config, 1e-6)
            took = seconds_of(update, 2)
            gate.row(f"{title}, {name}: update", 1e3 * took, "ms")
            if form.device == "cuda":
                products = 6 * sum(w.numel() for w in matrices(model))  # a token's, both ways
                share = products * count * (work.prompt + length) / took / peak
                most = torch.cuda.max_memory_allocated() / 1e9
                goals = (">= 0.35", "< 45") if count == 64 else ("", "")
                gate.row(f"{title}, {name}: of the card's matrix rate", share, "", goals[0])
                gate.row(f"{title}, {name}: most memory", most, "GB", goals[1])


def split_update(gate: Gate, model, optimizer, group, title: str) -> None:
    batch = make_batch(group.rollouts, torch.device(gate.form.device))
    gate.row(f"{title}: packing", 1e3 * seconds_of(lambda: pack(batch)), "ms")
    forward = seconds_of(lambda: packed_logprobs(model, batch))
    gate.row(f"{title}: forward", 1e3 * forward, "ms")
    both = seconds_of(lambda: packed_logprobs(model, batch).sum().backward())
    gate.row(f"{title}: backward", 1e3 * (both - forward), "ms")
    for name, other in (
        ("float32 masters", optimizer),
        ("stochastic rounding", AdamW(model, low_precision_updates="stochastic")),
    ):
        gate.row(f"{title}: AdamW, {name}", 1e3 * seconds_of(lambda o=other: o.step(1e-6)), "ms")
    optimizer.zero_grad()


def write_gate_model(folder: Path, form: Form) -> None:
    """A folder that training opens, with weights made up. Every so-manieth of all tokens ends an
    answer, among those that the tokenizer knows, and one of them is drawn now and then."""
    model = spread_model(form.work.cfg, form.work.layers, form.device)
    save_hf_folder(model, load_model_and_tokenizer("tiny-base")[1], folder)
    stops = [*range(3, 1024)][: form.work.cfg["vocab_size"] // form.stops]
    (folder / GENERATION_FILE).write_text(json.dumps({"eos_token_id": stops}))


def whole_steps(gate: Gate, **changes) -> None:
    """Three GRPO steps: 64 rollouts of up to 512 tokens, some of which end before."""
    form = gate.form
    with tempfile.TemporaryDirectory() as folder:
        write_gate_model(Path(folder) / "gate", form)
        config = TrainConfig(
            model=str(Path(folder) / "gate"),
            problems="tiny",
            problem_limit=8,
            steps=3,
            problems_per_step=8 if form.device == "cuda" else 2,
            rollouts=8 if form.device == "cuda" else 2,
            max_new_tokens=form.longest,
            device=form.device,
            preflight=False,
            report_every=0,
            save_every=0,
            overlong_penalty=form.longest // 2,  # rewards that differ: nobody solves a problem
            log_path=str(Path(folder) / "run"),
            **changes,
        )
        rows = train(config, quiet=True).rows
    for number, found in enumerate(rows, 1):
        times = {
            name.removeprefix("time/"): round(value, 3)
            for name, value in found.items()
            if name.startswith("time/") and isinstance(value, float)
        }
        goal = "<= 4 s" if number == 3 and not changes else ""
        gate.row(f"step {number}", times.pop("total"), "s", goal)
        gate.row(f"step {number}: its stages", json.dumps(times), "s")
    lengths = {name: value for name, value in rows[-1].items() if "tokens" in name}
    gate.row("step 3: tokens", json.dumps(lengths))


def lag(gate: Gate) -> None:
    """Three steps whose sampling runs beside the training."""
    whole_steps(gate, max_steps_off_policy=1)


def compiled_steps(gate: Gate) -> None:
    """Three steps with --compile."""
    whole_steps(gate, compile=True)


def one_and_many(gate: Gate) -> None:
    """0.6B with one row and with 256."""
    form = gate.form
    model = spread_model(form.work.cfg, form.work.layers, form.device)
    for rows in (1, 256) if form.device == "cuda" else (1,):
        found = speed(gate, model, rows, "recorded", min(128, form.work.new_tokens), times=1)
        gate.row(f"{rows} rows, recorded", found, "tokens/s")


def large(gate: Gate) -> None:
    """4B, 8 rows: a share of what copying memory reaches."""
    form, rows = gate.form, min(8, gate.form.rows[0])
    model = spread_model(form.large, form.large_layers, form.device)
    for kind in form.kinds[1:]:
        tokens = min(128, form.work.new_tokens)
        found = speed(gate, model, rows, kind, tokens, times=1)
        gate.row(f"{rows} rows, {kind}", found, "tokens/s")
        if form.device == "cuda":
            work = replace(form.work, cfg=form.large, new_tokens=tokens)
            share = bytes_read(work, model, rows) * found / rows / measured_bandwidth()
            gate.row(f"{rows} rows, {kind}: of the copying speed", share, "", ">= 0.5")


def gpu_tests(gate: Gate) -> None:
    """The tests that want a GPU."""
    command = ["-m", "pytest", "-q", "-n", "0", "tests/fast/test_gpu.py", "-k", "cuda or real"]
    found = subprocess.run(
        [sys.executable, *command, "-p", "no:cacheprovider"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
    )
    gate.row("tests/fast/test_gpu.py", (found.stdout.strip().splitlines() or [found.stderr])[-1])


def against_trl(gate: Gate) -> None:
    """The update of 8 x 188 tokens, in turn with trl's."""
    if not peers.have("transformers", "trl"):
        gate.row("left out", "transformers or trl is not installed")
        return
    import qwen_rows

    form = gate.form
    (count, length), passes = form.updates[0], {"eager": packed_logprobs}
    work = replace(form.work, rollouts=count)
    model = random_model(work.cfg, work.layers, form.device)
    if form.device == "cuda":
        passes["compiled"] = compiled_pass(model)
    optimizer, group = AdamW(model), random_group(work, length)
    config = qwen_rows.train_config(work, length)
    for name, training_pass in passes.items():
        policy = LocalPolicy(model, optimizer, config, training_pass)

        def ours(_step: int = 0, policy: LocalPolicy = policy) -> None:
            train_step(policy, [group], config, 1e-6)

        ours()
        mine, theirs = qwen_rows.against_trl(work, model, group, ours, length)
        gate.row(f"{name}: update", 1e3 * mine, "ms")
        gate.row(f"{name}: trl's", 1e3 * theirs, "ms")
        gate.row(f"{name}: times as fast", theirs / mine, "", ">= 1.5")


# What tells most comes first; seconds that each may take.
PARTS: dict[str, tuple[Callable[[Gate], None], float]] = {
    "machine": (machine, 30),
    "same": (same, 60),
    "sampling": (sampling, 150),
    "updates": (updates, 90),
    "transformers": (against_transformers, 60),
    "steps": (whole_steps, 60),
    "compiled": (compiled_steps, 90),
    "one-and-many": (one_and_many, 45),
    "large": (large, 60),
    "lag": (lag, 60),
    "tests": (gpu_tests, 150),
    "trl": (against_trl, 60),
}
WHOLE = 580.0  # seconds for all


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="NAME", help="only these parts")
    parser.add_argument("--list", action="store_true", help="name the parts")
    parser.add_argument("--out", type=Path, default=Path("gpu_gate.jsonl"), help="for the rows")
    options = parser.parse_args(with_home(sys.argv[1:] if argv is None else argv))
    if options.list:
        for name, (part, seconds) in PARTS.items():
            print(f"{name:<14}{seconds:4.0f} s  {part.__doc__.splitlines()[0]}")
        return 0
    gate = Gate(FULL if torch.cuda.is_available() else SMALL, options.out)
    logging.getLogger("reasoning_from_scratch").addHandler(Warnings(gate))
    for name in options.only or PARTS:
        part, seconds = PARTS[name]
        left = WHOLE - (time.perf_counter() - gate.start)
        if left > 5:
            gate.run(name, part, min(seconds, left))
    gate.part = ""
    gate.row("the rows are in", str(options.out))
    gate.file.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
