"""Calls code that is not ours: a reader's verifier, an environment, an evaluator.

Such code may raise anything, hang, or return something else than a number. So its result is also
read in here, under the same time limit, and whatever goes wrong is reported in words. Only Ctrl-C
passes through.
"""

import math
import signal
import threading
from collections.abc import Callable
from typing import Any, TypeVar

LARGEST_REWARD = 1e18  # squares of much larger ones overflow float32

Read = TypeVar("Read")


class TooSlow(BaseException):
    """Not an Exception: a verifier's own `except Exception` must not catch its time limit."""


class Unfit(Exception):
    """Foreign code returned something that we cannot use; the message says why."""


def called(
    read: Callable[[Any], Read], seconds: float | None, function: Callable, *arguments: object
) -> tuple[Read | None, str]:
    """(the function's result, converted by `read`, ""), or (None, what went wrong) if it fails.
    With `seconds` None there is no time limit."""

    def call() -> Read:
        return read(function(*arguments))

    try:
        return call() if seconds is None else with_limit(seconds, call), ""
    except TooSlow:
        return None, f"took longer than {seconds:g} s"
    except Unfit as unfit:
        return None, str(unfit)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit and CancelledError are not Exceptions
        return None, f"raised {error_in_words(error)}"


def error_in_words(error: BaseException) -> str:
    """The kind of an error, and its message."""
    try:
        said = str(error)[:1000]
    except Exception:  # an error may fail to print itself
        said = "(it cannot be shown)"
    return f"{type(error).__name__}: {said}"


def in_words(value: object) -> str:
    """A value as a message shows it, which has room for a line."""
    return repr(value)[:80]


# --- reading a result ---


def as_number(value: Any) -> float:
    """The value as a finite number. True, False and the numbers of numpy and torch count, too."""
    number = number_in(value)
    if number is None:
        raise Unfit(f"returned no finite number: {in_words(value)}")
    return number


def number_in(value: Any) -> float | None:
    """The value as a finite number; None if it is not one."""
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # of torch: a tensor of several
        return None
    return number if abs(number) <= LARGEST_REWARD else None


def numbers_in(value: Any) -> dict[str, float] | None:
    """A dictionary's finite numbers by name; None if it is no dictionary or has other values."""
    if not isinstance(value, dict):
        return None
    read = {str(name): number_in(one) for name, one in value.items()}
    numbers = {name: one for name, one in read.items() if one is not None}
    return numbers if len(numbers) == len(read) else None


# --- the time limit ---


def with_limit(seconds: float, function: Callable, *arguments):
    """Call the function; TooSlow after `seconds`.

    A timer signal stops Python code, and C code that checks for signals (regular expressions,
    arithmetic with huge integers). It cannot stop C code that never checks. Only the main thread
    gets signals. In other threads (a sampler beside the trainer, scale/lag.py) and on Windows,
    `with_patience` has to do.
    """
    here = threading.current_thread() is threading.main_thread()
    if not (here and hasattr(signal, "setitimer")):
        return with_patience(seconds, function, *arguments)
    previous = signal.signal(signal.SIGALRM, stop)
    # Repeated, because a bare `except:` in the function may swallow the first signal.
    around = signal.setitimer(signal.ITIMER_REAL, seconds, seconds)  # an enclosing limit's timer
    try:
        return function(*arguments)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        signal.setitimer(signal.ITIMER_REAL, *around)


def with_patience(seconds: float, function: Callable, *arguments):
    """The same without a signal. A slow call keeps running in an abandoned thread: it takes
    processor time, but nothing waits for it."""
    ended: list[tuple[Any, BaseException | None]] = []

    def call() -> None:
        try:
            ended.append((function(*arguments), None))
        except BaseException as error:  # raised below, where the caller can see it
            ended.append((None, error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    if not ended:
        raise TooSlow
    value, error = ended[0]
    if error is not None:
        raise error
    return value


def stop(*_: object) -> None:
    raise TooSlow
