"""benchmarks/run.py at toy size: every row runs, and none needs the peers."""

import subprocess
import sys

import duel
import peers
import pytest

from reasoning_from_scratch.errors import UserError
from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))  # its run.py, before the folder tests/program/run
import run  # noqa: E402


@pytest.fixture(autouse=True)
def no_peers(monkeypatch):
    monkeypatch.setattr(peers, "are_installed", lambda *names: False)


# "quickstart" starts a Python of its own: test_quickstart.py has that.
@pytest.mark.parametrize("name", [name for name in run.ROWS if name != "quickstart"])
def test_a_row_runs_at_toy_size(name, capsys):
    assert run.main(["--toy", "--threads", "1", "--only", name]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "not installed: transformers, trl" in lines[0]
    rows = [line for line in lines if line.startswith("| ")][2:]
    assert rows and all(line.count("|") == 7 for line in rows)


def test_no_threads_at_all_are_refused():
    with pytest.raises(UserError, match="--threads is 0, but must be at least 1"):
        run.main(["--toy", "--threads", "0"])


def test_a_target_is_met_or_not():
    assert duel.compare_speed("x", 1.0, 2.5, "peer", 2.5).met
    result = duel.compare_speed("x", 1.0, 2.4, "peer", 2.5)
    assert result.cells() == ["x", "1 s", "peer: 2.4 s", "2.40", ">= 2.5x", "no"]


@pytest.mark.skipif(sys.platform == "win32", reason="it reads a process's time as Linux counts it")
def test_what_measures_rfs_serve_finds_all_that_it_imports():
    """In a Python of its own, since it sets the number of threads."""
    folder = ROOT / "benchmarks"
    subprocess.run([sys.executable, "-c", "import serve_rows"], cwd=folder, check=True, timeout=120)
