"""What a run learned, lost, and still gets wrong."""

import re

from rfs.report import write_run_report
from rfs.report.learned import learning_summary
from rfs.report.run_files import read_run
from tests.program.report.written import write_eval


def test_what_was_learned_lost_and_still_fails(run):
    found = learning_summary(read_run(run), "test")
    assert found.steps == [0, 2, 4]
    assert {label: count for _, label, count in found.counts} == {
        "↑ learned": 2,
        "↓ lost": 1,
        "✗ incorrect both times": 1,
    }
    assert [story.problem_id for story in found.improved] == ["p1", "p2"]
    # Never solved comes before what was solved once.
    assert [story.problem_id for story in found.failing] == ["p3", "p0"]
    assert [moment.answer for moment in found.improved[0].moments] == ["2", "1", "1"]


def test_one_evaluation_is_not_a_story(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    write_eval(tmp_path, 0, [True])
    assert learning_summary(read_run(tmp_path), "test") is None
    write_run_report(tmp_path)


def test_without_boxes_the_last_line_is_what_was_said(run):
    """An environment may find any answer correct."""
    for path in run.glob("eval_test_*_rollout_summaries.jsonl"):
        text = path.read_text()
        assert "boxed" in text
        path.write_text(re.sub(r"\\\\boxed\{(.)\}", r"well,\\nmy guess is \1", text))
    found = learning_summary(read_run(run), "test")
    assert [moment.answer for moment in found.improved[0].moments] == [
        "my guess is 2", "my guess is 1", "my guess is 1",
    ]  # fmt: skip


def test_problems_that_share_an_id_have_a_story_each(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for step, right in ((0, [True, False, False]), (2, [False, True, False])):
        write_eval(tmp_path, step, right, of_id="exam-2024")
    found = learning_summary(read_run(tmp_path), "test")
    assert {label: count for _, label, count in found.counts} == {
        "↑ learned": 1,
        "↓ lost": 1,
        "✗ incorrect both times": 1,
    }
    assert [story.problem for story in found.improved] == ["Problem 1?"]
