"""Calls code that is not ours: a reader's verifier, an environment, an evaluator.

Such code may raise anything, hang, or return something other than a number. So its result is also
converted here, under the same time limit, and a failure is returned as a sentence. Only Ctrl-C
passes through.
"""

import math
import signal
import threading
from collections.abc import Callable
from typing import Any, TypeVar

LARGEST_REWARD = 1e18  # squares of much larger ones overflow float32

Converted = TypeVar("Converted")


class TooSlow(BaseException):
    """Not an Exception: a verifier's own `except Exception` must not catch its time limit."""


class InvalidResult(Exception):
    """Foreign code returned something that we cannot use. The message says why."""


def call_guarded(
    convert: Callable[[Any], Converted],
    seconds: float | None,
    function: Callable,
    *arguments: object,
) -> tuple[Converted | None, str]:
    """(the function's result, converted by `convert`, ""), or (None, a sentence) if it fails. With
    `seconds` None there is no time limit."""

    def call() -> Converted:
        return convert(function(*arguments))

    try:
        return call() if seconds is None else call_with_limit(seconds, call), ""
    except TooSlow:
        return None, f"took longer than {seconds:g} s"
    except InvalidResult as invalid:
        return None, str(invalid)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit and CancelledError are not Exceptions
        return None, f"raised {describe_error(error)}"


def describe_error(error: BaseException) -> str:
    """The class of an error, and its message."""
    try:
        message = str(error)[:1000]
    except Exception:  # an error may fail to print itself
        message = "(it cannot be shown)"
    return f"{type(error).__name__}: {message}"


def short_repr(value: object) -> str:
    """A value as a message shows it, in one line."""
    return repr(value)[:80]


# --- reading a result ---


def as_number(value: Any) -> float:
    """The value as a finite number. True, False and the numbers of numpy and torch count, too."""
    number = finite_number(value)
    if number is None:
        raise InvalidResult(f"returned no finite number: {short_repr(value)}")
    return number


def finite_number(value: Any) -> float | None:
    """The value as a finite number; None if it is not one."""
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # of torch: a tensor of several
        return None
    return number if abs(number) <= LARGEST_REWARD else None


def finite_numbers(value: Any) -> dict[str, float] | None:
    """A dictionary's finite numbers by name; None if it is no dictionary or has other values."""
    if not isinstance(value, dict):
        return None
    numbers = {str(name): finite_number(item) for name, item in value.items()}
    finite = {name: number for name, number in numbers.items() if number is not None}
    return finite if len(finite) == len(numbers) else None


# --- the time limit ---


def call_with_limit(seconds: float, function: Callable, *arguments):
    """Call the function; TooSlow after `seconds`.

    A timer signal stops Python code, and C code that checks for signals (regular expressions,
    arithmetic with huge integers). It cannot stop C code that never checks. Only the main thread
    gets signals. In other threads (a sampler beside the trainer, scale/lag.py) and on Windows,
    `call_in_thread` has to do.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not (in_main_thread and hasattr(signal, "setitimer")):
        return call_in_thread(seconds, function, *arguments)
    previous_handler = signal.signal(signal.SIGALRM, raise_too_slow)
    # Repeated, because a bare `except:` in the function may swallow the first signal.
    enclosing_timer = signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        return function(*arguments)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler)
        signal.setitimer(signal.ITIMER_REAL, *enclosing_timer)


def call_in_thread(seconds: float, function: Callable, *arguments):
    """The same without a signal. A slow call keeps running in an abandoned thread: it takes
    processor time, but nothing waits for it."""
    outcome: list[tuple[Any, BaseException | None]] = []

    def call() -> None:
        try:
            outcome.append((function(*arguments), None))
        except BaseException as error:  # raised below, where the caller can see it
            outcome.append((None, error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise TooSlow
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


def raise_too_slow(*_: object) -> None:
    raise TooSlow
