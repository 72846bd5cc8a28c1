"""A study: arms x rates x seeds, side by side, and gone on with where it was."""

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from toy import toy_config, toy_run

from reasoning_from_scratch.errors import UserError
from rfs.run.study import Trial, cores, file_hashes, make_trials, study

FOUR = make_trials("abcd", lambda _: (None,), range(1))


def process_and_threads(trial: Trial) -> tuple[object, int, int]:
    return trial.arm, os.getpid(), torch.get_num_threads()


def refuse_b(trial: Trial) -> None:
    if trial.arm == "b":
        raise UserError("b is refused")
    time.sleep(200)  # ended, or the test takes as long


def die(trial: Trial) -> None:
    os._exit(3)


def press_at_b(trial: Trial) -> object:
    if trial.arm == "b":
        raise KeyboardInterrupt
    return trial.arm


def test_whole_seeds_come_first_and_an_arm_has_its_own_rates():
    def rates(arm):
        return (1e-3, 1e-4) if arm == "tuned" else (1e-4,)

    assert list(map(str, make_trials(["tuned", "plain"], rates, range(2)))) == [
        "tuned, lr 0.001, seed 0",
        "tuned, lr 0.0001, seed 0",
        "plain, lr 0.0001, seed 0",
        "tuned, lr 0.001, seed 1",
        "tuned, lr 0.0001, seed 1",
        "plain, lr 0.0001, seed 1",
    ]
    assert str(Trial("grpo", None, 0)) == "grpo, seed 0"


def test_two_processes_do_four_trials():
    found = dict(study(process_and_threads, FOUR, jobs=2))
    assert {trial: result[0] for trial, result in found.items()} == {t: t.arm for t in FOUR}
    workers = {result[1] for result in found.values()}
    assert 1 <= len(workers) <= 2 and os.getpid() not in workers
    assert {result[2] for result in found.values()} == {max(1, cores() // 2)}


def test_a_refusal_is_told_and_ends_the_others():
    start = time.monotonic()
    with pytest.raises(UserError, match="b is refused"):
        list(study(refuse_b, FOUR, jobs=2))
    assert time.monotonic() - start < 100


def test_a_process_that_dies_is_told():
    with pytest.raises(UserError, match="died"):
        list(study(die, FOUR, jobs=2))


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_keeps_what_is_done_and_says_that_it_goes_on(jobs, capsys):
    kept = []
    with pytest.raises(KeyboardInterrupt):
        for trial, _ in study(press_at_b, FOUR, jobs):
            kept.append(trial.arm)
    assert "b" not in kept and "run the same command again" in capsys.readouterr().err


PRESSED = """
import os, signal, threading, time
from pathlib import Path
from rfs.run.study import make_trials, study

def work(trial):
    os.write(1, b"begun\\n")
    Path(f"{trial.arm}.begun").touch()
    time.sleep(60)

def press():
    time.sleep(0.5)
    while len(list(Path().glob("*.begun"))) < BEGUN:
        time.sleep(0.1)
    os.kill(SIGNAL)

if __name__ == "__main__":
    threading.Thread(target=press).start()
    try:
        list(study(work, make_trials("abcd", lambda _: (None,), range(1)), jobs=2))
    except KeyboardInterrupt:
        print("stopped")
"""


def pressed(folder: Path, begun: int, number: str) -> tuple[str, str]:
    """Pressed when so many work. What is said until the last of its processes is gone."""
    text = PRESSED.replace("BEGUN", str(begun)).replace("SIGNAL", number)
    (folder / "pressed.py").write_text(text)
    ended = subprocess.run(
        [sys.executable, "pressed.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=50,
    )
    return ended.stdout, ended.stderr


@pytest.mark.parametrize("begun", [0, 2])
def test_ctrl_c_in_the_terminal_ends_all_processes_quietly(begun, tmp_path):
    """It goes to all of them: while they import, and while they work."""
    found = pressed(tmp_path, begun, "0, signal.SIGINT")
    assert found == (
        "begun\n" * begun + "stopped\n",
        "run the same command again to continue from here\n",
    )


def test_a_study_that_is_killed_leaves_no_process_behind(tmp_path):
    said, _ = pressed(tmp_path, 2, "os.getpid(), signal.SIGKILL")
    assert said == "begun\n" * 2


def refused_beside_a_run(folder: Path, trial: Trial) -> None:
    """Refused once the other has trained for a while, which saves nothing of its own accord."""
    metrics = folder / "run" / "metrics.jsonl"
    if trial.arm == "refused":
        while not metrics.exists() or metrics.read_text().count("\n") < 3:
            time.sleep(0.05)
        raise UserError("refused")
    toy_run(folder / "run", steps=100_000, rolling_every=0)


def test_a_run_that_is_ended_by_anothers_error_saves_what_it_has(tmp_path):
    every = make_trials(["refused", "run"], lambda _: (None,), range(1))
    with pytest.raises(UserError, match="refused"):
        list(study(partial(refused_beside_a_run, tmp_path), every, jobs=2))
    _, saved = (tmp_path / "run" / "checkpoints.jsonl").read_text().splitlines()
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().count("\n")
    assert json.loads(saved)["batch"] == lines >= 3


@pytest.mark.parametrize(
    "field, name",
    [
        ("recipe", "{}:row"),
        ("problems", "{}:problems"),
        ("problems", "{}:problems@held-out"),
        ("problems", "{}"),
        ("eval_problems", ["tiny-test", "{}@held-out"]),
        ("data_path", "{}"),
        ("prompt", "{}"),
        ("prompt", "chat:{}"),
        ("reward", "{}:reward"),
        ("environment", "{}:Env"),
        ("evaluators", ["{}:measured"]),
        ("objective", "{}:loss"),
    ],
)
def test_a_file_is_known_by_its_content_whatever_names_it(field, name, tmp_path):
    file = tmp_path / ("own.py" if ":" in str(name).removeprefix("chat:") else "own.jsonl")
    given = [one.format(file) for one in name] if isinstance(name, list) else name.format(file)
    config = toy_config(tmp_path / "run", **{field: given})
    found = []
    for text in ("before", "after"):
        file.write_text(text)
        found.append(file_hashes(config))
    assert [[*hashes] for hashes in found] == [[str(file)]] * 2
    assert found[0] != found[1]
