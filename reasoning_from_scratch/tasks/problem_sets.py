"""Where problems come from: the tiny world, MATH, GSM8K, a file, a function of your own, a set of
the hub (hub_sets.py), or one that is made here (made_sets.py)."""

import csv
import io
import json
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.files.data_sets import DATA_SETS
from reasoning_from_scratch.grading import get_last_boxed
from reasoning_from_scratch.grading.gsm8k import without_thousands_commas
from reasoning_from_scratch.problems import Problem, is_hub_set, is_in_file, refuse_bare_file
from reasoning_from_scratch.tasks.foreign import error_in_words
from reasoning_from_scratch.tasks.hub_sets import (
    check_hub_name,
    hub_held_out,
    hub_problems,
    hub_set_name,
    without_end,
)
from reasoning_from_scratch.tasks.made_sets import MADE_NAMES, made_set
from reasoning_from_scratch.tasks.own_task import defines, function_from_file
from reasoning_from_scratch.text import counted
from reasoning_from_scratch.tiny.guessing import guess_problems
from reasoning_from_scratch.tiny.world import tiny_problem

TINY_SETS = {
    "tiny": ("train", 12_000),
    "tiny-test": ("test", 500),
    "tiny-longer-train": ("longer-train", 12_000),
    "tiny-longer": ("longer", 500),
    "tiny-longest": ("longest", 500),
}
GUESS = "guess"  # for --environment guess
PROBLEM_SETS = (*TINY_SETS, GUESS, *DATA_SETS)
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
FILES = (".json", ".jsonl", ".csv")
TRIED = 16  # rows of a file that are read before a model is loaded

_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder()
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)(/\d+)?")


def load_problems(
    name: str, data_path: str | Path | None = None, limit: int | None = None
) -> list[Problem]:
    """The problem set `name`: one of PROBLEM_SETS, or a .json, .jsonl or .csv file in the schema
    of MATH (problem or question, and answer or a solution with the answer in a box) or GSM8K
    (question, answer after ####), or FILE.py:FUNCTION, or gym:TASK, or hf:OWNER/NAME. With
    @held-out after any of these it is the part kept aside.

    `data_path` is a file to read instead of a download. `limit` keeps only the first problems.
    """
    if limit is not None and limit < 1:
        raise UserError(f"limit is {limit}; at least one problem is needed")
    if data_path is None and (made := made_set(name)):
        return made.problems(name, limit)
    if name.endswith(AT_HELD_OUT):
        whole_name = name.removesuffix(AT_HELD_OUT)
        if is_hub_set(name) and (own := hub_held_out(whole_name)):
            return hub_problems(own, limit)
        whole = load_problems(whole_name, data_path)
        aside = kept_apart(whole)[1]
        if len(aside) < LEAST_HELD_OUT:
            raise UserError(too_few(whole, name))
        return aside[:limit]
    if data_path is None and name in TINY_SETS:
        split, size = TINY_SETS[name]
        return [_drawn(split, index) for index in range(min(size, limit or size))]
    if data_path is None and name == GUESS:
        return guess_problems()[:limit]
    if data_path is None and is_in_file(name):
        return problems_from_file(name, min(limit or OWN_SIZE, OWN_SIZE))
    if data_path is None and is_hub_set(name):
        return hub_problems(name, limit)
    return read_problems(_path_of(name, data_path), limit)


