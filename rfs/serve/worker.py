"""The one thread that computes. Training and sampling take turns in it:

    1. one waiting piece of training, whole: a forward_backward, an optimizer step, a save
    2. all prompts that wait to be scored, together
    3. in each batch that is being sampled, one token for every row; requests that have arrived
       meanwhile join it first

Requests with the same weights, temperature, top-p and top-k share a batch. What a request samples
does not depend on the others in the batch: its random numbers are its own (sampling.py).
"""

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

from torch import Tensor

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.sampling import Partner, Rollout, Sampling, SamplingEngine
from reasoning_from_scratch.stops import Stops
from rfs.serve.open_batch import OpenBatch

log = logging.getLogger("reasoning_from_scratch")

# Seconds between two times at which requests join the batches. One client's requests come a
# millisecond apart: if they joined one by one, each would cost a pass over its prompt and a larger
# batch. A streaming client does not wait while nothing is being sampled.
JOIN_INTERVAL = 0.01
MAX_IDLE_BATCHES = 4  # kept ready
MAX_BATCHES = 8  # being sampled, each with its cache; further temperatures wait until one ends


@dataclass(eq=False)
class Request:
    """A request for answers to a prompt; somebody is waiting for them."""

    policy: LocalPolicy
    prompt: list[int]
    keys: list[int]  # a random stream for each answer
    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stops: Stops = field(default_factory=Stops)
    num_likely: int = 0  # how many of the most likely tokens to record at each position
    # Called with each token as it is sampled: (number of the answer, its rollout).
    on_token: Callable[[int, Rollout], None] | None = None
    cancelled: bool = False  # nobody is waiting anymore
    future: Future = field(default_factory=Future)  # of the rollouts

    def __post_init__(self) -> None:
        self.unfinished = len(self.keys)
        self.rollouts: list[Rollout] = []

    @property
    def batch_key(self) -> tuple:
        return id(self.policy.model), self.temperature, self.top_p, self.top_k


class AnswerPartner(Partner):
    """The Partner of one answer: it adds nothing, and ends the answer at a stop token or text."""

    def __init__(self, request: Request, number: int) -> None:
        self.request, self.number, self.stopped = request, number, False

    def hear(self, response_ids: list[int], stopped: bool) -> list[int] | None:
        request = self.request
        self.stopped = request.stops.reached(response_ids)
        if request.on_token:
            request.on_token(self.number, request.rollouts[self.number])
        return None if self.stopped or request.cancelled else []

    def leave(self, rollout: Rollout) -> None:
        rollout.finished = self.stopped
        self.request.unfinished -= 1
        if not self.request.unfinished:
            settle(self.request.future, self.request.rollouts)


def settle(future: Future, result: object) -> None:
    """Gives a future its result or its error, unless it was cancelled meanwhile."""
    with suppress(InvalidStateError):
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)


