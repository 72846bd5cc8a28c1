"""A run that is killed, ended or hung up on goes on to the end of the undisturbed one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_world import make_world, train_words
from faults import kill_loop
from toy import resumed_run, toy_world, train

from rfs.run.checkpoints import Checkpoints
from tests.faults.whole import check_whole, lines, same_runs
from tests.program.run.test_interrupts import ENVIRONMENT, press_at

HERE = Path(__file__).parent


def looped(folder: Path, seed: int, **times: int) -> dict[str, dict]:
    """Let kill_loop end runs so many times in each way; all must equal the undisturbed one."""
    asked = [f"{how}:{count}" for how, count in times.items()]
    loop = subprocess.run(
        [sys.executable, str(HERE / "kill_loop.py"), str(folder), str(seed), *asked],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120 + 10 * sum(times.values()),
    )
    assert loop.returncode == 0, loop.stderr[-3000:]
    found = json.loads(loop.stdout.splitlines()[-1])
    for how, result in found.items():
        assert sum(result["codes"].values()) == times[how]
        assert result["slowest"] < 10
        for kind, count in result["runs"].items():
            for number in range(count + 1):
                same_runs(folder / how / f"{kind}{number}", folder / kind)
    return found


def test_ended_runs_go_on_as_the_undisturbed_one(tmp_path):
    looped(tmp_path, 1, kill=6, term=2, interrupt=2, interrupt_twice=1, hangup=1, out_of_room=3)


HUNDREDS = {"kill": 100, "term": 50}
HUNDREDS |= dict.fromkeys(("interrupt", "interrupt_twice", "hangup", "out_of_room"), 25)


@pytest.mark.soak
@pytest.mark.parametrize(("how", "times"), HUNDREDS.items())
def test_hundreds_of_ends(how, times, tmp_path):
    found = looped(tmp_path, 2, **{how: times})[how]
    print(f"\n{how}: {found}")
    listening = sum(count for code, count in found["codes"].items() if int(code) > 0)
    assert how == "kill" or listening > times / 3


# ---- the console


def test_a_closed_pipe_does_not_end_a_run(tmp_path):
    """rfs train | head -1"""
    make_world(tmp_path)
    words = ["-m", "rfs", *train_words(tmp_path, tmp_path / "run", "--steps", 2)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, *words], env=ENVIRONMENT, **pipes) as run:
        run.stdout.readline()
        run.stdout.close()
        run.stderr.close()
        assert run.wait(timeout=60) == 0
    assert len(lines(tmp_path / "run" / "metrics.jsonl")) == 2


# ---- what a dead run leaves behind


def test_the_next_start_sweeps_up(tmp_path):
    """Temporary files of a dead process go; what people put there stays, and what a
    run in a folder of this one is writing."""
    run = tmp_path / "plain0"
    asked = kill_loop.config(run, steps=4)
    train(asked, quiet=True, **toy_world(tmp_path))
    left = [
        ".metrics.jsonl.77.tmp",
        ".report.html.77.partial",
        "iteration_000001/.x.html.partial",
        "checkpoints/000002/.model.safetensors.77.tmp",
        "checkpoints/000009/model.safetensors",
    ]
    mine = ["notes.txt", "checkpoints/.DS_Store", "checkpoints/000002/notes.txt", "mine/a.tmp"]
    mine.append("another-run/.metrics.csv.78.tmp")
    for name in left + mine:
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("half")
    resumed_run(run, steps=6)
    assert not [name for name in left if (run / name).exists()]
    assert not [name for name in mine if not (run / name).exists()]


def test_a_save_to_keep_stays_one_when_the_run_is_interrupted_right_after(tmp_path, monkeypatch):
    run = tmp_path / "run"
    asked = kill_loop.config(run, rolling_every=0, save_every=4, steps=10, keep_last=0)
    press_at("reasoning_from_scratch.policy.sample_groups", 5, monkeypatch)
    assert train(asked, quiet=True, **toy_world(tmp_path)).stopped
    monkeypatch.undo()
    resumed_run(run)
    saves = [x["batch"] for x in lines(run / "checkpoints.jsonl") if "state_path" in x]
    assert saves == [4, 8, 10]


def test_killed_between_the_last_save_and_its_line(tmp_path, monkeypatch):
    run, write = tmp_path / "plain0", Checkpoints.write_index

    def killed(saves, rows):
        return 1 / 0 if rows[-1].batch == 10 else write(saves, rows)

    monkeypatch.setattr(Checkpoints, "write_index", killed)
    with pytest.raises(ZeroDivisionError):
        train(kill_loop.config(run), quiet=True, **toy_world(tmp_path))
    monkeypatch.undo()
    assert lines(run / "checkpoints.jsonl")[-1]["batch"] == 9
    resumed_run(run)
    assert [line["batch"] for line in lines(run / "checkpoints.jsonl")] == [0, 6, 8, 10]
    check_whole(run)
