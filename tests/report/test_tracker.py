"""Weights & Biases, where it is asked for."""

import sys
import types

import pytest
from toy import toy_config, toy_world, train

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.run.options import resumed_config
from reasoning_from_scratch.text import read_lines


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
        assert options["dir"] == tmp_path / "run" and options["dir"].is_dir()
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


def test_tensorboard_reads_what_a_run_and_its_sequel_write(tmp_path):
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="the extra tensorboard"
    )
    config = toy_config(tmp_path / "run", steps=2, tensorboard=True)
    train(config, quiet=True, **toy_world(tmp_path))
    train(resumed_config(tmp_path / "run", steps=4), quiet=True, **toy_world(tmp_path))
    read = event_accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    read.Reload()
    found = [(event.step, event.value) for event in read.Scalars("env/all/reward/total")]
    rows = read_lines(tmp_path / "run" / "metrics.jsonl")
    written = [(row["step"], pytest.approx(row["env/all/reward/total"])) for row in rows]
    assert found == written and len(found) == 4


def test_tensorboard_missing_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match="--tensorboard needs the extra"):
        config = toy_config(tmp_path / "run", tensorboard=True)
        train(config, quiet=True, **toy_world(tmp_path))
    assert not (tmp_path / "run").exists()
