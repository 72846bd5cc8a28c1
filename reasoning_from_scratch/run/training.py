"""`train`: a run is put together, and the loop of trainer.py goes through it."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.fast.cut import FAST
from reasoning_from_scratch.files.own_task import judge_of
from reasoning_from_scratch.rollouts import Group, RolloutEngine, on_policy_rollouts
from reasoning_from_scratch.run.interrupts import Interrupts
from reasoning_from_scratch.run.start import start_run
from reasoning_from_scratch.run.training_run import TrainingRun
from reasoning_from_scratch.sampling import NotFinite
from reasoning_from_scratch.scale.lag import async_rollouts
from reasoning_from_scratch.scale.ray_rollouts import ray_rollouts
from reasoning_from_scratch.scale.streaming import Stream
from reasoning_from_scratch.trainer import train_step, training_loop


@dataclass
class TrainResult:
    """What a run leaves behind."""

    model: nn.Module
    tokenizer: object
    folder: Path
    rows: list[dict]  # the lines of metrics.jsonl
    stopped: str = ""  # why the run ended before its last step; "" if it did not
    writes: bool = True  # whether this rank is the one that talks to people


def train(config: TrainConfig, **given) -> TrainResult:
    """Run `config` to its end. `given`: a model, tokenizer, problems, ... to use instead of
    loading those that the configuration names (see start_run)."""
    run = start_run(config, **given)
    choose_engines(run)
    run.interrupts = Interrupts(run.ranks.size > 1, not run.ranks.writes, run.may_stop)
    run.ranks.interruptible = run.interrupts.open
    with run.interrupts, run, closing(run.rollouts):
        try:
            stopped = training_loop(run)
        except KeyboardInterrupt:
            stopped = run.save_interrupted()
        except NotFinite as error:
            stopped = run.stop_diverged(error)
    return TrainResult(
        run.model, run.tokenizer, run.folder.path, run.folder.rows, stopped, run.ranks.writes
    )


def choose_engines(run: TrainingRun) -> None:
    """Who samples, and whether a step is trained on while it is sampled."""
    config, on_group, step = run.config, None, train_step
    if config.num_minibatches > 1:
        size = config.problems_per_step // config.num_minibatches // run.ranks.size
        stream = Stream(max(1, size), run.model, config, run.reference, run.engine, run.clock)
        step, on_group = stream.train_step, stream.add
    run.train_step = run.clock.timing("train", step)
    run.rollouts = rollouts_of(run, on_group)


def rollouts_of(
    run: TrainingRun, on_group: Callable[[Group], None] | None
) -> Iterator[list[Group]]:
    """Who samples: the loop knows no more of it than this iterator."""
    start = (run.model, run.tokenizer, run.problems, run.config, run.first_step)
    if run.config.sampler == "ray":
        return ray_rollouts(*start, run.clock, on_group, from_first=run.ranks.from_first)
    engine = RolloutEngine(
        FAST, judge_of(run.config), run.ranks.own, run.ranks.together, timed=run.clock
    )
    if run.config.max_steps_off_policy:
        return async_rollouts(*start, run.clock, engine)
    return on_policy_rollouts(*start, on_group, engine)
