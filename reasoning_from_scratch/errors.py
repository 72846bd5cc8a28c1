"""The one exception that means: the user can fix this."""

import difflib
from collections.abc import Iterable

from reasoning_from_scratch.text import one_line

LONGEST = 2_000  # characters


class UserError(Exception):
    """One line that says what was wrong and what to do; shown without a traceback.

    It may quote a file, which may contain anything, so terminal control codes are spelled out.
    """

    def __str__(self) -> str:
        return one_line(super().__str__(), LONGEST)


class PromptTooLong(UserError):
    """The prompt fills the model's context, so there is no room for an answer."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Suggests the nearest known name, because most unknown names are typos."""
    known = list(known)
    near = difflib.get_close_matches(str(name), known, n=1)
    guess = f": did you mean {near[0]!r}?" if near else "."
    return UserError(f"unknown {kind} {name!r}{guess} Expected one of: {', '.join(known)}")
