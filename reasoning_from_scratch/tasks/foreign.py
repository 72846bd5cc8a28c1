"""Calls of code that is not ours: a reader's verifier, an environment, an evaluator.

Such code may raise anything, hang, or return an object that raises as soon as somebody looks at it.
So its result is also read in here, into plain numbers and texts, and under the same limit of time.
Whatever goes wrong is a failure in words. Only Ctrl-C passes through.
"""

import signal
import threading
from collections.abc import Callable
from typing import Any, TypeVar

LARGEST_REWARD = 1e18  # the square of a larger one is no number in float32
SECONDS_TO_SHOW = 1.0  # for an object to put itself into words

Read = TypeVar("Read")


class TooSlow(BaseException):
    """Not an Exception: a verifier's own `except Exception` must not catch its time limit."""


class Unfit(Exception):
    """What foreign code returned is not what was asked for; the text says why."""


def called(
    read: Callable[[Any], Read], seconds: float | None, function: Callable, *arguments: object
) -> tuple[Read | None, str]:
    """What the function returns, as `read` understands it, and "". If it fails: None, and how.
    `seconds` None: it may take as long as it likes."""

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
    except BaseException as error:  # SystemExit and asyncio's CancelledError are no Exceptions
        return None, f"raised {error_in_words(error)}"


def error_in_words(error: BaseException) -> str:
    """The kind of an error, and its message."""
    kind = in_words(type(error), lambda kind: kind.__name__)
    return f"{kind}: {in_words(error, str, 1_000)}"


def in_words(value: object, how: Callable[[Any], str] = repr, most: int = 80) -> str:
    """The first `most` characters of a foreign value's text, which may fail as well."""
    try:
        # A subclass of str may count or print itself wrongly: str.__str__ gives its real text.
        return with_limit(SECONDS_TO_SHOW, lambda: str.__str__(how(value))[:most])
    except KeyboardInterrupt:
        raise
    except BaseException:
        return "(it cannot be shown)"


# --- what may be expected of a result ---


def as_number(value: Any) -> float:
    """True and False are rewards too; so are the numbers of numpy and torch."""
    number = number_in(value)
    if number is None:
        raise Unfit(f"returned no finite number: {in_words(value)}")
    return number


def number_in(value: Any) -> float | None:
    """The finite number that a value is; None if it is none."""
    if isinstance(value, str | bytes):
        return None
    try:
        number = float(value)
    except Exception:  # of its own __float__, too
        return None
    return number if abs(number) <= LARGEST_REWARD else None


def numbers_in(value: Any) -> dict[str, float] | None:
    """The finite numbers of a dictionary by their names; None if it is none, or holds others."""
    if not isinstance(value, dict):
        return None
    found = {in_words(name, str): number_in(one) for name, one in dict.items(value)}
    numbers = {name: one for name, one in found.items() if one is not None}
    return numbers if len(numbers) == len(found) else None


# --- the limit of time ---


def with_limit(seconds: float, function: Callable, *arguments):
    """Call the function; TooSlow after `seconds`.

    A timer signal stops Python code, and C code that looks for signals (regular expressions,
    arithmetic with huge integers). It cannot stop C code that never looks. Only the main thread
    gets signals: where a sampler runs beside the trainer (scale/lag.py), and on Windows, the
    second way below has to do.
    """
    here = threading.current_thread() is threading.main_thread()
    if not (here and hasattr(signal, "setitimer")):
        return with_patience(seconds, function, *arguments)
    previous = signal.signal(signal.SIGALRM, stop)
    # Again and again: a bare `except:` in the function may swallow the first one.
    around = signal.setitimer(signal.ITIMER_REAL, seconds, seconds)  # of a limit around this one
    try:
        return function(*arguments)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        signal.setitimer(signal.ITIMER_REAL, *around)


def with_patience(seconds: float, function: Callable, *arguments):
    """The same without a signal. A slow call goes on in a thread that is left behind: it takes
    processor time, but nobody waits for it."""
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
