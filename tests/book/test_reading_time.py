"""The reading time at the top of chapter 6 is counted, not guessed."""

import json
import re
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "ch06" / "ch06_main.ipynb"
HOURS = {"two": 2, "three": 3, "four": 4, "five": 5}
SAID = re.compile(
    r"about (\w+) hours: ([\d,]+) words at (\d+) a minute and (\d+) lines of code at (\d+) a minute"
)


def test_words_and_lines_are_as_many_as_it_says():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    texts = {kind: [] for kind in ("markdown", "code")}
    for cell in cells:
        texts[cell["cell_type"]].append("".join(cell["source"]))
    words = len(" ".join(texts["markdown"]).split())
    lines = sum(bool(line.strip()) for text in texts["code"] for line in text.splitlines())

    hours, said_words, pace, said_lines, code_pace = SAID.search(texts["markdown"][0]).groups()
    assert int(said_words.replace(",", "")) == pytest.approx(words, abs=150)
    assert int(said_lines) == pytest.approx(lines, abs=15)
    minutes = words / int(pace) + lines / int(code_pace)
    assert round(minutes / 60) == HOURS[hours]
