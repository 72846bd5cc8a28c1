"""The one exception that means: the user can put this right."""


class UserError(Exception):
    """One line that says what was wrong and what to do; shown without a traceback."""
