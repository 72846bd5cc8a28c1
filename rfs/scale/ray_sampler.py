"""A Ray actor that samples: a process, anywhere, that holds the model.

Weights are sent in two parts. What never changes (with LoRA, nearly everything) is sent once, when
a sampler starts; what is trained is sent with every version.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from reasoning_from_scratch.files.weights import build_model, weightless_model
from reasoning_from_scratch.optim.lora import add_lora
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.tokenizer import ModelTokenizer
from rfs.config import RunConfig
from rfs.engine import FAST
from rfs.tasks.judge import judge_of

if TYPE_CHECKING:
    from ray import ObjectRef

log = logging.getLogger("reasoning_from_scratch")


@dataclass(frozen=True)
class Chunk:
    """What one sampler does at a time: some problems of a step."""

    step: int
    version: int
    places: list[int]  # within the step; they choose the random streams
    problems: list[Problem]


@dataclass
class SamplerSetup:
    """What a sampler needs to start, besides the weights that change."""

    config: RunConfig
    lora: tuple[int, float] | None  # rank and alpha
    cfg: dict  # of the model
    tokenizer: ModelTokenizer
    frozen: dict  # packed weights that never change: all but LoRA's, with LoRA
    device: str
    threads: int


class LogCollector(logging.Handler):
    """Collects log messages: a sampler's console is far away."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        log.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def take(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


class RemoteSampler:
    """The actor. It keeps a snapshot of the learner's policy, and nothing else."""

    def __init__(self, setup: SamplerSetup) -> None:
        torch.set_num_threads(setup.threads)
        self.setup, self.log_collector = setup, LogCollector()
        self.snapshot: LocalPolicy | None = None

    def ready(self) -> None:
        """Answers once the process is up."""

    def sample(self, chunk: Chunk, weights: list) -> tuple[list[Group], list[str]]:
        """The judged groups of a chunk, and what was logged meanwhile. `weights` is the reference
        in a list: Ray would fetch a bare one even if the sampler already has that version."""
        if self.snapshot is None or chunk.version != self.snapshot.version:
            self.load(chunk.version, weights[0])
        config = self.setup.config
        groups = self.snapshot.sample(
            chunk.problems, config, chunk.step, chunk.places, judge_of(config)
        )
        return groups, self.log_collector.take()

    def load(self, version: int, reference: "ObjectRef") -> None:
        import ray

        if self.snapshot is None:
            model = empty_model(self.setup)
            unpack(self.setup.frozen, model)
            self.snapshot = LocalPolicy(model, tokenizer=self.setup.tokenizer, engine=FAST)
        unpack(ray.get(reference), self.snapshot.model)
        self.snapshot.version = version


def empty_model(setup: SamplerSetup) -> Qwen3Model:
    """The learner's model, whose weights are still to come."""
    shapes = weightless_model(setup.cfg).state_dict()
    if setup.cfg.get("tie_embeddings", False):  # one matrix, which is sent under one name
        del shapes["out_head.weight"]
    state = {name: torch.empty_like(t, device=setup.device) for name, t in shapes.items()}
    model = build_model(setup.cfg, state, "the learner's model")
    if setup.lora:
        add_lora(model, *setup.lora)
    return model


# --- weights, as they are sent


def select_parameters(model: Qwen3Model, trained: bool) -> dict[str, Tensor]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad == trained}


def pack(weights: Mapping[str, Tensor]) -> dict[str, tuple[torch.dtype, object]]:
    """As arrays of bytes: numpy has no bfloat16, and Ray shares arrays within a machine."""
    # Copies: FSDP could not free memory that an array still points to.
    copies = {name: weight.detach().to("cpu", copy=True) for name, weight in weights.items()}
    return {
        name: (copy.dtype, copy.contiguous().view(torch.uint8).numpy())
        for name, copy in copies.items()
    }


@torch.no_grad()
def unpack(weights: Mapping[str, tuple[torch.dtype, object]], model: Qwen3Model) -> None:
    parameters = dict(model.named_parameters())
    for name, (dtype, array) in weights.items():
        parameters[name].copy_(torch.tensor(array).view(dtype))
