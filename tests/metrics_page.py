"""The table of metrics in docs/metrics.md, for the tests that compare it with what runs write."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"


def metric_rows() -> list[list[str]]:
    """[names, meaning, healthy] of each line; the names of a line have commas between them."""
    table = PAGE.read_text(encoding="utf-8").split("<!-- the metrics -->\n")[1].split("\n<!--")[0]
    _, _, *lines = table.splitlines()
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    return [[cell.strip().replace(r"\|", "|") for cell in row] for row in cells]


def metric_names() -> list[str]:
    """Of each line, without the marks of code."""
    return [names.replace("`", "") for names, _, _ in metric_rows()]
