"""Settings that are not the defaults stand first."""

from rfs.config import RunConfig, to_json
from rfs.report.settings import not_default
from rfs.run.options import configure


def test_a_run_at_the_defaults_has_none():
    assert not_default(to_json(RunConfig(log_path="runs/x", preflight=False))) == []
    assert not_default({}) == []


def test_what_recipe_and_options_changed_is_listed_beside_the_default():
    config = to_json(configure("dr_grpo", lr=3e-5, reward_parts={"correct": 1.0, "format": 0.2}))
    rows = {name: (here, default) for name, here, default in not_default(config)}
    assert rows["recipe"] == ("dr_grpo", "grpo")
    assert rows["lr"] == ("3e-05", "–")
    assert rows["reward_parts"] == ("correct 1, format 0.2", "correct 1")
    assert "temperature" not in rows
