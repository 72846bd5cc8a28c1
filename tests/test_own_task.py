"""Problems and verifiers of the reader's own: what they may be, and what they cannot break."""

import json
import logging
import math
import signal
import threading
import time

import pytest
import torch
from toy import toy_config, toy_world

from reasoning_from_scratch.config import resolved
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.own_task import (
    REPORTED,
    TooSlow,
    Verifier,
    own_function,
    with_limit,
)
from reasoning_from_scratch.problems import Problem, load_problems
from reasoning_from_scratch.trainer import train

PROBLEM = Problem("own/0", "What is 1 + 1?\x1b[2J", "2")
needs_timer = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer signals here")


def write(folder, text, name="task.py"):
    path = folder / name
    path.write_text(text)
    return str(path)


# ---- problems


def test_rows_and_problems_are_both_taken_and_an_endless_generator_ends(tmp_path):
    path = write(tmp_path, """
from itertools import count
from reasoning_from_scratch.problems import Problem
def problems():
    yield Problem("mine", "a?", "1")
    for n in count():
        yield {"problem": f"{n}?", "answer": n}
""")  # fmt: skip
    found = load_problems(f"{path}:problems", limit=3)
    assert [(p.id, p.problem, p.answer) for p in found] == [
        ("mine", "a?", "1"), ("task/1", "0?", "0"), ("task/2", "1?", "1"),
    ]  # fmt: skip
    assert len(load_problems(f"{path}:problems")) == 12_000


@pytest.mark.parametrize("text, says", [
    ("def problems(): return []", "yields no problems"),
    ("def problems(): yield 5", "problem 0: ValueError: expected an object"),
    ("def problems():\n yield {'problem': 'a', 'answer': '1'}\n 1 / 0", "problem 1: ZeroDivision"),
    ("def problems(): return 5", "not iterable"),
    ("def other(): pass", "defines no function 'problems'"),
    ("problems = 7", "defines no function 'problems'"),
    ("def problems(:", "does not run: SyntaxError"),
    ("import no_such_module", "does not run: ModuleNotFoundError"),
])  # fmt: skip
def test_mistakes_are_told_in_one_line(tmp_path, text, says):
    with pytest.raises(UserError, match=says) as error:
        load_problems(write(tmp_path, text) + ":problems")
    assert "\n" not in str(error.value)


def test_names_that_are_not_functions_of_files():
    with pytest.raises(UserError, match="there is no file nowhere.py"):
        own_function("nowhere.py:reward")
    for name in ("task.py", "task:reward", "task.py:"):
        with pytest.raises(UserError, match="is not FILE.py:FUNCTION"):
            own_function(name)


def test_held_out_problems_come_from_the_same_file(tmp_path):
    config = toy_config(tmp_path, problems="x/task.py:problems")
    assert resolved(config).eval_problems == "x/task.py:test_problems"


# ---- the verifier


@pytest.mark.parametrize("value", [1, 0.5, True, -2.0, torch.tensor(0.25)])
def test_numbers_are_rewards(value):
    assert Verifier(lambda text, problem: value)("a", PROBLEM) == (float(value), False)


@pytest.mark.parametrize("value", [None, "1", b"1", math.nan, math.inf, [1.0], 10**400,
                                   torch.zeros(2), object()])  # fmt: skip
def test_what_is_no_number_counts_as_0_and_is_reported(value, caplog):
    with caplog.at_level(logging.WARNING, "reasoning_from_scratch"):
        assert Verifier(lambda text, problem: value)("the answer", PROBLEM) == (0.0, True)
    (record,) = caplog.records
    assert "not a finite number" in record.getMessage()


@pytest.mark.parametrize("error", [ValueError("bad\x1b[2J"), KeyError(1), RecursionError(),
                                   MemoryError(), SystemExit(1)])  # fmt: skip
