"""Ctrl-C and the other signals: the run saves first, then ends."""

import os
import pkgutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from command_world import equal
from toy import resumed_run, timeless, toy_run

from rfs.report.run_pages import Pages
from rfs.run.interrupts import Interrupts

HERE = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent)}


# ---- Ctrl-C


def test_ctrl_c_saves_and_the_run_goes_on(tmp_path, monkeypatch):
    """Wherever it comes: in sampling and in the gradient at once, in an update after it."""
    whole = toy_run(tmp_path / "whole", steps=5)
    places = {
        "policy.sample_groups": 2,
        "policy.batch_loss": 2,
        "optim.adamw:AdamW._new_weights": 3,
    }
    places = {f"reasoning_from_scratch.{place}": steps for place, steps in places.items()}
    for place, steps in places.items():
        press_at(place, 3, monkeypatch)
        run = tmp_path / place
        result = toy_run(run, steps=5)
        monkeypatch.undo()
        assert len(result.rows) == steps and f"--resume {run}" in result.stopped
        rest = resumed_run(run)
        assert timeless(rest.rows) == timeless(whole.rows)
        assert equal(whole.model.state_dict(), rest.model.state_dict())


def press_at(place: str, call: int, monkeypatch) -> None:
    """Ctrl-C in the given call of a function; a class stands behind a colon."""
    owner, _, name = place.rpartition(".")
    owner = pkgutil.resolve_name(owner)
    original, calls = getattr(owner, name), []

    def pressing(*given, **named):
        calls.append(1)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGINT)
        return original(*given, **named)

    monkeypatch.setattr(owner, name, pressing)


def test_a_report_that_is_being_drawn_is_finished_first(tmp_path, monkeypatch):
    """In matplotlib's C code, a KeyboardInterrupt may become some other error."""
    drawn = []

    def pressed(self, step):
        if step == 2:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):  # where Python would see it
                pass
            drawn.append(step)

    monkeypatch.setattr(Pages, "report_if_due", pressed)
    result = toy_run(tmp_path / "run", steps=5)
    assert drawn == [2] and result.interrupted and len(result.rows) == 2


def test_second_ctrl_c_exits_at_once():
    code = """
import os, signal, time
from rfs.run.interrupts import Interrupts
with Interrupts(may_stop=lambda: False):
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
"""
    start = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True)
    assert ended.returncode == 130 and b"Stopped immediately" in ended.stderr
    assert time.monotonic() - start < 30


def test_handler_is_put_back():
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
