"""Tinker's client in front of a `LocalPolicy`: just the calls of rl_client.py, in this process.

    ServiceClient     opens a model by its name
    TrainingClient    forward_backward, optim_step, and a sampler that keeps the current weights
    SamplingClient    sample

In Tinker every call immediately returns a future, and the service works in the background. Here
training runs inside the call. Requests to sample wait until the first of their results is needed,
and are then drawn together, which is what makes a batch of them fast.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.fast.engine import generate
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.sampling import Rollout, Sampling
from reasoning_from_scratch.tokenizer import model_stop_ids
from rfs.own_policy import Policy
from rfs.serve import data, messages


@dataclass
class Future:
    """A result, computed when `result` is called."""

    compute: Callable[[], Any]

    def result(self) -> Any:
        return self.compute()


@dataclass
class ModelInput:
    tokens: list[int]

    @classmethod
    def from_ints(cls, tokens: list[int]) -> "ModelInput":
        return cls(list(tokens))


@dataclass
class SamplingParams:
    max_tokens: int = 128
    temperature: float = 1.0


@dataclass
class Datum:
    """The tokens that the model reads, and what the loss needs for each of them."""

    model_input: ModelInput
    loss_fn_inputs: dict[str, list]


@dataclass
class AdamParams:
    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12


@dataclass
class Sequence:
    """A sampled answer."""

    tokens: list[int]
    logprobs: list[float]
    stop_reason: str


@dataclass
class SampleResponse:
    sequences: list[Sequence]


@dataclass
class ForwardBackwardOutput:
    metrics: dict[str, float]


class ServiceClient:
    def create_lora_training_client(self, base_model: str, rank: int = 32) -> Future:
        """Rank 0 trains all weights, as in `rfs serve`."""
        client = TrainingClient(Policy.load(base_model, TrainConfig(), lora_rank=rank))
        return Future(lambda: client)


@dataclass
class TrainingClient:
    policy: LocalPolicy
    samplers: int = 0

    def save_weights_and_get_sampling_client(self) -> Future:
        sampler = SamplingClient(self.policy.snapshot(), self.samplers)
        self.samplers += 1
        return Future(lambda: sampler)

    def forward_backward(self, rows: list[Datum], loss_fn: str) -> Future:
        """A datum becomes a rollout by the same rules as in `rfs serve`."""
        cfg = self.policy.model.cfg
        read = [messages.Datum(row.model_input.tokens, arrays(row)) for row in rows]
        parts = data.rollouts_of(read, loss_fn, cfg["vocab_size"], cfg["context_length"])
        rollouts = [rollout for part in parts for rollout in part]
        sums = self.policy.forward_backward(rollouts, data.loss_of(loss_fn, {}), 1.0)
        total = sum(float(one["loss"]) for one in sums)
        return Future(lambda: ForwardBackwardOutput({"loss:sum": total}))

    def optim_step(self, adam: AdamParams) -> Future:
        optimizer: Any = self.policy.optimizer
        optimizer.betas, optimizer.epsilon = (adam.beta1, adam.beta2), adam.eps
        moved = self.policy.optim_step(adam.learning_rate)
        return Future(lambda: moved)


@dataclass
class SamplingClient:
    """A snapshot of the weights. The tokens depend on the numbers of sampler, request and sample,
    as in `rfs serve`, so both draw the same ones."""

    policy: LocalPolicy
    number: int
    requests: int = 0
    waiting: dict[int, tuple[ModelInput, int, SamplingParams]] = field(default_factory=dict)
    answers: dict[int, list[Rollout]] = field(default_factory=dict)

    def sample(self, prompt: ModelInput, num_samples: int, params: SamplingParams) -> Future:
        place, self.requests = self.requests, self.requests + 1
        self.waiting[place] = prompt, num_samples, params
        return Future(lambda: self.answer(place))

    def answer(self, place: int) -> SampleResponse:
        if place in self.waiting:
            self.draw(*self.waiting[place][1:])
        rollouts = self.answers[place]
        return SampleResponse(
            [Sequence(r.response_ids, r.logprobs, r.stop_reason) for r in rollouts]
        )

    def draw(self, count: int, params: SamplingParams) -> None:
        """Draws answers to all waiting prompts with this count and these parameters."""
        alike = [place for place, asked in self.waiting.items() if asked[1:] == (count, params)]
        prompts = [self.waiting.pop(place)[0].tokens for place in alike]
        sampling = Sampling(params.max_tokens, params.temperature, rollouts=count)
        groups = generate(
            self.policy.model, prompts, sampling, stop_ids=model_stop_ids(self.policy.tokenizer),
            streams=[(self.number, place) for place in alike],
        )  # fmt: skip
        self.answers |= zip(alike, groups, strict=True)


def arrays(row: Datum) -> dict[str, np.ndarray]:
    return {
        key: np.array(values, np.int64 if key == "target_tokens" else np.float32)
        for key, values in row.loss_fn_inputs.items()
    }
