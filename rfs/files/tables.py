"""CSV files with a header line: what the experiments measured."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reasoning_from_scratch.files.disk import write_atomically


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a table; none if there is no such file yet."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def replace_rows(path: Path, run: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Replaces the rows about one run in a table. `run` identifies it: columns and their values,
    which each of its rows gets."""
    new = [{**run, **row} for row in rows]  # may take an hour, so read the table afterwards
    others = [row for row in read_table(path) if not run.items() <= row.items()]
    write_table(path, [*others, *new])


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the whole table; if that fails, the old one stays. Its columns are those of all rows,
    so an experiment may come to measure more."""
    text = io.StringIO()
    columns = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue())
