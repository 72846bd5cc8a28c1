"""On a GPU: the same results as on a CPU, nothing left on the wrong device, few waits.

One GPU is pretended (see pretend_gpu.py), so none is needed; where there is a real one, it does
the same work, too.
"""

import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.utils.backend_registration as registration

HERE = Path(__file__).parents[1]
CLOCKS = ("time", "sec", "memory", "speed")  # metrics that differ from run to run

PRETENDED = pytest.param(
    "pretend",
    marks=pytest.mark.skipif(
        not hasattr(registration, "_setup_privateuseone_for_python_backend"),
        reason="this torch cannot have a device that is written in Python",
    ),
)
REAL = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is here")
)


@pytest.fixture(scope="module", params=[PRETENDED, REAL])
def found_on(request):
    """What the work found on the CPU and on this device."""
    return work_on(request.param)


@pytest.fixture(scope="module", params=[PRETENDED])
def found(request):
    """The same, on the pretended device alone: it knows when the host had to wait."""
    return work_on(request.param)


@cache
def work_on(device):
    with tempfile.TemporaryDirectory() as folder:
        job = subprocess.run(
            [sys.executable, "-W", "ignore", HERE / "gpu_job.py", folder, device],
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert job.returncode == 0, job.stderr[-3000:]
    return json.loads(job.stdout.splitlines()[-1])


def leaves(value, path=""):
    """Path and value of everything that is no container."""
    if isinstance(value, (dict, list)):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in pairs:
            if not any(word in str(key) for word in CLOCKS):
                yield from leaves(part, f"{path}/{key}")
    else:
        yield path, value


def test_results_are_those_of_the_cpu(found_on):
    for work in found_on.keys() - {"mixed"}:
        cpu, gpu = (dict(leaves(found_on[work][device])) for device in ("cpu", "gpu"))
        assert cpu.keys() == gpu.keys()
        for path, value in cpu.items():
            if isinstance(value, float):
                value = pytest.approx(value, rel=1e-4, abs=1e-6, nan_ok=True)
            assert gpu[path] == value, work + path
    assert len(dict(leaves(found_on["trained plain"]["cpu"]))) > 100


def test_a_tensor_left_on_the_cpu_is_noticed(found_on):
    assert "on the CPU" in found_on["mixed"] or "same device" in found_on["mixed"]


def waits(found, work, *places):
    """How often the GPU made the host wait in these functions or files."""
    return sum(n for line, n in found[work]["waits"].items() if any(p in line for p in places))


def test_decoding_does_not_wait_for_each_token(found):
    """Tokens, log-probabilities and entropies are fetched for 8 tokens at a time."""
    tokens = max(len(ids) for ids, *_ in found["sampled greedy"]["cpu"])
    assert tokens == 33
    fetched = waits(found, "sampled greedy", "record", "listcomp")
    assert fetched == 3 * 2 * 5  # two batches of at most 4 rows, 33 tokens in bursts of 8
    for work in ("sampled greedy", "sampled all"):
        rows_change = waits(found, work, "qwen3.py _set_lengths")  # in the cache, between steps
        assert waits(found, work, "sample_next_token", "_inverse_cdf", "qwen3.py") == rows_change


def test_top_p_waits_for_nothing_and_its_sets_twice_a_token_for_all_rows(found):
    assert waits(found, "sampled sets", "kept_ids") > 2 * 33  # how many, and which
    for work in ("sampled top_p", "sampled sets"):
        assert waits(found, work, "sample_next_token", "_inverse_cdf", "cut.py") == 0


def test_nothing_waits_in_a_recording(found):
    """Only a new recording's tables, and what `generate` looks at between two bursts."""
    assert waits(found, "sampled recorded", "sampling.py") > 0
    assert waits(found, "sampled recorded", "graphs.py", "cut.py", "sample_next_token") == 0
