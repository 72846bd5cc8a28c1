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

LOOK_AGAIN = 0.2  # seconds: on Windows a wait without a timeout does not hear Ctrl-C
ENDING = 30.0  # seconds for the thread to end; it looks before each decoding step


def may_begin(step: int, version: int, max_steps_off_policy: int) -> bool:
    """Admission: whether sampling for a step may begin with these weights.

    `version` counts the updates that the weights have seen; `step` is trained on when the
    trainer has made `step` updates, so the lag will be step - version. Sampling starts late
    enough to keep the bound, so nothing that was sampled is ever thrown away.
    """
    return version >= step - max_steps_off_policy


class Ended(Exception):
    """Inside the thread: the trainer wants no more."""


@dataclass
class Sampled:
    """The groups of one step that were sampled so far, and when."""

    start: float
    end: float = 0.0  # 0: there are more to come
    groups: list[Group] = field(default_factory=list)


class Sampler:
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
        self.newest: LocalPolicy | None = None  # a snapshot that the thread has yet to take
        self.unused: LocalPolicy | None = None  # one that the thread has given back
        self.version = -1  # of the newest: the updates that its weights have seen
        self.sampled: dict[int, Sampled] = {}
        self.error: BaseException | None = None
        self.ended = False
        # A daemon: should it ever hang, the program can still end.
        self.thread = threading.Thread(target=self.run, name="sampler", daemon=True)

    # -- called by the trainer

    def publish(self, version: int) -> None:
        """Takes a snapshot of the trainer's weights, after `version` updates."""
        with self.changed:
            into = self.newest or self.unused
            if into is self.unused:
                self.unused = None
            self.newest = self.policy.snapshot(version, into)
            self.newest.engine = replace(self.policy.engine, around_step=self.watched)
            self.version = version
            if torch.cuda.is_available():  # on a GPU each thread has its own stream
                torch.cuda.current_stream().synchronize()
            self.changed.notify_all()

    def take(self, step: int) -> Iterator[list[Group]]:
        """The groups of a step, part by part as they arrive. An error in the thread is raised
        here."""
        taken = 0
        while True:
            with self.changed:
                while not self.has_more(step, taken):
                    if self.error is not None:
                        raise self.error
                    self.changed.wait(LOOK_AGAIN)
                sampled = self.sampled[step]
                groups = sampled.groups[taken:]
                over = sampled.end > 0
            taken += len(groups)
            if groups:
                yield groups
            if over:
                break
        self.clock.beside("sampler", sampled.start, sampled.end)
        del self.sampled[step]

    def has_more(self, step: int, taken: int) -> bool:
        """Whether more groups of a step have arrived, or the step is complete."""
        sampled = self.sampled.get(step)
        return sampled is not None and (sampled.end > 0 or len(sampled.groups) > taken)

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
            with beside_the_trainer(self.policy.model):
                for step in range(self.first_step, self.config.steps):
                    self.sample_next(step)
        except Ended:
            pass
        except BaseException as error:  # whatever it is, the trainer must not wait forever
            with self.changed:
                self.error = error
                self.changed.notify_all()

    def sample_next(self, step: int) -> None:
        snapshot = self.begin(step)
        self.sampled[step] = Sampled(time.perf_counter())
        for groups in self.parts(snapshot, step):
            with self.changed:
                self.sampled[step].groups += groups
                self.changed.notify_all()
        with self.changed:
            self.sampled[step].end = time.perf_counter()
            self.unused = snapshot
            self.changed.notify_all()

    def parts(self, snapshot: LocalPolicy, step: int) -> Iterator[list[Group]]:
        """The groups of a step: in as many parts as the trainer streams, else all together."""
        if self.config.active_sampling:  # on one rank, and not streamed
            yield sample_step(snapshot, self.problems, self.config, step, self.judge)
            return
        # Not by sample_step: one of several ranks gets only its own groups, which it would take
        # for too few.
        chosen = step_problems(self.problems, self.config, step)
        size = len(chosen) // self.config.num_minibatches
        for first in range(0, len(chosen), size):
            places = range(first, min(first + size, len(chosen)))
            asked = [chosen[place] for place in places]
            yield snapshot.sample(asked, self.config, step, places, self.judge)

    def begin(self, step: int) -> LocalPolicy:
        """Wait until the step may begin; return the newest snapshot, now the thread's own."""
        with self.changed:
            while not may_begin(step, self.version, self.config.max_steps_off_policy):
                self.look()
                self.changed.wait(LOOK_AGAIN)
            if self.newest is None:  # no update since the last step: the same one again
                snapshot, self.unused = self.unused, None
            else:
                snapshot, self.newest = self.newest, None
            return snapshot

    @contextmanager
    def watched(self, model: Qwen3Model) -> Iterator[None]:
        """Around each decoding step: the trainer may have ended."""
        self.look()
        with self.policy.engine.around_step(model):
            yield

    def look(self) -> None:
        if self.ended:
            raise Ended


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
    sampler = Sampler(policy, problems, config, first_step, judge, clock)
    with shared_cores(policy.model, config):
        try:
            sampler.publish(first_step)
            sampler.thread.start()
            for step in range(first_step, config.steps):
                if step > first_step:
                    sampler.publish(step)
                parts = sampler.take(step)
                if ranks.size == 1:
                    yield chain.from_iterable(clock.waiting("sampling", parts))
                else:
                    with clock("sampling"):
                        groups = ranks.gather_groups(partial(joined, parts))
                    yield groups
        finally:
            sampler.end()


def joined(parts: Iterable[list[Group]]) -> list[Group]:
    return [group for part in parts for group in part]


# --- devices


def beside_the_trainer(model: Qwen3Model) -> AbstractContextManager:
    """On a GPU the thread gets its own stream; otherwise its work would wait for the trainer's."""
    device = next(model.parameters()).device
    if device.type == "cuda":
        return torch.cuda.stream(torch.cuda.Stream(device))
    return nullcontext()


def shared_cores(model: Qwen3Model, config: Scale) -> AbstractContextManager:
    """On a CPU, trainer and sampler each get half of torch's threads; otherwise they would slow
    each other down. Not at lag 0, where they take turns."""
    on_cpu = next(model.parameters()).device.type == "cpu"
    half = max(1, torch.get_num_threads() // 2)
    return torch_threads(half) if on_cpu and config.max_steps_off_policy else nullcontext()
