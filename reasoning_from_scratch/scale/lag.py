"""Off-policy sampling: the next steps are sampled while the trainer trains on this one.

The trainer sees the iterator that it always sees. Behind it a thread samples step after step
with a copy of the model. By asking for a step the trainer says that all updates before it are
done; then its weights are published. They lie in a buffer between the two, so that neither
ever reads weights which the other is writing.
"""

import copy
import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from reasoning_from_scratch.config import Rollouts, Scale, ScaledRollouts
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast.decoding import threads
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.report.clock import Clock
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.trainer import RolloutEngine, sample_step

log = logging.getLogger("reasoning_from_scratch")

LOOK_AGAIN = 0.2  # seconds: on Windows a wait without an end does not hear Ctrl-C
ENDING = 30.0  # seconds for the thread to end; it looks before each decoding step


def may_begin(step: int, version: int, max_steps_off_policy: int) -> bool:
    """Admission: whether sampling for a step may begin with these weights.

    `version` counts the updates that the weights have seen; `step` is trained on when the
    trainer has made `step` updates, so the lag will be step - version. To start late and keep
    everything is how the bound is held: nothing that was sampled is ever thrown away.
    """
    return version >= step - max_steps_off_policy


class Ended(Exception):
    """Inside the thread: the trainer wants no more."""


@dataclass
class Sampled:
    """The groups of one step, and when they were sampled."""

    groups: list[Group]
    start: float
    end: float


class Sampler:
    """A thread that samples, and all that it and the trainer exchange.

    `sample(model, step=..., version=..., before_step=...)` gives the groups of a step.
    """

    def __init__(
        self, model: Qwen3Model, sample: Callable, config: ScaledRollouts, first_step: int
    ) -> None:
        self.sample, self.config, self.first_step = sample, config, first_step
        self.trainer_weights = changing(model)
        self.model = sampling_copy(model)
        self.published = [weight.clone() for weight in self.trainer_weights]
        self.version = first_step
        self.changed = threading.Condition()  # its lock guards everything below and `published`
        self.sampled: dict[int, Sampled] = {}
        self.error: BaseException | None = None
        self.ended = False
        # A daemon: should it ever hang, the program can still end.
        self.thread = threading.Thread(target=self.run, name="sampler", daemon=True)

    # -- called by the trainer

    def publish(self, version: int) -> None:
        """The trainer's weights as they are now, after `version` updates."""
        with self.changed:
            copy_weights(self.trainer_weights, self.published)
            self.version = version
            self.changed.notify_all()

    def take(self, step: int, clock: Clock) -> list[Group]:
        """Wait for the groups of a step. What went wrong in the thread is raised here."""
        with self.changed:
            while step not in self.sampled:
                if self.error is not None:
                    raise self.error
                self.changed.wait(LOOK_AGAIN)
            sampled = self.sampled.pop(step)
        clock.beside("sampler", sampled.start, sampled.end)
        return sampled.groups

    def end(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()
        if self.thread.ident is not None:
            self.thread.join(ENDING)
        if self.thread.is_alive():
            log.warning("the sampler has not ended after %g s; going on without it", ENDING)

    # -- the thread

    def run(self) -> None:
        try:
            with beside_the_trainer(self.model):
                for step in range(self.first_step, self.config.steps):
                    self.sample_next(step)
        except Ended:
            pass
        except BaseException as error:  # whatever it is, the trainer must not wait for ever
            with self.changed:
                self.error = error
                self.changed.notify_all()

    def sample_next(self, step: int) -> None:
        version = self.begin(step)
        start = time.perf_counter()
        groups = self.sample(self.model, step=step, version=version, before_step=self.look)
        with self.changed:
            self.sampled[step] = Sampled(groups, start, time.perf_counter())
            self.changed.notify_all()

    def begin(self, step: int) -> int:
        """Wait until the step may begin, take the newest weights, and say which they are."""
        with self.changed:
            while not may_begin(step, self.version, self.config.max_steps_off_policy):
                self.look()
                self.changed.wait(LOOK_AGAIN)
            copy_weights(self.published, changing(self.model))
            return self.version

    def look(self) -> None:
        if self.ended:
            raise Ended


def async_rollouts(
    model: Qwen3Model,
    tokenizer,
    problems: Sequence[Problem],
    config: ScaledRollouts,
    first_step: int = 0,
    clock: Clock | None = None,
    engine: RolloutEngine | None = None,
) -> Generator[list[Group]]:
    """The groups of one step after another, at most `max_steps_off_policy` updates old.

    On several ranks each samples its own places by itself; `engine.together` gathers the groups,
    and is called where all ranks do so at the same time: never in the thread.
    """
    clock, engine = clock or Clock(), engine or RolloutEngine()
    # The trainer's clock shows where the trainer's time goes, not the thread's.
    in_thread = RolloutEngine(engine.sampling, engine.reward, engine.own)
    sample = partial(
        sample_step, tokenizer=tokenizer, problems=problems, config=config, engine=in_thread
    )
    sampler = Sampler(model, sample, config, first_step)
    with shared_cores(model, config):
        try:
            sampler.thread.start()
            for step in range(first_step, config.steps):
                with clock("sampling"):  # what is left of it: waiting
                    sampler.publish(step)
                    groups = engine.together(partial(sampler.take, step, clock))
                yield groups
        finally:
            sampler.end()


def check_ranks(config: Rollouts, size: int) -> None:
    if config.active_sampling and size > 1:
        raise UserError(
            "--active-sampling must know what all ranks sampled, which with "
            "--max-steps-off-policy is not known in time: leave one out"
        )


# --- weights


def sampling_copy(model: Qwen3Model) -> Qwen3Model:
    """A model of its own for the sampler; weights that never change (LoRA's base) are shared."""
    shared = {id(p): p for p in model.parameters() if not p.requires_grad}
    return copy.deepcopy(model, shared).eval()


def changing(model: Qwen3Model) -> list[Tensor]:
    return [p.detach() for p in model.parameters() if p.requires_grad]


@torch.no_grad()
def copy_weights(source: Sequence[Tensor], target: Sequence[Tensor]) -> None:
    for old, new in zip(target, source, strict=True):
        old.copy_(new)
    if target and target[0].is_cuda:  # the two threads have queues of their own on a GPU
        torch.cuda.current_stream(target[0].device).synchronize()


# --- devices


def beside_the_trainer(model: Qwen3Model) -> AbstractContextManager:
    """On a GPU the thread's work gets a queue of its own, or it would wait for the trainer's."""
    device = next(model.parameters()).device
    if device.type == "cuda":
        return torch.cuda.stream(torch.cuda.Stream(device))
    return nullcontext()


def shared_cores(model: Qwen3Model, config: Scale) -> AbstractContextManager:
    """On a CPU each gets half of the threads, also the one that starts now, or they would crowd
    each other out. Not at lag 0, where they take turns."""
    on_cpu = next(model.parameters()).device.type == "cpu"
    half = max(1, torch.get_num_threads() // 2)
    return threads(half) if on_cpu and config.max_steps_off_policy else nullcontext()
