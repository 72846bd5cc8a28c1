"""Off-policy sampling: the next steps are sampled while the trainer trains on this one.

The trainer sees the same iterator as always. Behind it, a thread samples step after step with a
snapshot of the policy. When the trainer asks for a step, all updates before it are done; a new
snapshot is taken then, and the thread uses it from its next step on. Two snapshots take turns, so
the thread never reads weights that are being written.
"""

import logging
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import torch

from reasoning_from_scratch.fast.decoding import torch_threads
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.rollouts import Group, Judge, grader, step_problems
from reasoning_from_scratch.trainer import sample_step
from rfs.config import RunConfig, Scale
from rfs.report.clock import Clock
from rfs.scale.ranks import Ranks

log = logging.getLogger("reasoning_from_scratch")

WAIT_TIMEOUT = 0.2  # seconds: on Windows a wait without a timeout does not hear Ctrl-C
STOP_TIMEOUT = 30.0  # seconds for the thread to end; it looks before each decoding step


def may_sample(step: int, version: int, max_steps_off_policy: int) -> bool:
    """Whether sampling for a step may begin with these weights.

    `version` counts the updates that the weights have seen; `step` is trained on when the
    trainer has made `step` updates, so the lag will be step - version. Sampling starts late
    enough to keep the bound, so nothing that was sampled is ever thrown away.
    """
    return version >= step - max_steps_off_policy


class SamplerStopped(Exception):
    """Raised in the thread to end it."""


@dataclass
class SampledStep:
    """The groups of one step sampled so far, and when sampling began and ended."""

    start: float
    end: float = 0.0  # 0: there are more to come
    groups: list[Group] = field(default_factory=list)


class SamplerThread:
    """A thread that samples, and everything that it exchanges with the trainer."""

    def __init__(
        self,
        policy: LocalPolicy,
        problems: Sequence[Problem],
        config: RunConfig,
        first_step: int,
        judge: Judge,
        clock: Clock,
    ) -> None:
        self.policy, self.problems, self.config, self.judge = policy, problems, config, judge
        self.first_step, self.clock = first_step, clock
        self.changed = threading.Condition()  # its lock guards everything below
        self.published: LocalPolicy | None = None  # a snapshot that the thread has not taken yet
        self.spare: LocalPolicy | None = None  # a snapshot that the thread no longer uses
        self.version = -1  # of the published snapshot: the updates that its weights have seen
        self.sampled: dict[int, SampledStep] = {}
        self.error: BaseException | None = None
        self.stopping = False
        # A daemon: should it ever hang, the program can still end.
        self.thread = threading.Thread(target=self.run, name="sampler", daemon=True)

    # -- called by the trainer

    def publish(self, version: int) -> None:
        """Takes a snapshot of the trainer's weights, after `version` updates."""
        with self.changed:
            reusable = self.published or self.spare
            if reusable is self.spare:
                self.spare = None
            self.published = self.policy.snapshot(version, reusable)
            self.published.engine = replace(self.policy.engine, step_context=self.around_step)
            self.version = version
            if torch.cuda.is_available():  # on a GPU each thread has its own stream
                torch.cuda.current_stream().synchronize()
            self.changed.notify_all()

    def groups_of_step(self, step: int) -> Iterator[list[Group]]:
        """The groups of a step, part by part as they arrive. An error in the thread is raised
        here."""
        num_taken = 0
        while True:
            with self.changed:
                while not self.has_more(step, num_taken):
                    if self.error is not None:
                        raise self.error
                    self.changed.wait(WAIT_TIMEOUT)
                sampled = self.sampled[step]
                groups = sampled.groups[num_taken:]
                complete = sampled.end > 0
            num_taken += len(groups)
            if groups:
                yield groups
            if complete:
                break
        self.clock.add_parallel_span("sampler", sampled.start, sampled.end)
        del self.sampled[step]

    def has_more(self, step: int, num_taken: int) -> bool:
        """Whether more groups of a step have arrived, or the step is complete."""
        sampled = self.sampled.get(step)
        return sampled is not None and (sampled.end > 0 or len(sampled.groups) > num_taken)

    def stop(self) -> None:
        with self.changed:
            self.stopping = True
            self.changed.notify_all()
        if self.thread.ident is not None:
            self.thread.join(STOP_TIMEOUT)
        if self.thread.is_alive():
            log.warning("the sampler has not ended after %g s; going on without it", STOP_TIMEOUT)

    # -- the thread

    def run(self) -> None:
        try:
            with separate_stream(self.policy.model):
                for step in range(self.first_step, self.config.steps):
                    self.sample_step_ahead(step)
        except SamplerStopped:
            pass
        except BaseException as error:  # whatever it is, the trainer must not wait forever
            with self.changed:
                self.error = error
                self.changed.notify_all()

    def sample_step_ahead(self, step: int) -> None:
        snapshot = self.next_snapshot(step)
        self.sampled[step] = SampledStep(time.perf_counter())
        for groups in self.sample_parts(snapshot, step):
            with self.changed:
                self.sampled[step].groups += groups
                self.changed.notify_all()
        with self.changed:
            self.sampled[step].end = time.perf_counter()
            self.spare = snapshot
            self.changed.notify_all()

    def sample_parts(self, snapshot: LocalPolicy, step: int) -> Iterator[list[Group]]:
        """The groups of a step: in as many parts as the trainer streams, else all together."""
        if self.config.active_sampling:  # on one rank, and not streamed
            yield sample_step(snapshot, self.problems, self.config, step, self.judge)
            return
        # Not by sample_step, which expects all groups of a step: here, a rank gets only some.
        chosen = step_problems(self.problems, self.config, step)
        size = len(chosen) // self.config.num_minibatches
        for first in range(0, len(chosen), size):
            places = range(first, min(first + size, len(chosen)))
            part_problems = [chosen[place] for place in places]
            yield snapshot.sample(part_problems, self.config, step, places, self.judge)

    def next_snapshot(self, step: int) -> LocalPolicy:
        """Wait until the step may begin; return the newest snapshot, now the thread's own."""
        with self.changed:
            while not may_sample(step, self.version, self.config.max_steps_off_policy):
                self.check_stopping()
                self.changed.wait(WAIT_TIMEOUT)
            if self.published is None:  # no update since the last step: the same one again
                snapshot, self.spare = self.spare, None
            else:
                snapshot, self.published = self.published, None
            return snapshot

    @contextmanager
    def around_step(self, model: Qwen3Model) -> Iterator[None]:
        """Around each decoding step: the trainer may have stopped."""
        self.check_stopping()
        with self.policy.engine.step_context(model):
            yield

    def check_stopping(self) -> None:
        if self.stopping:
            raise SamplerStopped


