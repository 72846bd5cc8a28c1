"""Progress: a bar in a terminal, else a line per step; a console that goes away ends no run."""

import io
import os
import sys

import pytest

from rfs.report import progress as module
from rfs.report.progress import Progress, show_log

ROW = {
    "step": 1,
    "env/all/reward/total": 0.5,
    "env/all/correct": 0.25,
    "env/all/ac_tokens_per_turn": 7.4,
    "env/all/by_group/frac_mixed": 1.0,
}


def test_progress_in_a_pipe_is_one_line_per_step(capsys):
    progress = Progress(4, first=1)
    progress.show(ROW)
    out = capsys.readouterr().out
    assert out.startswith(
        "step 2/4  reward 0.500  correct 25.0%  tokens 7.4  mixed 100.0%  left 0:0"
    )
    assert out.count("\n") == 1


# ---- the console


@pytest.fixture
def closed_pipe():
    """A console as after `| head -1`: nobody reads it any more. Its lines are sent one by one."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as stream:
        yield stream


def test_a_console_that_is_gone_ends_no_run(closed_pipe, monkeypatch):
    monkeypatch.setattr(sys, "stdout", closed_pipe)
    monkeypatch.setattr(sys, "stderr", io.StringIO())  # is no file, as in a notebook
    with pytest.raises(BrokenPipeError):
        print("as it would be", flush=True)
    progress = Progress(4)
    progress.show(ROW)
    progress.show(ROW | {"step": 2})
    print("goes nowhere now", flush=True)


@pytest.fixture
def log(monkeypatch):
    """The log as it is before a command shows it."""
    monkeypatch.setattr(module.log, "handlers", [])
    monkeypatch.setattr(module.log, "propagate", True)
    return module.log


def test_the_log_is_shown_once_and_cannot_act_on_the_terminal(log, capsys):
    show_log()
    show_log()
    log.info("an answer: %s", "\x1b[31mred")
    assert capsys.readouterr().err == "an answer: \\x1b[31mred\n"
    assert not log.propagate


def test_ctrl_c_between_two_writes_leaves_whole_lines(log, monkeypatch):
    pieces = []

    class Console(io.StringIO):
        def write(self, text):
            pieces.append(text)

    monkeypatch.setattr(sys, "stderr", Console())
    show_log()
    log.info("a line")
    assert [piece for piece in pieces if piece] == ["a line\n"]


def test_the_log_of_a_console_that_is_gone_ends_no_run(log, closed_pipe, monkeypatch):
    monkeypatch.setattr(sys, "stderr", closed_pipe)
    show_log()
    log.info("nobody hears this")
    print("goes nowhere now", file=sys.stderr, flush=True)
