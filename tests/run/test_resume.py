"""A run that was interrupted or extended ends as the uninterrupted one (killed: tests/faults)."""

import json

import pytest
from command_world import equal
from toy import named, saved, toy_config, toy_model, toy_tokenizer, toy_world, train

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.run.folder import RunFolder
from reasoning_from_scratch.run.options import resumed_config
from reasoning_from_scratch.text import read_lines


def ten_steps(folder):
    return toy_config(
        folder,
        steps=10,
        problems_per_step=2,
        eval_every=3,
        save_every=2,
        rolling_every=1,
        keep_last=2,
        lr=1e-2,
        kl="k3",
        kl_coef=0.01,
        epochs=2,
        weight_decay=0.1,
        max_new_tokens=3,
    )


def test_extended_run_equals_the_long_one(tmp_path):
    """10 steps at once, or 4 and then 6 more: the same, and only the last save is final."""
    long = train(ten_steps(tmp_path / "long"), quiet=True, **toy_world(tmp_path))
    short = ten_steps(tmp_path / "short")
    short.steps = 4
    train(short, quiet=True, **toy_world(tmp_path))
    asked = resumed_config(tmp_path / "short", steps=10)
    rest = train(asked, quiet=True, **toy_world(tmp_path))
    assert equal(long.model.state_dict(), rest.model.state_dict())
    finals = [x["final"] for x in read_lines(tmp_path / "short" / "checkpoints.jsonl")]
    assert finals == [False] * (len(finals) - 1) + [True]
    assert RunFolder(tmp_path / "short").read_config().steps == 10
    resumed = json.loads((tmp_path / "short" / "config.json").read_text())
    assert resumed["steps"] == 4 and resumed["resumed"][0]["changed"]["steps"] == 10


def test_killed_before_the_first_save_starts_again(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create(named(toy_config(tmp_path / "run"), **toy_world(tmp_path)))
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 0, "x": 1}\n{"ste')
    result = train(resumed_config(tmp_path / "run"), quiet=True, **toy_world(tmp_path))
    assert [row["step"] for row in result.rows] == [0, 1, 2, 3]


def test_resume_with_another_model_is_refused(tmp_path):
    config = toy_config(tmp_path / "run", steps=2, save_every=1)
    train(config, quiet=True, **toy_world(tmp_path))
    other = saved(toy_model(emb_dim=64), toy_tokenizer(tmp_path), tmp_path)
    with pytest.raises(UserError, match="another --model"):
        train(resumed_config(tmp_path / "run", steps=3, model=other), quiet=True)
