"""Large tensors get large pages. Memory that tensors free stays with the process, and is given back
where it is counted."""

import subprocess
import sys
from pathlib import Path

import pytest

JOB = """
import resource, torch
from reasoning_from_scratch.fast.memory import available_memory, keep_freed_memory

def faults(count):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        torch.empty(2**26, dtype=torch.uint8).fill_(1)  # 64 MiB: 16,384 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():  # bytes
    return 4096 * int(open("/proc/self/statm").read().split()[1])

anew = faults(8)
keep_freed_memory()
faults(8)  # it takes a few until what is free fits
kept, held = faults(8), resident()
available_memory()
print(anew, kept, held - resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is about GNU's malloc, on Linux")
def test_freed_memory_is_used_again_and_given_back_before_it_is_counted():
    job = subprocess.run([sys.executable, "-c", JOB], capture_output=True, text=True, check=True)
    anew, kept, given_back = map(int, job.stdout.split())
    # Where the system gives pages of 2 MiB, there are fewer of them. One of the eight may be anew.
    assert kept < anew / 4
    assert given_back > 60e6


SCARCE = """
import torch
from reasoning_from_scratch.fast import memory

def resident():  # bytes
    return 4096 * int(open("/proc/self/statm").read().split()[1])

memory.manage_memory()
left = memory.unused_memory() / memory.total_memory()
for share in (left / 2, 2 * left):  # there is room, then there is too little
    memory.SCARCE_SHARE = share
    pieces = [torch.ones(2**27, dtype=torch.uint8) for _ in range(2)]
    del pieces
    held = resident()
    memory.manage_memory()
    print(held - resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is about GNU's malloc, on Linux")
def test_freed_memory_is_kept_only_while_there_is_room():
    job = subprocess.run([sys.executable, "-c", SCARCE], capture_output=True, text=True, check=True)
    with_room, without = map(int, job.stdout.split())
    assert with_room < 1e7 < 1e8 < without


LARGE_PAGES = """
import reasoning_from_scratch, torch
weights = torch.ones(2**26, dtype=torch.uint8)
print(next(line for line in open("/proc/self/smaps_rollup") if line.startswith("AnonHuge")))
"""
OFFER = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(not OFFER.exists(), reason="this system has no large pages to ask for")
def test_a_large_tensor_has_large_pages():
    if "[never]" in OFFER.read_text():
        pytest.skip("this system gives no large pages")
    job = [sys.executable, "-c", LARGE_PAGES]
    said = subprocess.run(job, capture_output=True, text=True, check=True).stdout
    assert int(said.split()[1]) > 2**15  # kB: half of the 64 MB, at least
