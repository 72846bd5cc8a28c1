"""Long runs of the laboratory: short ones here, and the stored ones are whole."""

import sys
from pathlib import Path

import pytest

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.tables import read_table
from reasoning_from_scratch.tasks import problem_sets

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ch07"))
import long_runs  # noqa: E402


def test_short_and_long_problems_take_turns():
    short, longer = list(long_runs.problems())[:2]
    assert short == problem_sets.load_problems("tiny", limit=1)[0]
    assert longer == problem_sets.load_problems("tiny-longer-train", limit=1)[0]


def test_runs_are_written_down_and_drawn(tmp_path, monkeypatch):
    load = problem_sets.load_problems
    monkeypatch.setattr(problem_sets, "load_problems", lambda name, limit=8: load(name, limit=2))
    monkeypatch.setattr(long_runs, "load_problems", problem_sets.load_problems)
    monkeypatch.setattr(long_runs, "STEPS", 4)
    monkeypatch.setattr(long_runs, "EVERY", 1)
    long_runs.measured.cache_clear()
    out = tmp_path / "long.csv"
    options = {"out": out, "seeds": (0,)}
    for time, arm in enumerate(("no change", "clip-higher", "no change")):  # the last for the first
        long_runs.main(long_runs.Options(arms=(arm,), folder=tmp_path / str(time), **options))
    rows = read_table(out)
    assert [(row["arm"], row["step"]) for row in rows] == [
        (arm, step) for arm in ("clip-higher", "no change") for step in "01234"
    ]
    for row in rows:
        assert bool(row["long pass@32"]) == (row["step"] in "024")
        assert 0 <= float(row["right"]) <= 1 and float(row["entropy"]) > 0
    assert out.with_suffix(".png").stat().st_size > 10_000
    with pytest.raises(UserError, match="did you mean 'clip-higher'"):
        long_runs.main(long_runs.Options(arms=("clip-hihger",), **options))
