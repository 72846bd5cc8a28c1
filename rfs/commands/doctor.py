"""`rfs doctor`: what this machine has, what is wrong with it, and what to do, in words."""

import math
import shutil
import subprocess
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import requests
import torch
from huggingface_hub import constants

from reasoning_from_scratch import DISTRIBUTION
from reasoning_from_scratch.fast.decode_library import GET_A_COMPILER
from reasoning_from_scratch.fast.decoding import load_library
from reasoning_from_scratch.fast.device import TITLES, parity_problem, resolve_device
from reasoning_from_scratch.fast.memory import available_memory
from reasoning_from_scratch.files.downloads import network_reason
from reasoning_from_scratch.text import counted
from rfs.commands.options import DoctorOptions
from rfs.run.folder import versions

GIB = 2**30
# The optional packages of pyproject.toml that a command looks for.
EXTRAS = {
    "notebook": ["jupyterlab"], "wandb": ["wandb"], "tensorboard": ["tensorboard"],
    "trackio": ["trackio"], "hf": ["pyarrow"], "ray": ["ray"], "gym": ["reasoning_gym"],
    "gguf": ["gguf"], "book": ["sphinx", "myst_nb"], "serve": ["starlette", "uvicorn", "pydantic"],
}  # fmt: skip


@dataclass
class Finding:
    """One thing that was checked."""

    topic: str
    state: str  # "ok", "note" (works, but know this) or "problem"
    message: str
    advice: str = ""

    def __str__(self) -> str:
        lines = [f"{self.state:<8} {self.topic:<9} {self.message}"]
        return "\n".join(lines + ([f"{'':<18} -> {self.advice}"] if self.advice else []))


def doctor(options: DoctorOptions) -> int:
    """Prints all findings; exit code 1 if one of them is a problem."""
    installed = versions()
    commit = (installed["git"] or "unknown")[:10]
    print(f"{DISTRIBUTION}, commit {commit}; Python {installed['python']}; {installed['machine']}")
    findings = []
    checks = [check_device, check_dtype, check_compiler, check_memory, check_disk, check_extras]
    for check in checks + [check_hub] * options.network:
        findings.append(check())
        print(findings[-1], flush=True)
    problems = sum(finding.state == "problem" for finding in findings)
    count = counted(problems, "problem") if problems else "No problem"
    print(f"\n{count} found.")
    return int(problems > 0)


def check_device() -> Finding:
    """The torch build and the device: a GPU that this build cannot use is the usual trap."""
    device, cuda = resolve_device(), torch.version.cuda
    build = f"torch {torch.__version__} ({f'CUDA {cuda}' if cuda else 'no CUDA'})"
    if device.type != "cpu":
        name = torch.cuda.get_device_name() if device.type == "cuda" else TITLES[device.type]
        problem = parity_problem(device)
        if problem is None:
            return Finding("device", "ok", f"{name}, {build}: gives the same results as the CPU")
        message = f"{name} does not give the same results as the CPU, {build}: {problem}"
        advice = "install another torch version or CUDA build, or use --device cpu"
        return Finding("device", "problem", message, advice)
    if not nvidia_driver():
        message = f"CPU, {torch.get_num_threads()} threads, {build}"
        message += "; enough for the tiny model, slow for 0.6B"
        if cuda:
            advice = "this build has CUDA's libraries, gigabytes that no GPU here uses; nothing is "
            advice += "broken; cp docs/uv-linux-cpu.toml uv.toml takes the CPU build"
            return Finding("device", "note", message, advice)
        return Finding("device", "ok", message)
    advice = "remove uv.toml here, or the line `find-links` from ~/.config/uv/uv.toml, then"
    advice += " uv sync --upgrade-package torch, for a CUDA build"
    if cuda:
        advice = f"update the NVIDIA driver to one for CUDA {cuda} or newer, and make sure"
        advice += " that CUDA_VISIBLE_DEVICES is not empty"
    return Finding(
        "device", "problem", f"there is an NVIDIA GPU, but {build} cannot use it", advice
    )


