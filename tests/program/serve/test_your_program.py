"""docs/your_program.md: its programs run as they stand."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rfs import load_problems

pytest.importorskip("starlette", reason="needs the extra serve")
pytest.importorskip("tinker", reason="Tinker's client needs Python 3.11")
pytest.importorskip("openai")

PAGE = (Path(__file__).parents[3] / "docs" / "your_program.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def variables(server, monkeypatch):
    monkeypatch.setenv("TINKER_BASE_URL", server.address)
    monkeypatch.setenv("TINKER_API_KEY", "tml-local")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.address}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "tml-local")


def test_the_quickstart_of_tinkers_client(variables, capsys):
    exec(PROGRAMS[0], {})
    *losses, tokens = capsys.readouterr().out.splitlines()
    assert float(losses[0]) > float(losses[1]) > float(losses[2]) and tokens.startswith("[")


def test_the_cookbooks_data(tmp_path, monkeypatch):
    """A folder that the datasets library opens as openai/gsm8k, and conversations from it."""
    monkeypatch.chdir(tmp_path)
    exec(PROGRAMS[1], {})
    about = json.loads(Path("openai/gsm8k/README.md").read_text().split("---")[1])
    (config,) = about["configs"]
    assert config["config_name"] == "main"
    names = {file["split"]: file["path"] for file in config["data_files"]}
    rows = [json.loads(line) for line in Path("openai/gsm8k", names["train"]).open()]
    assert len(rows) == 2000 and Path("openai/gsm8k", names["test"]).is_file()
    problem = load_problems("tiny", limit=1)[0]
    assert rows[0]["question"] == problem.problem
    assert rows[0]["answer"].endswith(f"\\boxed{{{problem.answer}}}\n#### {problem.answer}")

    class MathEnv:  # as of tinker-cookbook 0.6.1, which the tests do not install
        standard_fewshot_prefix = staticmethod(lambda: [{"role": "user", "content": "r's?"}])
        question_suffix = staticmethod(lambda: " In a box.")

    module = ModuleType("tinker_cookbook.recipes.math_rl.math_env")
    module.MathEnv = MathEnv
    for name in ("tinker_cookbook", "tinker_cookbook.recipes", "tinker_cookbook.recipes.math_rl"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(PROGRAMS[2], {})
    first = json.loads(Path("solved.jsonl").open().readline())["messages"]
    assert [turn["role"] for turn in first] == ["user", "user", "assistant"]
    assert first[1]["content"] == problem.problem + " In a box."
    assert first[2]["content"].endswith(f"\\boxed{{{problem.answer}}}")


def test_a_stream_of_openais_client(variables, capsys):
    exec(PROGRAMS[3], {})
    assert "boxed{" in capsys.readouterr().out


def test_the_page_says_what_the_command_says():
    from rfs.serve.app import startup_lines
    from rfs.serve.options import ServeOptions

    for line in startup_lines(ServeOptions(), 8000):
        assert f"\n{line}\n" in PAGE
