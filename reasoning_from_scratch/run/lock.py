"""One process at a time writes a run folder, and which one it is can be read in it."""

import json
import os
import platform
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from reasoning_from_scratch.errors import UserError

LOCK_FILE, OWNER_FILE = ".run.lock", ".run.owner"

# What this process holds. A cell that was interrupted may have left its run without an end.
HELD: dict[Path, "FolderLock"] = {}


class FolderLock:
    """Taken by the process that writes a run; the operating system frees a dead one's."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.owner = folder, folder / OWNER_FILE
        self.lock = FileLock(folder / LOCK_FILE, thread_local=False)
        self.words = ""  # what stands in the owner file while the folder is ours

    def take(self) -> None:
        key = self.folder.resolve()
        if HELD.get(key) is self:
            return
        if key in HELD:
            HELD[key].free()
        try:
            self.lock.acquire(timeout=0)
        except (Timeout, NotImplementedError):  # held, or a file system that has no locks
            self.refuse_if_alive()
        now = datetime.now().isoformat(sep=" ", timespec="seconds")
        self.words = json.dumps({"pid": os.getpid(), "host": platform.node(), "since": now})
        self.owner.write_text(self.words, encoding="utf-8")
        HELD[key] = self

    def refuse_if_alive(self) -> None:
        pid, host, since = read_owner(self.owner)
        if host == platform.node() and not alive(pid):
            return  # its lock outlived it, as those that are only a file do
        raise UserError(
            f"{self.folder} is being written by process {pid} on {host} (since {since})"
            "; wait for it, end it, or choose another --log-path"
        )

    def check(self) -> None:
        """Between two steps: is the folder still there, and still ours?"""
        if not self.words:
            return
        if not (self.folder / "config.json").exists():
            raise UserError(
                f"{self.folder} was deleted or renamed while the run was writing to it, so the run "
                "ends; if it was renamed, --resume with its new name goes on from its last save"
            )
        found = read_owner(self.owner)
        if found != read_words(self.words) and found[0]:
            raise UserError(
                f"{self.folder} was deleted, and process {found[0]} on {found[1]} "
                "writes another run there; this one ends"
            )

    def free(self) -> None:
        HELD.pop(self.folder.resolve(), None)
        if not self.words:
            return
        if read_owner(self.owner) == read_words(self.words):
            with suppress(OSError):
                self.owner.unlink()
                (self.folder / LOCK_FILE).unlink()
        self.words = ""
        with suppress(OSError):
            self.lock.release()


def read_owner(path: Path) -> tuple[int, str, str]:
    """Process, machine and time; 0 and question marks where nothing can be read."""
    try:
        return read_words(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError):
        return 0, "?", "?"


def read_words(words: str) -> tuple[int, str, str]:
    values = json.loads(words)
    return int(values["pid"]), str(values["host"]), str(values["since"])


def alive(pid: int) -> bool:
    """On Windows, where asking would be a signal, every process counts as alive."""
    if os.name == "nt" or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # alive, and somebody else's
    return True
