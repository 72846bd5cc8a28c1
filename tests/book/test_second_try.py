"""The script about a second try: its counting, and a few steps of it."""

import csv

import pytest
import second_try
from second_try import shares_of

RIGHT, WRONG = {"correct": 1.0, "first_try": 1.0}, {"correct": 0.0, "first_try": 0.0}
MENDED = {"correct": 1.0, "first_try": 0.0}


def test_tries_are_told_apart():
    talks = [
        (RIGHT, ["2 + 3 = 5\n\\boxed{5}"]),
        (WRONG, ["\\boxed{4}", "\\boxed{6}"]),
        (MENDED, ["\\boxed{4}", "2 + 3 = 5\n\\boxed{5}"]),
        (WRONG, ["2 + 3 = 6\n\\boxed{6}", "\\boxed{6}"]),
    ]
    assert shares_of(talks) == {
        "first try": 0.25,
        "last try": 0.5,
        "mended": pytest.approx(1 / 3),
        "first worked": 0.5,
        "second worked": pytest.approx(1 / 3),
    }


def test_where_all_are_right_at_once_nothing_is_mended():
    found = shares_of([(RIGHT, ["\\boxed{5}"])])
    assert (found["first try"], found["mended"], found["second worked"]) == (1, 0, 0)


def test_a_few_steps_and_the_picture(tmp_path, monkeypatch):
    plan = {"problems_per_step": 2, "rollouts": 2}
    monkeypatch.setattr(second_try, "PLAN", second_try.PLAN | plan)
    small = {"steps": 2, "limit": 3, "samples": 1, "seeds": (3,)}
    out = tmp_path / "tries.csv"
    second_try.main(second_try.Options(out=out, arms=tuple(second_try.ARMS), **small))
    rows = list(csv.DictReader(out.open(newline="", encoding="utf-8")))
    one = [("0", "greedy"), ("0", "sampled"), ("0", "of the step"), ("1", "of the step")]
    one += [("2", "greedy"), ("2", "sampled")]
    told = [(row["arm"], row["step"], row["answers"]) for row in rows]
    assert told == [(arm, *what) for arm in second_try.ARMS for what in one]
    before = [row for row in rows if row["step"] == "0" and row["answers"] == "greedy"]
    assert len({tuple(row[name] for name in row if name != "arm") for row in before}) == 1
    drawn = out.with_suffix(".png").read_bytes()
    text = out.read_text(encoding="utf-8")
    second_try.main(second_try.Options(out=out, picture_only=True))
    assert out.read_text(encoding="utf-8") == text
    assert out.with_suffix(".png").read_bytes() == drawn
