"""Who samples and who computes: the engines that a configuration asks for.

The loop knows no more of them than an iterator of groups and an Engine.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial

from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.fast.cut import FAST
from reasoning_from_scratch.fast.decoding import decoder_for
from reasoning_from_scratch.fast.packed import compiled_pass, packed_logprobs
from reasoning_from_scratch.files.made_sets import judge_of
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.report.clock import Clock
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.scale.lag import async_rollouts
from reasoning_from_scratch.scale.ranks import Ranks, WholeWeights
from reasoning_from_scratch.scale.ray_rollouts import ray_rollouts
from reasoning_from_scratch.scale.streaming import Stream, streamed_rollouts
from reasoning_from_scratch.trainer import (
    Engine,
    Optimizer,
    Reducer,
    RolloutEngine,
    on_policy_rollouts,
)


def engine_of(model: Qwen3Model, config: TrainConfig, reducer: Reducer) -> Engine:
    """What computes log-probabilities, and what adds up gradients."""
    training_pass = compiled_pass(model) if config.compile else packed_logprobs
    return Engine(training_pass, reducer)


def stream_of(
    config: TrainConfig,
    model: Qwen3Model,
    optimizer: Optimizer,
    reference: Qwen3Model | None,
    ranks: Ranks,
    engine: Engine,
    clock: Clock,
) -> Stream | None:
    """What trains on a step while it is sampled, if that is asked for."""
    if config.num_minibatches == 1:
        return None
    share = config.problems_per_step // config.num_substeps  # of the first update
    size = max(1, share // config.num_minibatches // ranks.size)
    return Stream(size, share, model, optimizer, config, reference, engine, clock)


def rollouts_of(
    config: TrainConfig,
    model: Qwen3Model,
    tokenizer,
    problems: Sequence[Problem],
    first_step: int,
    ranks: Ranks,
    weights: WholeWeights,
    clock: Clock,
    on_group: Callable[[Group], None] | None = None,
) -> Generator[list[Group]]:
    """The groups of one step after another. `on_group`: a stream's."""
    start = (weights.plain(model), tokenizer, problems, config, first_step)

    def from_first(function: Callable[[], list[Group]]) -> list[Group]:
        with weights.whole(model):
            return ranks.from_first(function)

    def together(sample: Callable[[], list[Group]]) -> list[Group]:
        with weights.whole(model):
            return ranks.together(sample)

    if config.sampler == "ray":
        return ray_rollouts(*start, clock, on_group, from_first=from_first)
    sampling = replace(FAST, decoder=partial(decoder_for, compiled=config.compile))
    engine = RolloutEngine(sampling, judge_of(config), timed=clock)
    if ranks.size > 1:
        engine = replace(engine, own=ranks.own, together=together)
    if config.max_steps_off_policy:
        return async_rollouts(*start, clock, engine)
    if on_group:
        return streamed_rollouts(*start, engine, on_group)
    return on_policy_rollouts(*start, engine)
