"""Pictures that the text discusses are stored: a reader on a web page runs no cell."""

import ast
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted(ROOT.glob("ch0*/ch0*.ipynb"))
STORED = [path for path in NOTEBOOKS if not path.stem.endswith("_exercises")]  # those have none
# What draws: `pictures.draw_...`, a notebook's own `plot_...`, and these.
DRAWING = {
    *("joint_curves", "answer_ways", "clip_curves", "clip_cases", "three_records"),
    *("loop_strip", "two_directions", "groups_and_advantages", "where_length_enters"),
    *("lag_timeline",),
    *("live", "page", "overview", "solved", "visit", "repair", "draw_runs", "savefig"),
}


def draws(source: str) -> bool:
    """Whether running the cell draws: a call, but not one inside of a function that it defines."""
    code = "\n".join(line for line in source.splitlines() if not line.startswith(("%", "!")))
    definitions = ast.FunctionDef | ast.ClassDef
    parts = [part for part in ast.parse(code).body if not isinstance(part, definitions)]
    called = [
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for part in parts
        for node in ast.walk(part)
        if isinstance(node, ast.Call)
    ]
    return any(
        name in DRAWING or name.startswith(("plot_", "draw_")) and name != "draw_rollouts"
        for name in called
    )


def without_its_picture(notebook: dict) -> list[int]:
    """The cells that draw, or say that they drew, and hold no image."""
    missing = []
    for index, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code":
            continue
        data = [output.get("data", {}) for output in cell["outputs"]]
        said = any("<Figure" in "".join(one.get("text/plain", "")) for one in data)
        stored = any(kind.startswith("image/") for one in data for kind in one)
        if (said or draws("".join(cell["source"]))) and not stored:
            missing.append(index)
    return missing


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_every_picture_is_stored(path):
    assert without_its_picture(json.loads(path.read_text(encoding="utf-8"))) == []
