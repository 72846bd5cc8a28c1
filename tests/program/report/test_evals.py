"""Evaluations read back, and their scores."""

import pytest
from report_groups import ByteTokenizer, make_groups

from rfs.evaluation.evaluate import wilson_interval
from rfs.report import write_iteration, write_run_report
from rfs.report.learned import eval_rows
from rfs.report.run_files import read_run
from tests.program.report.written import write_eval


def test_the_evaluation_table(run):
    rows = eval_rows(read_run(run))
    found = [(row.step, row.accuracy, row.problems) for row in rows]
    assert found == [(0, 0.25, 4), (2, 0.5, 4), (4, 0.5, 4)]
    assert (rows[1].low, rows[1].high) == wilson_interval(2, 4)
    assert rows[0].length == 10 and rows[0].cut_off == 0


def test_pass_at_k_counts_problems_with_any_right_answer(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    groups = make_groups(count=3, size=4)  # rollouts 0 and 2 are right
    for rollout in groups[0].rollouts:
        rollout.rewards["correct"] = 0.0
    write_iteration(tmp_path, "eval/many", 0, groups, ByteTokenizer())
    (row,) = eval_rows(read_run(tmp_path))
    assert (row.samples, row.problems) == (4, 3)
    assert (row.accuracy, row.solved) == pytest.approx((4 / 12, 2 / 3))
    assert "@4: 66.7%" in write_run_report(tmp_path).read_text("utf-8")


def test_problems_that_share_an_id_are_counted_one_by_one(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    write_eval(tmp_path, 0, [True, False, False, False], of_id="exam-2024")
    (row,) = eval_rows(read_run(tmp_path))
    assert (row.problems, row.samples, row.solved) == (4, 1, 0.25)
    assert (row.low, row.high) == wilson_interval(1, 4)
