"""What CONTRIBUTING.md shows works: each of its examples is run, as it stands."""

import re
from pathlib import Path

import pytest

from reasoning_from_scratch.recipes import RECIPES
from rfs.tasks.problem_sets import SOURCES

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", flags=re.M | re.S)
TITLE = re.compile(r"^#+ (.*)$|^\*\*(.*?)\*\*", flags=re.M)


def examples() -> dict[str, tuple[str, str]]:
    """Title -> (code, what it prints); the title is the heading or bold words before the code."""
    found = {}
    for block in BLOCK.finditer(TEXT):
        *_, title = TITLE.finditer(TEXT, 0, block.start())
        found[title[1] or title[2]] = (block[1], block[2] or "")
    return found


EXAMPLES = examples()


def test_every_block_is_an_example():
    assert len(EXAMPLES) == TEXT.count("```python") >= 7


@pytest.mark.parametrize("title", EXAMPLES)
def test_the_example_works(title, tmp_path, monkeypatch, capsys):
    code, printed = EXAMPLES[title]
    assert printed or "assert " in code, "an example shows that it works"
    monkeypatch.chdir(tmp_path)
    known, sources = dict(RECIPES), list(SOURCES)
    try:
        exec(compile(code, title, "exec"), {"__name__": "example"})
    finally:
        RECIPES.clear()
        RECIPES.update(known)
        SOURCES[:] = sources
    assert capsys.readouterr().out == printed


def test_files_that_are_named_exist():
    root = Path(__file__).parents[1]
    named = re.findall(r"`((?:tests|ch07|reasoning_from_scratch)/[\w/]+\.py)`", TEXT)
    assert len(named) > 4
    assert [name for name in named if not (root / name).exists()] == []