def test_an_error_is_reported_with_problem_and_answer(error, caplog):
    def reward(text, problem):
        raise error

    with caplog.at_level(logging.WARNING, "reasoning_from_scratch"):
        assert Verifier(reward)("the answer", PROBLEM) == (0.0, True)
    said = caplog.records[0].getMessage()
    for words in (type(error).__name__, "own/0", "What is 1 + 1?", "the answer"):
        assert words in said
    assert "\x1b" not in said  # nothing that a model wrote acts on the terminal


def test_ctrl_c_is_no_error_of_the_verifier():
    def reward(text, problem):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Verifier(reward)("a", PROBLEM)


def test_reports_end_and_counting_goes_on(caplog):
    verifier = Verifier(lambda text, problem: None)
    with caplog.at_level(logging.WARNING, "reasoning_from_scratch"):
        for _ in range(REPORTED + 5):
            verifier("a" * 10_000, PROBLEM)
    assert len(caplog.records) == REPORTED and verifier.failures == REPORTED + 5
    assert all(len(record.getMessage()) < 1_000 for record in caplog.records)


def endless(text, problem):
    while True:
        pass


def stubborn(text, problem):
    """Catches all it can, once."""
    try:
        endless(text, problem)
    except:  # noqa: E722
        pass
    endless(text, problem)


def catastrophic(text, problem):
    import re

    return bool(re.fullmatch("(a+)+b", "a" * 60))


@needs_timer
@pytest.mark.parametrize("reward", [endless, stubborn, catastrophic])
def test_a_slow_verifier_is_stopped(reward):
    start = time.monotonic()
    assert Verifier(reward, seconds=0.1)("a", PROBLEM) == (0.0, True)
    assert time.monotonic() - start < 5


@needs_timer
def test_the_timer_leaves_nothing_behind():
    before = signal.getsignal(signal.SIGALRM)
    assert with_limit(5.0, lambda: 3) == 3
    with pytest.raises(TooSlow):
        with_limit(0.05, endless, "", PROBLEM)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def outside_of_the_main_thread(call):
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def test_outside_of_the_main_thread_a_slow_verifier_is_left_behind():
    def refused() -> bool:
        with pytest.raises(TooSlow):
            with_limit(0.05, time.sleep, 2)
        return True

    start = time.monotonic()
    assert outside_of_the_main_thread(refused) and time.monotonic() - start < 1.5
    assert outside_of_the_main_thread(lambda: with_limit(5.0, lambda: 3)) == 3
    failing = Verifier(lambda text, problem: 1 / 0)
    assert outside_of_the_main_thread(lambda: failing("a", PROBLEM)) == (0.0, True)


# ---- in a run


def test_a_run_outlives_its_verifier_and_learns_from_it(tmp_path):
    path = write(tmp_path, """
def reward(text, problem):
    if "q" in text:
        raise ValueError("no q, please")
    return 0.5 if "a" in text else 0.0
""")  # fmt: skip
    config = toy_config(tmp_path / "run", steps=2, reward=f"{path}:reward", problems_per_step=6)
    rows = train(config, quiet=True, **toy_world(tmp_path)).rows
    assert all(row["env/all/reward_failed"] > 0 for row in rows)
    assert all(row["env/all/reward/total"] == row["env/all/correct"] > 0 for row in rows)
    log = (tmp_path / "run" / "logs.log").read_text()
    assert "raised ValueError: no q, please" in log and "toy/" in log


def test_the_probes_of_a_report_are_judged_by_your_verifier_too(tmp_path):
    path = write(tmp_path, "def reward(text, problem):\n    return 1.0\n")
    config = toy_config(tmp_path / "run", steps=1, reward=f"{path}:reward")
    train(config, quiet=True, **toy_world(tmp_path))
    lines = [json.loads(line) for line in open(tmp_path / "run" / "probes.jsonl")]
    assert all(probe["correct"] for line in lines for probe in line["probes"])


def test_a_missing_verifier_ends_the_run_before_it_begins(tmp_path):
    config = toy_config(tmp_path / "run", reward="gone.py:reward")
    with pytest.raises(UserError, match="there is no file gone.py"):
        train(config, quiet=True, **toy_world(tmp_path))
    assert not (tmp_path / "run" / "config.json").exists()
