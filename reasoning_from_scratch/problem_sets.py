"""The problem sets of the chapters: the tiny world, guessing, MATH, GSM8K, a file of your own.

`rfs` knows more: a function of your own, sets of the hub, sets that are made and judged by rules.
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from answer_grader import get_last_boxed
from answer_grader.gsm8k import without_thousands_commas
from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.files.data_sets import DATA_SETS
from reasoning_from_scratch.problems import Problem
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
FILES = (".json", ".jsonl", ".csv")

_SPACE = re.compile(r"\s*")
_BLANK_LINES = re.compile(r"([^\S\n]*\n)*")
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\r?', re.IGNORECASE)
_DECODER = json.JSONDecoder()
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)(/\d+)?")


def load_problems(
    name: str, data_path: str | Path | None = None, limit: int | None = None
) -> list[Problem]:
    """The problem set `name`: one of PROBLEM_SETS, or a .json, .jsonl or .csv file in the schema
    of MATH (problem or question, and answer or a solution with the answer in a box) or GSM8K
    (question, answer after ####).

    `data_path` is a file to read instead of a download. `limit` keeps only the first problems.
    """
    if limit is not None and limit < 1:
        raise UserError(f"limit is {limit}; at least one problem is needed")
    if data_path is not None:
        return read_problems(data_path, limit, published=name in DATA_SETS)
    if name in TINY_SETS:
        split, size = TINY_SETS[name]
        return [_tiny_problem(split, index) for index in range(min(size, limit or size))]
    if name == GUESS:
        return guess_problems()[:limit]
    if name in DATA_SETS:
        return read_problems(download_data(name), limit, published=True)
    if Path(name).suffix not in FILES and not Path(name).is_file():
        known = [*PROBLEM_SETS, "a .json, .jsonl or .csv file"]
        raise unknown_name("problem set", name, known)
    return read_problems(name, limit)


@cache
def _tiny_problem(split: str, index: int) -> Problem:
    """Cached, because a notebook or a study trains many runs on the same problems."""
    return math_problem(tiny_problem(split, index), "")


def download_data(name: str, path: str | Path | None = None) -> Path:
    """The file of a published set. The hub's package is imported only here."""
    from reasoning_from_scratch.files import downloads

    return downloads.download_data(name, path)


def read_problems(
    path: str | Path, limit: int | None = None, published: bool = False
) -> list[Problem]:
    """The problems of a file, or a UserError that names the bad line. An empty answer is an error
    in your own file; a published set omits such rows, because MATH has two of them."""
    problems = list(islice(problems_in(Path(path), published), limit))
    if not problems:
        raise UserError(f"{path} holds no problems")
    return problems


def problems_in(path: Path, published: bool = False) -> Iterator[Problem]:
    """The same, one at a time."""
    for number, (where, row) in enumerate(file_rows(path)):
        if published and isinstance(row, dict) and row.get("answer") == "":
            continue
        try:
            yield as_problem(row, f"{path.stem}/{number}", f"{path}, {where}")
        except ValueError as error:
            raise UserError(f"{path}, {where}: {error}") from None


# --- from a file to rows ---


def file_rows(path: Path) -> Iterator[tuple[str, object]]:
    """(where, value) for each line of a CSV file, each entry of a JSON list, or each object: one a
    line, or over several lines, as editors lay them out."""
    if not path.is_file():
        siblings = path.absolute().parent.glob("*.*")
        stems = {file.stem: file.name for file in siblings if file.suffix in FILES}
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
        yield from csv_rows(path, text)
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


def csv_rows(path: Path, text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV file, whose first line names the columns. An empty cell is no field, a row
    of empty cells no row. Spreadsheets in some languages separate cells with semicolons, and Excel
    may say so in a line before the first: sep=;"""
    start = _BLANK_LINES.match(text).end()
    first_line = text[start:].partition("\n")[0]
    separator = max(",;\t", key=first_line.count)
    if declared := _SEPARATOR_LINE.fullmatch(first_line):
        separator = declared[1]
        start += len(first_line) + 1
    lines_above = text.count("\n", 0, start)  # above the names of the columns
    lines = csv.DictReader(io.StringIO(text[start:], newline=""), delimiter=separator)
    try:
        for row in lines:
            where = f"line {lines_above + lines.line_num}"
            surplus = row.pop(None, [])
            cells = {name.strip(): cell for name, cell in row.items() if cell}
            if not any(cell.strip() for cell in (*cells.values(), *surplus)):
                continue
            if surplus:
                raise UserError(
                    f"{path}, {where}: more cells than the first line names columns; put a text "
                    'with a comma in it in quotes, "like, this"'
                )
            yield where, cells
    except csv.Error as error:
        line = lines_above + lines.line_num
        raise UserError(f"{path}, line {line}: not valid CSV ({error})") from None


# --- from a row to a problem ---


def as_problem(row: object, default_id: str, source: str = "") -> Problem:
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
    level = field_text(row, "level", optional=True)
    solution = field_text(row, "solution", optional=True)
    boxed = (get_last_boxed(solution) or "").strip() if row.get("answer") is None else ""
    return Problem(
        id=field_text(row, "unique_id", optional=True) or default_id,
        problem=field_text(row, "problem"),
        answer=boxed or field_text(row, "answer"),
        level=f"Level {level}" if level.isdigit() else level,
        type=field_text(row, "type", optional=True) or field_text(row, "subject", optional=True),
        solution=solution,
        source=source,
        row=row,
    )


def gsm8k_problem(row: dict, default_id: str, source: str = "") -> Problem:
    """A row of the official GSM8K files: the solution, then #### and a number; or the number
    alone."""
    _, mark, answer = field_text(row, "answer").rpartition("####")
    answer = without_thousands_commas(answer.strip()).removeprefix("$")
    if not _NUMBER.fullmatch(answer):
        where = "after ####" if mark else "as the answer to a question, or after #### in it,"
        raise ValueError(
            f"{where} a number was expected, found {answer[:40]!r} (a row with `problem` in place "
            "of `question` may have any answer)"
        )
    return Problem(
        id=field_text(row, "unique_id", optional=True) or default_id,
        problem=field_text(row, "question"),
        answer=answer,
        type="GSM8K" if mark else "",
        solution=solution_before_answer(field_text(row, "answer")),
        source=source,
        row=row,
    )


def field_text(row: dict, name: str, optional: bool = False) -> str:
    value = row.get(name)
    if value is None and optional:
        return ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value) if -math.inf < value < math.inf else value  # json.loads accepts NaN
    if not isinstance(value, str) or not (value.strip() or optional):
        columns = f" (there is {', '.join(row)[:100]})" if row else ""
        fault = f"it is {json.dumps(value)[:40]}" if name in row else f"it is missing{columns}"
        raise ValueError(f"the field {name!r} must be text or a number; {fault}")
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


CALCULATOR = re.compile(r"<<[^<>]{0,200}>>")  # GSM8K's calculator annotations


def solution_before_answer(text: str) -> str:
    """GSM8K's solution: the text before ####, without calculator annotations; "" if there is no
    ####."""
    return CALCULATOR.sub("", text.rpartition("####")[0]).strip()
