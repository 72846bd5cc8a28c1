"""`rfs doctor`: what this machine has, what is wrong with it, and what to do, in words."""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import requests
import torch

from reasoning_from_scratch import DISTRIBUTION
from reasoning_from_scratch.fast.decode_library import (
    FORMATS,
    NoLibrary,
    open_library,
    usable_library,
)
from reasoning_from_scratch.fast.device import (
    TITLES,
    is_available,
    parity_problem,
    resolve_device,
)
from reasoning_from_scratch.text import counted

GIB = 2**30
HOSTS = {
    "models": os.environ.get("HF_ENDPOINT", "https://huggingface.co"),
    "data sets": "https://raw.githubusercontent.com",
}


@dataclass
class Finding:
    """One thing that was looked at."""

    topic: str
    state: str  # "ok", "note" (works, but know this) or "problem"
    found: str
    advice: str = ""

    def __str__(self) -> str:
        lines = [f"{self.state:<8} {self.topic:<9} {self.found}"]
        return "\n".join(lines + ([f"{'':<18} -> {self.advice}"] if self.advice else []))


@dataclass
class DoctorOptions:
    """Options of `rfs doctor`."""

    network: bool = True
    """Also look whether the hosts of models and data sets can be reached (at most 6 s)."""


def doctor(options: DoctorOptions) -> int:
    """Prints all findings; exit code 1 if one of them is a problem."""
    checks = [check_versions, check_device, check_parity, check_dtype, check_memory, check_disk]
    checks += [check_compiler] + [check_network] * options.network
    findings = []
    for check in checks:
        for finding in check():
            findings.append(finding)
            print(finding, flush=True)
    problems = sum(finding.state == "problem" for finding in findings)
    found = f"{counted(problems, 'problem')} found" if problems else "Nothing stands in the way"
    print(f"\n{found}.")
    return int(problems > 0)


# --- the checks; each returns findings ---


def check_versions() -> list[Finding]:
    """Python and the torch build."""
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    if getattr(torch.version, "hip", None):
        build = f"ROCm {torch.version.hip}"
    found = f"Python {platform.python_version()}, torch {torch.__version__} ({build}),"
    findings = [Finding("versions", "ok", f"{found} {platform.system()} {platform.machine()}")]
    # This project had that name once, too; then the folder that it came from is noted beside it.
    others = distributions(name="reasoning-from-scratch")
    if not all(other.read_text("direct_url.json") for other in others):
        found = "the package of the book's author, which has the same import name, is here too"
        advice = "uv pip uninstall reasoning-from-scratch, then uv sync --reinstall-package"
        findings.append(Finding("versions", "problem", found, f"{advice} {DISTRIBUTION}"))
    return findings


def check_device() -> list[Finding]:
    """Which device is used; a GPU that the torch build cannot use is the usual trap."""
    kind = resolve_device().type
    if kind == "cuda":
        return [gpu_finding(index) for index in range(torch.cuda.device_count())]
    if kind != "cpu":
        return [Finding("device", "ok", TITLES[kind])]
    found = f"CPU, {torch.get_num_threads()} threads"
    if not nvidia_driver():
        return [Finding("device", "ok", f"{found}; enough for the tiny model, slow for 0.6B")]
    if torch.version.cuda is None:
        advice = (
            "install a CUDA build: take the line `find-links` out of ~/.config/uv/uv.toml, then"
        )
        advice += " uv sync --upgrade-package torch"
    else:
        advice = f"update the NVIDIA driver to one for CUDA {torch.version.cuda} or newer,"
        advice += " and see that CUDA_VISIBLE_DEVICES is not empty"
    return [Finding("device", "problem", "an NVIDIA GPU is here, but torch cannot use it", advice)]


def nvidia_driver() -> bool:
    """Whether an NVIDIA driver answers."""
    if shutil.which("nvidia-smi") is None:
        return False
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=10).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def gpu_finding(index: int) -> Finding:
    """One NVIDIA or AMD GPU: name, and whether this torch has kernels for it."""
    name = torch.cuda.get_device_name(index)
    if torch.version.cuda is None:
        return Finding("device", "ok", f"cuda:{index} {name}")
    major, minor = torch.cuda.get_device_capability(index)
    known = [arch.rstrip("af") for arch in torch.cuda.get_arch_list()]
    if covered(major, minor, known):
        return Finding("device", "ok", f"cuda:{index} {name}")
    found = f"cuda:{index} {name} (sm_{major}{minor}); torch has kernels for {', '.join(known)}"
    return Finding("device", "problem", found, "install another torch version or CUDA build")


def covered(major: int, minor: int, known: list[str]) -> bool:
    """Kernels run on their own major version from their minor on; sources compile for later."""
    for arch in known:
        kind, number = arch.split("_")
        built = divmod(int(number), 10)
        if kind == "sm" and built[0] == major and built[1] <= minor:
            return True
        if kind == "compute" and built <= (major, minor):
            return True
    return not known


def check_parity() -> list[Finding]:
    """A small model must compute the same on the device and on the CPU."""
    device = resolve_device()
    if device.type == "cpu":
        return []
    problem = parity_problem(device)
    if problem is None:
        return [Finding("parity", "ok", f"{device} computes what the CPU computes")]
    found = f"{device} does not compute what the CPU computes: {problem}"
    return [Finding("parity", "problem", found, "use --device cpu, or another torch version")]


