"""Files that look like GSM8K's and MATH-500's, as downloads leave them."""

import json
import sys
from pathlib import Path

from reasoning_from_scratch.files.data_sets import DATA_SETS

STUDIES = str(Path(__file__).parents[2] / "studies")
if STUDIES not in sys.path:
    sys.path.append(STUDIES)


def write_gsm8k(folder: Path) -> None:
    for name in ("gsm8k", "gsm8k-test"):
        wanted = DATA_SETS[name]
        rows = []
        for i in range(wanted.rows):
            a, b = i % 90 + 1, i % 7 + 2
            text = f"Ann has {a + b} = <<{a}+{b}={a + b}>>{a + b} pens.\n#### {a + b}"
            rows.append({"question": f"{name} {i}: {a} + {b} pens?", "answer": text})
        write_rows(folder / wanted.filename, rows)


def write_math(folder: Path, count: int) -> None:
    """Training problems of five levels in one file, MATH-500 in another."""
    rows = [
        {"problem": f"{i} + 1?", "answer": str(i + 1), "level": f"Level {i % 5 + 1}"}
        for i in range(count)
    ]
    write_rows(folder / "math.jsonl", rows)
    wanted = DATA_SETS["math-500"]
    tests = [
        {"problem": f"{i} + 2?", "answer": str(i + 2), "level": i % 5 + 1, "unique_id": str(i)}
        | {"solution": f"\\boxed{{{i + 2}}}"}
        for i in range(wanted.rows)
    ]
    (folder / wanted.filename).write_text(json.dumps(tests))


def write_rows(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
