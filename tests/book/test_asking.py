"""The script that asks whether GRPO finds out when to ask: its counting, and a few steps of it."""

import csv
import math

import asking
import pytest
from asking import Answer, figures, is_true

WORKING = """ Let's see.
<<18 * 7 =126>>
126 + 4 = 130
130 / 5 = 27
x = 12 * 13 = 120 + 36 = 156
3/4 = 9/12
\\boxed{156}"""


def test_lines_that_ask_are_counted_apart_for_products_and_sums():
    found = figures([Answer(WORKING, 1.0, 60, 5), Answer("\\boxed{2}", 0.0, 4, 0)])
    assert found["hard asked"] == pytest.approx(1 / 3)
    assert found["easy asked"] == 0
    assert found["hard right alone"] == 0.5  # 27 is wrong, 156 is right
    assert (found["right"], found["drawn"], found["written"]) == (0.5, 32, 2.5)


def test_where_there_is_no_such_line_its_share_is_unknown():
    found = figures([Answer("<<5 + 4 =9>>\n\\boxed{9}", 1.0, 20, 3)])
    assert found["easy asked"] == 1
    assert math.isnan(found["hard asked"]) and math.isnan(found["hard right alone"])


@pytest.mark.parametrize(
    "line, true",
    [
        ("18 * 7 = 126", True),
        ("18 * 7 = 70 + 56 = 126", True),
        ("18 * 7 = 70 + 56 = 127", False),
        ("x = 10 / 2 = 5", True),
        ("10 / 3 = 3", False),
        ("18 * 7 = ", False),
    ],
)
def test_a_line_is_true_where_its_end_is_what_its_product_comes_to(line, true):
    assert is_true(line) is true


def test_a_few_steps_and_the_picture(tmp_path, monkeypatch):
    plan = {"problems_per_step": 2, "rollouts": 2}
    monkeypatch.setattr(asking, "PLAN", asking.PLAN | plan)
    monkeypatch.setattr(asking, "MAX_NEW_TOKENS", 24)
    small = {"model": "tiny-base", "steps": 2, "limit": 3, "samples": 1, "seeds": (3,)}
    out = tmp_path / "asking.csv"
    asking.main(asking.Options(out=out, **small))
    asking.main(asking.Options(out=out, arms=("calculator",), **small))  # takes the place
    rows = list(csv.DictReader(out.open(newline="", encoding="utf-8")))
    one = [("0", "greedy"), ("0", "sampled"), ("0", "of the step"), ("1", "of the step")]
    one += [("2", "greedy"), ("2", "sampled")]
    told = [(row["arm"], row["step"], row["answers"]) for row in rows]
    assert told == [(arm, *what) for arm in ("nobody answers", "calculator") for what in one]
    drawn = out.with_suffix(".png").read_bytes()
    text = out.read_text(encoding="utf-8")
    asking.main(asking.Options(out=out, picture_only=True))
    assert out.read_text(encoding="utf-8") == text
    assert out.with_suffix(".png").read_bytes() == drawn
