"""The one exception that means: the user can put this right."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """One line that says what was wrong and what to do; shown without a traceback."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Names the nearest known name, because most unknown names are typing errors."""
    known = list(known)
    near = difflib.get_close_matches(str(name), known, n=1)
    guess = f": did you mean {near[0]!r}?" if near else "."
    return UserError(f"unknown {kind} {name!r}{guess} Expected one of: {', '.join(known)}")
