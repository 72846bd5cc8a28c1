"""What every source of problems answers: its problems, what it holds out, whether a name is right.

A source is a class, and a set is an object of it, made from the set's name. A new source is a
class in a file of its own and a row in SOURCES (problem_sets.py); whoever has a name asks
`source_of(name)` there, and then the methods below.
"""

import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.text import counted, expand_home

AT_HELD_OUT = "@held-out"  # mine.jsonl@held-out: the tenth of mine.jsonl that is kept aside
LEAST_HELD_OUT = 5  # an accuracy on fewer problems says nothing


class Source(ABC):
    """A set of problems with a name."""

    FORM: ClassVar[re.Pattern[str]]  # what the names of such sets look like
    KNOWN: ClassVar[Sequence[str]] = ()  # how the message about an unknown name lists them

    # The problems of some sources are judged by rules of their own, by `score`, and not by the
    # grader. Such a problem has this word in its field `rules`, and what `score` needs as plain
    # text in `facts`, so it can be sent to another process and judged there.
    rules: ClassVar[str] = ""

    takes_data_path: bool = False  # whether --data-path may name a file to read instead

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def problems(self, limit: int | None = None) -> list[Problem]:
        """All problems, or the first of them."""

    @staticmethod
    def score(text: str, problem: Problem) -> float:
        """The reward of an answer by the source's own rules, from 0 to 1; 1 is correct."""
        raise NotImplementedError

    def check(self) -> None:
        """Refuses a mistake that can be seen before a model is loaded: in the name, in the first
        rows of a file. What would take long, such as a download, is left for later."""
        self.problems(limit=1)

    @property
    def short_name(self) -> str:
        """What the set is called in metrics and pages: for a file, its name without the folder."""
        return Path(self.name).name

    @property
    def shown_name(self) -> str:
        """Its name for people on other machines."""
        return self.name

    def located(self) -> str:
        """Its name for a process in another folder: that of a file becomes absolute."""
        return self.name

    # --- what is held out ---

    def held_out(self) -> str:
        """The set to evaluate on after training on this one: its counterpart, or a tenth of its
        own problems, which are then excluded from training."""
        return self.name + AT_HELD_OUT

    def has_too_few(self) -> bool:
        """Whether it is too small to keep a tenth aside. Then it is measured on the problems that
        it trains on."""
        return False

    def holds_held_out(self) -> bool:
        """Whether the problems of NAME@held-out are among these, so that training must omit
        them."""
        return True

    def aside(self, limit: int | None = None) -> list[Problem]:
        """The problems of NAME@held-out."""
        whole = self.problems()
        aside = kept_apart(whole)[1]
        if len(aside) < LEAST_HELD_OUT:
            raise UserError(too_few(whole, self.name))
        return aside[:limit]


class OwnSource(Source):
    """A set in a file of the reader's own, which is read one problem at a time."""

    @abstractmethod
    def rows(self) -> Iterator[Problem]:
        """The problems, one at a time."""

    @abstractmethod
    def is_there(self) -> bool:
        """Whether there is something to read."""

    @property
    def shown_name(self) -> str:
        return self.short_name

    def located(self) -> str:
        return str(expand_home(self.name).resolve())

    def held_out(self) -> str:
        return self.name if self.has_too_few() else super().held_out()

    def has_too_few(self) -> bool:
        """Reads only as many problems as it takes to know."""
        if not self.is_there():
            return False
        aside = (problem for problem in self.rows() if is_kept_apart(problem))
        return len(list(islice(aside, LEAST_HELD_OUT))) < LEAST_HELD_OUT


def kept_apart(problems: Sequence[Problem]) -> tuple[list[Problem], list[Problem]]:
    """(problems to train on, problems to keep aside). One in ten is kept aside, chosen by its text
    alone, so that it stays on its side when problems are added and when a run is resumed."""
    sides: tuple[list[Problem], list[Problem]] = ([], [])
    for problem in problems:
        sides[is_kept_apart(problem)].append(problem)
    return sides


def is_kept_apart(problem: Problem) -> bool:
    """White space makes no difference."""
    return zlib.crc32(" ".join(problem.problem.split()).encode()) % 10 == 0


def too_equal(problems: Sequence[Problem], name: str) -> str:
    return (
        f"a problem is kept aside by its text, and that would be all {len(problems)} of {name}: "
        f"measure on all of them, as {name}, or on other problems"
    )


def too_few(problems: Sequence[Problem], name: str) -> str:
    return (
        f"{name} has {counted(len(problems), 'problem')}, too few to keep a tenth aside, which "
        f"takes about {10 * LEAST_HELD_OUT}: measure on all of them, as {name}, or on other "
        "problems"
    )
