"""Where problems come from: SOURCES has a row for each kind of set, and `source_of` finds it.

source.py says what a source provides. Here are the sets of the chapters, and files.
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
from rfs.tasks.own_task import forget_changed_files
from rfs.tasks.problem_function import ProblemFunction
from rfs.tasks.source import HELD_OUT_SUFFIX, MIN_HELD_OUT, FileSource, Source, split_off_held_out

HELD_OUT = {
    "tiny": "tiny-test",
    "tiny-longer-train": "tiny-longer",
    GUESS: GUESS,  # all its problems have the same text, so there is nothing to memorize
    "math-train": "math-500",
    "gsm8k": "gsm8k-test",
}
ROWS_CHECKED = 16  # rows of a file that are read before a model is loaded


class ChapterSet(Source):
    """A set that the chapters use: the tiny world, guessing, MATH, GSM8K. With a `data_path` that
    file is read instead, and the name is only a name."""

    NAME_PATTERN = re.compile("|".join(map(re.escape, PROBLEM_SETS)))
    LISTED_NAMES = PROBLEM_SETS
    takes_data_path = True

    def __init__(self, name: str, data_path: str | Path | None = None) -> None:
        super().__init__(name)
        self.data_path = data_path

    def problems(self, limit: int | None = None) -> list[Problem]:
        return problem_sets.load_problems(self.name, self.data_path, limit)

    def check(self) -> None:
        if self.data_path is not None:
            self.problems(ROWS_CHECKED)

    def held_out_name(self) -> str:
        return HELD_OUT.get(self.name, super().held_out_name())


class ProblemFile(FileSource):
    """A .json, .jsonl or .csv file. Names that no other source knows end up here, too."""

    NAME_PATTERN = re.compile(".*", re.DOTALL)
    LISTED_NAMES = ("a .json, .jsonl or .csv file",)

    def problems(self, limit: int | None = None) -> list[Problem]:
        self.refuse_unknown()
        return read_problems(self.name, limit)

    def rows(self) -> Iterator[Problem]:
        return problems_in(Path(self.name))

    def check(self) -> None:
        """Reads the first rows: a mistyped path or field is reported immediately."""
        self.refuse_unknown()
        read_problems(self.name, ROWS_CHECKED)

    def refuse_unknown(self) -> None:
        refuse_bare_file(self.name, "function")
        if not self.has_file_suffix() and not self.exists():
            listed_names = [name for kind in SOURCES for name in kind.LISTED_NAMES]
            raise unknown_name("problem set", self.name, listed_names)

    def has_file_suffix(self) -> bool:
        return Path(self.name).suffix in FILES

    def exists(self) -> bool:
        return Path(self.name).is_file()

    def absolute_name(self) -> str:
        is_file = self.has_file_suffix() or self.exists()
        return super().absolute_name() if is_file else self.name


class HeldOutPart(Source):
    """NAME@held-out: the held-out part of another set."""

    NAME_PATTERN = re.compile(f".*{HELD_OUT_SUFFIX}", re.DOTALL)

    def __init__(self, name: str, data_path: str | Path | None = None) -> None:
        super().__init__(name)
        self.full_set = source_of(name.removesuffix(HELD_OUT_SUFFIX), data_path)
        self.takes_data_path = self.full_set.takes_data_path

    def problems(self, limit: int | None = None) -> list[Problem]:
        return self.full_set.held_out_problems(limit)

    def check(self) -> None:
        self.full_set.check()

    @property
    def short_name(self) -> str:
        return self.full_set.short_name + HELD_OUT_SUFFIX

    @property
    def shown_name(self) -> str:
        return self.full_set.shown_name + HELD_OUT_SUFFIX

    def absolute_name(self) -> str:
        return self.full_set.absolute_name() + HELD_OUT_SUFFIX


# A name belongs to the first source whose NAME_PATTERN it matches.
SOURCES: list[type[Source]] = [
    ChapterSet,
    GymTask,
    Instructions,
    HeldOutPart,
    HubSet,
    ProblemFunction,
    ProblemFile,
]


def source_of(name: str, data_path: str | Path | None = None) -> Source:
    """The set with this name. It always returns one: a name that nobody knows is refused by its
    `check` and its `problems`. `data_path` is a file to read in place of the set's own data."""
    if data_path is not None:
        return (HeldOutPart if name.endswith(HELD_OUT_SUFFIX) else ChapterSet)(name, data_path)
    return next(kind for kind in SOURCES if kind.NAME_PATTERN.fullmatch(name))(name)


def load_problems(
    name: str, data_path: str | Path | None = None, limit: int | None = None
) -> list[Problem]:
    """The problem set `name`: one that the chapters use or a file (see there), FILE.py:FUNCTION,
    gym:TASK or hf:OWNER/NAME. With @held-out after any of these it is the held-out part.

    `data_path` is a file to read instead of a download. `limit` keeps only the first problems.
    """
    if limit is not None and limit < 1:
        raise UserError(f"limit is {limit}; at least one problem is needed")
    forget_changed_files()
    return source_of(name, data_path).problems(limit)


def held_out(name: str) -> str:
    """The set to evaluate on after training on the set `name`."""
    return source_of(name).held_out_name()


def training_problems(name: str, data_path: str | Path | None = None) -> Sequence[Problem]:
    """The problems of a set to train on: without the held-out part, if that is its test set."""
    source = source_of(name, data_path)
    problems = source.problems()
    if source.held_out_name() != name + HELD_OUT_SUFFIX or not source.contains_held_out():
        return problems
    training, held_out_problems = split_off_held_out(problems)
    return training if len(held_out_problems) >= MIN_HELD_OUT else problems
