"""rfs grading-report: measures the grader on labelled pairs and on data sets."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.grading import GRADER_VERSION, check_truth, judge
from reasoning_from_scratch.text import counted


class Pair(NamedTuple):
    kind: str
    pred: str
    truth: str
    same: bool


def labelled_pairs(path: Path) -> Iterator[Pair]:
    """Lines "## kind", "? truth", "= the same ;; ...", "! not the same ;; ..."."""
    kind = truth = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        mark, _, rest = line.partition(" ")
        if mark == "##":
            kind = rest
        elif mark == "?":
            truth = rest
        elif mark in ("=", "!"):
            for text in rest.split(" ;; "):
                yield Pair(kind, text.strip(), truth, mark == "=")


def print_pairs(folder: Path) -> int:
    """A table by kind; returns how many verdicts are wrong."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for path in sorted(folder.glob("*.txt")):
        for pair in labelled_pairs(path):
            got = judge(pair.pred, pair.truth) == "correct"
            row = counts[pair.kind]
            row[0] += 1
            row[1] += pair.same and not got
            row[2] += got and not pair.same
    if not counts:
        raise UserError(f"no labelled pairs in {folder}: give the folder that holds the .txt files")
    print(f"{'kind':<12}{'pairs':>6}{'wrongly rejected':>18}{'wrongly accepted':>18}")
    total = [sum(row[i] for row in counts.values()) for i in range(3)]
    for kind, row in [*counts.items(), ("all", total)]:
        print(f"{kind:<12}{row[0]:>6}{row[1]:>18}{row[2]:>18}")
    print(f"right: {100 * (1 - (total[1] + total[2]) / total[0]):.2f} %\n")
    return total[1] + total[2]


def print_math(path: Path) -> int:
    """Gold solutions against their own answer and against the next problem's."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    start = time.perf_counter()
    own = sum(judge(row["solution"], row["answer"]) == "correct" for row in rows)
    following = rows[1:] + rows[:1]
    shifted = [(a["answer"], b["answer"]) for a, b in zip(rows, following, strict=True)]
    accepted = [pair for pair in shifted if judge(*pair) == "correct"]
    seconds = time.perf_counter() - start
    print(f"{path.name}: {own} of {len(rows)} gold solutions right")
    print(f"  against the next answer: {len(accepted)} accepted: {accepted}")
    print(f"  {2 * len(rows) / seconds:,.0f} verdicts per second")
    return len(rows) - own


def print_gsm8k(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        check_truth(json.loads(line)["answer"].rpartition("####")[2].strip())
    print(f"{path.name}: {counted(len(lines), 'answer')}, all can be read")


def grading_report(pairs: Path = Path("tests/grading/pairs"), data: Path = Path("data")) -> None:
    """Prints the grader's figures on its labelled pairs, and on the data sets found in `data`.

    Args:
        pairs: folder of labelled pairs (*.txt).
        data: folder that may hold math500_test.json, gsm8k_train.jsonl and gsm8k_test.jsonl.
    """
    print(f"grader version {GRADER_VERSION}\n")
    print_pairs(pairs)
    if (data / "math500_test.json").exists():
        print_math(data / "math500_test.json")
    for name in ("gsm8k_train.jsonl", "gsm8k_test.jsonl"):
        if (data / name).exists():
            print_gsm8k(data / name)
