"""Ctrl-C: the first one ends the run where nothing is lost, the second one at once."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupts:
    """While entered, Ctrl-C raises KeyboardInterrupt, but never inside a `with held():` block.

    Sampling and evaluation change nothing and may end anywhere. An update, or the writing of
    its metrics, ends first.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.holding = False
        self.previous = None

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self.previous = signal.signal(signal.SIGINT, self.on_signal)
        return self

    def __exit__(self, *exception: object) -> None:
        if self.previous is not None:
            signal.signal(signal.SIGINT, self.previous)

    def on_signal(self, *_: object) -> None:
        self.asked += 1
        if self.asked > 1:
            sys.stderr.write("\nStopped at once. What was saved before is whole.\n")
            sys.stderr.flush()
            os._exit(130)
        sys.stderr.write("\nStopping; the work so far is saved first. Ctrl-C again: at once.\n")
        if not self.holding:
            raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        self.holding = True
        try:
            yield
        finally:
            self.holding = False
        if self.asked:
            raise KeyboardInterrupt
