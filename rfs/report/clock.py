"""Clock: where the time of a step goes."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class TimedFunction(Generic[P, T]):
    """A function, and how long its calls have taken since the last `take_seconds`."""

    def __init__(self, function: Callable[P, T]) -> None:
        self.function, self.seconds = function, 0.0

    def __call__(self, *arguments: P.args, **keywords: P.kwargs) -> T:
        start = time.perf_counter()
        try:
            return self.function(*arguments, **keywords)
        finally:
            self.seconds += time.perf_counter() - start

    def take_seconds(self) -> float:
        seconds, self.seconds = self.seconds, 0.0
        return seconds


def covered_seconds(spans: Iterable[tuple[float, float]]) -> float:
    """The time that spans cover; where spans overlap, it counts once."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


class Clock:
    """Collects named spans: `with clock("sampling"): ...`, then `clock.collect()` at the end."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, float, float]] = []  # name, start, end
        self.other_thread_spans: list[tuple[str, float, float]] = []
        self.wall_start = time.perf_counter()
        self.processor_start = time.process_time()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.spans.append((name, start, time.perf_counter()))

    def add_span(self, name: str, start: float) -> None:
        """A span that began at `start`, a time.perf_counter(), and ends now."""
        self.spans.append((name, start, time.perf_counter()))

    def add_parallel_span(self, name: str, start: float, end: float) -> None:
        """A span of another thread: shown, but not part of this thread's time."""
        self.other_thread_spans.append((name, start, end))

    def time_waits(self, name: str, values: Iterable[T]) -> Iterator[T]:
        """The same values; the wait for each becomes a span."""
        values = iter(values)
        while True:
            start = time.perf_counter()
            try:
                value = next(values)
            except StopIteration:
                return
            self.add_span(name, start)
            yield value

    def time_sampling(self, rollouts: Iterable[T], timed_judge: TimedFunction) -> Generator[T]:
        """The same rollouts, step after step, with the time that sampling and judging took."""
        for groups in self.time_waits("sampling", rollouts):
            self.add_inner_span("reward", timed_judge.take_seconds())
            yield groups

    def add_inner_span(self, name: str, seconds: float) -> None:
        """Counts `seconds` of the span that has just ended as `name`: its last ones, by fiat."""
        end = self.spans[-1][2]
        self.spans.append((name, end - seconds, end))

    def seconds(self, name: str) -> float:
        """Time spent so far in all spans of that name, without other spans inside them."""
        outer = [(start, end) for span, start, end in self.spans if span == name]
        inner = [
            (start, end)
            for span, start, end in self.spans
            if span != name and any(first <= start and end <= last for first, last in outer)
        ]
        return covered_seconds(outer) - covered_seconds(inner)

    def collect(self) -> tuple[dict[str, float], list[dict]]:
        """Seconds per name, in total, and of the processor in all threads of this process, which
        other programs do not lengthen; and the spans in the format of timing_spans.jsonl."""
        totals = {f"time/{name}": self.seconds(name) for name in {span[0] for span in self.spans}}
        for name, start, end in self.other_thread_spans:
            totals[f"time/{name}"] = totals.get(f"time/{name}", 0.0) + end - start
        totals["time/total"] = time.perf_counter() - self.wall_start
        totals["time/processor"] = time.process_time() - self.processor_start
        spans = self.spans + self.other_thread_spans
        earliest = min((start for _, start, _ in spans), default=0.0)
        rows = [
            {
                "name": name,
                "duration": end - start,
                "wall_start": start - earliest,
                "wall_end": end - earliest,
            }
            for name, start, end in spans
        ]
        self.spans, self.other_thread_spans = [], []
        self.wall_start, self.processor_start = time.perf_counter(), time.process_time()
        return totals, rows
