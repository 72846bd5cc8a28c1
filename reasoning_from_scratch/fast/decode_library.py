"""The compiled decode.c: made if this machine has a C compiler, tried out, and kept.

A library that is damaged, or that the compiler got wrong, may kill the process that opens it. So
each is tried out once, in a separate process. A file next to it in the cache folder records its
checksum and the result of the trial; a library is opened here only if it passed and is unchanged.
"""

import ctypes
import hashlib
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import torch

from reasoning_from_scratch.files.disk import user_cache
from reasoning_from_scratch.text import read_values

SOURCE = Path(__file__).with_name("decode.c")
FLAGS = ["-O3", "-march=native", "-std=gnu11", "-shared", "-fPIC"]
FORMATS = {torch.float32: [], torch.bfloat16: ["-DBFLOAT16"]}
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1}  # of logits up to about 3
TRIAL = (
    "import sys; from reasoning_from_scratch.fast.decoding import try_out; try_out(*sys.argv[1:])"
)
TRIAL_SECONDS = 100  # it takes 2, nearly all of them to import torch

GET_A_COMPILER = (
    "all works without it, but sampling on a CPU is slower; install build-essential (Debian), gcc "
    "(Fedora) or Apple's command line tools, or name a compiler in CC"
)
ANOTHER_COMPILER = "try another compiler (CC=clang); until then torch decodes"
ANOTHER_FOLDER = "set XDG_CACHE_HOME to a folder of yours"


class NoLibrary(Exception):
    """Why this machine does not decode in C, and what to do about it."""

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(found)
        self.advice = advice


@cache
def load_library(dtype: torch.dtype) -> ctypes.CDLL | None:
    """The library, or None if there is none that computes what torch does; see `rfs doctor`."""
    try:
        return open_library(usable_library(dtype))
    except NoLibrary:
        return None


def open_library(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise NoLibrary(f"the library cannot be opened: {error}", ANOTHER_FOLDER) from None
    integer, pointer = ctypes.c_int64, ctypes.c_void_p
    library.pack.argtypes = [pointer, integer, integer, pointer, integer, integer]
    library.pack.restype = None
    return library


def usable_library(dtype: torch.dtype, flags: list[str] = FLAGS, again: bool = False) -> Path:
    """The library for this processor, which has passed its trial. A failure is remembered, too, or
    each start would try it again; `again` does so anyway."""
    command = [*compiler(), *flags, *FORMATS[dtype]]
    # Its logits were compared with those of this torch, so another version needs another trial.
    made_from = [SOURCE.read_text(), shlex.join(command), processor(), torch.__version__]
    name = hashlib.sha256("\n".join(made_from).encode()).hexdigest()[:16]
    library = cache_folder() / f"decode-{name}.so"
    try:
        problem = None if again else known_problem(library)
        if problem is None:
            problem = compile_and_try_out(command, library, dtype)
    except OSError as error:
        raise NoLibrary(f"the library cannot be saved: {error}", ANOTHER_FOLDER) from None
    if problem:
        raise NoLibrary(problem, ANOTHER_COMPILER)
    return library


def known_problem(library: Path) -> str | None:
    """What the trial of exactly this file found ("": nothing wrong); None: it had no trial."""
    record = read_values(record_of(library))
    known = library.exists() and record.get("sha256") == checksum(library)
    return str(record.get("problem", "")) if known else None


def record_of(library: Path) -> Path:
    return library.with_suffix(".json")


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def compile_and_try_out(command: list[str], library: Path, dtype: torch.dtype) -> str:
    """In a temporary folder first, so that nobody opens half a library or an untested one."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        new = Path(scratch, library.name)
        compile_to(new, command)
        record = {"sha256": checksum(new), "problem": trial(new, dtype)}
        record_of(new).write_text(json.dumps(record))
        new.replace(library)
        record_of(new).replace(record_of(library))
    return record["problem"]


def compile_to(library: Path, command: list[str]) -> None:
    command = [*command, str(SOURCE), "-o", str(library), "-lm", "-lpthread"]
    try:
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        found = "no C compiler found" if missing else f"the C compiler does not start: {error}"
        raise NoLibrary(found, GET_A_COMPILER) from None
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[0]
        raise NoLibrary(f"the C compiler cannot compile: {said}", GET_A_COMPILER) from None
    if not library.exists():
        raise NoLibrary("the C compiler has compiled nothing", GET_A_COMPILER)


def trial(library: Path, dtype: torch.dtype) -> str:
    """What is wrong with a library; "" if it computes what torch does. It runs in a separate
    process, which it may kill."""
    # The same modules as here, but from an empty folder: no file of the user's may replace one.
    modules = os.pathsep.join(map(os.path.abspath, sys.path))
    name = str(dtype).removeprefix("torch.")
    try:
        ended = subprocess.run(
            [sys.executable, "-c", TRIAL, str(library), name],
            cwd=library.parent,
            env=os.environ | {"PYTHONPATH": modules},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TRIAL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"decoding in C does not end within {TRIAL_SECONDS} s, so it is not used"
    if ended.returncode < 0:
        return f"decoding in C crashes ({signal.strsignal(-ended.returncode)}), so it is not used"
    if ended.returncode:
        said = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        return f"decoding in C fails, so it is not used: {said}"
    difference = float(ended.stdout)
    if difference <= TOLERANCE[dtype]:  # false for NaN, too
        return ""
    return f"decoding in C differs from torch by {difference:.1e}, so it is not used"


def compiler() -> list[str]:
    named = os.environ.get("CC", "")
    try:
        return shlex.split(named) or ["cc"]
    except ValueError as error:
        found = f"the compiler in CC, {named!r}, cannot be read as a command ({error})"
        raise NoLibrary(found, "correct it, or unset CC to use cc") from None


def cache_folder() -> Path:
    try:
        return user_cache()
    except RuntimeError:
        found = "there is no home folder to keep a compiled library in"
        raise NoLibrary(found, ANOTHER_FOLDER) from None


def processor() -> str:
    """What -march=native depends on: a home folder may be shared by many machines."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {platform.processor()} {flags}"
