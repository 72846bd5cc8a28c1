"""Writing so that a crash, a full disk or a power cut never leaves half a file behind."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reasoning_from_scratch.errors import UserError


def user_cache() -> Path:
    """The folder for files that can be made again. RuntimeError if there is no home folder."""
    configured = os.environ.get("XDG_CACHE_HOME")
    folder = Path(configured) if configured else Path.home() / ".cache"
    return folder.absolute() / "reasoning_from_scratch"


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary name beside `path` that takes its place if the block succeeds.

    So a crash, a full disk or Ctrl-C leaves the old file or the new one, never half of one.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode  # safetensors would let nobody but the owner read
        yield temporary
        os.chmod(temporary, mode)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except Exception as error:
        number = re.search(r"\((?:os error |Os { code: )(\d+)", str(error))
        if number and not isinstance(error, OSError):  # a full disk, reported by a library in Rust
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def disk_errors_as(what: str, advice: str) -> Iterator[None]:
    """Turns an error of the disk into a sentence for the user: "{what}: {why}; {advice}"."""
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        if isinstance(error, FileExistsError):  # a folder was to be made there
            why = f"{error.filename} is not a folder"
        raise UserError(f"{what}: {why}; {advice}") from error


def write_atomically(path: Path, text: str) -> None:
    """Replace a file in one step: readers see the old contents or the new, never a part."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in this folder durable (a no-op where folders cannot be opened)."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some network file systems refuse; the rename itself is still atomic
    finally:
        os.close(descriptor)
