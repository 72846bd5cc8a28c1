"""Every number in the chapters' prose stands in an output, in code, or in a stored table.

    python tests/book/test_numbers.py      lists the numbers that stand nowhere else

A number that is nobody's result (a definition, a figure of a source that is linked, what is read
off a picture) is named in ELSEWHERE, with the reason.
"""

import json
import re
import sys
from pathlib import Path

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
ELSEWHERE: dict[str, dict[str, str]] = {}


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


def shown_numbers(notebook: dict, folder: Path) -> set[float]:
    """Those of code and outputs, and of the small tables beside the notebook."""
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
    shown = shown_numbers(notebook, path.parent)
    known = ELSEWHERE.get(name, {})
    return [
        (cell, number)
        for cell, number in prose_numbers(notebook)
        if number not in known and not stands(number, shown)
    ]


if __name__ == "__main__":
    for name in NOTEBOOKS:
        for cell, number in unexplained(name) if (ROOT / f"{name}.ipynb").exists() else ():
            print(f"{name}: {cell}: {number}")
    sys.exit()
