"""Where problems come from: SOURCES has a row for each kind of set, and `source_of` finds it.

source.py says what a source answers. Here are the sets of the chapters, and files.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from reasoning_from_scratch import problem_sets
from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.problem_sets import (
    FILES,
    GUESS,
    PROBLEM_SETS,
    problems_in,
    read_problems,
)
from reasoning_from_scratch.problems import Problem, refuse_bare_file
from rfs.tasks.gym_tasks import GymTask
from rfs.tasks.hub_sets import HubSet
from rfs.tasks.instructions import Instructions
from rfs.tasks.own_problems import OwnProblems
from rfs.tasks.own_task import forget_changed_files
from rfs.tasks.source import AT_HELD_OUT, LEAST_HELD_OUT, OwnSource, Source, kept_apart

HELD_OUT = {
    "tiny": "tiny-test",
    "tiny-longer-train": "tiny-longer",
    GUESS: GUESS,  # all its problems have the same text, so there is nothing to memorize
    "math-train": "math-500",
    "gsm8k": "gsm8k-test",
}
TRIED = 16  # rows of a file that are read before a model is loaded


class ChapterSet(Source):
    """A set that the chapters use: the tiny world, guessing, MATH, GSM8K. With a `data_path` that
    file is read instead, and the name is only a name."""

    FORM = re.compile("|".join(map(re.escape, PROBLEM_SETS)))
    KNOWN = PROBLEM_SETS
    takes_data_path = True

    def __init__(self, name: str, data_path: str | Path | None = None) -> None:
        super().__init__(name)
        self.data_path = data_path

    def problems(self, limit: int | None = None) -> list[Problem]:
        return problem_sets.load_problems(self.name, self.data_path, limit)

    def check(self) -> None:
        if self.data_path is not None:
            self.problems(TRIED)

    def held_out(self) -> str:
        return HELD_OUT.get(self.name, super().held_out())


class ProblemFile(OwnSource):
    """A .json, .jsonl or .csv file. Names that no other source knows end up here, too."""

    FORM = re.compile(".*", re.DOTALL)
    KNOWN = ("a .json, .jsonl or .csv file",)

    def problems(self, limit: int | None = None) -> list[Problem]:
        self.refuse_unknown()
        return read_problems(self.name, limit)

    def rows(self) -> Iterator[Problem]:
        return problems_in(Path(self.name))

    def check(self) -> None:
        """Reads the first rows: a mistyped path or field is told immediately."""
        self.refuse_unknown()
        read_problems(self.name, TRIED)

    def refuse_unknown(self) -> None:
        refuse_bare_file(self.name, "function")
        if not self.is_named_as_file() and not self.is_there():
            known = [name for kind in SOURCES for name in kind.KNOWN]
            raise unknown_name("problem set", self.name, known)

    def is_named_as_file(self) -> bool:
        return Path(self.name).suffix in FILES

    def is_there(self) -> bool:
        return Path(self.name).is_file()

    def located(self) -> str:
        is_file = self.is_named_as_file() or self.is_there()
        return super().located() if is_file else self.name


class HeldOut(Source):
    """NAME@held-out: the part of another set that is kept aside."""

    FORM = re.compile(f".*{AT_HELD_OUT}", re.DOTALL)

    def __init__(self, name: str, data_path: str | Path | None = None) -> None:
        super().__init__(name)
        self.whole = source_of(name.removesuffix(AT_HELD_OUT), data_path)
        self.takes_data_path = self.whole.takes_data_path

    def problems(self, limit: int | None = None) -> list[Problem]:
        return self.whole.aside(limit)

    def check(self) -> None:
        self.whole.check()

    @property
    def short_name(self) -> str:
        return self.whole.short_name + AT_HELD_OUT

    @property
    def shown_name(self) -> str:
        return self.whole.shown_name + AT_HELD_OUT

    def located(self) -> str:
        return self.whole.located() + AT_HELD_OUT


# The first whose FORM a name has.
SOURCES: list[type[Source]] = [
    ChapterSet,
    GymTask,
    Instructions,
    HeldOut,
    HubSet,
    OwnProblems,
    ProblemFile,
]


def source_of(name: str, data_path: str | Path | None = None) -> Source:
    """The set with this name. It always returns one: a name that nobody knows is refused by its
    `check` and its `problems`. `data_path` is a file to read in place of the set's own data."""
    if data_path is not None:
        return (HeldOut if name.endswith(AT_HELD_OUT) else ChapterSet)(name, data_path)
    return next(kind for kind in SOURCES if kind.FORM.fullmatch(name))(name)


def load_problems(
    name: str, data_path: str | Path | None = None, limit: int | None = None
) -> list[Problem]:
    """The problem set `name`: one that the chapters use or a file (see there), FILE.py:FUNCTION,
    gym:TASK or hf:OWNER/NAME. With @held-out after any of these it is the part kept aside.

    `data_path` is a file to read instead of a download. `limit` keeps only the first problems.
    """
    if limit is not None and limit < 1:
        raise UserError(f"limit is {limit}; at least one problem is needed")
    forget_changed_files()
    return source_of(name, data_path).problems(limit)


def held_out(name: str) -> str:
    """The set to evaluate on after training on the set `name`."""
    return source_of(name).held_out()


def training_problems(name: str, data_path: str | Path | None = None) -> Sequence[Problem]:
    """The problems of a set to train on: without the part kept aside, if that is its test set."""
    source = source_of(name, data_path)
    whole = source.problems()
    if source.held_out() != name + AT_HELD_OUT or not source.holds_held_out():
        return whole
    rest, aside = kept_apart(whole)
    return rest if len(aside) >= LEAST_HELD_OUT else whole
