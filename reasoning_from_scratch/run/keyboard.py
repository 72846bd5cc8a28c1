"""Ctrl-C in a command's first seconds: held back until the current import is finished.

torch cannot take a KeyboardInterrupt while it imports numpy. It swallows it and continues without
numpy, so the command either never learns that it should stop or fails when it next needs numpy.
"""

import _thread
import dataclasses
import os
import signal
import sys
import threading
import time
from types import FrameType

# Python's own import machinery; and dataclasses, since up to Python 3.11 a KeyboardInterrupt while
# a dataclass is being made becomes a RuntimeError.
UNDISTURBED = ("<frozen importlib._bootstrap>", dataclasses.__file__)

kept = threading.Event()  # a Ctrl-C that waits for the end of an import


def mind_the_keyboard() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt as usual, but never within an import. If it is
    ignored, as in a script's background job, or handled by somebody else, that stays so."""
    here = threading.current_thread() is threading.main_thread()
    if here and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, on_interrupt)


def on_interrupt(number: int, frame: FrameType | None) -> None:
    if not importing(frame):
        raise KeyboardInterrupt
    if kept.is_set():  # a second Ctrl-C: there is nothing to save yet
        os.write(2, b"\ninterrupted\n")
        os._exit(130)
    kept.set()
    threading.Thread(target=interrupt_after_import, daemon=True).start()


def importing(frame: FrameType | None) -> bool:
    """Whether Python's importer is among the callers of `frame`."""
    while frame is not None and frame.f_code.co_filename not in UNDISTURBED:
        frame = frame.f_back
    return frame is not None


def interrupt_after_import() -> None:
    main = threading.main_thread().ident
    while importing(sys._current_frames()[main]):
        time.sleep(0.02)
    kept.clear()  # the next import may have begun by now: then it is kept once more
    _thread.interrupt_main()
