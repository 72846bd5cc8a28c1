"""The reading times at the top of the notebooks are counted, not guessed."""

import itertools
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = (
    "ch06/ch06_main.ipynb",
    "ch07/ch07_main.ipynb",
    "ch07/ch07_turns.ipynb",
    "ch07/ch07_laboratory.ipynb",
    "ch07/ch07_museum.ipynb",
)
SAID = re.compile(
    r"([\d,]+) words at 100 a minute(?: and (?P<lines>\d+) lines of code at 5 a minute)?"
)
HOURS = {"three and a half hours": 210, "two hours": 120, "a little over an hour": 65}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_words_and_lines_are_as_many_as_it_says(name):
    cells = json.loads((ROOT / name).read_text(encoding="utf-8"))["cells"]
    texts = {kind: [] for kind in ("markdown", "code")}
    for cell in itertools.takewhile(lambda cell: cell["id"] != "exercises", cells):
        texts[cell["cell_type"]].append("".join(cell["source"]))
    words = len(" ".join(texts["markdown"]).split())
    lines = sum(bool(line.strip()) for text in texts["code"] for line in text.splitlines())

    top = "\n".join(texts["markdown"][:3])
    said = SAID.search(top)
    assert int(said[1].replace(",", "")) == pytest.approx(words, abs=100)
    if said["lines"]:  # the others also have pictures and tables to look at, for as long
        assert int(said["lines"]) == pytest.approx(lines, abs=15)
        minutes = next(minutes for hours, minutes in HOURS.items() if hours in top)
        assert words / 100 + lines / 5 == pytest.approx(minutes, abs=15)
