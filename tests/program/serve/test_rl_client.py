"""ch07/rl_client.py: one text, with Tinker's client or with a `LocalPolicy` behind its names."""

import re
import runpy
import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs the extra serve")
pytest.importorskip("tinker", reason="Tinker's client needs Python 3.11")

SCRIPT = Path(__file__).parents[3] / "ch07" / "rl_client.py"
SMALL = ["steps=3", "groups_per_batch=4", "group_size=4", "max_tokens=40", "test_limit=8"]
STEP = re.compile(r"step (\d)  reward/total (\S+)  loss (\S+)")


@pytest.fixture
def run(monkeypatch, capsys):
    """What the script prints: shares of right answers, rewards and losses."""

    def printed(*words):
        monkeypatch.setattr(sys, "argv", ["rl_client.py", *SMALL, *words])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        out, _ = capsys.readouterr()
        assert end.value.code == 0
        steps = STEP.findall(out)
        assert [step for step, _, _ in steps] == ["0", "1", "2"]
        shares = [float(share) for share in re.findall(r"(\S+)% of 8", out)]
        return shares, [(float(reward), float(loss)) for _, reward, loss in steps]

    return printed


@pytest.mark.parametrize("rank", [0, 2])
def test_both_ways_draw_the_same_and_learn_the_same(run, server, monkeypatch, rank):
    words = [f"lora_rank={rank}", "learning_rate=3e-4"]
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    shares, ours = run(*words)
    monkeypatch.setenv("TINKER_BASE_URL", server.address)
    monkeypatch.setenv("TINKER_API_KEY", "tml-local")
    assert run(*words) == (
        shares,
        [(reward, pytest.approx(loss, abs=1e-3)) for reward, loss in ours],
    )
    assert any(loss for _, loss in ours)