class Worker:
    """The thread, and the work that waits for it."""

    def __init__(self, sampling: SamplingEngine, max_rows: int) -> None:
        self.sampling, self.max_rows = sampling, max_rows
        self.changed = threading.Condition()
        self.jobs: deque[tuple[Future, Callable]] = deque()
        self.scoring: list[tuple[Future, LocalPolicy, list[Rollout]]] = []
        self.joining: list[Request] = []
        self.postponed: list[Request] = []  # which found MAX_BATCHES others
        self.batches: OrderedDict[tuple, tuple[OpenBatch, set[Request]]] = OrderedDict()
        self.next_join = 0.0  # when waiting requests may join
        self.closing = False
        self.thread = threading.Thread(target=self.run, name="worker", daemon=True)

    # -- what others call

    def submit(self, function: Callable, future: Future | None = None) -> Future:
        """Calls `function` when all earlier work is done; the future gets what it returns."""
        future = future or Future()
        return self.enqueue(lambda: self.jobs.append((future, function)), future)

    def score(self, policy: LocalPolicy, rollouts: list[Rollout]) -> "Future[list[Tensor]]":
        """The log-probabilities of the rollouts' tokens."""
        future: Future = Future()
        return self.enqueue(lambda: self.scoring.append((future, policy, rollouts)), future)

    def sample(self, request: Request) -> "Future[list[Rollout]]":
        def join() -> None:
            if not self.joining:
                self.next_join = max(self.next_join, time.monotonic() + JOIN_INTERVAL)
            self.joining.append(request)

        return self.enqueue(join, request.future)

    def enqueue(self, append: Callable[[], None], future: Future) -> Future:
        """Adds to a queue under the lock. The thread takes whole queues away and leaves new ones;
        without the lock, something could go into a queue that it has already taken."""
        with self.changed:
            if self.closing:
                settle(future, UserError("the server is stopping"))
            else:
                append()
                self.changed.notify()
        return future

    def start(self) -> None:
        self.thread.start()

    def close(self) -> None:
        """Stops the thread when its current piece of work is done."""
        with self.changed:
            self.closing = True
            self.changed.notify()
        self.thread.join()

    @property
    def in_progress(self) -> int:
        """How many answers are being sampled, or wait for it."""
        sampling = sum(len(batch.rollouts) for batch, _ in list(self.batches.values()))
        return sampling + sum(len(request.keys) for request in [*self.joining, *self.postponed])

    # -- the thread

    def run(self) -> None:
        while True:
            with self.changed:
                while not (self.closing or self.has_work()):
                    self.changed.wait(self.seconds_until_join())
                if self.closing:
                    break
                job = self.jobs.popleft() if self.jobs else None
                scoring, self.scoring = self.scoring, []
                joining = self.take_joining()
            if job:
                self.run_job(*job)
            self.score_together(scoring)
            to_join, self.postponed = [*self.postponed, *joining], []
            for request in to_join:
                self.join(request)
            for name in list(self.batches):
                self.step(name)
        self.fail_all()

    def has_work(self) -> bool:
        return bool(
            self.jobs or self.scoring or self.is_sampling or self.postponed or self.can_join()
        )

    @property
    def is_sampling(self) -> bool:
        return any(requests for _, requests in self.batches.values())

    def can_join(self) -> bool:
        if not self.is_sampling and any(request.on_token for request in self.joining):
            return True
        return bool(self.joining) and time.monotonic() >= self.next_join

    def seconds_until_join(self) -> float | None:
        """Seconds for which there is nothing to do; None: until the next request."""
        return max(0.0, self.next_join - time.monotonic()) if self.joining else None

    def take_joining(self) -> list[Request]:
        if not self.can_join():
            return []
        joining, self.joining = self.joining, []
        self.next_join = time.monotonic() + JOIN_INTERVAL
        return joining

    def run_job(self, future: Future, function: Callable) -> None:
        if future.cancelled():
            return
        try:
            settle(future, function())
        except Exception as error:
            settle(future, log_failure(error))

    def score_together(self, scoring: list[tuple[Future, LocalPolicy, list[Rollout]]]) -> None:
        by_policy: dict[int, list[tuple[Future, LocalPolicy, list[Rollout]]]] = {}
        for item in scoring:
            by_policy.setdefault(id(item[1]), []).append(item)
        for items in by_policy.values():
            policy, rollouts = (
                items[0][1],
                [rollout for _, _, item_rollouts in items for rollout in item_rollouts],
            )
            try:
                logprobs = policy.logprobs(rollouts)
            except Exception as error:
                for future, _, _ in items:
                    settle(future, log_failure(error))
                continue
            for future, _, item_rollouts in items:
                settle(future, logprobs[: len(item_rollouts)])
                logprobs = logprobs[len(item_rollouts) :]

    def join(self, request: Request) -> None:
        if not request.max_new_tokens:  # its client wants to know about the prompt alone
            settle(request.future, [Rollout(prompt_ids=request.prompt) for _ in request.keys])
            return
        try:
            if request.batch_key not in self.batches and self.is_full:
                self.postponed.append(request)
                return
            batch, requests = self.batch_of(request)
            listeners = [AnswerPartner(request, number) for number in range(len(request.keys))]
            request.rollouts = batch.join(
                request.prompt, request.max_new_tokens, request.keys, listeners, request.num_likely
            )
            requests.add(request)
        except Exception as error:
            settle(request.future, log_failure(error))

    def batch_of(self, request: Request) -> tuple[OpenBatch, set[Request]]:
        if request.batch_key not in self.batches:
            idle = [key for key, (_, requests) in self.batches.items() if not requests]
            for key in idle[: max(0, len(idle) - MAX_IDLE_BATCHES + 1)]:  # the least recently used
                del self.batches[key]
            sampling = Sampling(
                temperature=request.temperature,
                top_p=request.top_p,
                top_k=request.top_k,
                sample_rows=self.max_rows,
            )
            batch = OpenBatch(request.policy.model, sampling, self.sampling)
            self.batches[request.batch_key] = batch, set()
        self.batches.move_to_end(request.batch_key)
        return self.batches[request.batch_key]

    @property
    def is_full(self) -> bool:
        return sum(bool(requests) for _, requests in self.batches.values()) >= MAX_BATCHES

    def step(self, key: tuple) -> None:
        batch, requests = self.batches[key]
        if not requests:
            return
        try:
            batch.step(self.sampling.step_context)
        except Exception as error:  # the batch is no longer usable
            del self.batches[key]
            for request in requests:
                settle(request.future, log_failure(error))
            return
        requests.difference_update([request for request in requests if not request.unfinished])

    def forget(self, policy: LocalPolicy) -> None:
        """Called in this thread: the policy's weights are no longer used."""
        for key in [key for key in self.batches if key[0] == id(policy.model)]:
            batch, requests = self.batches.pop(key)
            for request in requests:
                settle(request.future, UserError("these weights were released"))

    def fail_all(self) -> None:
        stopping = UserError("the server is stopping")
        for future, _ in self.jobs:
            settle(future, stopping)
        for future, _, _ in self.scoring:
            settle(future, stopping)
        sampling = [request for _, requests in self.batches.values() for request in requests]
        for request in [*self.joining, *self.postponed, *sampling]:
            settle(request.future, stopping)
        self.batches.clear()


def log_failure(error: Exception) -> Exception:
    """The error; one that is not the client's fault is logged with its traceback."""
    if not isinstance(error, UserError):
        log.error("rfs serve failed", exc_info=error)
    return error
