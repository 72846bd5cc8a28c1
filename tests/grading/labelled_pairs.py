"""Pairs of answers that were labelled by hand: are they the same?"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Pair(NamedTuple):
    pred: str
    truth: str
    same: bool


def labelled_pairs(path: Path) -> Iterator[Pair]:
    """Lines "## kind", "? truth", "= the same ;; ...", "! not the same ;; ..."."""
    truth = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        mark, _, rest = line.partition(" ")
        if mark == "?":
            truth = rest
        elif mark in ("=", "!"):
            for text in rest.split(" ;; "):
                yield Pair(text.strip(), truth, mark == "=")
