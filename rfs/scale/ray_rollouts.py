"""Sampling on many machines: the same iterator, with Ray actors as samplers.

A sampler is a process, anywhere, that holds the model. The learner puts its weights into Ray's
object store, once per version, and cuts each step into chunks of problems. A sampler fetches the
weights of its chunk unless it has them, samples, judges, and sends the groups back.

A chunk's problems, its weights and its random streams depend only on the configuration. So when a
sampler dies, another one samples its chunk again, and the run's results do not change.
"""

import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from math import ceil
from typing import Any

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.optim.lora import lora_layers
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.rollouts import Group, next_problems
from rfs.config import RunConfig
from rfs.report.clock import Clock
from rfs.scale.lag import may_sample
from rfs.scale.ranks import Ranks
from rfs.scale.ray_sampler import (
    Chunk,
    RemoteSampler,
    SamplerSetup,
    pack,
    select_parameters,
)
from rfs.scale.ray_start import connect

MAX_DEATHS = 10  # if this many samplers in a row die before any chunk is done, something is wrong
WARNING_INTERVAL = 60.0  # seconds without a sampler after which we say what we wait for

log = logging.getLogger("reasoning_from_scratch")


@dataclass
class StepWork:
    """A step that is being sampled."""

    step: int
    version: int
    num_requested: int = 0
    groups: dict[int, Group] = field(default_factory=dict)  # by place

    @property
    def complete(self) -> bool:
        return len(self.groups) == self.num_requested


class Actors:
    """The actors, what each of them is doing, and the steps that are being sampled."""

    def __init__(
        self, model: Qwen3Model, tokenizer, problems: Sequence[Problem], config: RunConfig
    ) -> None:
        self.ray = connect(config.ray_address)
        self.problems, self.config = problems, config
        self.actor, setup = self.actor_class_and_setup(model, tokenizer)
        self.setup = self.ray.put(setup)
        self.weights: dict[int, object] = {}  # version -> its reference in the object store
        self.steps: dict[int, StepWork] = {}
        self.waiting: list[tuple[int, int, Chunk]] = []  # a heap: earliest step and place first
        self.tasks: dict = {}  # pending call -> (sampler, its chunk; None: it is starting)
        self.chunk_counts: dict = {}  # sampler that is up -> number of chunks it has
        self.deaths_in_a_row = 0
        for _ in range(config.num_samplers):
            self.start_sampler()

    def actor_class_and_setup(self, model: Qwen3Model, tokenizer) -> tuple[Any, SamplerSetup]:
        """The actors' class, with the resources that each takes, and the setup of each."""
        config, machines = self.config, self.ray.cluster_resources()
        weight, lora = model.tok_emb.weight, [*lora_layers(model).values()]
        options: dict = {"scheduling_strategy": "SPREAD"}
        if weight.device.type == "cuda":
            if not machines.get("GPU"):
                raise UserError(
                    "Ray sees no GPU for the samplers; start its nodes on machines "
                    "with GPUs, or use --device cpu"
                )
            options["num_gpus"] = 1 / ceil(config.num_samplers / machines["GPU"])
        setup = SamplerSetup(
            config=config,
            lora=(lora[0].rank, lora[0].alpha) if lora else None,
            cfg={**model.cfg, "dtype": weight.dtype},
            tokenizer=tokenizer,
            frozen=pack(select_parameters(model, trained=False)),
            device=weight.device.type,
            threads=max(1, int(machines.get("CPU", 1) / config.num_samplers)),
        )
        return self.ray.remote(**options)(RemoteSampler), setup

    def start_sampler(self) -> None:
        sampler = self.actor.remote(self.setup)
        self.tasks[sampler.ready.remote()] = (sampler, None)

    # -- handing out

    def begin_step(self, step: int, version: int, model: Qwen3Model) -> None:
        """Begins to sample a step, with the model's current weights."""
        if version not in self.weights:
            self.weights[version] = self.ray.put(pack(select_parameters(model, trained=True)))
        self.steps[step] = StepWork(step, version)
        self.queue_problems(self.steps[step])

    def queue_problems(self, work: StepWork) -> None:
        """Queues the next problems of a step, if it needs any."""
        first = work.num_requested
        chosen = next_problems(self.problems, self.config, work.step, work.groups.values())
        work.num_requested += len(chosen)
        for part in equal_parts(len(chosen), self.config.num_samplers):
            places, part_problems = [first + i for i in part], [chosen[i] for i in part]
            self.queue_chunk(Chunk(work.step, work.version, places, part_problems))

    def queue_chunk(self, chunk: Chunk) -> None:
        heappush(self.waiting, (chunk.step, chunk.places[0], chunk))

    def assign(self) -> None:
        """Gives each sampler a chunk; with a lag also the next ones, since none are handed out
        while the trainer trains."""
        while self.waiting and self.chunk_counts:
            sampler = min(self.chunk_counts, key=self.chunk_counts.get)
            if self.chunk_counts[sampler] > self.config.max_steps_off_policy:
                return
            chunk = heappop(self.waiting)[-1]
            task = sampler.sample.remote(chunk, [self.weights[chunk.version]])
            self.tasks[task] = (sampler, chunk)
            self.chunk_counts[sampler] += 1

    # -- receiving

    def groups_of_step(self, step: int) -> Iterator[Group]:
        """The groups of a step in order, each as soon as all before it have arrived, so that sums
        over them do not depend on which sampler was first."""
        work, num_yielded = self.steps[step], 0
        while not (work.complete and num_yielded == len(work.groups)):
            if num_yielded in work.groups:
                yield work.groups[num_yielded]
                num_yielded += 1
            else:
                self.receive()
        del self.steps[step]
        needed = {other.version for other in self.steps.values()}
        self.weights = {v: weights for v, weights in self.weights.items() if v in needed}

    def receive(self) -> None:
        """Wait until a pending call is done, or a sampler has died."""
        self.assign()
        done, _ = self.ray.wait(list(self.tasks), timeout=WARNING_INTERVAL)
        if not done and not self.chunk_counts:
            log.warning(
                "no sampler has started yet; Ray has these free: %s", self.ray.available_resources()
            )
        errors = self.ray.exceptions
        for task in done:
            sampler, chunk = self.tasks.pop(task)
            try:
                result = self.ray.get(task)
            except (errors.RayActorError, errors.ObjectLostError) as error:
                self.handle_death(sampler, chunk, error)
            except errors.ActorUnschedulableError as error:
                raise UserError(f"Ray cannot start a sampler: {last_line(error)}") from None
            except errors.RayTaskError as error:  # it would happen to other samplers, too
                raise (error.cause if isinstance(error.cause, UserError) else error) from None
            else:
                self.handle_result(sampler, chunk, result)

    def handle_result(self, sampler: object, chunk: Chunk | None, result: tuple | None) -> None:
        if chunk is None:
            self.chunk_counts[sampler] = 0
            return
        groups, log_lines = result
        for line in log_lines:
            log.warning("%s", line)
        self.deaths_in_a_row = 0
        if sampler in self.chunk_counts:
            self.chunk_counts[sampler] -= 1
        work = self.steps[chunk.step]
        work.groups |= dict(zip(chunk.places, groups, strict=True))
        if work.complete:
            self.queue_problems(work)

    def handle_death(self, sampler: object, chunk: Chunk | None, error: Exception) -> None:
        """Queues the chunk of a sampler that died again, and starts another sampler."""
        if chunk is not None:
            self.queue_chunk(chunk)
        # The sampler may have had several chunks: only the first of them reports its death.
        if chunk is None or self.chunk_counts.pop(sampler, None) is not None:
            self.deaths_in_a_row += 1
            if self.deaths_in_a_row == MAX_DEATHS:
                raise UserError(
                    f"{MAX_DEATHS} samplers in a row died before they had sampled "
                    f"anything: {last_line(error)}"
                )
            self.ray.kill(sampler)
            self.start_sampler()

    def kill_all(self) -> None:
        for sampler in {sampler for sampler, _ in self.tasks.values()} | set(self.chunk_counts):
            self.ray.kill(sampler)


