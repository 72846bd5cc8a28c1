"""The one variable at the top of chapter 6: what it names is what a run of that model takes."""

import json
from pathlib import Path

import pytest

from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.run.options import resolved

NOTEBOOK = Path(__file__).parents[2] / "ch06" / "ch06_main.ipynb"


@pytest.mark.parametrize("model", ["tiny", "base"])
def test_the_switch_names_the_defaults_of_a_run(model):
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    (switch,) = [
        "".join(cell["source"]) for cell in cells if "".join(cell["source"]).startswith("MODEL = ")
    ]
    names: dict = {}
    exec(switch.replace('MODEL = "tiny"', f'MODEL = "{model}"'), names)
    config = resolved(TrainConfig(model=names["MODEL"]))
    assert names["MODEL"] == model
    assert names["TRAIN_SET"] == config.problems
    assert [names["TEST_SET"]] == config.eval_problems
    assert names["MAX_TOKENS"] == config.max_new_tokens
