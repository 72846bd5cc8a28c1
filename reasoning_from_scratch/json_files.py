"""Files of JSON, whole or an object per line: strict when written, forgiving when read."""

import json
import math
from pathlib import Path
from sys import intern


def finite(row: dict) -> tuple[dict, list[str]]:
    """The row with null for what is not finite, and the names of those. JSON has no NaN."""
    bad = [k for k, v in row.items() if isinstance(v, float) and not math.isfinite(v)]
    # The names are built anew at every step. Kept once, they are not half of a long run's memory.
    return {intern(key): None if key in bad else value for key, value in row.items()}, bad


def as_lines(rows: list[dict]) -> str:
    """In plain ASCII: what a model writes may hold any line separator."""
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def append(path: Path, text: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


def scan_lines(path: Path) -> tuple[list[dict], list[int]]:
    """The lines of a JSONL file, and the numbers of those that are torn or damaged."""
    rows: list[dict] = []
    bad: list[int] = []
    if not path.exists():
        return rows, bad
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                rows += [finite(dict(json.loads(line)))[0]] if line.strip() else []
            except (ValueError, TypeError):
                bad.append(number)
    return rows, bad


def read_lines(path: Path) -> list[dict]:
    """The whole lines of a JSONL file."""
    return scan_lines(path)[0]


def read_values(path: Path) -> dict:
    """A JSON object; an empty one where there is none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