def check_dtype() -> list[Finding]:
    """Whether bfloat16 helps here or hurts."""
    device = resolve_device()
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return [Finding("dtype", "ok", "bfloat16 in hardware")]
        advice = "use --dtype float32 (slower, but right)"
        return [Finding("dtype", "note", "this GPU only emulates bfloat16", advice)]
    try:
        slower = matmul_seconds(torch.bfloat16, device) / matmul_seconds(torch.float32, device)
    except (RuntimeError, TypeError):
        found = f"{TITLES[device.type]} has no bfloat16"
        return [Finding("dtype", "note", found, "use --dtype float32 (double the memory)")]
    if slower < 1.5:
        return [Finding("dtype", "ok", f"bfloat16 works, {1 / slower:.1f} times float32's speed")]
    found = f"bfloat16 is {slower:.1f} times slower than float32 here"
    return [Finding("dtype", "note", found, "use --dtype float32 if the memory allows it")]


def matmul_seconds(dtype: torch.dtype, device: torch.device) -> float:
    """The best of three products of 512 x 512 matrices."""
    matrix = torch.ones(512, 512, dtype=dtype, device=device)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        (matrix @ matrix).sum().item()  # item() waits for the device
        times.append(time.perf_counter() - start)
    return min(times)


def check_memory() -> list[Finding]:
    """Main memory and GPU memory, and what fits."""
    findings = []
    free = available_memory()
    if free is not None:
        fits = "" if is_available("cuda") else what_fits(free, "cpu")
        findings.append(Finding("memory", "ok", f"{free / GIB:.1f} GiB available", fits))
    if is_available("cuda"):
        free, total = torch.cuda.mem_get_info()
        found = f"GPU: {free / GIB:.1f} of {total / GIB:.1f} GiB free"
        taken = free < total / 2
        advice = "another process holds GPU memory; nvidia-smi shows which" if taken else ""
        state = "note" if taken else "ok"
        findings.append(Finding("memory", state, found, advice or what_fits(free, "cuda")))
    return findings


def what_fits(free: float, device: str) -> str:
    """What can be run in so much memory, roughly: see `rfs preflight` for a measurement."""
    if free < 1 * GIB:
        return "close other programs; the tiny model needs about 1 GiB"
    if free < 4 * GIB:
        return "enough for the tiny model; 0.6B needs about 4 GiB to answer, 13 GiB to train"
    if free < 13 * GIB:
        return "enough for answers by 0.6B and for training the tiny model; 0.6B trains in 13 GiB"
    speed = "" if device == "cuda" else " (slowly without a GPU)"
    return f"enough to train 0.6B{speed}"


def available_memory() -> float | None:
    """Bytes that can still be used, a container's limit respected; None where unknown."""
    amounts = []
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        rows = dict(line.split(":") for line in meminfo.read_text().splitlines())
        amounts.append(int(rows["MemAvailable"].split()[0]) * 1024)
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:  # macOS: all there is
        amounts.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        amounts.append(int(limit.read_text()) - int(used.read_text()))
    return min(amounts, default=None)


def check_disk() -> list[Finding]:
    """Room for models and checkpoints where the command runs."""
    free = shutil.disk_usage(".").free
    found = f"{free / GIB:.1f} GiB free in {Path.cwd()}"
    if free > 10 * GIB:
        return [Finding("disk", "ok", found)]
    advice = "a 0.6B checkpoint takes 1.5 GiB, 4.5 GiB with what is needed to resume"
    return [Finding("disk", "note" if free > GIB else "problem", found, advice)]


def check_compiler() -> list[Finding]:
    """What torch.compile needs, and sampling on a CPU uses where it is here."""
    for dtype in FORMATS:
        try:
            open_library(usable_library(dtype))
        except NoLibrary:  # perhaps remembered; a compiler may have been put right since
            try:
                open_library(usable_library(dtype, again=True))
            except NoLibrary as error:
                number_format = str(dtype).removeprefix("torch.")
                found = f"{error}" if dtype == torch.float32 else f"in {number_format}, {error}"
                return [Finding("compiler", "note", found, error.advice)]
    if Path(sysconfig.get_path("include"), "Python.h").exists():
        return [Finding("compiler", "ok", "decoding in C gives torch's logits")]
    found = "decoding in C gives torch's logits; Python's headers not found"
    return [Finding("compiler", "note", found, "only use_compile=True needs them (python3-dev)")]


def check_network() -> list[Finding]:
    """Whether downloads can work. Everything around the tiny model runs without."""
    return [reach(what, url) for what, url in HOSTS.items()]


def reach(what: str, url: str, head: Callable = requests.head) -> Finding:
    """One host, through the proxy that the environment names."""
    try:
        head(url, timeout=3)
        return Finding("network", "ok", f"{url} ({what}) answers")
    except requests.exceptions.SSLError:
        cause = "its certificate is refused: a proxy or antivirus may re-sign traffic"
        advice = "set REQUESTS_CA_BUNDLE to your organization's certificate file"
    except requests.exceptions.RequestException as error:
        cause = f"not reachable ({type(error).__name__})"
        advice = "fine for the tiny model; else set HTTPS_PROXY or HF_ENDPOINT (a mirror), or copy"
        advice += " the files by hand into the folder that the download names"
    return Finding("network", "note", f"{url} ({what}): {cause}", advice)


if __name__ == "__main__":
    sys.exit(doctor(DoctorOptions()))
