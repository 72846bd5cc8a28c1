"""What the rows of the table share: the work, and two sides that are timed in turn."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from reasoning_from_scratch.qwen3 import QWEN_CONFIG_06_B, Qwen3Model
from reasoning_from_scratch.rollouts import Group, Rollout

# As Hugging Face publishes Qwen3-0.6B: head and embedding are one matrix.
QWEN3_06B = QWEN_CONFIG_06_B | {"tie_embeddings": True}


@dataclass(frozen=True)
class Work:
    """The sizes of the work; only results with the defaults count."""

    cfg: dict
    layers: int = 28  # of the sampling rows
    train_layers: int = 8  # of the training row, where two models and their optimizers must fit
    rollouts: int = 8
    prompt: int = 60
    new_tokens: int = 128
    longest_answer: int = 2048  # tokens, in the row on growth
    problems: int = 64  # of the evaluation row
    rounds: int = 3
    steps: int = 8  # of the tiny model's training
    real_model: str = "qwen-0.5b"  # the model of the row "real"
    real_rows: tuple[int, ...] = (8, 32)  # answers side by side
    real_tokens: tuple[int, int] = (64, 96)  # of an answer: sampled alone, in a GRPO step
    real_rounds: int = 5
    quickstart: tuple[str, ...] = ("quickstart",)


FULL = Work(QWEN3_06B)
TOY = Work(
    QWEN3_06B | {"vocab_size": 2048, "emb_dim": 64, "hidden_dim": 128, "head_dim": 16},
    layers=2,
    train_layers=2,
    rollouts=4,
    prompt=6,
    new_tokens=8,
    longest_answer=32,
    problems=4,
    rounds=1,
    steps=1,
    real_model="tiny-base",
    real_rows=(8,),
    real_tokens=(4, 4),
    real_rounds=1,
    quickstart=("recipes",),
)


@dataclass(frozen=True)
class Result:
    """A line of the table."""

    title: str
    ours: str
    peer: str = ""
    ratio: float | None = None
    target: str = ""
    met: bool | None = None

    def cells(self) -> list[str]:
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        met = {True: "yes", False: "no", None: ""}[self.met]
        return [self.title, self.ours, self.peer, ratio, self.target, met]


def compare_speed(title: str, ours: float, peer: float, peer_name: str, goal: float) -> Result:
    """The line that compares our seconds with a peer's."""
    ratio = peer / ours
    return Result(
        title,
        format_seconds(ours),
        f"{peer_name}: {format_seconds(peer)}",
        ratio,
        f">= {goal:g}x",
        ratio >= goal,
    )


def format_seconds(value: float) -> str:
    return (
        f"{value:.1f} s"
        if value >= 10
        else f"{value:.3g} s"
        if value >= 1
        else (f"{value * 1000:.3g} ms")
    )


def time_call(call: Callable[[], object]) -> float:
    synchronize()
    start = time.perf_counter()
    call()
    synchronize()
    return time.perf_counter() - start


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def time_in_turn(
    calls_by_side: dict[str, Callable[[], object]], rounds: int, warm_up: bool = True
) -> dict[str, float]:
    """Median seconds of each side. The sides alternate, so that a busy minute hits all alike."""
    for call in calls_by_side.values() if warm_up else ():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls_by_side}
    for _ in range(rounds):
        for name, call in calls_by_side.items():
            times[name].append(time_call(call))
    return {name: median(values) for name, values in times.items()}


def random_model(cfg: dict, layers: int, device: str = "cpu") -> Qwen3Model:
    """Qwen3 with this geometry and seeded random weights, made without a second copy of them."""
    with torch.device("meta"):
        model = Qwen3Model(cfg | {"n_layers": layers})
    model = model.to_empty(device=device)
    if cfg["tie_embeddings"]:
        model.out_head.weight = model.tok_emb.weight
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.02) if parameter.dim() > 1 else parameter.fill_(1)
    return model.eval()


def make_prompt(work: Work) -> list[int]:
    return list(range(100, 100 + work.prompt))


def random_group(work: Work, length: int) -> Group:
    """Rollouts of random tokens, with advantages that differ."""
    generator = torch.Generator().manual_seed(1)
    shape = (work.rollouts, length)
    tokens = torch.randint(work.cfg["vocab_size"], shape, generator=generator)  # (B, T)
    return make_group(work, tokens.tolist(), [[-12.0] * length] * work.rollouts)


def make_group(work: Work, tokens: Iterable[list[int]], logprobs: Iterable[list[float]]) -> Group:
    rollouts = [
        Rollout(
            None,
            make_prompt(work),
            ids,
            values,
            [0.0] * len(ids),
            "",
            False,
            reward=float(i % 2),
            advantage=1.0 if i % 2 else -1.0,
        )
        for i, (ids, values) in enumerate(zip(tokens, logprobs, strict=True))
    ]
    return Group(None, rollouts)


def weight_matrices(model: Qwen3Model) -> list[Tensor]:
    """The matrix of every product of one decoding step."""
    return [part.weight for part in model.modules() if isinstance(part, torch.nn.Linear)]


def run_python(*arguments: str) -> subprocess.CompletedProcess:
    """A fresh Python, as many threads as here."""
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, text=True, capture_output=True, check=True
    )