def async_rollouts(
    policy: LocalPolicy,
    problems: Sequence[Problem],
    config: RunConfig,
    first_step: int = 0,
    judge: Judge = grader,
    ranks: Ranks | None = None,
    clock: Clock | None = None,
) -> Generator[Iterable[Group]]:
    """The groups of one step after another, at most `max_steps_off_policy` updates old.

    On several ranks, each thread samples its own rank's places. The groups are gathered by the
    trainers, which all do so at the same time, and never in the thread.
    """
    ranks, clock = ranks or Ranks(), clock or Clock()
    sampler = SamplerThread(policy, problems, config, first_step, judge, clock)
    with halved_threads(policy.model, config):
        try:
            sampler.publish(first_step)
            sampler.thread.start()
            for step in range(first_step, config.steps):
                if step > first_step:
                    sampler.publish(step)
                parts = sampler.groups_of_step(step)
                if ranks.size == 1:
                    yield chain.from_iterable(clock.time_waits("sampling", parts))
                else:
                    with clock("sampling"):
                        groups = ranks.gather_groups(partial(flattened, parts))
                    yield groups
        finally:
            sampler.stop()


def flattened(parts: Iterable[list[Group]]) -> list[Group]:
    return [group for part in parts for group in part]


# --- devices


def separate_stream(model: Qwen3Model) -> AbstractContextManager:
    """On a GPU the thread gets its own stream; otherwise its work would wait for the trainer's."""
    device = next(model.parameters()).device
    if device.type == "cuda":
        return torch.cuda.stream(torch.cuda.Stream(device))
    return nullcontext()


def halved_threads(model: Qwen3Model, config: Scale) -> AbstractContextManager:
    """On a CPU, trainer and sampler each get half of torch's threads; otherwise they would slow
    each other down. Not at lag 0, where they take turns."""
    on_cpu = next(model.parameters()).device.type == "cpu"
    half = max(1, torch.get_num_threads() // 2)
    return torch_threads(half) if on_cpu and config.max_steps_off_policy else nullcontext()
