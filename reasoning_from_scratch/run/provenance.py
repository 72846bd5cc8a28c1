"""Where a run comes from: versions, machine, and the code that was not committed."""

import os
import platform
import subprocess
from importlib.metadata import version

import torch


def job_name() -> str | None:
    """The torchrun that started this process: the same after it has restarted its ranks."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    return f"{platform.node()} {os.getppid()} {os.environ['TORCHELASTIC_RUN_ID']}"


def versions() -> dict[str, str | None]:
    return {
        "job": job_name(),
        "reasoning_from_scratch": version("reasoning-from-scratch"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "git": git("rev-parse", "HEAD"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    }


def code_diff() -> str:
    """`git diff HEAD` of the user's repository."""
    diff = git("diff", "HEAD")
    return "(not started inside a git repository with a commit)\n" if diff is None else diff


def git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, timeout=20, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
