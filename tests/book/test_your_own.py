"""docs/your_own.md: its Python files do what the page says, with the commands that it gives."""

import os
import re
import subprocess
import sys

import pandas as pd
import pytest

from rfs.commands import cli
from tests.conftest import ROOT
from tests.file_server import respond, serving

PAGE = (ROOT / "docs" / "your_own.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.M | re.S)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with the page's Python files, under the names that it gives them."""
    monkeypatch.chdir(tmp_path)
    names = re.findall(r"[Ss]aved as `(\w+\.py)`", PAGE)
    for name, block in zip(names, BLOCKS, strict=False):  # the last is half of a file of ours
        (tmp_path / name).write_text(block)
    return tmp_path


def test_a_data_set_from_a_hub(files):
    """From a local server that speaks as the hub does."""
    rows = [{"question": "How many are 6 and 7?", "answer": "6 + 7 = 13\n#### 13"}]
    pd.DataFrame(rows).to_parquet(files / "set.parquet")
    content = (files / "set.parquet").read_bytes()

    def as_the_hub(handler, content):
        assert "/datasets/openai/gsm8k/resolve/main/main/train-00000-of-00001" in handler.path
        respond(handler, 200, content, ETag='"one"', X_Repo_Commit="0" * 40)

    code = "from rfs import load_problems as load\n"
    code += "print(*[(p.problem, p.answer) for p in load('from_hub.py:problems')])"
    with serving(content) as server:
        server.behaviors = [as_the_hub]
        place = {"HF_ENDPOINT": server.url, "HF_HOME": str(files / "cache")}
        done = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | place, capture_output=True, text=True
        )
    assert done.stdout == "('How many are 6 and 7?', '13')\n", done.stderr


def test_an_environment(files):
    command, *_ = re.findall(r"^uv run rfs (train --environment.*?)\n```", PAGE, flags=re.M | re.S)
    small = "--steps 2 --problems-per-step 2 --rollouts 2 --eval-limit 2 --no-preflight"
    small += " --num-groups-to-log 1 --log-path run"
    assert cli.main([*command.replace("\\\n", " ").split(), *small.split()]) == 0
    metrics = pd.read_json(files / "run" / "metrics.jsonl", lines=True)
    assert (metrics["env/all/turns_per_episode"] == 2).all()
    assert metrics["env/all/stayed"].notna().all()
