"""Beside other programs: while one of them uses a core, torch's threads do not spin for each other.

On a CPU torch shares each operation out among as many threads as there are cores. Those that are
done wait for the last one in a loop, for milliseconds, and then for the next operation. If all
cores are theirs, nothing is faster. But if another program has a core, one thread gets half of it;
the others, which only wait, look busy to the system, so it does not move the late one to their
cores. Training passes took up to 35 times as long.

GNU's OpenMP, which torch uses on Linux, spins for a microsecond only, and then sleeps, while it has
more threads than there are cores (its manual says so, under GOMP_SPINCOUNT). So while others use
the machine, one more team of threads is kept here, asleep. Nothing else changes: the same number of
threads computes the same pieces, so results stay the same to the last bit.
"""

import ctypes
import os
import sys
import time
from functools import cache
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import torch

INTERVAL = 0.5  # seconds between two looks
NOISE = 0.25  # of a core: below it, short waits would cost more than the others take
STAT = Path("/proc/stat")


class CpuTime(NamedTuple):
    """Processor time in seconds, until some moment."""

    clock: float
    process: float  # of this process
    total: float  # of all processes, on the cores that this one may use


@cache
def watch_neighbors() -> None:
    """From now on, check twice a second whether other programs want the cores."""
    if sys.platform != "linux":
        return
    openmp, threads = ctypes.CDLL(None), torch.get_num_threads()
    cores = len(os.sched_getaffinity(0))
    # With more threads than cores, GNU's library spins briefly anyway.
    if 1 < threads <= cores and hasattr(openmp, "GOMP_parallel") and STAT.exists():
        Thread(
            target=watch_load, args=(openmp, threads, cores), name="neighbors", daemon=True
        ).start()


def watch_load(openmp: ctypes.CDLL, threads: int, cores: int) -> None:
    size = cores + 2 - threads  # of the team; its first thread is one of ours, and not counted
    before = cpu_time_so_far()
    stop: Event | None = None  # ends the extra team, while there is one
    while True:
        time.sleep(INTERVAL)
        now = cpu_time_so_far()
        crowded = is_crowded(before, now, threads, cores)
        if crowded and stop is None:
            stop = Event()
            arguments = openmp, size, stop
            Thread(target=hold_team, args=arguments, name="team", daemon=True).start()
        elif stop and not crowded:
            stop.set()
            stop = None
        before = now


def is_crowded(before: CpuTime, now: CpuTime, threads: int, cores: int) -> bool:
    """Whether this process's threads and other programs together want more cores than there are."""
    others = (now.total - before.total) - (now.process - before.process)
    return threads + others / (now.clock - before.clock) > cores + NOISE


def cpu_time_so_far() -> CpuTime:
    allowed, ticks = os.sched_getaffinity(0), 0
    for line in STAT.read_text().splitlines():
        name, *numbers = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in allowed:
            user, nice, system, _, _, interrupts, more = map(int, numbers[:7])
            ticks += user + nice + system + interrupts + more
    return CpuTime(time.monotonic(), time.process_time(), ticks / os.sysconf("SC_CLK_TCK"))


def hold_team(openmp: ctypes.CDLL, size: int, stop: Event) -> None:
    """Starts an extra team, which belongs to this thread and ends with it. Its threads sleep."""
    no_work = ctypes.cast(openmp.omp_get_num_procs, ctypes.c_void_p)  # returns immediately
    openmp.GOMP_parallel(no_work, None, size, 0)
    stop.wait()