@cache
def _drawn(split: str, index: int) -> Problem:
    """Cached, because a notebook or a study trains many runs on the same problems."""
    return math_problem(tiny_problem(split, index), "")


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
    whole = name.removesuffix(AT_HELD_OUT)
    return (
        f"{whole} has {counted(len(problems), 'problem')}, too few to keep a tenth aside, which "
        f"takes about {10 * LEAST_HELD_OUT}: measure on all of them, as {whole}, or on other "
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
                    "problem": _text(vars(row), "problem"),
                    "answer": _text(vars(row), "answer", optional=True),
                }
                problem = replace(row, **texts)
            else:
                problem = _as_problem(row, f"{stem}/{count}")
            yield problem
            count += 1
    except (UserError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # the reader's code may raise anything
        raise UserError(f"{name}, problem {count}: {error_in_words(error)}") from error


def _path_of(name: str, data_path: str | Path | None) -> Path:
    if data_path is not None:
        return Path(data_path)
    check_set(name)
    return download_data(name) if name in DATA_SETS else Path(name)


def download_data(name: str, path: str | Path | None = None) -> Path:
    """The file of a published set. The hub's package is imported only here."""
    from reasoning_from_scratch.files import downloads

    return downloads.download_data(name, path)


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


def read_problems(path: str | Path, limit: int | None = None) -> list[Problem]:
    """The problems of a file, or a UserError that names the bad line."""
    problems = list(islice(problems_in(Path(path)), limit))
    if not problems:
        raise UserError(f"{path} holds no problems")
    return problems


def problems_in(path: Path) -> Iterator[Problem]:
    """The same, one at a time."""
    for number, (where, row) in enumerate(file_rows(path)):
        try:
            yield _as_problem(row, f"{path.stem}/{number}", f"{path}, {where}")
        except ValueError as error:
            raise UserError(f"{path}, {where}: {error}") from None


# --- from a file to rows ---


def file_rows(path: Path) -> Iterator[tuple[str, object]]:
    """(where, value) for each line of a CSV file, each entry of a JSON list, or each object: one a
    line, or over several lines, as editors lay them out."""
    if not path.is_file():
        around = path.absolute().parent.glob("*.*")
        stems = {one.stem: one.name for one in around if one.suffix in FILES}
        near = get_close_matches(path.stem, stems, n=1)
        advice = "; give the path of a .json, .jsonl or .csv file"
        advice = f": did you mean {stems[near[0]]!r}?" if near else advice
        raise UserError(f"there is no file {path}{advice}")
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        raise UserError(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8") from None
    if path.suffix.lower() == ".csv":
        yield from table_rows(path, text)
        return
    at, line = 0, 1
    while (start := _SPACE.match(text, at).end()) < len(text):
        line += text.count("\n", at, start)
        try:
            value, at = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            why = f"not valid JSON ({error.msg}), the format of problem sets"
            raise UserError(f"{path}, line {error.lineno}: {why}") from None
        except (RecursionError, ValueError):  # ValueError: an integer of thousands of digits
            raise UserError(f"{path}, line {line}: JSON that is too deep or too large") from None
        if isinstance(value, list):
            yield from ((f"entry {number}", entry) for number, entry in enumerate(value, 1))
        else:
            yield f"line {line}", value
        line += text.count("\n", start, at)


def table_rows(path: Path, text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV file, whose first line names the columns. An empty cell is no field.
    Spreadsheets in some languages separate cells with semicolons."""
    head = text.lstrip().partition("\n")[0]
    lines = csv.DictReader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=head.count))
    try:
        for row in lines:
            where = f"line {lines.line_num}"
            if None in row:
                raise UserError(
                    f"{path}, {where}: more cells than the first line names columns; put a text "
                    'with a comma in it in quotes, "like, this"'
                )
            yield where, {name.strip(): cell for name, cell in row.items() if cell}
    except csv.Error as error:
        raise UserError(f"{path}, line {lines.line_num}: not valid CSV ({error})") from None


# --- from a row to a problem ---


def _as_problem(row: object, default_id: str, source: str = "") -> Problem:
    if not isinstance(row, dict):
        raise ValueError("expected an object with the fields problem and answer")
    if "question" not in row:
        return math_problem(row, default_id, source)
    if "solution" in row:
        return math_problem({"problem": row["question"]} | row, default_id, source)
    return gsm8k_problem(row, default_id, source)  # its `answer` holds the solution and the answer


def math_problem(row: dict, default_id: str, source: str = "") -> Problem:
    """A row in MATH's schema; MATH-500 calls the type `subject` and numbers its levels. The
    original files have no `answer`: it is in the last box of the solution."""
    level = _text(row, "level", optional=True)
    solution = _text(row, "solution", optional=True)
    boxed = (get_last_boxed(solution) or "").strip() if row.get("answer") is None else ""
    return Problem(
        id=_text(row, "unique_id", optional=True) or default_id,
        problem=_text(row, "problem"),
        answer=boxed or _text(row, "answer"),
        level=f"Level {level}" if level.isdigit() else level,
        type=_text(row, "type", optional=True) or _text(row, "subject", optional=True),
        solution=solution,
        source=source,
        row=row,
    )


def gsm8k_problem(row: dict, default_id: str, source: str = "") -> Problem:
    """A row of the official GSM8K files: the solution, then #### and a number; or the number
    alone."""
    _, mark, answer = _text(row, "answer").rpartition("####")
    answer = without_thousands_commas(answer.strip()).removeprefix("$")
    if not _NUMBER.fullmatch(answer):
        where = "after ####" if mark else "as the answer to a question, or after #### in it,"
        raise ValueError(
            f"{where} a number was expected, found {answer[:40]!r} (a row with `problem` in place "
            "of `question` may have any answer)"
        )
    return Problem(
        id=_text(row, "unique_id", optional=True) or default_id,
        problem=_text(row, "question"),
        answer=answer,
        type="GSM8K" if mark else "",
        solution=without_end(_text(row, "answer")),
        source=source,
        row=row,
    )


def _text(row: dict, name: str, optional: bool = False) -> str:
    value = row.get(name)
    if value is None and optional:
        return ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value) if -math.inf < value < math.inf else value  # json.loads accepts NaN
    if not isinstance(value, str) or not (value.strip() or optional):
        there = f" (there is {', '.join(row)[:100]})" if row else ""
        found = f"it is {json.dumps(value)[:40]}" if name in row else f"it is missing{there}"
        raise ValueError(f"the field {name!r} must be text or a number; {found}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the field {name!r} holds half of a surrogate pair") from None
    return value


# --- the book's names ---


def load_math500_test(local_path="math500_test.json", save_copy=True):
    """The 500 rows of MATH-500 as dictionaries; downloaded if the file is not there."""
    return _load_rows("math-500", local_path, save_copy)


def load_math_train(local_path="math_train.json", save_copy=True):
    """The 12,000 rows of MATH that are not in MATH-500."""
    return _load_rows("math-train", local_path, save_copy)


def _load_rows(name, local_path, save_copy):
    if save_copy or Path(local_path).exists():
        path = download_data(name, local_path)
        return [row for _, row in file_rows(path)]
    with TemporaryDirectory() as folder:
        path = download_data(name, Path(folder) / DATA_SETS[name].filename)
        return [row for _, row in file_rows(path)]
