"""A run folder as the reports read it: whatever is there, also while the run writes to it."""

import json
import os

import pytest

from reasoning_from_scratch.errors import UserError
from rfs.report import write_run_report
from rfs.report.run_files import newest_run, read_run
from tests.program.report.written import metrics_line


def test_a_step_that_was_run_again_counts_once_and_half_a_line_not_at_all(run):
    with open(run / "metrics.jsonl", "a") as file:
        file.write(metrics_line(2, **{"env/all/reward/total": 0.9}) + '{"step": 4, "env/al')
    rows = read_run(run).metrics
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert rows[2]["env/all/reward/total"] == 0.9


def test_what_a_resumption_changed_holds_since_then(run):
    first = json.loads((run / "config.json").read_text())
    changed = {"steps": 8, "evaluators": ["b.py:second"]}
    first |= {"steps": 3, "evaluators": ["a.py:first"], "resumed": [{"changed": changed}]}
    (run / "config.json").write_text(json.dumps(first))
    found = read_run(run)
    assert found.config["steps"] == 8 and found.evaluators == ["first", "second"]
    assert "4 of 8 steps" in write_run_report(run).read_text("utf-8")


def test_an_exported_model_is_no_run(run):
    model = run.parent / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "qwen3"}')
    assert newest_run(run.parent) == run
    with pytest.raises(UserError, match="no run in"):
        read_run(model)


# ---- which run is the newest


def test_a_report_written_later_does_not_make_an_old_run_new(tmp_path):
    """Of three runs, the second has written its last step last."""
    for name, start, last_step in (("first", 10, 30), ("second", 20, 50), ("third", 40, None)):
        (tmp_path / name).mkdir()
        for file, moment in (("config.json", start), ("metrics.jsonl", last_step)):
            if moment:
                (tmp_path / name / file).write_text("{}")
                os.utime(tmp_path / name / file, (moment, moment))
    (tmp_path / "first" / "report.html").write_text("written just now")
    (tmp_path / "notes").mkdir()
    assert newest_run(tmp_path) == tmp_path / "second"