def ray_rollouts(
    policy: LocalPolicy,
    problems: Sequence[Problem],
    config: RunConfig,
    first_step: int = 0,
    ranks: Ranks | None = None,
    clock: Clock | None = None,
) -> Generator[Iterable[Group]]:
    """The groups of one step after another, sampled by `num_samplers` actors of Ray.

    Under torchrun only rank 0 talks to Ray, and passes what it gets to all ranks.
    """
    ranks, clock = ranks or Ranks(), clock or Clock()
    with closing(RaySampler(policy.tokenizer, problems, config, first_step)) as sampler:
        for step in range(first_step, config.steps):
            if ranks.size > 1:
                with clock("sampling"), policy.full_model() as model:
                    groups = ranks.run_on_first(partial(sampler.all_groups, model, step))
                yield groups
            elif config.num_minibatches > 1:
                yield clock.time_waits("sampling", sampler.groups(policy.model, step))
            else:
                with clock("sampling"):
                    groups = sampler.all_groups(policy.model, step)
                yield groups


class RaySampler:
    """The actors, once the first step is requested; and how far ahead they may sample."""

    def __init__(
        self, tokenizer, problems: Sequence[Problem], config: RunConfig, first_step: int
    ) -> None:
        self.tokenizer, self.problems, self.config = tokenizer, problems, config
        self.next_step = first_step
        self.actors: Actors | None = None

    def all_groups(self, model: Qwen3Model, step: int) -> list[Group]:
        return list(self.groups(model, step))

    def groups(self, model: Qwen3Model, step: int) -> Iterator[Group]:
        """The groups of a step, as they come. The trainer has made `step` updates, so `step` is
        also the version of its weights."""
        config = self.config
        if self.actors is None:
            self.actors = Actors(model, self.tokenizer, self.problems, config)
        while self.next_step < config.steps and may_sample(
            self.next_step, step, config.max_steps_off_policy
        ):
            self.actors.begin_step(self.next_step, version=step, model=model)
            self.next_step += 1
        yield from self.actors.groups_of_step(step)

    def close(self) -> None:
        if self.actors:
            self.actors.kill_all()


def equal_parts(size: int, count: int) -> list[range]:
    """0 .. size - 1 in at most `count` parts, whose sizes differ by at most one."""
    edges = [size * i // count for i in range(count + 1)]
    return [range(a, b) for a, b in zip(edges, edges[1:], strict=False) if a < b]


def last_line(error: Exception) -> str:
    return [line.strip() for line in str(error).splitlines() if line.strip()][-1]
