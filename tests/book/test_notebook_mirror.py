"""Notebook and package: one copy."""

import json

import pytest

from tests.book import notebook_mirror


def cell(source):
    return {"cell_type": "code", "metadata": {}, "source": source.splitlines(keepends=True)}


TEXTS = {"add": {"m.py": "@cached\ndef add(a, b):\n    return a + b  # why"}}


def test_the_chapters_show_what_the_package_runs():
    texts = notebook_mirror.package_texts()
    for path in notebook_mirror.notebooks():
        assert notebook_mirror.check_notebook(path, texts) == []


@pytest.mark.parametrize(
    "source, complaint",
    [
        ("@cached\ndef add(a, b):\n    return a + b  # why", None),
        ("%timeit 1\n!ls\n@cached\ndef add(a, b):\n    return a + b  # why\nadd(1, 2)", None),
        ("def add_draft(a):\n    return a", None),
        ("def plot_it():\n    pass", None),
        ("@cached\ndef add(a, b):\n    return a + b", "add differs"),
        ("def add(a, b):\n    return a + b  # why", "add differs"),
        ("def subtract(a):\n    return a", "subtract is not in the package"),
    ],
)
def test_drift_is_noticed(source, complaint):
    complaints, _ = notebook_mirror.check_cell(cell(source), TEXTS)
    assert len(complaints) == (complaint is not None)
    assert complaint is None or complaint in complaints[0]


def test_fix_rewrites_only_the_definition_and_is_idempotent(tmp_path):
    path = tmp_path / "ch06_main.ipynb"
    drifted = cell("%matplotlib inline\nx = 1\ndef add(a):\n    return a\n\nadd(x)\n")
    text = {"cells": [drifted, {"cell_type": "markdown", "source": ["def add(): prose"]}]}
    path.write_text(json.dumps(text))
    assert notebook_mirror.check_notebook(path, TEXTS, fix=True)
    fixed = path.read_text()
    source = "".join(json.loads(fixed)["cells"][0]["source"])
    assert source == "%matplotlib inline\nx = 1\n" + TEXTS["add"]["m.py"] + "\n\nadd(x)"
    assert notebook_mirror.check_notebook(path, TEXTS, fix=True) == []
    assert path.read_text() == fixed
