"""What every source of problems provides: problems, a held-out part, a check of the set's name.

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

HELD_OUT_SUFFIX = "@held-out"  # mine.jsonl@held-out: the tenth of mine.jsonl that is held out
MIN_HELD_OUT = 5  # an accuracy on fewer problems says nothing


class Source(ABC):
    """A set of problems with a name."""

    NAME_PATTERN: ClassVar[re.Pattern[str]]  # what the names of such sets look like
    LISTED_NAMES: ClassVar[Sequence[str]] = ()  # how the message about an unknown name lists them

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

    def absolute_name(self) -> str:
        """Its name for a process in another folder: a file's path becomes absolute."""
        return self.name

    # --- what is held out ---

    def held_out_name(self) -> str:
        """The set to evaluate on after training on this one: its counterpart, or a tenth of its
        own problems, which are then excluded from training."""
        return self.name + HELD_OUT_SUFFIX

    def is_too_small_to_split(self) -> bool:
        """Whether a tenth of it is too few to hold out. Then a model is evaluated on the problems
        that it is trained on."""
        return False

    def contains_held_out(self) -> bool:
        """Whether the problems of NAME@held-out are among these, so that training must omit
        them."""
        return True

    def held_out_problems(self, limit: int | None = None) -> list[Problem]:
        """The problems of NAME@held-out."""
        problems = self.problems()
        held_out_problems = split_off_held_out(problems)[1]
        if len(held_out_problems) < MIN_HELD_OUT:
            raise UserError(too_few_message(problems, self.name))
        return held_out_problems[:limit]


class FileSource(Source):
    """A set in one of the reader's files, which is read one problem at a time."""

    @abstractmethod
    def rows(self) -> Iterator[Problem]:
        """The problems, one at a time."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is something to read."""

    @property
    def shown_name(self) -> str:
        return self.short_name

    def absolute_name(self) -> str:
        return str(expand_home(self.name).resolve())

    def held_out_name(self) -> str:
        return self.name if self.is_too_small_to_split() else super().held_out_name()

    def is_too_small_to_split(self) -> bool:
        """Reads only as many problems as it takes to tell."""
        if not self.exists():
            return False
        held_out_problems = (problem for problem in self.rows() if is_held_out(problem))
        return len(list(islice(held_out_problems, MIN_HELD_OUT))) < MIN_HELD_OUT


def split_off_held_out(problems: Sequence[Problem]) -> tuple[list[Problem], list[Problem]]:
    """(problems to train on, held-out problems). One in ten is held out, chosen by its text alone,
    so that it stays on its side when problems are added and when a run is resumed."""
    sides: tuple[list[Problem], list[Problem]] = ([], [])
    for problem in problems:
        sides[is_held_out(problem)].append(problem)
    return sides


def is_held_out(problem: Problem) -> bool:
    """White space makes no difference."""
    return zlib.crc32(" ".join(problem.problem.split()).encode()) % 10 == 0


def all_held_out_message(problems: Sequence[Problem], name: str) -> str:
    return (
        f"a problem is kept aside by its text, and that would be all {len(problems)} of {name}: "
        f"measure on all of them, as {name}, or on other problems"
    )


def too_few_message(problems: Sequence[Problem], name: str) -> str:
    return (
        f"{name} has {counted(len(problems), 'problem')}, too few to keep a tenth aside, which "
        f"takes about {10 * MIN_HELD_OUT}: measure on all of them, as {name}, or on other "
        "problems"
    )
