"""Your own task: problems and a verifier from a Python file, and what keeps a run safe from it.

    rfs train --problems my_task.py:problems --reward my_task.py:reward

A verifier that raises, answers something else than a number or takes too long is reported with
its problem and the answer, counts as 0, and the run goes on. The file itself is your program:
nothing keeps it from what a program may do.
"""

import importlib.util
import logging
import signal
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.safe_text import one_line, visible

REWARD_SECONDS = 5.0  # for one call of a verifier
LARGEST_REWARD = 1e18  # the square of a larger one is no number in float32
REPORTED = 10  # failures told in full; the rest shows in env/all/reward_failed
SHOWN = 300  # characters of a problem or answer in such a report

log = logging.getLogger("reasoning_from_scratch")


def is_own(name: str | None) -> bool:
    """Whether a name is FILE.py:FUNCTION."""
    return bool(name) and ".py:" in name


@lru_cache(maxsize=16)
def own_function(name: str) -> Callable:
    """The function that FILE.py:FUNCTION names."""
    path, _, function = name.rpartition(":")
    if not is_own(name) or not function:
        raise UserError(f"{name!r} is not FILE.py:FUNCTION, as in my_task.py:reward")
    if not Path(path).is_file():
        raise UserError(f"there is no file {path}; give its path, as in ch07/my_task.py:{function}")
    found = getattr(run_file(path), function, None)
    if not callable(found):
        raise UserError(f"{path} defines no function {function!r}")
    return found


@lru_cache(maxsize=16)
def run_file(path: str):
    """The module in a file; one line that says where it fails."""
    spec = importlib.util.spec_from_file_location(f"own_{Path(path).stem}", path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{path} does not run: {type(error).__name__}: {error}") from error
    return module


class TooSlow(BaseException):
    """Not an Exception: a verifier's own `except Exception` must not catch its time limit."""


class Verifier:
    """reward(text, problem) of the reader, called so that nothing it does ends the run."""

    def __init__(self, function: Callable, seconds: float = REWARD_SECONDS) -> None:
        self.function, self.seconds, self.failures = function, seconds, 0

    def __call__(self, text: str, problem) -> tuple[float, bool]:
        """The reward, and whether the verifier failed (its reward is 0 then)."""
        try:
            value = with_limit(self.seconds, self.function, text, problem)
        except TooSlow:
            why = f"took longer than {self.seconds:g} s"
        except (Exception, SystemExit) as error:
            why = f"raised {type(error).__name__}: {error}"
        else:
            if is_number(value):
                return float(value), False
            why = f"returned {value!r:.80}, which is not a finite number"
        self.report(why, text, problem)
        return 0.0, True

    def value(self, text: str, problem) -> float:
        """The reward alone."""
        return self(text, problem)[0]

    def report(self, why: str, text: str, problem) -> None:
        self.failures += 1
        if self.failures <= REPORTED:
            last = "; further failures are only counted" if self.failures == REPORTED else ""
            log.warning(
                "the reward function %s, so this rollout gets 0. Problem %s: %s Answer: %s%s",
                one_line(why, SHOWN), one_line(problem.id, SHOWN), shown(problem.problem),
                shown(text), last,
            )  # fmt: skip


@lru_cache(maxsize=16)
def own_verifier(name: str) -> Verifier:
    """The verifier that --reward names; the same one for a whole run, so that it can count."""
    return Verifier(own_function(name))


def shown(text: str) -> str:
    cut = f"... ({len(text):,} characters)" if len(text) > SHOWN else ""
    return repr(visible(text[:SHOWN])) + cut


def is_number(value: object) -> bool:
    """True and False are rewards too; so are the numbers of numpy and torch."""
    if isinstance(value, str | bytes):
        return False
    try:
        return abs(float(value)) <= LARGEST_REWARD
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return False


def with_limit(seconds: float, function: Callable, *arguments):
    """Call the function; TooSlow after `seconds`.

    A timer signal stops Python code, and C code that looks for signals (regular expressions,
    arithmetic with huge integers). It cannot stop C code that never looks. On Windows and
    outside of the main thread there are no timer signals.
    """
    here = threading.current_thread() is threading.main_thread()
    if not (here and hasattr(signal, "setitimer")):
        return with_patience(seconds, function, *arguments)
    previous = signal.signal(signal.SIGALRM, stop)
    # Again and again: a bare `except:` in the function may swallow the first one.
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        return function(*arguments)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def with_patience(seconds: float, function: Callable, *arguments):
    """The same without a signal: a call that takes too long goes on in a thread that is left
    behind, since nothing ends a thread from outside. It costs time, but nobody waits for it."""
    ended = []

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
