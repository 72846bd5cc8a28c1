"""docs/sources.md: what works as its source says is run, on the tiny model; what differs is told
in the words and in the file that the row names."""

import ast
import inspect
import re
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pytest

from tests.conftest import ROOT
from tests.test_readmes import UV_RUN, parse_here, place, run_here, works

PAGE = ROOT / "docs" / "sources.md"
VERDICTS = ("same", "same, with a network", "same, with a GPU", "different: ", "missing: ")

# Words are flags or key=value, for the script that the section names. These come before them.
WORDS = re.compile(r"--[a-z]|[a-z_.]+=\S")
SMALL = {
    "ch07/rl_basic.py": "--steps=1 --groups_per_batch=4 --group_size=2 --max_tokens=8 "
    "--eval_limit=2 --num_groups_to_log=1",
    "ch07/chat_rl.py": "--problem-limit=2 --examples-per-step=2 --num-samples=2 "
    "--max-new-tokens=8 --eval-examples=2 --device-batch-size=2",
}

__all__ = ["place"]  # a fixture: a folder with all that a clone has


class Row(NamedTuple):
    feature: str
    here: list[str]  # commands, words and snippets
    links: list[str]
    verdict: str

    @property
    def runs(self):
        return self.verdict == "same" or not self.verdict.startswith("same")


def tables_of(text):
    """A list of rows for each table of a section."""
    tables = []
    for line in text.splitlines():
        if line.startswith("| in "):
            tables.append([])
        elif line.startswith("| "):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            feature, here, verdict = (cell.replace(r"\|", "|") for cell in cells)
            code, links = re.findall(r"`([^`]+)`", here), re.findall(r"\]\(([^)]+)\)", here)
            tables[-1].append(Row(feature, code, links, verdict))
    return tables


PARTS = re.split(r"^## (.+)\n", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
SECTIONS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))  # {title: its text}
ROWS = [row for text in SECTIONS.values() for table in tables_of(text) for row in table]


def steps_of(table, script):
    """What there is to run, each with the rows that it is for. Rows that only have words, one
    after the other, are one command as long as none gives a flag again."""
    steps, given = [], set()
    for row in table:
        words = [word for code in row.here if WORDS.match(code) for word in code.split()]
        assert all(map(WORDS.match, row.here)) or not words, f"words and other code: {row.here}"
        if words and row.runs:
            flags = {word.partition("=")[0].replace("_", "-") for word in words}
            if not given or flags & given:
                steps.append([f"{script} {SMALL[script]}", []])
                given = set()
            given |= flags
            steps[-1][0] += " " + " ".join(words)
            steps[-1][1].append(row)
        elif words:
            parse = f"{script} {' '.join(words)}"
            steps.append([lambda names, place, parse=parse: parse_here(parse), [row]])
            given = set()
        elif row.here:
            steps.append([lambda names, place, row=row: try_row(row, names, place), [row]])
            given = set()
    return steps


def run_step(step, names, place):
    code = run_here(step) if isinstance(step, str) else step(names, place)
    assert code in (0, None), step


def try_row(row, names, place):
    for code in row.here:
        if code.startswith("uv run "):
            command = UV_RUN.sub("", code)
            if re.match(r"rfs train |\S+/train_\w+.py (?!--list)", command):
                command += f" --log-path runs/{len(list(place.glob('runs/*')))}"  # not by the time
            assert works(command, place) in (0, None), code
        elif row.runs:
            run_snippet(code, names)
        else:
            check_names(code, names)
        plt.close("all")


def run_snippet(code, names):
    """Runs a line; an expression must not be False."""
    if isinstance(ast.parse(code).body[-1], ast.Expr):
        found = eval(code, names)
        assert not isinstance(found, (bool, np.bool_)) or found, code
    else:
        exec(code, names)


def check_names(code, names):
    """A call that is not made here has parameters of these names."""
    call = ast.parse(code, mode="eval").body
    values = {word.arg: None for word in call.keywords}
    function = eval(ast.unparse(call.func), names)
    inspect.signature(function).bind(*[None] * len(call.args), **values)


@pytest.mark.parametrize("title", SECTIONS)
def test_what_is_said_to_work_does(title, place, monkeypatch, capsys):
    monkeypatch.setattr(plt, "show", lambda: None)
    monkeypatch.setattr("rfs.run.start.brief_preflight", lambda *_: None)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    text, names, failures = SECTIONS[title], {}, []
    exec("\n".join(re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S)), names)
    script = re.search(r"after `uv run (\S+)`", text)
    for table in tables_of(text):
        for step, rows in steps_of(table, script and script[1]):
            try:
                run_step(step, names, place)
            except (Exception, pytest.fail.Exception) as error:
                features = ", ".join(row.feature for row in rows)
                said = capsys.readouterr().err[-500:]
                failures.append(f"{features}: {type(error).__name__}: {error} {said}")
    assert not failures, "\n".join(failures)


def test_what_is_different_is_told_where_the_row_says():
    for row in ROWS:
        if row.verdict.startswith("different"):
            told = re.findall(r'\["(.+?)"\]\(([^)]+)\)', row.verdict)
            assert told, f"{row.feature}: where is the reader told?"
            for words, link in told:
                text = (PAGE.parent / link.partition("#")[0]).read_text(encoding="utf-8")
                assert words in text, f"{row.feature}: {words!r} is not in {link}"


def test_no_row_says_nothing():
    assert ROWS
    for row in ROWS:
        assert row.verdict in VERDICTS or row.verdict.startswith(VERDICTS[1:]), row
        assert row.here or row.links or not row.verdict.startswith("same"), row
        assert all((PAGE.parent / link.partition("#")[0]).exists() for link in row.links), row