def nvidia_driver() -> bool:
    """Whether an NVIDIA driver answers."""
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def check_dtype() -> Finding:
    """Whether bfloat16 helps here or hurts."""
    device, advice = resolve_device(), "use --dtype float32 (double the memory)"
    try:
        slower = matmul_seconds(torch.bfloat16, device) / matmul_seconds(torch.float32, device)
    except (RuntimeError, TypeError):
        return Finding("dtype", "note", f"{TITLES[device.type]} has no bfloat16", advice)
    if slower < 1.5:
        return Finding("dtype", "ok", f"bfloat16 works, {1 / slower:.1f} times float32's speed")
    message = f"bfloat16 is {slower:.1f} times slower than float32 here"
    return Finding("dtype", "note", message, advice)


def matmul_seconds(dtype: torch.dtype, device: torch.device) -> float:
    """The best of three products of 512 x 512 matrices."""
    matrix = torch.ones(512, 512, dtype=dtype, device=device)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        (matrix @ matrix).sum().item()  # item() waits for the device
        times.append(time.perf_counter() - start)
    return min(times)


def check_compiler() -> Finding:
    """Without a C compiler sampling on a CPU works, several times slower."""
    if load_library(torch.float32) is not None:
        return Finding("compiler", "ok", "decode.c is compiled: sampling on a CPU is fast")
    message = "decode.c cannot be compiled: sampling on a CPU is several times slower"
    return Finding("compiler", "note", message, GET_A_COMPILER)


def check_extras() -> Finding:
    """Which optional packages are installed, and how to get one of the others."""
    is_there = {extra: all(map(find_spec, names)) for extra, names in EXTRAS.items()}
    installed = ", ".join(extra for extra in EXTRAS if is_there[extra]) or "none"
    missing = ", ".join(extra for extra in EXTRAS if not is_there[extra])
    if not missing:
        return Finding("extras", "ok", f"installed: {installed}")
    advice = f"uv run --extra NAME rfs ... brings one; not installed: {missing}"
    return Finding("extras", "ok", f"installed: {installed}", advice)


def check_memory() -> Finding:
    """The memory of the device, and what fits; `rfs preflight` measures it for a run."""
    if resolve_device().type == "cuda":
        free: float
        free, total = torch.cuda.mem_get_info()
        message = f"GPU: {free / GIB:.1f} of {total / GIB:.1f} GiB free"
        if free < total / 2:
            advice = "another process holds GPU memory; nvidia-smi shows which"
            return Finding("memory", "note", message, advice)
    else:
        free = available_memory()
        message = "unknown here" if math.isinf(free) else f"{free / GIB:.1f} GiB available"
    if free < GIB:
        return Finding(
            "memory", "note", message, "close other programs; the tiny model needs 1 GiB"
        )
    fits = "enough for the tiny model; 0.6B needs about 4 GiB to answer, 13 GiB to train"
    return Finding("memory", "ok", message, "" if free > 13 * GIB else fits)


def check_disk() -> Finding:
    """Space for models and checkpoints on the disk of the current folder."""
    free = shutil.disk_usage(".").free
    message = f"{free / GIB:.1f} GiB free in {Path.cwd()}"
    if free > 12 * GIB:
        return Finding("disk", "ok", message)
    advice = "a 0.6B checkpoint takes 1.5 GB, 10.5 GB with the state for resuming"
    return Finding("disk", "note" if free > GIB else "problem", message, advice)


def check_hub() -> Finding:
    """Whether models can be downloaded, through the proxy set in the environment."""
    url = constants.ENDPOINT
    try:
        requests.head(url, timeout=3)
        return Finding("hub", "ok", f"{url} responds")
    except requests.RequestException as error:
        advice = (
            "fine for the tiny model; otherwise set HTTPS_PROXY, HF_ENDPOINT (a mirror) or, for a"
        )
        advice += " certificate of your organization, REQUESTS_CA_BUNDLE"
        return Finding("hub", "note", f"{url}: {network_reason(error)}", advice)
