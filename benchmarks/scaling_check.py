"""The simulation of scaling.py against real runs of the tiny model with 1, 2 and 3 processes.

One process is measured at two batch sizes. That gives this machine's time per decoding step and
per row; the rest is predicted. The learning rate is 0, so that answers keep their length.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from scaling import Machine, Model, Work, device_seconds

from reasoning_from_scratch.run.jobs import cores
from reasoning_from_scratch.text import read_lines

STEPS, PROBLEMS, ROLLOUTS = 20, 12, 8
FLAGS = f"""--model tiny-base --steps {STEPS} --rollouts {ROLLOUTS} --lr 0 --device cpu --top-p 1
--num-groups-to-log 0 --report-every 0 --no-preflight --sample-rows 96""".split()
RFS = ["-m", "reasoning_from_scratch", "train", *FLAGS]


@dataclass
class Measured:
    sampling: float
    training: float
    work: Work

    @property
    def step(self) -> float:
        return self.sampling + self.training


def run(name: str, *flags: str, ranks: int = 1, problems: int = PROBLEMS) -> Measured:
    """Of the fastest step: others use this machine too, and they only slow it."""
    with tempfile.TemporaryDirectory() as folder:
        torchrun = ["-m", "torch.distributed.run", f"--nproc_per_node={ranks}"]
        command = [
            sys.executable,
            *(torchrun if ranks > 1 else []),
            *RFS,
            *flags,
            "--log-path",
            folder,
            "--problems-per-step",
            str(problems),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        if done.returncode:
            sys.exit(f"{name}: {done.stderr[-2000:]}")
        rows = read_lines(Path(folder) / "metrics.jsonl")[2:]
    fast = [min(row[f"time/{part}"] for row in rows) for part in ("sampling", "train")]
    means = [
        sum(row[f"env/all/{key}_tokens_per_turn"] for row in rows) / len(rows)
        for key in ("ac", "ob")
    ]
    work = Work(problems * ROLLOUTS, round(means[1]), means[0], longest=128)
    return Measured(fast[0], fast[1], work)


def sampled(machine: Machine, model: Model, work: Work, share: int = 1) -> float:
    return device_seconds(model, machine, work, work.lengths()[::share], rows=96)


def fitted(small: Measured, large: Measured) -> tuple[Model, Machine]:
    """Seconds per decoding step and per row, from two batch sizes."""
    model = Model(parameters=1, layers=1, kv_bytes=0)
    free = Machine(bandwidth=1e30, flops=1e30, layer_seconds=0)
    per_step = replace(free, layer_seconds=1.0)
    steps = [sampled(per_step, model, one.work) for one in (small, large)]
    tokens = [sum(one.work.lengths()) for one in (small, large)]
    determinant = steps[0] * tokens[1] - steps[1] * tokens[0]
    step = (small.sampling * tokens[1] - large.sampling * tokens[0]) / determinant
    row = (steps[0] * large.sampling - steps[1] * small.sampling) / determinant
    flops = 2 / (max(row, 1e-9) * free.flops_share)
    # token_seconds takes the larger of reading and computing and adds the rest: here computing.
    return model, replace(free, layer_seconds=max(step, 0.0), flops=flops)


def check() -> Iterator[str]:
    """The lines of a table, each as soon as it is measured."""
    small, one = run("small", problems=PROBLEMS // 3), run("one")
    model, machine = fitted(small, one)
    growth = (one.training - small.training) / (one.work.rollouts - small.work.rollouts)
    fixed = max(0.0, one.training - growth * one.work.rollouts)
    yield "| processes | measured | sampling | training | predicted | off by |"
    yield "|---|---|---|---|---|---|"
    yield row("1 process", one, one.step)
    for count in (2, 3):
        crowd = max(1.0, count / cores())
        sampling = sampled(machine, model, one.work, count) * crowd
        training = (fixed + growth * one.work.rollouts / count) * crowd
        found = run(f"torchrun {count}", ranks=count)
        yield row(f"torchrun, {count} ranks", found, sampling + training)
        found = run(f"ray {count}", "--sampler", "ray", "--num-samplers", str(count))
        yield row(f"Ray, {count} samplers and a learner", found, sampling + one.training)


def row(name: str, found: Measured, predicted: float) -> str:
    return (
        f"| {name} | {found.step:.2f} s | {found.sampling:.2f} s | {found.training:.2f} s | "
        f"{predicted:.2f} s | {found.step / predicted - 1:+.0%} |"
    )


if __name__ == "__main__":
    for line in check():
        print(line, flush=True)
