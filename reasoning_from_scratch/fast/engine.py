"""The default engine for sampling: the fast one."""

from collections.abc import Collection
from functools import partial

from reasoning_from_scratch import rollouts
from reasoning_from_scratch import sampling as plain
from reasoning_from_scratch.fast.cut import fast_cut
from reasoning_from_scratch.fast.decoding import (
    batch_for,
    decoder_for,
    decoding_threads,
    draw_for,
    int8_decoder_for,
)
from reasoning_from_scratch.sampling import Rollout, Sampling, SamplingEngine
from reasoning_from_scratch.stops import Stops

FAST = SamplingEngine(
    make_decoder=decoder_for,
    make_int8_decoder=int8_decoder_for,
    cut=fast_cut,
    make_draw=draw_for,
    step_context=decoding_threads,
    batch_class=batch_for,
)


def generate(
    model,
    prompts: list[list[int]],
    sampling: Sampling,
    *,
    stop_ids: Collection[int] | Stops,
    streams: list[tuple[int, int]] | None = None,
    engine: SamplingEngine = FAST,
) -> list[list[Rollout]]:
    """sampling.generate, with the fast engine unless another one is given."""
    return plain.generate(
        model, prompts, sampling, stop_ids=stop_ids, streams=streams, engine=engine
    )


sample_groups = partial(rollouts.sample_groups, engine=FAST)
