"""docs/sources.md: what works as its source says is run, on the tiny model; what differs is told
in the words and in the file that the row names."""

import ast
import inspect
import re
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import pytest

from tests.test_readmes import place, works

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "sources.md"
VERDICTS = ("same", "same, with a network", "same, with a GPU", "different: ", "missing: ")

__all__ = ["place"]  # a fixture: a folder with all that a clone has


class Row(NamedTuple):
    feature: str
    here: list[str]  # commands and snippets
    links: list[str]
    verdict: str

    @property
    def runs(self):
        return self.verdict == "same" or not self.verdict.startswith("same")


def sections():
    """{title: (code above its tables, rows)}"""
    parts = re.split(r"^## (.+)\n", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
    return {title: section(text) for title, text in zip(parts[::2], parts[1::2], strict=True)}


def section(text):
    setup = "\n".join(re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S))
    rows = []
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith(("| in ", "|---")):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            feature, here, verdict = (cell.replace(r"\|", "|") for cell in cells)
            code, links = re.findall(r"`([^`]+)`", here), re.findall(r"\]\(([^)]+)\)", here)
            rows.append(Row(feature, code, links, verdict))
    return setup, rows


SECTIONS = sections()
ROWS = [row for _, rows in SECTIONS.values() for row in rows]


def run_snippet(code, names):
    """Runs a line; an expression must not be False."""
    tree = ast.parse(code, mode="exec")
    if isinstance(tree.body[-1], ast.Expr):
        assert eval(code, names) is not False
    else:
        exec(code, names)


def fits(code, names):
    """A call that is not made has parameters of these names."""
    call = ast.parse(code, mode="eval").body
    values = {word.arg: None for word in call.keywords}
    function = eval(ast.unparse(call.func), names)
    inspect.signature(function).bind(*[None] * len(call.args), **values)


def try_row(row, names, place):
    for code in row.here:
        if code.startswith("uv run "):
            assert works(code.removeprefix("uv run "), place) in (0, None), code
        elif row.runs:
            run_snippet(code, names)
        else:
            fits(code, names)
        plt.close("all")


@pytest.mark.parametrize("title", SECTIONS)
def test_what_is_said_to_work_does(title, place, monkeypatch, capsys):
    monkeypatch.setattr(plt, "show", lambda: None)
    setup, rows = SECTIONS[title]
    names = {}
    exec(setup, names)
    failures = []
    for row in rows:
        try:
            try_row(row, names, place)
        except (Exception, pytest.fail.Exception) as error:
            said = capsys.readouterr().err[-500:]
            failures.append(f"{row.feature}: {type(error).__name__}: {error} {said}")
    assert not failures, "\n".join(failures)


def test_what_is_different_is_told_where_the_row_says():
    for row in ROWS:
        if row.verdict.startswith("different"):
            told = re.findall(r'\["(.+?)"\]\(([^)]+)\)', row.verdict)
            assert told, f"{row.feature}: where is the reader told?"
            for words, link in told:
                text = (PAGE.parent / link).read_text(encoding="utf-8")
                assert words in text, f"{row.feature}: {words!r} is not in {link}"


def test_no_row_says_nothing():
    for row in ROWS:
        assert row.verdict.startswith(VERDICTS), row
        assert row.here or row.links or not row.verdict.startswith("same"), row
        assert all((PAGE.parent / link.partition("#")[0]).exists() for link in row.links), row
    features = [row.feature for row in ROWS]
    assert len(features) > 100


def test_a_line_that_fails_is_noticed(place):
    names = {}
    for code in ("1 == 2", "nothing", "uv run rfs plot --widht 3"):
        with pytest.raises((AssertionError, NameError)):
            try_row(Row("x", [code], [], "same"), names, place)
    with pytest.raises(TypeError):
        fits("print(1, colour=2)", names)
