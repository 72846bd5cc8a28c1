"""Settings that are not the defaults stand first."""

from rfs.config import RunConfig, to_json
from rfs.report.settings import changed_settings
from rfs.run.options import configure, resolved


def test_a_run_at_the_defaults_has_none():
    assert changed_settings(to_json(RunConfig(log_path="runs/x", preflight=False))) == []
    assert changed_settings({}) == []


def test_what_is_not_the_default_is_listed_with_who_set_it():
    parts = {"correct": 1.0, "format": 0.2}
    config = resolved(configure("dr_grpo", lr=3e-5, reward_parts=parts))
    rows = {name: of for name, *of in changed_settings(to_json(config) | {"set_by": config.set_by})}
    assert rows["recipe"] == ["dr_grpo", "recipe dr_grpo", "grpo"]
    assert rows["advantage"] == ["mean", "recipe dr_grpo", "zscore"]
    assert rows["lr"] == ["3e-05", "you", "–"]
    assert rows["reward_parts"] == ["correct 1, format 0.2", "you", "correct 1"]
    assert rows["problems"] == ["tiny", "the model and the problems", "–"]
    assert rows["length_constant"][1] == "other settings"
    assert "temperature" not in rows
