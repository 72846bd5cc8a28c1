"""What a step of GRPO costs on 1 to 512 GPUs: a simulation on paper, and its check on this machine.

    uv run benchmarks/scaling.py         the table of docs/scaling.md
    uv run benchmarks/scaling_check.py   1, 2 and 3 processes here, measured and predicted

No GPU was measured. The machine is a data sheet, the shares of it that are reached are
assumptions, and both stand in `Machine`, where you put your own.
"""

import math
import random
from bisect import insort
from dataclasses import dataclass
from functools import cache
from statistics import fmean

from reasoning_from_scratch import qwen3

SIZES = {"0.6B": "06_B", "1.7B": "1_7_B", "4B": "4_B", "8B": "8_B", "14B": "14_B", "32B": "32_B"}
GPUS = (1, 8, 64, 512)
ACTIVATIONS = 4e9  # bytes of a micro-batch, with --gradient-checkpointing
KNOBS = {
    "sampling": "sampling: more GPUs, more `--sample-rows`",
    "tail": "the longest answers: a lag, or a lower `--max-new-tokens`",
    "training": "more GPUs",
    "traffic": "more rollouts per step, or `--lora-rank`",
}


@dataclass(frozen=True)
class Model:
    parameters: float
    layers: int
    kv_bytes: float  # keys and values of one token

    @property
    def weight_bytes(self) -> float:
        return 2 * self.parameters  # bfloat16

    @property
    def state_bytes(self) -> float:
        return 16 * self.parameters  # weight 2, gradient 2, float32 master, mean and square 4 each


def model_of(cfg: dict) -> Model:
    width, heads, head = cfg["emb_dim"], cfg["n_heads"], cfg["head_dim"]
    attention = 2 * width * heads * head + 2 * width * cfg["n_kv_groups"] * head
    block = attention + 3 * width * cfg["hidden_dim"]
    tables = cfg["vocab_size"] * width * (1 if cfg["tie_embeddings"] else 2)
    kv_bytes = 2 * 2 * cfg["n_layers"] * cfg["n_kv_groups"] * head
    return Model(cfg["n_layers"] * block + tables, cfg["n_layers"], kv_bytes)


@dataclass(frozen=True)
class Machine:
    """An H200 SXM by its public data sheet, and what share of it this simulation believes in."""

    flops: float = 989e12  # bfloat16, dense
    bandwidth: float = 4.8e12  # bytes/s of its memory
    memory: float = 141e9
    inside: float = 450e9  # bytes/s to other GPUs of the node (NVLink, one direction)
    outside: float = 50e9  # bytes/s to other nodes, per GPU (400 Gbit/s)
    per_node: int = 8
    flops_share: float = 0.4
    bandwidth_share: float = 0.6
    memory_share: float = 0.9
    link_share: float = 0.7
    layer_seconds: float = 100e-6  # per layer and token: what plain PyTorch takes to launch it


@dataclass(frozen=True)
class Work:
    """One step: answers whose lengths are exponentially distributed, and cut off."""

    rollouts: int = 2048  # 128 problems x 16
    prompt: int = 200
    mean: float = 2000.0
    longest: int = 8192

    def lengths(self) -> list[int]:
        count = self.rollouts
        drawn = [-self.mean * math.log(1 - (i + 0.5) / count) for i in range(count)]
        random.Random(0).shuffle(drawn)
        return [max(1, min(self.longest, round(length))) for length in drawn]


# --- sampling


def token_seconds(model: Model, machine: Machine, rows: int, context: float) -> float:
    """One decoding step: every weight and every key and value is read once."""
    read = model.weight_bytes + rows * context * model.kv_bytes
    reading = read / (machine.bandwidth * machine.bandwidth_share)
    computing = 2 * model.parameters * rows / (machine.flops * machine.flops_share)
    return max(reading, computing) + model.layers * machine.layer_seconds


def device_seconds(model: Model, machine: Machine, work: Work, lengths: list[int], rows: int):
    """A batch of `rows` that is kept full; at the end fewer and fewer rows are left."""
    waiting, ends, now, seconds = list(lengths), [], 0, 0.0  # `now` in tokens of the batch
    while waiting or ends:
        while waiting and len(ends) < rows:
            insort(ends, now + waiting.pop())
        context = work.prompt + work.mean / 2
        seconds += (ends[0] - now) * token_seconds(model, machine, len(ends), context)
        now = ends.pop(0)
    return seconds


def rows_that_fit(model: Model, machine: Machine, work: Work, resident: float) -> int:
    free = machine.memory * machine.memory_share - resident
    return min(256, int(free / (model.kv_bytes * (work.prompt + work.longest) / 2)))


@cache
def sampling_seconds(model, machine, work, gpus: int, resident: float) -> tuple[float, float]:
    """The slowest device and the mean one, each with every n-th answer; infinite if nothing
    fits."""
    rows = rows_that_fit(model, machine, work, resident)
    if rows < 1:
        return math.inf, math.inf
    lengths = work.lengths()
    shares = [lengths[i::gpus] for i in range(gpus)]
    busy = [device_seconds(model, machine, work, share, rows) for share in shares]
    return max(busy), fmean(busy)


# --- training and traffic


