"""Settings that are not the defaults stand first."""

from reasoning_from_scratch.config import TrainConfig, to_json
from reasoning_from_scratch.report.settings import not_default
from reasoning_from_scratch.run.options import configure


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
