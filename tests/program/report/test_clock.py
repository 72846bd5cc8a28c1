"""Where the time of a step goes: no second counted twice, and none of another thread."""

from types import SimpleNamespace

import pytest

from rfs.report import clock as module
from rfs.report.clock import Clock


@pytest.fixture
def now(monkeypatch):
    """A clock's time, which goes on only when a test says so; so does the processor's."""
    now = SimpleNamespace(seconds=100.0, worked=50.0)
    clocks = {"perf_counter": lambda: now.seconds, "process_time": lambda: now.worked}
    monkeypatch.setattr(module, "time", SimpleNamespace(**clocks))
    return now


def test_time_inside_of_sampling_is_not_counted_as_sampling():
    clock = Clock()
    clock.spans = [("sampling", 0.0, 10.0), ("train", 2.0, 5.0), ("train", 11.0, 12.0)]
    assert clock.seconds("sampling") == 7.0 and clock.seconds("train") == 4.0


def test_a_step_in_spans(now):
    clock = Clock()
    now.seconds += 1
    for seconds in (2, 3):
        with clock("sampling"):
            now.seconds += seconds
    with clock("report"):
        now.seconds += 4
        now.worked += 3
    totals, rows = clock.collect()
    spans = {"time/sampling": 5.0, "time/report": 4.0}
    assert totals == spans | {"time/total": 10.0, "time/processor": 3.0}
    assert [(row["name"], row["wall_start"], row["wall_end"]) for row in rows] == [
        ("sampling", 0.0, 2.0),
        ("sampling", 2.0, 5.0),
        ("report", 5.0, 9.0),
    ]
    assert [row["duration"] for row in rows] == [2.0, 3.0, 4.0]


def test_the_next_step_begins_with_nothing(now):
    clock = Clock()
    with clock("train"):
        now.seconds += 7
        now.worked += 7
    clock.collect()
    now.seconds += 1
    assert clock.collect() == ({"time/total": 1.0, "time/processor": 0.0}, [])


def test_another_thread_is_shown_but_takes_none_of_this_ones_time(now):
    """The sampler works from 100 to 106, while this thread trains from 101 to 105."""
    clock = Clock()
    now.seconds += 1
    with clock("train"):
        now.seconds += 4
    clock.add_parallel_span("sampler", 100.0, 106.0)
    now.seconds += 1
    totals, rows = clock.collect()
    times = {"time/train": 4.0, "time/sampler": 6.0, "time/total": 6.0, "time/processor": 0.0}
    assert totals == times
    assert [(row["name"], row["wall_start"]) for row in rows] == [("train", 1.0), ("sampler", 0.0)]
