"""One process at a time writes a run folder, and which one it is can be read in it."""

import os
import platform
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from reasoning_from_scratch.errors import UserError

LOCK_FILE, OWNER_FILE = ".run.lock", ".run.owner"


class FolderLock:
    """Held by the process that writes a run, until it closes the run or dies.

    The operating system frees the lock of a process that was killed. A network drive that knows no
    locks cannot: there filelock goes by whether the file .run.lock exists, and after a kill it is
    for the user to delete it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # One lock per folder and process: a notebook may begin again, though a run whose cell
        # was interrupted was never closed.
        self.lock = FileLock(folder.resolve() / LOCK_FILE, thread_local=False, is_singleton=True)

    def take(self) -> None:
        owner = self.folder / OWNER_FILE
        try:
            self.lock.acquire(timeout=0)
        except Timeout:
            name = owner.read_text(encoding="utf-8") if owner.exists() else "another process"
            raise UserError(
                f"{self.folder} is being written by {name}; wait for it, end it, or choose "
                "another --log-path"
            ) from None
        now = datetime.now().isoformat(sep=" ", timespec="seconds")
        owner.write_text(f"process {os.getpid()} on {platform.node()} (since {now})", "utf-8")

    def free(self) -> None:
        if self.lock.is_locked:
            with suppress(OSError):
                (self.folder / OWNER_FILE).unlink()
                (self.folder / LOCK_FILE).unlink()
            self.lock.release(force=True)
