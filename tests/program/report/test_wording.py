"""Words that came and went: what the answers say, at the beginning of a run and at its end."""

import json

import pytest
from report_groups import ByteTokenizer, make_rollout

from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rollouts import Group
from rfs.report import write_iteration, write_run_report
from rfs.report.run_files import read_run
from rfs.report.wording import SHOWN_UNITS, wordings
from tests.program.report.written import metrics_line

PLAIN, LATEX = r"So 3 * 4 = 12. \boxed{12}", r"So \(3 \times 4 = 12\). \boxed{12}"


def write(folder, steps, **config):
    """A step for each list of (text, reward)."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"steps": len(steps), **config}))
    (folder / "metrics.jsonl").write_text("".join(map(metrics_line, range(len(steps)))))
    problem = Problem("p", "Three times four?", "12")
    for step, answers in enumerate(steps):
        rollouts = [make_rollout(problem, text, reward) for text, reward in answers]
        write_iteration(folder, "train", step, [Group(problem, rollouts)], ByteTokenizer())
    return folder


STEPS = [[(PLAIN, 1.0)] * 4] * 3 + [[(PLAIN, 1.0), (LATEX, 0.0), (LATEX, 1.0), (LATEX, 1.0)]]


def test_what_came_is_followed_by_what_went_with_its_rewards(tmp_path):
    found = wordings(read_run(write(tmp_path / "run", STEPS)))
    # \( and \) stand in the same answers as \times, so one row speaks for all.
    assert [(one.unit, one.first, one.last) for one in found] == [
        (r"\times", 0.0, 0.75),
        ("*", 1.0, 0.25),
    ]
    assert [(one.reward_with, one.reward_without) for one in found] == [(2 / 3, 1.0), (1.0, 2 / 3)]
    # "So" and \boxed are everywhere, and numbers are not counted.


def test_a_word_of_the_problem_or_of_a_few_answers_is_no_change_of_style(tmp_path):
    steps = [[(PLAIN, 1.0)] * 12] * 3 + [[(f"Three. {PLAIN}", 1.0)] * 11 + [("12 marbles", 0.0)]]
    found = wordings(read_run(write(tmp_path / "run", steps)))
    assert [one.unit for one in found] == []


def test_where_there_is_nothing_to_compare(tmp_path):
    assert wordings(read_run(write(tmp_path / "short", STEPS[1:]))) == []
    taught = write(tmp_path / "taught", STEPS, objective="cross_entropy")
    assert wordings(read_run(taught)) == []


def test_a_few_are_shown_and_rewards_that_are_no_number_are_left_out(tmp_path):
    words = [chr(ord("a") + number) * 3 for number in range(10)]
    # Each word in other answers, so that none speaks for another.
    last = [(" ".join(words[: 1 + n]), float("nan") if n == 9 else 0.5) for n in range(10)]
    found = wordings(read_run(write(tmp_path / "run", [[("", 0.0)] * 10] * 3 + [last])))
    assert [one.unit for one in found] == words[:SHOWN_UNITS]
    assert found[0].reward_without is None and found[1].last == pytest.approx(8 / 9)


def test_the_page_has_them(tmp_path):
    folder = write(tmp_path / "run", STEPS)
    page = write_run_report(folder).read_text(encoding="utf-8")
    assert "Words that came and went" in page
    assert '<th scope="row" class="answer nowrap">\\times</th><td>0.0%</td><td>75.0%</td>' in page
    assert "<td>+75 points</td><td>0.667</td><td>1.000</td>" in page
    assert "<td>\N{MINUS SIGN}75 points</td>" in page
