"""docs/your_program.md: its programs run as they stand."""

import re
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs the extra serve")
pytest.importorskip("tinker", reason="Tinker's client needs Python 3.11")
pytest.importorskip("openai")

PAGE = (Path(__file__).parents[2] / "docs" / "your_program.md").read_text(encoding="utf-8")
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


def test_a_stream_of_openais_client(variables, capsys):
    exec(PROGRAMS[1], {})
    assert "boxed{" in capsys.readouterr().out


def test_the_page_says_what_the_command_says():
    from reasoning_from_scratch.serve.app import words_at_start
    from reasoning_from_scratch.serve.options import ServeOptions

    for line in words_at_start(ServeOptions(), 8000):
        assert f"\n{line}\n" in PAGE