def training_seconds(model: Model, machine: Machine, work: Work, gpus: int) -> float:
    """8 N operations per token: forward 2, backward 4, and 2 to compute activations again."""
    tokens = sum(work.lengths()) + work.rollouts * work.prompt
    busy = min(gpus, work.rollouts)
    return 8 * model.parameters * tokens / (machine.flops * machine.flops_share * busy)


def link(machine: Machine, gpus: int) -> float:
    rate = machine.inside if gpus <= machine.per_node else machine.outside
    return rate * machine.link_share


def gradient_seconds(model: Model, machine: Machine, gpus: int, shard: bool) -> float:
    """Adding up float32 gradients in a ring; FSDP also gathers the weights, twice."""
    moved = 2 * 4 * model.parameters + (2 * model.weight_bytes if shard else 0)
    return moved * (gpus - 1) / gpus / link(machine, gpus)


def broadcast_seconds(model: Model, machine: Machine, gpus: int) -> float:
    """New weights for all samplers: node after node passes them on, twice as many each time."""
    nodes = math.ceil(gpus / machine.per_node)
    return (
        model.weight_bytes
        * math.ceil(math.log2(nodes + 1))
        / (machine.outside * machine.link_share)
    )


# --- a step


@dataclass(frozen=True)
class Step:
    how: str
    sampling: float = math.inf  # of the slowest device
    mean_sampling: float = math.inf
    training: float = math.inf
    traffic: float = math.inf

    def seconds(self, lag: int = 0) -> float:
        """One after the other; or, with a lag, the busiest of those that work side by side, and
        a step's slowest answers may take as long as `lag` steps."""
        if lag == 0:
            return self.sampling + self.training + self.traffic
        return max(self.mean_sampling, self.training + self.traffic, self.sampling / lag)


def together(model: Model, machine: Machine, work: Work, gpus: int) -> Step:
    """All GPUs sample, then all train: one process, torchrun, or torchrun with --shard fsdp."""
    budget = machine.memory * machine.memory_share - ACTIVATIONS
    shard = model.state_bytes > budget
    resident = model.state_bytes / gpus + model.weight_bytes if shard else model.state_bytes
    if resident > budget:
        return Step("does not fit")
    how = "one process" if gpus == 1 else "torchrun, fsdp" if shard else "torchrun"
    traffic = gradient_seconds(model, machine, gpus, shard)
    return Step(
        how,
        *sampling_seconds(model, machine, work, gpus, resident),
        training_seconds(model, machine, work, gpus),
        traffic,
    )


def apart(model: Model, machine: Machine, work: Work, gpus: int, lag: int) -> Step:
    """Ray's samplers on some GPUs, torchrun's learners on the others: the best split."""
    splits = sorted({max(1, gpus * share // 16) for share in range(1, 15)} - {gpus})
    steps = [split_step(model, machine, work, learners, gpus - learners) for learners in splits]
    return min(steps, key=lambda step: step.seconds(lag), default=Step("-"))


def split_step(model, machine, work, learners: int, samplers: int) -> Step:
    budget = machine.memory * machine.memory_share - ACTIVATIONS
    shard = model.state_bytes > budget
    if shard and model.state_bytes / learners + model.weight_bytes > budget:
        return Step("does not fit")
    traffic = gradient_seconds(model, machine, learners, shard)
    return Step(
        f"{samplers} + {learners}",
        *sampling_seconds(model, machine, work, samplers, model.weight_bytes),
        training_seconds(model, machine, work, learners),
        traffic + broadcast_seconds(model, machine, samplers),
    )


def bottleneck(model: Model, machine: Machine, work: Work, step: Step) -> str:
    """What takes longest when nothing overlaps, and which knob answers it."""
    if not math.isfinite(step.sampling):
        return "memory: `--lora-rank`, or more GPUs with `--shard fsdp`"
    parts = {"training": step.training, "traffic": step.traffic, "sampling": step.sampling}
    worst = max(parts, key=parts.get)
    if worst != "sampling":
        return f"{worst}: " + KNOBS[worst]
    # The longest answer by itself: no number of GPUs goes below that.
    alone = work.longest * token_seconds(model, machine, 1, work.prompt + work.mean / 2)
    return KNOBS["tail"] if alone > step.sampling / 2 else KNOBS["sampling"]


def table(machine: Machine, work: Work) -> str:
    head = [
        "model",
        "GPUs",
        "all together",
        "sampling",
        "training",
        "traffic",
        "a step",
        "samplers + learners",
        "lag 1",
        "lag 3",
        "what holds it up: the knob",
    ]
    lines = [head, ["---"] * len(head)]
    for name, cfg in SIZES.items():
        model = model_of(getattr(qwen3, f"QWEN_CONFIG_{cfg}"))
        for gpus in GPUS:
            one = together(model, machine, work, gpus)
            two = [apart(model, machine, work, gpus, lag) for lag in (1, 3)]
            numbers = [one.sampling, one.training, one.traffic, one.seconds()]
            numbers = [
                *map(shown, numbers),
                two[1].how,
                shown(two[0].seconds(1)),
                shown(two[1].seconds(3)),
            ]
            lines.append(
                [name, f"{gpus}", one.how, *numbers, bottleneck(model, machine, work, one)]
            )
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def shown(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "-"
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


if __name__ == "__main__":
    print(table(Machine(), Work()))
