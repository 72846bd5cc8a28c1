"""Files of JSON, whole or an object per line: strict when written, forgiving when read."""

import json
import math
from collections.abc import Container, Sequence
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


def has_shape(value: object, shape: object) -> bool:
    """Whether a value has the keys and types of `shape`: {key: shape}, [shape] or a type."""
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(
            key in value and has_shape(value[key], inner) for key, inner in shape.items()
        )
    if isinstance(shape, list):
        return isinstance(value, list) and all(has_shape(item, shape[0]) for item in value)
    return isinstance(value, shape)


def evenly(items: Sequence, limit: int) -> Sequence:
    """At most limit items: the first, the last, and what lies evenly between."""
    if len(items) <= limit:
        return items
    return [items[round(i * (len(items) - 1) / (limit - 1))] for i in range(limit)]


def scan_lines(path: Path, wanted: Container[int] | None = None) -> tuple[list[dict], list[int]]:
    """The lines of a JSONL file, or those wanted, and the numbers of torn or damaged ones."""
    rows: list[dict] = []
    bad: list[int] = []
    if not path.exists():
        return rows, bad
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file):
            try:
                if line.strip() and (wanted is None or number in wanted):
                    rows.append(finite(dict(json.loads(line)))[0])
            except (ValueError, TypeError):
                bad.append(number + 1)
    return rows, bad


def read_lines(path: Path) -> list[dict]:
    """The whole lines of a JSONL file."""
    return scan_lines(path)[0]


def read_evenly(path: Path, limit: int) -> list[dict]:
    """At most so many of its lines; of a file that goes on growing memory stays bounded."""
    if not path.exists():
        return []
    with open(path, "rb") as file:
        count = sum(1 for _ in file)
    return scan_lines(path, set(evenly(range(count), limit)))[0]


def read_values(path: Path) -> dict:
    """A JSON object; an empty one where there is none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
