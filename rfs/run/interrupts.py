"""Ctrl-C, a batch system's SIGTERM, a closed terminal: the run saves first, then ends."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rfs.report.progress import mute_console, write_to_terminal


class Interrupts:
    """Inside this context, these signals raise KeyboardInterrupt wherever the run `may_stop`.

    Sampling, evaluation and the gradient change nothing and may stop anywhere: their step is run
    again. From the first change of the weights until the metrics are written, the step finishes
    first; then the run looks at `received` itself.

    A second Ctrl-C ends the process immediately. SIGTERM and SIGHUP end it when everything is
    saved, with the exit code that shells use for them, 128 + the signal's number. Repeating them
    changes nothing, because batch systems and process groups deliver them twice.

    With `several_ranks`, no rank may leave the others waiting: a signal raises only inside
    `interruptible()`, where the ranks agree on how the run continues.
    """

    def __init__(
        self,
        several_ranks: bool = False,
        quiet: bool = False,
        may_stop: Callable[[], bool] = lambda: True,
    ) -> None:
        self.received = 0  # the signal's number; 0 until one comes
        self.several_ranks, self.quiet, self.may_stop = several_ranks, quiet, may_stop
        self.may_raise = not several_ranks
        self.previous_handlers: dict[int, Callable | int | None] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in handled_signals():
                self.previous_handlers[number] = signal.signal(number, self.on_signal)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.previous_handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if self.received not in (0, signal.SIGINT):
            raise SystemExit(128 + self.received)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        is_first, self.received = not self.received, number
        if not is_first:
            if number == signal.SIGINT:
                write_to_terminal("Stopped immediately. Earlier saves are complete.")
                os._exit(130)
            return
        if number not in (signal.SIGINT, signal.SIGTERM):
            mute_console()  # closed with its terminal: every further word would be an error
        elif number == signal.SIGINT and not self.quiet:
            write_to_terminal("Saving, then stopping. Press Ctrl-C again to stop immediately.")
        elif not self.several_ranks:  # torchrun sends it too when a rank died: nothing to save
            write_to_terminal("Received SIGTERM: saving the work so far, then ending.")
        if self.may_raise and self.may_stop():
            raise KeyboardInterrupt

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Wraps work of one rank that the others wait for and that may stop anywhere."""
        before, self.may_raise = self.may_raise, True
        try:
            if self.received and self.may_stop():
                raise KeyboardInterrupt
            yield
        finally:
            self.may_raise = before


def handled_signals() -> list[int]:
    """Not SIGHUP if `nohup` has switched it off or there is none (Windows)."""
    numbers: list[int] = [signal.SIGINT, signal.SIGTERM]
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:
        numbers.append(hangup)
    return numbers
