"""A run that was interrupted or extended ends as the uninterrupted one (killed: tests/faults)."""

import json

from command_world import equal
from faults import kill_loop
from toy import named, resumed_run, toy_config, toy_world, train

from reasoning_from_scratch.text import read_lines
from rfs.run.folder import RunFolder


def test_extended_run_equals_the_long_one(tmp_path):
    """10 steps at once, or 4 and then 6 more: the same, and only the last save is final."""
    run = tmp_path / "plain0"  # the number is its own, the settings are those of plain
    long = train(kill_loop.config(tmp_path / "plain"), quiet=True, **toy_world(tmp_path))
    train(kill_loop.config(run, steps=4), quiet=True, **toy_world(tmp_path))
    rest = resumed_run(run, steps=10)
    assert len(long.rows) == 10 and equal(long.model.state_dict(), rest.model.state_dict())
    finals = [x["final"] for x in read_lines(run / "checkpoints.jsonl")]
    assert finals == [False] * (len(finals) - 1) + [True]
    assert RunFolder(run).read_config().steps == 10
    resumed = json.loads((run / "config.json").read_text())
    assert resumed["steps"] == 4 and resumed["resumed"][0]["changed"]["steps"] == 10


def test_killed_before_the_first_save_starts_again(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create(named(toy_config(tmp_path / "run"), **toy_world(tmp_path)))
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 0, "x": 1}\n{"ste')
    result = resumed_run(tmp_path / "run")
    assert [row["step"] for row in result.rows] == [0, 1, 2, 3]
