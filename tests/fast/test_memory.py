"""Memory that tensors free stays with the process, and is given back where it is counted."""

import subprocess
import sys

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
