"""How far something is: a bar that is redrawn where people see it, else a line now and then."""

import sys
import time
from typing import Any

from tqdm.auto import tqdm

from reasoning_from_scratch.text import interactive

SECONDS = 30.0  # between two lines


def counter(
    total: int | None, initial: int = 0, desc: str = "", quiet: bool = False, **bar: Any
) -> "tqdm | Lines":
    """Counts `update(n)` up to `total`, on stderr; `bar` goes to tqdm. Used as a context."""
    if interactive() or quiet:
        return tqdm(total=total, initial=initial, desc=desc, disable=quiet, **bar)
    return Lines(total, initial, desc, str(bar.get("unit", "")))


class Lines:
    """For a pipe or a file, where a bar drawn a hundred times would be a hundred bars."""

    def __init__(self, total: int | None, initial: int, desc: str, unit: str) -> None:
        self.total, self.n, self.desc, self.unit = total, initial, desc, unit
        self.started = self.said = time.monotonic()
        self.fresh = False  # nothing has been counted since the last line

    def update(self, count: int = 1) -> None:
        self.n += count
        self.fresh = True
        if time.monotonic() - self.said >= SECONDS:
            self.say()

    def say(self) -> None:
        self.said, self.fresh = time.monotonic(), False
        share = self.spelled(self.n) + (f" of {self.spelled(self.total)}" if self.total else "")
        seconds = self.said - self.started
        print(f"{self.desc}: {share}, {seconds:.0f} s", file=sys.stderr, flush=True)

    def spelled(self, number: int) -> str:
        return f"{number / 1e6:.1f} MB" if self.unit == "B" else f"{number}"

    def close(self) -> None:
        if self.fresh:
            self.say()

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
