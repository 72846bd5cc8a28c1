"""Where problems come from: the sets that the chapters use, a function of your own, a set of the
hub (hub_sets.py), or one that is made here (made_sets.py)."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from reasoning_from_scratch import problem_sets
from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.problem_sets import (
    FILES,
    GUESS,
    PROBLEM_SETS,
    as_problem,
    problems_in,
    read_problems,
    text_of,
)
from reasoning_from_scratch.problems import Problem, is_hub_set, is_in_file, refuse_bare_file
from reasoning_from_scratch.text import counted
from rfs.tasks.foreign import error_in_words
from rfs.tasks.hub_sets import check_hub_name, hub_held_out, hub_problems, hub_set_name
from rfs.tasks.made_sets import MADE_NAMES, made_set
from rfs.tasks.own_task import defines, function_from_file

HELD_OUT = {
    "tiny": "tiny-test",
    "tiny-longer-train": "tiny-longer",
    GUESS: GUESS,  # all its problems have the same text, so there is nothing to memorize
    "math-train": "math-500",
    "gsm8k": "gsm8k-test",
}
OWN_SIZE = 12_000  # problems taken from a generator that may never end
AT_HELD_OUT = "@held-out"  # mine.jsonl@held-out: the tenth of mine.jsonl that is kept aside
LEAST_HELD_OUT = 5  # an accuracy on fewer problems says nothing
TRIED = 16  # rows of a file that are read before a model is loaded


def load_problems(
    name: str, data_path: str | Path | None = None, limit: int | None = None
) -> list[Problem]:
    """The problem set `name`: one that the chapters use or a file (see there), FILE.py:FUNCTION,
    gym:TASK or hf:OWNER/NAME. With @held-out after any of these it is the part kept aside.

    `data_path` is a file to read instead of a download. `limit` keeps only the first problems.
    """
    if limit is not None and limit < 1:
        raise UserError(f"limit is {limit}; at least one problem is needed")
    if data_path is None and (made := made_set(name)):
        return made.problems(name, limit)
    if name.endswith(AT_HELD_OUT):
        return load_held_out(name.removesuffix(AT_HELD_OUT), data_path, limit)
    if data_path is not None:
        return problem_sets.load_problems(name, data_path, limit)
    if is_in_file(name):
        return problems_from_file(name, min(limit or OWN_SIZE, OWN_SIZE))
    if is_hub_set(name):
        return hub_problems(name, limit)
    check_set(name)
    return problem_sets.load_problems(name, limit=limit)


def load_held_out(name: str, data_path: str | Path | None, limit: int | None) -> list[Problem]:
    """The part of the set `name` that is kept aside: a split of its own, or a tenth."""
    if is_hub_set(name) and (own := hub_held_out(name)):
        return hub_problems(own, limit)
    whole = load_problems(name, data_path)
    aside = kept_apart(whole)[1]
    if len(aside) < LEAST_HELD_OUT:
        raise UserError(too_few(whole, name))
    return aside[:limit]


def held_out(name: str) -> str:
    """The set to evaluate on after training on the set `name`: its counterpart, or a tenth of its
    own problems, which are then excluded from training."""
    if is_hub_set(name) and (own := hub_held_out(name)):
        return own
    tests = name.rpartition(":")[0] + ":test_problems"
    if is_in_file(name) and defines(tests):
        return tests
    return name if has_too_few(name) else HELD_OUT.get(name, name + AT_HELD_OUT)


def has_too_few(name: str) -> bool:
    """Whether a set of one's own is too small to keep a tenth aside: then it is measured on the
    problems that it trains on. Reads only as many problems as it takes to know."""
    if is_in_file(name) and defines(name):
        found = rows_from_file(name)
    elif Path(name).is_file() and name not in PROBLEM_SETS:
        found = problems_in(Path(name))
    else:
        return False
    aside = (problem for problem in found if is_kept_apart(problem))
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


def training_problems(name: str, data_path: str | Path | None = None) -> Sequence[Problem]:
    """The problems of a set to train on: without the part kept aside, if that is its test set."""
    whole = load_problems(name, data_path)
    if made_set(name) or held_out(name) != name + AT_HELD_OUT:
        return whole
    rest, aside = kept_apart(whole)
    return rest if len(aside) >= LEAST_HELD_OUT else whole


def too_few(problems: Sequence[Problem], name: str) -> str:
    return (
        f"{name} has {counted(len(problems), 'problem')}, too few to keep a tenth aside, which "
        f"takes about {10 * LEAST_HELD_OUT}: measure on all of them, as {name}, or on other "
        "problems"
    )


def set_name(name: str) -> str:
    """What a set is called in metrics and pages: for a file, its name without the folder."""
    return hub_set_name(name) if is_hub_set(name) else Path(name).name


def problems_from_file(name: str, limit: int) -> list[Problem]:
    """The problems that FILE.py:FUNCTION yields, as Problem objects or as rows like a file's."""
    problems = list(islice(rows_from_file(name), limit))
    if not problems:
        raise UserError(f"{name} yields no problems")
    return problems


def rows_from_file(name: str) -> Iterator[Problem]:
    """The same, one at a time."""
    count, stem = 0, Path(name.rpartition(":")[0]).stem
    try:
        for row in function_from_file(name)():
            if isinstance(row, Problem):  # a verifier may not need an answer
                texts: dict[str, Any] = {
                    "problem": text_of(vars(row), "problem"),
                    "answer": text_of(vars(row), "answer", optional=True),
                }
                problem = replace(row, **texts)
            else:
                problem = as_problem(row, f"{stem}/{count}")
            yield problem
            count += 1
    except (UserError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # the reader's code may raise anything
        raise UserError(f"{name}, problem {count}: {error_in_words(error)}") from error


def check_set(name: str) -> None:
    """Refuse a name that is no problem set, before a model is loaded."""
    name = name.removesuffix(AT_HELD_OUT)
    if is_hub_set(name):
        check_hub_name(name)
        return
    if name in PROBLEM_SETS or is_in_file(name) or made_set(name):
        return
    refuse_bare_file(name, "function")
    if Path(name).suffix not in FILES and not Path(name).is_file():
        known = [*PROBLEM_SETS, *MADE_NAMES, "hf:OWNER/NAME", "a .json, .jsonl or .csv file"]
        known.append("FILE.py:FUNCTION")
        raise unknown_name("problem set", name, known)


def try_set(name: str, data_path: str | Path | None = None) -> None:
    """Reads the first rows of a file, or looks for the function in one, before a model is loaded:
    a mistyped path or field is told immediately."""
    if data_path is not None:
        read_problems(data_path, TRIED)
        return
    check_set(name)
    name = name.removesuffix(AT_HELD_OUT)
    if is_in_file(name):
        function_from_file(name)
    elif name not in PROBLEM_SETS and not is_hub_set(name) and not made_set(name):
        read_problems(name, TRIED)
