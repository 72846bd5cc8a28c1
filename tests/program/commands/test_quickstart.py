"""The quickstart's story, told on the toy world; with the shipped model, a few real steps."""

import json

import pytest
from toy import saved, toy_model, toy_problems, toy_tokenizer, train

from reasoning_from_scratch.files.weights import shipped_checkpoint
from reasoning_from_scratch.text import read_lines
from rfs.commands import quickstart as module
from rfs.commands.quickstart import QuickstartOptions, quickstart
from rfs.files.models import load_model_and_tokenizer
from rfs.run.options import resolved
from tests.program.commands.test_compare import TOYS


@pytest.fixture
def small(tmp_path, monkeypatch):
    (tmp_path / "toys.py").write_text(TOYS)
    changes = {
        "model": saved(toy_model(), toy_tokenizer(tmp_path), tmp_path),
        "problems": f"{tmp_path}/toys.py:problems",
        "steps": 12,
        "lr": 2e-2,
        "problems_per_step": 2,
        "rollouts": 16,
        "max_new_tokens": 2,
        "eval_every": 6,
    }
    monkeypatch.setattr(module, "SETTINGS", module.SETTINGS | changes)
    monkeypatch.setattr(module, "load_problems", lambda *_: toy_problems(4)[:1] * 8)


def test_the_story(small, tmp_path, capsys):
    run = tmp_path / "run"
    assert quickstart(QuickstartOptions(log_path=str(run))) == 0
    out = capsys.readouterr().out
    assert "before    after" in out and "test problems, correct" in out
    assert "longer problems, tokens per answer" in out
    assert str(run / "curves.png") in out and (run / "curves.png").exists()
    assert str(run / "report.html") in out and (run / "report.html").exists()
    assert "greedy, 8 problems each" in out  # the report's figure is of other ones, and says so
    assert f" report {run}" in out and " quickstart --longer" in out
    assert len(read_lines(run / "metrics.jsonl")) == 12


@pytest.mark.parametrize(
    "name, longer, least, most",
    [("tiny-grpo", False, 0.15, 0.85), ("tiny-grpo-longer", True, 0.2, 0.5)],
)
def test_shipped_results_are_these_runs(name, longer, least, most, tmp_path):
    """What lies under checkpoints/ came from these settings, and is better than its start."""
    rows = read_lines(shipped_checkpoint(name) / "run" / "metrics.jsonl")
    config = resolved(module.quickstart_config(log_path=str(tmp_path / "run"), longer=longer))
    shipped = json.loads((shipped_checkpoint(name) / "run" / "config.json").read_text())
    assert len(rows) == config.steps
    for setting in ("model", "steps", "lr", "rollouts", "problems_per_step", "max_new_tokens"):
        assert shipped[setting] == getattr(config, setting)
    accuracy = [row["eval_acc"] for row in rows if "eval_acc" in row]
    assert accuracy[0] <= least and accuracy[-1] >= most
    start, tokenizer = load_model_and_tokenizer(config.model)
    end, other = load_model_and_tokenizer(name)
    assert start.cfg == end.cfg and tokenizer.eos_token_id == other.eos_token_id


def test_real_steps_repeat_those_of_the_shipped_run(tmp_path):
    config = module.quickstart_config(log_path=str(tmp_path / "run"), longer=False)
    config.steps, config.eval_every, config.num_groups_to_log = 2, 0, 0
    rows = train(config, quiet=True).rows
    shipped = read_lines(shipped_checkpoint("tiny-grpo") / "run" / "metrics.jsonl")
    for new, old in zip(rows, shipped, strict=False):
        # Another processor rounds differently, which may flip a token here and there.
        assert new["env/all/reward/total"] == pytest.approx(old["env/all/reward/total"], abs=0.05)
        assert new["env/all/ac_tokens_per_turn"] == pytest.approx(
            old["env/all/ac_tokens_per_turn"], rel=0.1
        )
