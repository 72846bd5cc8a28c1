"""Weights & Biases, where it is asked for."""

import sys
import types

import pytest
from toy import toy_config, toy_world

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.run.options import resumed_config
from reasoning_from_scratch.run.start import train


def test_wandb_continues_the_same_run(tmp_path, monkeypatch):
    calls = []

    class Run:
        id = "abc"

        def log(self, row, step):
            calls.append((step, None in row.values()))

        def finish(self):
            calls.append("finish")

    def init(**options):
        calls.append((options["project"], options["id"], options["resume"]))
        return Run()

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    config = toy_config(tmp_path / "run", steps=1, wandb="mine")
    train(config, quiet=True, **toy_world(tmp_path))
    train(resumed_config(tmp_path / "run", steps=2), quiet=True, **toy_world(tmp_path))
    assert calls == [
        ("mine", None, "allow"),
        (0, False),
        "finish",
        ("mine", "abc", "allow"),
        (1, False),
        "finish",
    ]


def test_wandb_missing_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match="needs the extra"):
        train(toy_config(tmp_path / "run", wandb="mine"), quiet=True, **toy_world(tmp_path))
    assert not (tmp_path / "run").exists()  # the next attempt finds no used folder
