"""A long run costs at its end what it cost at its beginning."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parents[1])}

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="memory is read from /proc, which Linux has"
)


def long_run(folder: Path, steps: int) -> dict:
    done = subprocess.run(
        [sys.executable, str(HERE / "long_run.py"), str(folder), str(steps)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_sixty_steps(tmp_path):
    """Short, so with room for noise: nothing grows by leaps."""
    found = long_run(tmp_path / "run", 60)
    assert found["steps"] == 60
    assert found["mb_per_100_steps"] < 12
    assert found["files"][0] == found["files"][1]
    assert found["saves"] == ["000000", "000050", "000060"]  # best, kept, final
