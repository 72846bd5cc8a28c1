"""Ctrl-C in the first seconds, while modules are being imported: one line, and the command ends."""

import subprocess
import sys
import time

import pytest

from tests.run.test_interrupts import ENVIRONMENT, HERE

# Runs a script, or the command in its words, and presses Ctrl-C as a module begins to be imported.
PRESS = """
import os, runpy, signal, sys
program, module, *words = sys.argv[1:]

class Pressing:
    def find_spec(self, name, *_):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Pressing())
sys.argv = [program, *words]
run = runpy.run_path if program.endswith(".py") else runpy.run_module
run(program, run_name="__main__")
"""
RFS = "reasoning_from_scratch"


@pytest.mark.parametrize(
    "module, words, name",
    [
        ("numpy._core._methods", [RFS, "train"], "rfs train"),  # ImportError after the last step
        ("numpy.linalg", ["ch07/rl_loop.py"], "rl_loop.py"),
    ],
)
def test_ctrl_c_during_an_import_ends_the_command(tmp_path, module, words, name):
    """torch drops a KeyboardInterrupt that comes while it imports numpy, and goes on without it."""
    program, *rest = words
    program = str(HERE.parent / program) if program.endswith(".py") else program
    command = [sys.executable, "-c", PRESS, program, module, *rest]
    ended = subprocess.run(
        command, env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    *_, last = ended.stderr.splitlines()  # of a command, what is loaded stands before it
    assert (last, ended.returncode) == (f"{name}: interrupted", 130)
    assert not list(tmp_path.rglob("metrics.jsonl"))  # no step was made


def test_a_second_ctrl_c_does_not_wait_for_an_import(tmp_path):
    (tmp_path / "endless.py").write_text(
        "import os, signal, time\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "time.sleep(60)\n"
    )
    code = f"import {RFS}.commands.cli, endless"
    command, start = [sys.executable, "-c", code], time.monotonic()
    ended = subprocess.run(command, env=ENVIRONMENT, cwd=tmp_path, capture_output=True)
    assert ended.returncode == 130 and ended.stderr == b"\ninterrupted\n"
    assert time.monotonic() - start < 30
