"""Weights & Biases, Trackio and TensorBoard, where they are asked for."""

import sys
import types

import pytest
from toy import resumed_run, toy_run

from reasoning_from_scratch.errors import UserError


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
    toy_run(tmp_path / "run", steps=1, wandb="mine")
    resumed_run(tmp_path / "run", steps=2)
    first = [("mine", None, "allow"), (0, False), "finish"]
    assert calls == [*first, ("mine", "abc", "allow"), (1, False), "finish"]


def run_and_sequel(tmp_path, **asked) -> list[tuple[int, float]]:
    """Four steps, of which two are made later, and their rewards."""
    toy_run(tmp_path / "run", steps=2, **asked)
    rows = resumed_run(tmp_path / "run", steps=4).rows
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    return [(row["step"], row["env/all/reward/total"]) for row in rows]


@pytest.fixture
def trackio(tmp_path, monkeypatch):
    """The real one, with its files here."""
    module = pytest.importorskip("trackio", reason="the extra trackio")
    from trackio import sqlite_storage

    for name in ("TRACKIO_DIR", "MEDIA_DIR", "ARTIFACTS_DIR"):
        for place in (module, sqlite_storage):
            if hasattr(place, name):
                monkeypatch.setattr(place, name, tmp_path / "trackio" / name)
    return sqlite_storage.SQLiteStorage


def test_trackio_reads_what_a_run_and_its_sequel_write(tmp_path, trackio):
    expected = run_and_sequel(tmp_path, trackio="mine")
    (name,) = trackio.get_runs("mine")
    assert name == (tmp_path / "run/trackio_name").read_text() and name.startswith("run-")
    rows = trackio.get_logs("mine", name)
    assert [(row["step"], row["env/all/reward/total"]) for row in rows] == expected


def test_trackio_that_refuses_leaves_no_folder(tmp_path, trackio):
    with pytest.raises(UserError, match="--trackio registry-x: .*reserved"):
        toy_run(tmp_path / "run", trackio="registry-x")
    assert not (tmp_path / "run").exists()


def test_tensorboard_reads_what_a_run_and_its_sequel_write(tmp_path):
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="the extra tensorboard"
    )
    expected = run_and_sequel(tmp_path, tensorboard=True)
    read = event_accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    read.Reload()
    found = [(event.step, event.value) for event in read.Scalars("env/all/reward/total")]
    assert found == [(step, pytest.approx(reward)) for step, reward in expected]


@pytest.mark.parametrize(
    "module, asked",
    [
        ("wandb", {"wandb": "mine"}),
        ("trackio", {"trackio": "mine"}),
        ("torch.utils.tensorboard", {"tensorboard": True}),
    ],
)
def test_one_that_is_not_installed_is_refused(module, asked, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=f"--{next(iter(asked))} needs the extra"):
        toy_run(tmp_path / "run", **asked)
    assert not (tmp_path / "run").exists()  # the next attempt finds no used folder
