"""benchmarks/gpu_gate.py in its small form: every part runs, and a cut run leaves its rows."""

import json
import sys
import time
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(FOLDER))

import gpu_gate  # noqa: E402
import peers  # noqa: E402


@pytest.fixture
def gate(tmp_path):
    return gpu_gate.Gate(gpu_gate.SMALL, tmp_path / "rows.jsonl")


def rows_of(gate):
    return [json.loads(line) for line in Path(gate.file.name).read_text().splitlines()]


# The tests of the GPU are tested by themselves.
@pytest.mark.parametrize("name", [name for name in gpu_gate.PARTS if name not in ("tests",)])
def test_a_part_runs(name, gate, monkeypatch):
    if name == "compiled":  # the compiler takes a minute
        monkeypatch.setattr("torch.compile", lambda function, **options: function)
    monkeypatch.setattr(peers, "have", lambda *names: False)
    part, _ = gpu_gate.PARTS[name]
    gate.run(name, part, 120)
    rows = rows_of(gate)
    assert rows and all(row["part"] == name for row in rows)
    assert not [row for row in rows if row["what"] in ("failed", "cut off", "warning")]


def test_what_goes_wrong_in_a_part_is_a_row_and_the_next_part_runs(gate):
    def failing(gate):
        gate.row("before", 1)
        raise RuntimeError("CUDA error:\nout of luck")

    gate.run("first", failing, 10)
    gate.run("second", lambda gate: gate.row("after", 2), 10)
    whats = [(row["part"], row["what"], row["value"]) for row in rows_of(gate)]
    failed = ("first", "failed", "RuntimeError: CUDA error: out of luck")
    assert whats == [("first", "before", 1), failed, ("second", "after", 2)]


def test_a_part_that_takes_too_long_is_cut_off(gate):
    def slow(gate):
        gate.row("before", 1)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            time.sleep(0.01)

    start = time.monotonic()
    gate.run("slow", slow, 0.3)
    assert time.monotonic() - start < 15
    assert [row["what"] for row in rows_of(gate)] == ["before", "cut off"]
