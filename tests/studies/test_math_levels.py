"""The study of MATH, on the tiny model and sums that look like MATH's files."""

import pytest

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.text import read_lines
from rfs.files.tables import read_table
from tests.studies.made_data import write_math

import math_levels  # isort: skip


def test_each_level_before_and_after(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_math(tmp_path, 60)
    monkeypatch.setattr(math_levels, "HELD_BACK", 10)
    options = math_levels.Options(
        seeds=(3,), model="tiny-base", problems="math.jsonl", out=tmp_path / "rows.csv",
        folder=tmp_path / "runs", steps=1, problems_per_step=2, longest=8, held_back=True,
        prompt="book",
    )  # fmt: skip
    math_levels.main(options)
    rows = read_table(options.out)
    levels = ["Level 1", "Level 2", "Level 3", "all"]
    assert [(row["arm"], row["level"]) for row in rows] == [
        (arm, level) for arm in ("base", "grpo") for level in levels
    ]
    assert all(int(row["problems"]) for row in rows) and float(rows[-1]["seconds"]) >= 0
    assert sum(int(row["problems"]) for row in rows[:3]) == int(rows[3]["problems"]) == 10
    trained = read_lines(next(tmp_path.rglob("train.jsonl")))
    assert len(trained) == 26 and {row["level"] for row in trained} == set(levels[:3])
    math_levels.main(options)
    assert read_table(options.out) == rows


def test_the_test_set_has_the_levels_that_nothing_was_trained_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_math(tmp_path, 60)
    every = math_levels.load_problems
    monkeypatch.setattr(math_levels, "load_problems", lambda name: every(name)[:10])
    options = math_levels.Options(model="tiny-base", out=tmp_path / "rows.csv", longest=4)
    this = {"arm": "base", "seed": ""}
    math_levels.measure_by_level(options, this, options.model, tmp_path / "base", 0.0)
    rows = read_table(options.out)
    assert [row["level"] for row in rows] == [*(f"Level {i}" for i in range(1, 6)), "all"]
    assert {row["set"] for row in rows} == {"MATH-500"} and rows[0]["problems"] == "2"


def test_an_unknown_prompt_is_refused():
    with pytest.raises(UserError, match="unknown prompt 'qwem': did you mean 'qwen'"):
        math_levels.main(math_levels.Options(prompt="qwem"))
