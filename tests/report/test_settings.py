"""Settings that are not the defaults stand first."""

import json

from reasoning_from_scratch.config import TrainConfig, to_json
from reasoning_from_scratch.report import write_run_report
from reasoning_from_scratch.report.settings import not_default
from reasoning_from_scratch.run.options import configure
from tests.report.written import write_run


def test_a_run_at_the_defaults_has_none():
    assert not_default(to_json(TrainConfig(log_path="runs/x", preflight=False))) == []
    assert not_default({}) == []


def test_what_recipe_and_options_changed_is_listed_beside_the_default():
    config = to_json(configure("dr_grpo", lr=3e-5, reward_parts={"correct": 1.0, "format": 0.2}))
    rows = {name: (here, default) for name, here, default in not_default(config)}
    assert rows["recipe"] == ("dr_grpo", "grpo")
    assert rows["lr"] == ("3e-05", "–")
    assert rows["reward_parts"] == ("correct 1, format 0.2", "correct 1")
    assert "temperature" not in rows


def test_the_page_folds_the_rest(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "config.json").write_text(json.dumps(to_json(configure(steps=4, seed=7))))
    page = write_run_report(run).read_text("utf-8")
    seed, fold = page.index(">seed</th>"), page.index("<details><summary>All ")
    assert seed < fold < page.index(">temperature</th>")
