"""decode.c and training.c as a library: compiled if there is a C compiler here, and kept in the
user's cache."""

import ctypes
import hashlib
import os
import platform
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from reasoning_from_scratch.files.disk import replacing, user_cache

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "decode.c"
OTHER_SOURCES = (FOLDER / "training.c", FOLDER / "numbers.h")
PORTABLE = ["-O3", "-std=gnu11"]


def native_flag() -> str:
    """All of this processor's instructions. For ARM, a Mac's compiler takes them by -mcpu."""
    return "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"


FLAGS = [*PORTABLE, native_flag(), "-shared", "-fPIC"]
FLAGS_BY_DTYPE = {torch.float32: [], torch.bfloat16: ["-DBFLOAT16"]}
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.int8: 0.1}  # of logits up to about 3
GET_A_COMPILER = (
    "install build-essential (Debian), gcc (Fedora) or Apple's command line tools, or name a "
    "compiler in CC"
)
ANOTHER_FOLDER = "set XDG_CACHE_HOME to a folder of yours"


class LibraryUnavailable(Exception):
    """Why this machine cannot decode in C, and what to do about it."""


def cached_library(
    dtype: torch.dtype,
    differences_from_torch: Callable[[ctypes.CDLL], Mapping[torch.dtype, float]],
) -> ctypes.CDLL:
    """The library for this processor. If it is not there yet, it is compiled and compared with
    torch, once in its number format and once in 8 bits."""
    command = [*compiler(), *FLAGS, *FLAGS_BY_DTYPE[dtype]]
    # Its logits were compared with those of this torch, so another version compares again.
    texts = [file.read_text() for file in (SOURCE, *OTHER_SOURCES)]
    inputs = [*texts, shlex.join(command), processor(), torch.__version__]
    name = hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:16]
    path = cache_folder() / f"decode-{name}.so"
    try:
        return open_library(path)
    except OSError:  # not there, or damaged
        pass
    try:
        with replacing(path) as new:  # so that nobody opens a partial library, or an incorrect one
            compile_to(new, command)
            library = open_library(new)
            for form, difference in differences_from_torch(library).items():
                if not difference <= TOLERANCE[form]:  # true for NaN, too
                    raise LibraryUnavailable(
                        f"it differs from torch by {difference:.1e}; try another compiler"
                        " (CC=clang)"
                    )
    except OSError as error:
        raise LibraryUnavailable(f"it cannot be kept: {error}; {ANOTHER_FOLDER}") from None
    return library


def open_library(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    integer, pointer = ctypes.c_int64, ctypes.c_void_p
    for pack in (library.pack, library.pack_int8):
        pack.argtypes = [pointer, integer, integer, pointer, integer, integer]
        pack.restype = None
    return library


def compile_to(library: Path, command: list[str]) -> None:
    sources = [str(file) for file in (SOURCE, *OTHER_SOURCES) if file.suffix == ".c"]
    command = [*command, f"-I{FOLDER}", *sources, "-o", str(library), "-lm", "-lpthread"]
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
        problem = "there is no C compiler" if missing else f"the C compiler does not start: {error}"
        raise LibraryUnavailable(f"{problem}; {GET_A_COMPILER}") from None
    except subprocess.CalledProcessError as error:
        message = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[0]
        raise LibraryUnavailable(
            f"the C compiler cannot compile it: {message}; {GET_A_COMPILER}"
        ) from None


def compiler() -> list[str]:
    command = os.environ.get("CC", "")
    try:
        return shlex.split(command) or ["cc"]
    except ValueError as error:
        problem = f"the compiler in CC, {command!r}, cannot be read as a command ({error})"
        raise LibraryUnavailable(f"{problem}; correct it, or unset CC to use cc") from None


def cache_folder() -> Path:
    try:
        return user_cache()
    except RuntimeError:
        problem = "there is no home folder to keep a compiled library in"
        raise LibraryUnavailable(f"{problem}; {ANOTHER_FOLDER}") from None


def processor() -> str:
    """What "native" means here: machines may share a home folder, or a new one may get it."""
    if platform.system() == "Darwin":
        name = ["sysctl", "-n", "machdep.cpu.brand_string"]  # such as Apple M2
        chip = subprocess.run(name, capture_output=True, text=True).stdout.strip()
        return f"{platform.machine()} {chip}"
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {platform.processor()} {flags}"
