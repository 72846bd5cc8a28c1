"""CSV files with a line of names: what the experiments measured."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reasoning_from_scratch.files.disk import write_whole


def read_table(path: Path) -> list[dict[str, str]]:
    """Its lines; none if there is no such file yet."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """The whole table, or the one that stood there before."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue())
