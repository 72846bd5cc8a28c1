"""Runs side by side: in processes of their own, in any order, and none is left behind."""

import os
import subprocess
import sys
import time

import pytest
import torch

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.run.jobs import cores, jobs_for, side_by_side


def process_and_threads(task: int) -> tuple[int, int, int]:
    return task, os.getpid(), torch.get_num_threads()


def fail_at_two(task: int) -> int:
    if task == 2:
        raise UserError("two is refused")
    time.sleep(200)  # interrupted, or the test takes as long
    return task


def die(task: int) -> int:
    os._exit(3)


def test_two_processes_do_four_tasks():
    found = dict(side_by_side(process_and_threads, [1, 2, 3, 4], jobs=2))
    assert {task: result[0] for task, result in found.items()} == {1: 1, 2: 2, 3: 3, 4: 4}
    workers = {result[1] for result in found.values()}
    assert 1 <= len(workers) <= 2 and os.getpid() not in workers
    assert {result[2] for result in found.values()} == {max(1, cores() // 2)}


def test_one_job_works_here():
    assert list(side_by_side(lambda task: task + 1, [1, 2], jobs=1)) == [(1, 2), (2, 3)]


def test_a_refusal_is_told_and_ends_the_others():
    start = time.monotonic()
    with pytest.raises(UserError, match="two is refused"):
        list(side_by_side(fail_at_two, [1, 2], jobs=2))
    assert time.monotonic() - start < 100


PRESSED = """
import os, signal, threading, time
from reasoning_from_scratch.run.jobs import side_by_side

def press():
    time.sleep(0.5)
    os.killpg(0, signal.SIGINT)

if __name__ == "__main__":
    threading.Thread(target=press).start()
    try:
        list(side_by_side(time.sleep, [60, 60], jobs=2))
    except KeyboardInterrupt:
        print("stopped")
"""


def test_ctrl_c_while_the_processes_are_starting_is_quiet(tmp_path):
    """The terminal sends it to them too: they must not break off their imports with tracebacks."""
    (tmp_path / "pressed.py").write_text(PRESSED)
    command = [sys.executable, "pressed.py"]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, start_new_session=True, timeout=50
    )
    assert (ended.stdout, ended.stderr) == ("stopped\n", "")


def test_a_process_that_dies_is_named():
    with pytest.raises(UserError, match="the process of [78] ended"):
        list(side_by_side(die, [7, 8], jobs=2))


def test_how_many():
    assert jobs_for(None, 100, tiny=True) == min(100, cores())
    assert jobs_for(None, 100, tiny=False) == 1
    assert jobs_for(8, 3, tiny=True) == 3
    assert jobs_for(None, 0, tiny=True) == 1  # nothing to do
    with pytest.raises(UserError, match="--jobs is 0"):
        jobs_for(0, 3, tiny=True)
