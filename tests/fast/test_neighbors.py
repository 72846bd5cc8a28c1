"""Beside another program no processor time is lost in waiting, and on an idle machine nothing is
done about it."""

import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread

import pytest

from reasoning_from_scratch.fast import neighbors
from reasoning_from_scratch.fast.neighbors import CpuTime, cpu_time_so_far, hold_team, is_crowded

JOB = Path(__file__).parents[1] / "busy_core_job.py"
linux = pytest.mark.skipif(sys.platform != "linux", reason="torch has GNU's OpenMP on Linux")


def take_two_cores():
    """Also where the tests were given one of them."""
    os.sched_setaffinity(0, range(os.cpu_count()))
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])


@linux
def test_beside_a_busy_program_two_threads_take_little_more_processor_time_than_one():
    """Where threads spin while they wait for the late one, decoding takes ten times as much. With
    other tests beside the busy program, it took up to 2.7 times as much."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    job = subprocess.run(
        [sys.executable, JOB],
        capture_output=True,
        text=True,
        env=environment,
        preexec_fn=take_two_cores,
        timeout=300,
    )
    assert job.returncode == 0, job.stderr[-3000:]
    if not job.stdout:
        pytest.skip("this machine has one core")
    for work, (one, two) in json.loads(job.stdout).items():
        assert two < 5 * one, work


@pytest.mark.parametrize(
    "own, others, threads, cores, crowded",
    [
        (2, 0, 2, 2, False),  # alone
        (0.4, 0.1, 2, 2, False),  # not much of it, and a system's small jobs
        (1.5, 0.5, 2, 2, True),  # another program on one core
        (1, 1, 2, 2, True),
        (0, 1, 2, 2, True),  # even where this process did nothing just now
        (2, 1, 2, 4, False),  # there is room for both
        (2, 3, 2, 4, True),
        (2, 3, 4, 64, False),
    ],
)
@pytest.mark.parametrize("seconds", [0.5, 3])
def test_when_cores_do_not_suffice(own, others, threads, cores, crowded, seconds):
    before = CpuTime(7.0, 11.0, 100.0)
    now = CpuTime(7 + seconds, 11 + own * seconds, 100 + (own + others) * seconds)
    assert is_crowded(before, now, threads, cores) is crowded


@linux
def test_only_the_cores_that_this_process_may_use_count(monkeypatch, tmp_path):
    stat = tmp_path / "stat"
    stat.write_text(
        "cpu 9 9 9 9 9 9 9 9 9 9\n"
        "cpu0 1000 200 30 77777 88888 4 5 66666 300 0\n"  # waiting and stolen time do not count
        "cpu1 5000 0 0 0 0 0 0 0 0 0\n"
        "cpu10 600 0 0 0 0 0 0 0 0 0\n"
        "intr 12345\n"
    )
    monkeypatch.setattr(neighbors, "STAT", stat)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 10})
    monkeypatch.setattr(os, "sysconf", lambda name: 100)
    assert cpu_time_so_far().total == 12.39 + 6


@linux
def test_when_the_others_are_gone_so_is_the_team():
    """What is left of it would keep torch's threads from spinning on an idle machine."""
    stop, before = Event(), os_threads()
    team = Thread(target=hold_team, args=(ctypes.CDLL(None), 4, stop))
    team.start()
    until(lambda: len(os_threads() - before) == 4)
    stop.set()
    team.join()
    until(lambda: not os_threads() - before)


def os_threads():
    return set(os.listdir("/proc/self/task"))


def until(true, seconds=30):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
