"""Who runs a cell that trains sees that it does: none of the chapters' is silent for minutes."""

import ast
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOOPS = ("train_grpo", "train_full_grpo")


def calls(source: str, names: tuple[str, ...]) -> list[ast.Call]:
    code = "\n".join(line for line in source.splitlines() if not line.startswith(("%", "!")))
    found = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    return [call for call in found if getattr(call.func, "id", "") in names]


def cells(name: str) -> list[str]:
    notebook = json.loads((ROOT / name).read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("name", ["ch06/ch06_main.ipynb", "ch07/ch07_main.ipynb"])
def test_the_first_cell_that_trains_shows_a_bar(name):
    first = next(source for source in cells(name) if calls(source, ("train", *LOOPS)))
    for call in calls(first, ("train", *LOOPS)):
        given = {word.arg for word in call.keywords}
        if call.func.id == "train":  # which shows one by itself
            assert "quiet" not in given
        else:
            assert "on_step" in given and "bar.update()" in first and "tqdm(" in first
