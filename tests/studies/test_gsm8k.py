"""The study of GSM8K, on a tiny model and on sums that look like GSM8K's file."""

import json
import sys
from pathlib import Path

import pytest

from reasoning_from_scratch.files.data_sets import DATA_SETS
from reasoning_from_scratch.files.tables import read_table
from reasoning_from_scratch.problems import PLACE, Problem
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.sampling import Rollout

sys.path.append(str(Path(__file__).parents[2] / "studies"))
import gsm8k  # noqa: E402


@pytest.fixture
def data(tmp_path, monkeypatch):
    """The two files, as downloads leave them."""
    monkeypatch.chdir(tmp_path)
    for name in ("gsm8k", "gsm8k-test"):
        wanted = DATA_SETS[name]
        rows = []
        for i in range(wanted.rows):
            a, b = i % 90 + 1, i % 7 + 2
            text = f"Ann has {a + b} = <<{a}+{b}={a + b}>>{a + b} pens.\n#### {a + b}"
            rows.append(json.dumps({"question": f"{name} {i}: {a} + {b} pens?", "answer": text}))
        (tmp_path / wanted.filename).write_text("\n".join(rows) + "\n")
    gsm8k.split.cache_clear()
    yield
    gsm8k.split.cache_clear()


def test_examples_held_back_and_trained_are_apart(data):
    shown, held_back, rest = gsm8k.split()
    assert (len(shown), len(held_back), len(rest)) == (4, 200, 7473 - 204)
    assert len({p.problem for p in (*shown, *held_back, *rest)}) == 7473
    assert gsm8k.in_one_line(shown[0]) == "Ann has 3 = 3 pens. \\boxed{3}"


def test_every_prompt_has_a_place_for_the_problem(data):
    for make in gsm8k.PROMPTS.values():
        assert make().count(PLACE) == 1
    assert gsm8k.four_examples().count("\\boxed") == 4


@pytest.mark.parametrize(
    "text, number",
    [("5 and then 1,234.5 pens", "1234.5"), ("none", ""), ("it is -3.", "-3"), ("7", "7")],
)
def test_the_last_number(text, number):
    assert gsm8k.last_number(text) == number


def test_what_is_said_of_greedy_answers():
    problem = Problem("1", "3 + 4?", "7")
    texts = ["so \\boxed{7}", "it is 7", "so \\boxed{8}", "who knows"]
    groups = [
        Group(problem, [Rollout(problem, text=text, response_ids=[1, 2], finished=i < 3)])
        for i, text in enumerate(texts)
    ]
    row = gsm8k.greedy_figures(groups)
    assert row["greedy"] == 0.25 and row["box"] == 0.5 and row["correct_in_box"] == 0.5
    assert row["last_number"] == 0.5 and row["tokens"] == 2 and row["cut_off"] == 0.25


def test_a_row_for_each_prompt_and_for_a_run_that_is_not_repeated(data, tmp_path, monkeypatch):
    monkeypatch.setattr(gsm8k, "HELD_BACK", 4)
    for name in ("LONGEST", "LONGEST_FREE"):
        monkeypatch.setattr(gsm8k, name, 8)
    options = gsm8k.Options(
        arms=("base", "grpo"), seeds=(3,), model="tiny-base", out=tmp_path / "rows.csv",
        folder=tmp_path / "runs", steps=2, problems_per_step=2, every=2,
    )  # fmt: skip
    gsm8k.main(options)
    rows = read_table(options.out)
    assert [row["arm"] for row in rows] == [*(f"base, {name}" for name in gsm8k.PROMPTS), "grpo"]
    assert rows[-1]["steps"] == "2" and float(rows[-1]["tokens"]) > 0
    measured = [*(tmp_path / "runs").glob("*/*/*.json"), *tmp_path.rglob("metrics.jsonl")]
    written = {path: path.stat().st_mtime_ns for path in measured}
    assert len(written) == len(rows) + 1
    gsm8k.main(options)
    assert sorted(map(str, read_table(options.out))) == sorted(map(str, rows))
    assert written == {path: path.stat().st_mtime_ns for path in written}
