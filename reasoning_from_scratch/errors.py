"""The one exception that means: the user can fix this."""

import difflib
from collections.abc import Iterable

from reasoning_from_scratch.text import one_line

MAX_CHARS = 2_000
MAX_LISTED = 20  # names; more are not worth reading after a suggestion


class UserError(Exception):
    """One line that says what was wrong and what to do; shown without a traceback.

    It may quote a file, which may contain anything, so terminal control codes are spelled out.
    """

    def __str__(self) -> str:
        return one_line(super().__str__(), MAX_CHARS)


class PromptTooLong(UserError):
    """The prompt fills the model's context, so there is no room for an answer."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Suggests the nearest known name, because most unknown names are typos."""
    known = list(known)
    guess = did_you_mean(name, known)
    listed = (
        f" Expected one of: {', '.join(known)}" if len(known) <= MAX_LISTED or not guess else ""
    )
    return UserError(f"unknown {kind} {name!r}{guess or '.'}{listed}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f": did you mean {near[0]!r}?" if near else ""


def check_names(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Refuses the first name that is unknown."""
    known = list(known)
    for name in names:
        if name not in known:
            raise unknown_name(kind, name, known)
