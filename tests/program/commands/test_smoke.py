"""What `--smoke` says at its end, of runs whose numbers are made up and of a small one."""

import pytest

from rfs.commands import cli
from rfs.commands.smoke import smoke_summary
from rfs.run.options import configure

ROW = {
    "env/all/total_episodes": 8,
    "env/all/total_ac_tokens": 400,
    "env/all/correct": 0.25,
    "optim/updates": 1,
    "optim/nonfinite": 0,
    "optim/grad_norm": 0.5,
    "optim/update_ratio": 2e-5,
    "time/sampling": 4.0,
    "time/reward": 0.0,
    "time/train": 2.0,
}
STILL = {"optim/updates": 0, "optim/grad_norm": None, "optim/update_ratio": None}


@pytest.mark.parametrize(
    "changes, says",
    [
        ({}, "16 answers at 100 tokens/s; 4 correct"),
        ({}, "finite, norm 0.5; 2 updates moved the weights by 2e-05 of their size"),
        ({}, "rfs train --resume runs/x --steps N continues from here"),
        # A step of 8 answers took 6 s; one of 64 takes 48 s.
        ({}, "without --smoke, 100 steps of 8 x 8 answers take about 80 minutes here"),
        (STILL, "not tested: no group had both better and worse answers"),
        (STILL | {"optim/nonfinite": 1}, "not finite in 2 updates"),
    ],
)
def test_what_was_seen(changes, says):
    asked = configure(model="base", smoke=True, max_new_tokens=64)
    assert says in smoke_summary(asked, "runs/x", [ROW | changes] * 2)


def test_worked_solutions_are_learned_and_not_sampled():
    asked = configure("sft", model="base", smoke=True, max_new_tokens=64)
    said = smoke_summary(asked, "runs/x", [ROW | {"time/sampling": 0.0}] * 2)
    assert "learned   16 worked solutions of 800 tokens" in said and "sampled" not in said
    assert "of 8 worked solutions take about" in said


def test_a_small_run_ends_with_it(tmp_path, capsys):
    assert cli.main(["train", "--smoke", "--log-path", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert "Checked in 2 small steps:\n  outlook   Training can work" in out
    assert "\n  sampled   16 answers" in out and "finite, norm" in out
