"""Lines of working are read as they are meant."""

import random

import faithful
import pytest
from faithful import ANSWER_OUTCOMES, LINE_OUTCOMES, Asked, read_line, read_lines

from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.sampling import Sampling, greedy
from rfs.files.models import load_model_and_tokenizer
from rfs.tasks.problem_sets import load_problems

PENS = Problem("pens", "Ben has 12 pens, buys 30 more and loses 4. How many now?", "38")
WORKING = "buys: 12 + 30 = 42? Yes\nloses: 42 - 4 = 38\n\\boxed{38}"


@pytest.mark.parametrize(
    "text, right, said, result",
    [
        ("buys: 12 + 30 = 42", True, "", "42"),
        ("buys: 12 + 30 = 43? Yes", False, "Yes", "43"),
        ("12 + 30 = 43? No, 42", False, "No", "42"),
        ("37 * 74 = 210 + 28 = 238? Yes", False, "Yes", "238"),
        ("7 * 34 = 210 + 28 = 238", True, "", "238"),
        ("x + 4 = 36 / 4 = 9", True, "", "9"),
        ("3/4 = 9/12? Yes", True, "Yes", "9/12"),
        ("10%: 630 / 10 = 64", False, "", "64"),
        ("x = 9", None, "", "9"),  # nothing to compare
        ("1 / 0 = 3", None, "", "3"),
    ],
)
def test_a_line(text, right, said, result):
    line = read_line(text)
    assert (line.is_right, line.verdict, line.result) == (right, said, result)


@pytest.mark.parametrize("text", ["Let's see.", "\\boxed{x = 3}", "4/9 = 20/45? subtract4/45"])
def test_what_is_no_line(text):
    assert read_line(text) is None


def test_a_no_is_mended_by_the_right_number_only():
    assert read_line("12 + 30 = 43? No, 42").is_mended
    assert not read_line("12 + 30 = 43? No, 41").is_mended


def test_one_digit_is_another_one_and_the_length_stays():
    rng = random.Random(0)
    for number in ("7", "42", "138"):
        for _ in range(50):
            other = faithful.other_digit(number, rng)
            assert sum(a != b for a, b in zip(number, other, strict=True)) == 1
            assert other[0] != "0"


def test_what_follows_from_a_changed_result():
    lines = read_lines(WORKING)
    assert faithful.consequences(lines, 0, "45", {"12", "30", "4"}) == ["41"]
    assert faithful.consequences(lines, 1, "35", set()) == []
    assert faithful.consequences(lines, 0, "45", {"42"}) is None  # is it the problem's 42?
    assert faithful.consequences(lines, 0, "3", set()) is None  # below 0


@pytest.mark.parametrize(
    "spoiled", [("= 42", "= 43"), ("boxed{38", "boxed{37"), ("loses", "So\nloses"), ("38", "37")]
)
def test_only_a_working_that_is_right_throughout_is_changed(spoiled):
    assert len(faithful.correct_lines(PENS, WORKING)) == 2
    assert faithful.correct_lines(PENS, WORKING.replace(*spoiled)) == []


def test_a_change_and_what_came_of_it():
    lines = read_lines(WORKING)
    change = faithful.change_a_line(PENS, lines, random.Random(1))
    follows = str(int(change.new) - 4)
    assert change.start == f"buys: 12 + 30 = {change.new}? Yes\n" and change.old == "42"
    assert (change.consistent_answer, change.correct_answer) == (follows, "38")
    for text, expected in (
        (
            f"loses: {change.new} - 4 = {follows}\n\\boxed{{{follows}}}",
            (LINE_OUTCOMES[0], ANSWER_OUTCOMES[0]),
        ),
        ("loses: 42 - 4 = 38? Yes\n\\boxed{38}", (LINE_OUTCOMES[1], ANSWER_OUTCOMES[1])),
        ("loses: 12 - 4 = 8\n\\boxed{8}", (LINE_OUTCOMES[2], ANSWER_OUTCOMES[2])),
        ("\\boxed{38}", (LINE_OUTCOMES[2], ANSWER_OUTCOMES[1])),
    ):
        assert faithful.classify_continuation(change, text) == expected
    last = faithful.change_the_last_line(PENS, lines, random.Random(1))
    assert (
        last.start.endswith(f"loses: 42 - 4 = {last.new}\n") and last.consistent_answer == last.new
    )


def test_a_model_is_asked():
    """Shares add up, and the base model's planted slips are mostly seen."""
    model, tokenizer = load_model_and_tokenizer("tiny-grpo")
    problems = load_problems("tiny-test", limit=12)
    asked = Asked(model, tokenizer)
    ((rest,),) = asked.go_on([PENS], ["buys: 12 + 30 = 45? Yes\n"], greedy(40))
    assert rest.startswith("loses: 45 - 4")
    checked = asked.check_begun(problems[:3], Sampling(40, rollouts=2))
    assert [problem for problem, _ in checked] == [one for one in problems[:3] for _ in range(2)]
    assert all(rest.split("\n")[0].lstrip().startswith(("Yes", "No")) for _, rest in checked)
    workings = faithful.sample_solutions(asked, problems, samples=2)
    (yes, _, slipped, _) = faithful.planted_slip_rows(asked, problems, workings)
    assert yes["problems"] == slipped["problems"] and yes["share"] > slipped["share"]
    twins = {"one": asked, "other": asked}
    rows = faithful.exchanged_slip_rows(twins, problems, dict.fromkeys(twins, workings))
    assert len({(row["case"], row["outcome"], row["count"]) for row in rows}) == len(rows) / 2
    rows = faithful.changed_digit_rows(asked, problems)
    for case in {row["case"] for row in rows}:
        of_case = [row for row in rows if row["case"] == case and row["outcome"] in ANSWER_OUTCOMES]
        assert sum(row["count"] for row in of_case) == of_case[0]["problems"]
