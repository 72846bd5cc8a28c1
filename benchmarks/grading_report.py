"""The grader, measured on labelled pairs and on data sets.

uv run benchmarks/grading_report.py
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from reasoning_from_scratch.commands.cli import run_script
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.grading import GRADER_VERSION, answer_verdict, check_truth
from reasoning_from_scratch.text import counted

ROW = "{:<12}{:>6}{:>18}{:>18}{:>10}"


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


@dataclass
class Count:
    """How many pairs there are, and for how many the verdict is wrong, in either way."""

    pairs: int = 0
    rejected: int = 0
    accepted: int = 0

    def add(self, same: bool, judged_same: bool) -> None:
        self.pairs += 1
        self.rejected += same and not judged_same
        self.accepted += judged_same and not same

    @property
    def right(self) -> float:
        return 1 - (self.rejected + self.accepted) / self.pairs


def print_pairs(folder: Path) -> Count:
    """A table by set and one by kind; returns the count of all pairs."""
    by_set, by_kind, total = defaultdict(Count), defaultdict(Count), Count()
    for path in sorted(folder.glob("*.txt")):
        for pair in labelled_pairs(path):
            judged_same = answer_verdict(pair.pred, pair.truth) == "correct"
            for count in (by_set[path.stem], by_kind[pair.kind], total):
                count.add(pair.same, judged_same)
    if not total.pairs:
        raise UserError(f"no labelled pairs in {folder}: give the folder that holds the .txt files")
    for heading, counts in (("set", by_set), ("kind", by_kind)):
        print(ROW.format(heading, "pairs", "wrongly rejected", "wrongly accepted", "right"))
        for name, count in [*counts.items(), ("all", total)]:
            right = f"{100 * count.right:.2f} %"
            print(ROW.format(name, count.pairs, count.rejected, count.accepted, right))
        print()
    return total


def print_math(path: Path) -> None:
    """Gold solutions against their own answer and against the next problem's."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    start = time.perf_counter()
    own = sum(answer_verdict(row["solution"], row["answer"]) == "correct" for row in rows)
    following = rows[1:] + rows[:1]
    shifted = [(a["answer"], b["answer"]) for a, b in zip(rows, following, strict=True)]
    accepted = [pair for pair in shifted if answer_verdict(*pair) == "correct"]
    seconds = time.perf_counter() - start
    print(f"{path.name}: {own} of {len(rows)} gold solutions right")
    print(f"  against the next answer: {len(accepted)} accepted: {accepted}")
    print(f"  {2 * len(rows) / seconds:,.0f} verdicts per second")


def print_gsm8k(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        check_truth(json.loads(line)["answer"].rpartition("####")[2].strip())
    print(f"{path.name}: {counted(len(lines), 'answer')}, all can be read")


@dataclass
class Options:
    pairs: Path = Path(__file__).parents[1] / "tests/grading/pairs"
    """Folder of labelled pairs (*.txt)."""
    data: Path = Path("data")
    """Folder that may hold math500_test.json, gsm8k_train.jsonl and gsm8k_test.jsonl."""


def main(options: Options) -> None:
    """Prints the grader's figures on its labelled pairs, and on the data sets that are there."""
    print(f"grader version {GRADER_VERSION}\n")
    print_pairs(options.pairs)
    if (options.data / "math500_test.json").exists():
        print_math(options.data / "math500_test.json")
    for name in ("gsm8k_train.jsonl", "gsm8k_test.jsonl"):
        if (options.data / name).exists():
            print_gsm8k(options.data / name)


if __name__ == "__main__":
    sys.exit(run_script(main))
