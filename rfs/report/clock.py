"""Clock: where the time of a step goes."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Timed(Generic[P, T]):
    """A function, and how long its calls have taken since the last `take`."""

    def __init__(self, function: Callable[P, T]) -> None:
        self.function, self.taken = function, 0.0

    def __call__(self, *given: P.args, **named: P.kwargs) -> T:
        start = time.perf_counter()
        try:
            return self.function(*given, **named)
        finally:
            self.taken += time.perf_counter() - start

    def take(self) -> float:
        taken, self.taken = self.taken, 0.0
        return taken


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """The time that spans cover; where some lie in others, it counts once."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


class Clock:
    """Collects named spans: `with clock("sampling"): ...`, then `clock.take()` at the end."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, float, float]] = []  # name, start, end
        self.others: list[tuple[str, float, float]] = []  # spans of another thread
        self.started = time.perf_counter()
        self.worked = time.process_time()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.spans.append((name, start, time.perf_counter()))

    def since(self, name: str, start: float) -> None:
        """A span that began at `start`, a time.perf_counter(), and ends now."""
        self.spans.append((name, start, time.perf_counter()))

    def beside(self, name: str, start: float, end: float) -> None:
        """What another thread did meanwhile: shown, but not part of this thread's time."""
        self.others.append((name, start, end))

    def waiting(self, name: str, values: Iterable[T]) -> Iterator[T]:
        """The same values; the wait for each becomes a span."""
        values = iter(values)
        while True:
            start = time.perf_counter()
            try:
                value = next(values)
            except StopIteration:
                return
            self.since(name, start)
            yield value

    def sampling(self, rollouts: Iterable[T], judge: Timed) -> Generator[T]:
        """The same rollouts, step after step, with the time that sampling and judging took."""
        for groups in self.waiting("sampling", rollouts):
            self.within("reward", judge.take())
            yield groups

    def within(self, name: str, seconds: float) -> None:
        """Counts `seconds` of the span that has just ended, say its last ones, as `name`."""
        end = self.spans[-1][2]
        self.spans.append((name, end - seconds, end))

    def seconds(self, name: str) -> float:
        """Time spent so far in all spans of that name, without other spans inside them."""
        own = [(start, end) for span, start, end in self.spans if span == name]
        inside = [
            (start, end)
            for span, start, end in self.spans
            if span != name and any(first <= start and end <= last for first, last in own)
        ]
        return covered(own) - covered(inside)

    def take(self) -> tuple[dict[str, float], list[dict]]:
        """Seconds per name, in total, and of the processor in all threads of this process, which
        other programs do not lengthen; and the spans in the format of timing_spans.jsonl."""
        totals = {f"time/{name}": self.seconds(name) for name in {span[0] for span in self.spans}}
        for name, start, end in self.others:
            totals[f"time/{name}"] = totals.get(f"time/{name}", 0.0) + end - start
        totals["time/total"] = time.perf_counter() - self.started
        totals["time/processor"] = time.process_time() - self.worked
        spans = self.spans + self.others
        first = min((start for _, start, _ in spans), default=0.0)
        rows = [
            {
                "name": name,
                "duration": end - start,
                "wall_start": start - first,
                "wall_end": end - first,
            }
            for name, start, end in spans
        ]
        self.spans, self.others = [], []
        self.started, self.worked = time.perf_counter(), time.process_time()
        return totals, rows
