"""benchmarks/gpu_gate.py in its small form: every part runs. What fails or hangs leaves its rows,
and the next part runs."""

import subprocess
import sys

import gpu_gate
import peers
import pytest

from reasoning_from_scratch.text import read_lines
from tests.conftest import ROOT


# The tests of the GPU are tested by themselves; what is compiled takes a minute and a compiler.
@pytest.mark.parametrize("name", [name for name in gpu_gate.PARTS if name != "tests"])
def test_a_part_runs(name, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.compile", lambda function, **options: function)
    monkeypatch.setattr(peers, "are_installed", lambda *names: False)
    gate = gpu_gate.Gate(gpu_gate.SMALL, tmp_path / "rows.jsonl", name)
    gate.run_part(gpu_gate.PARTS[name][0])
    rows = read_lines(gate.path)
    assert rows and all(row["part"] == name for row in rows)
    assert not [row for row in rows if row["what"] in ("failed", "cut off", "warning")], rows


# The gate starts each part by its own file: this one, where some parts are made up.
MADE_UP = """
import os, signal, sys, time
sys.path.insert(0, {folder!r})
import gpu_gate

def fails(gate):
    gate.row("before", 1)
    raise RuntimeError("CUDA error:\\nout of luck")

def hangs(gate):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as a driver that does not answer
    gate.row("before", 2)
    time.sleep(600)

def dies(gate):
    gate.row("before", 3)
    os._exit(7)

def works(gate):
    gate.row("after", 4)

gpu_gate.PARTS = {{"fails": (fails, 60), "hangs": (hangs, {seconds}), "dies": (dies, 60)}}
gpu_gate.PARTS |= {{"works": (works, 60), "late": (works, 60)}}
sys.exit(gpu_gate.main())
"""


def test_what_fails_hangs_or_dies_leaves_its_rows_and_the_next_part_runs(tmp_path):
    script, out = tmp_path / "gate.py", tmp_path / "rows.jsonl"
    script.write_text(MADE_UP.format(folder=str(ROOT / "benchmarks"), seconds=30))
    names = ["fails", "hangs", "dies", "works"]
    command = [sys.executable, str(script), "--out", str(out), "--seconds", "600", "--only", *names]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=400).stdout
    found = [(row["part"], row["what"], row["value"]) for row in read_lines(out)]
    assert found == [
        ("fails", "before", 1),
        ("fails", "failed", "RuntimeError: CUDA error: out of luck"),
        ("hangs", "before", 2),
        ("hangs", "cut off", "after 30 s"),
        ("dies", "before", 3),
        ("dies", "failed", "the process ended with 7"),
        ("works", "after", 4),
        ("", "the rows are in", str(out)),
    ]
    assert said.count("\n") == len(found), "each row is printed"


def test_what_has_no_time_left_is_named(tmp_path):
    assert gpu_gate.main(["--out", str(tmp_path / "rows"), "--seconds", "5"]) == 0
    rows = read_lines(tmp_path / "rows")
    assert [row["part"] for row in rows[:-1]] == list(gpu_gate.PARTS)
    assert all(row["what"] == "left out" for row in rows[:-1])
