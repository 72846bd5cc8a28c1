"""Every number in the chapters' prose stands in an output, in code, or in a stored table.

    python tests/book/test_numbers.py      lists the numbers that stand nowhere else

A number that is nobody's result (a definition, a figure of a source that is linked, what is read
off a picture) is named in ELSEWHERE, with the reason.
"""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ("ch07/ch07_main", "ch07/ch07_museum", "ch07/ch07_laboratory")
# What is no number of the text: code, formulas, links, references, headings, years.
NOT_PROSE = re.compile(
    r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$|\]\([^)]*\)|<[^>]*>|arXiv:[\d.]+"
    r"|^#+ .*?$|^\s*\d+\. |(?i:sections?|chapter|exercises?|rooms?|stages?) [\d.]+"
    r"(?:(?:,| and| or| to) [\d.]+)*|\b(?:19|20)\d\d\b|[A-Za-z][\w-]*\d[\w.]*",
    re.DOTALL | re.MULTILINE,
)
NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
STUDENT = "Student's t, in evaluation/paired.py"
ELSEWHERE: dict[str, dict[str, str]] = {
    "ch07/ch07_main": {
        "7.2": "a section",
        "7.3": "a section",
        "2.6": "2.47 / 0.94, both printed",
        "1.75": "0.88 / 0.50, both printed",
        "12.7": STUDENT,
        "4.3": STUDENT,
        "2.8": STUDENT,
        "0.75": "parameters of Qwen3-0.6B, in its published file",
        "27": "benchmarks/README.md",
        "14": "512 tokens of 27 ms",
        "13": "weights, gradients, AdamW and Python, added up in that cell",
        "11.93": "the last entropy_avg of the author's published metrics of his run with KL",
        "198": "regimes.csv, by test_laboratory.py",
        "0.15": "likewise",
        "12": "likewise",
        "41": "likewise",
        "5e-5": "regimes.csv, lag 8",
        "10": "regimes.csv, lag 8 at 2e-4, by test_laboratory.py",
    },
    "ch07/ch07_museum": {
        "11.93": "the author's published metrics, as in ch07_main",
        "0.4": "ch06/book_results.csv",
        "100": "likewise",
        "80": "the limit of that room, in museum.py",
    },
    "ch07/ch07_laboratory": {
        "10": "regimes.csv, lag 8 at 2e-4, by test_laboratory.py",
        "5e-5": "likewise, another rate",
        "36": "DAPO, table 1",
        "38": "DAPO, table 1",
        "41": "DAPO, table 1",
        "42": "DAPO, table 1",
        "50": "DAPO, table 1",
        "150": "steps of the second run in pass_over_training.py",
        "64": "rollouts of a step, 8 x 8; DeepSeekMath's group",
        "21.4": "Spurious Rewards, arXiv:2506.10947",
        "29.1": "Spurious Rewards, arXiv:2506.10947",
    },
}


def numbers(text: str) -> list[str]:
    return [found.rstrip(",").replace(",", "") for found in NUMBER.findall(text)]


def prose_numbers(notebook: dict) -> list[tuple[str, str]]:
    """(cell, number) of each markdown cell."""
    return [
        (cell.get("id", "?"), number)
        for cell in notebook["cells"]
        if cell["cell_type"] == "markdown"
        for number in numbers(NOT_PROSE.sub(" ", "".join(cell["source"])))
    ]


def shown_numbers(notebook: dict) -> set[float]:
    """Those of code and of outputs."""
    texts = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            texts.append("".join(cell["source"]))
            for output in cell["outputs"]:
                texts.append("".join(output.get("text", "")))
                shown = output.get("data", {}).items()
                texts += ["".join(of) for kind, of in shown if kind.startswith("text")]
    return {float(number) for text in texts for number in numbers(text)}


def stands(number: str, shown: set[float]) -> bool:
    """As it is, or as a percentage, rounded as the text rounds."""
    value = float(number)
    digits = len(number.partition(".")[2]) if "e" not in number else 12
    return any(round(of * scale, digits) == value for of in shown for scale in (1, 100))


def unexplained(name: str) -> list[tuple[str, str]]:
    path = ROOT / f"{name}.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    shown = shown_numbers(notebook)
    known = ELSEWHERE.get(name, {})
    return [
        (cell, number)
        for cell, number in prose_numbers(notebook)
        if number not in known and not stands(number, shown)
    ]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_number_stands_somewhere(name):
    assert unexplained(name) == []


def test_an_invented_number_is_found():
    """Of a percentage, its digits; code, links, years and sections are no numbers of the text."""
    cell = {"cell_type": "code", "source": "x = 3", "outputs": [{"text": ["0.847\n1,250 tokens"]}]}
    text = "In 2025 (section 7.2, [12](x/34)), `56` of 1,250: 84.7 %, not 85.2 %, and $\\pi = 3.1$."
    notebook = {"cells": [cell, {"cell_type": "markdown", "id": "a", "source": [text]}]}
    shown = shown_numbers(notebook)
    found = [number for _, number in prose_numbers(notebook)]
    assert found == ["12", "1250", "84.7", "85.2"]
    assert [number for number in found if not stands(number, shown)] == ["12", "85.2"]


if __name__ == "__main__":
    for name in NOTEBOOKS:
        for cell, number in unexplained(name):
            print(f"{name}: {cell}: {number}")
