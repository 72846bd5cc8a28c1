"""A run that was interrupted, killed or extended ends as the uninterrupted one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import kill_loop
import pytest
from toy import toy_config, toy_world

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.interrupts import Interrupts
from reasoning_from_scratch.run_folder import RunFolder, read_lines
from reasoning_from_scratch.run_start import resumed_config
from reasoning_from_scratch.trainer import train

HERE = Path(__file__).parent
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent)}


def timeless(rows):
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "perf/"))} for row in rows]


def same_runs(one: Path, other: Path) -> None:
    """Same weights to the bit, same metrics lines, same saves, nothing left over."""
    metrics = timeless(read_lines(one / "metrics.jsonl"))
    assert metrics == timeless(read_lines(other / "metrics.jsonl"))
    assert [row["step"] for row in metrics] == list(range(len(metrics)))
    assert len((one / "metrics.csv").read_text().splitlines()) == len(metrics) + 1
    for name in ("timing_spans.jsonl", "probes.jsonl"):
        steps = [row["step"] for row in read_lines(one / name)]
        assert steps == sorted(set(steps))
    keys = ("name", "batch", "final", "files", "best", "eval_acc")
    saves = [[{k: x.get(k) for k in keys} for x in read_lines(run / "checkpoints.jsonl")]
             for run in (one, other)]  # fmt: skip
    assert saves[0] == saves[1]
    weights = [(run / "checkpoints" / "000010" / "model.safetensors").read_bytes()
               for run in (one, other)]  # fmt: skip
    assert weights[0] == weights[1]
    written = {path for path in (one / "checkpoints").glob("*/*")}
    named = {one / "checkpoints" / f"{x['batch']:06d}" / f
             for x in read_lines(one / "checkpoints.jsonl") for f in x["files"]}  # fmt: skip
    assert written == named


def test_killed_runs_end_like_the_undisturbed_one(tmp_path):
    whole = subprocess.run(
        [sys.executable, "-c", "import sys, kill_loop, pathlib; p = pathlib.Path(sys.argv[1]);"
         "kill_loop.start_or_resume(p / 'whole', p)", str(tmp_path)],
        env=ENVIRONMENT | {"PYTHONPATH": f"{HERE.parent}{os.pathsep}{HERE}"}, check=True,
    )  # fmt: skip
    assert whole.returncode == 0
    loop = subprocess.run(
        [sys.executable, str(HERE / "kill_loop.py"), str(tmp_path), "24", "1"],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert loop.returncode == 0, loop.stderr[-2000:]
    kills, runs = map(int, loop.stdout.split()[-2:])
    assert kills == 24
    for number in range(runs):
        same_runs(tmp_path / f"run{number}", tmp_path / "whole")


def test_extended_run_equals_the_long_one(tmp_path):
    """10 steps at once, or 4 and then 6 more: the same, and only the last save is final."""
    long = train(kill_loop.config(tmp_path / "long"), quiet=True, **toy_world(tmp_path))
    short = kill_loop.config(tmp_path / "short")
    short.steps = 4
    train(short, quiet=True, **toy_world(tmp_path))
    asked = resumed_config(tmp_path / "short", steps=10)
    rest = train(asked, quiet=True, **toy_world(tmp_path))
    for a, b in zip(long.model.parameters(), rest.model.parameters(), strict=True):
        assert a.equal(b)
    finals = [x["final"] for x in read_lines(tmp_path / "short" / "checkpoints.jsonl")]
    assert finals == [False] * (len(finals) - 1) + [True]
    assert RunFolder(tmp_path / "short").read_config().steps == 10
    resumed = json.loads((tmp_path / "short" / "config.json").read_text())
    assert resumed["steps"] == 4 and resumed["resumed"][0]["changed"]["steps"] == 10


def test_killed_before_the_first_save_starts_again(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create(toy_config(tmp_path / "run"))
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 0, "x": 1}\n{"ste')
    result = train(resumed_config(tmp_path / "run"), quiet=True, **toy_world(tmp_path))
    assert [row["step"] for row in result.rows] == [0, 1, 2, 3]


# ---- Ctrl-C


def test_ctrl_c_saves_and_the_run_goes_on(tmp_path, monkeypatch):
    """Wherever it comes: in sampling it ends at once, in an update after it."""
    whole = train(toy_config(tmp_path / "whole", steps=5), quiet=True, **toy_world(tmp_path))
    for place in ("rollouts.sample_groups", "trainer.accumulate_gradient"):
        press_at(place, 3, monkeypatch)
        run = tmp_path / place
        result = train(toy_config(run, steps=5), quiet=True, **toy_world(tmp_path))
        monkeypatch.undo()
        steps = 2 if "sample" in place else 3
        assert len(result.rows) == steps and f"--resume {run}" in result.stopped
        rest = train(resumed_config(run), quiet=True, **toy_world(tmp_path))
        assert timeless(rest.rows) == timeless(whole.rows)
        for a, b in zip(whole.model.parameters(), rest.model.parameters(), strict=True):
            assert a.equal(b)


def press_at(place: str, call: int, monkeypatch) -> None:
    module, name = place.split(".")
    module = sys.modules[f"reasoning_from_scratch.{module}"]
    original, calls = getattr(module, name), []

    def pressing(*given, **named):
        calls.append(1)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGINT)
        return original(*given, **named)

    monkeypatch.setattr(module, name, pressing)


def test_second_ctrl_c_exits_at_once():
    code = """
import os, signal, time
from reasoning_from_scratch.interrupts import Interrupts
with Interrupts() as interrupts, interrupts.held():
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
"""
    start = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True)
    assert ended.returncode == 130 and b"Stopped at once" in ended.stderr
    assert time.monotonic() - start < 30


def test_handler_is_put_back():
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_resume_with_another_model_is_refused(tmp_path):
    config = toy_config(tmp_path / "run", steps=2, save_every=1)
    train(config, quiet=True, **toy_world(tmp_path))
    asked = resumed_config(tmp_path / "run", steps=3)
    with pytest.raises(UserError, match="another model"):
        train(asked, quiet=True, **toy_world(tmp_path, emb_dim=64))
