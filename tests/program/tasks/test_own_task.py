"""Problems and verifiers of the reader's own: what they may be, and what they cannot break."""

import json
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from toy import toy_config, toy_world, train

from reasoning_from_scratch import Problem, Rollout, load_model_and_tokenizer
from reasoning_from_scratch.errors import UserError
from rfs import load_problems
from rfs.report.health import failure_reports
from rfs.tasks.foreign import TooSlow, call_with_limit
from rfs.tasks.own_task import Evaluator, Verifier

PROBLEM = Problem("own/0", "What is 1 + 1?\x1b[2J", "2")
needs_timer = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer signals here")


def write(folder, text, name="task.py"):
    path = folder / name
    path.write_text(text)
    return str(path)


# ---- problems


def test_a_file_may_define_dataclasses(tmp_path):
    """With annotations as text, a dataclass looks for its module in sys.modules."""
    path = write(
        tmp_path,
        """
from __future__ import annotations
from dataclasses import asdict, dataclass

@dataclass
class Sum:
    problem: str
    answer: int

def problems():
    return [asdict(Sum(f"{n} + {n}?", 2 * n)) for n in (1, 2)]
""",
    )
    assert [p.answer for p in load_problems(f"{path}:problems")] == ["2", "4"]


def test_rows_and_problems_are_both_taken_and_an_endless_generator_ends(tmp_path):
    path = write(
        tmp_path,
        """
from itertools import count
from reasoning_from_scratch.problems import Problem
def problems():
    yield Problem("mine", "a?", "1")
    for n in count():
        yield {"problem": f"{n}?", "answer": n}
""",
    )
    found = load_problems(f"{path}:problems", limit=3)
    assert [(p.id, p.problem, p.answer) for p in found] == [
        ("mine", "a?", "1"),
        ("task/1", "0?", "0"),
        ("task/2", "1?", "1"),
    ]
    assert len(load_problems(f"{path}:problems")) == 12_000


@pytest.mark.parametrize(
    "text, says",
    [
        ("def problems(): return []", "yields no problems"),
        ("def problems(): yield 5", "problem 0: ValueError: expected an object"),
        (
            "def problems():\n yield {'problem': 'a', 'answer': '1'}\n 1 / 0",
            "problem 1: ZeroDivision",
        ),
        ("def problems(): return 5", "not iterable"),
        ("def other(): pass", "defines no function 'problems'"),
        ("problems = 7", "defines no function 'problems'"),
        ("def problem(): pass", "'problems': did you mean 'problem'"),
        ("def problems(:", "does not run: SyntaxError"),
        ("import no_such_module", "does not run: ModuleNotFoundError"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path, text, says):
    with pytest.raises(UserError, match=says) as error:
        load_problems(write(tmp_path, text) + ":problems")
    assert "\n" not in str(error.value)


def test_the_evaluator_of_the_example_measures_on_unseen_numbers():
    path = f"{Path(__file__).parents[3]}/ch07/my_task.py"
    numbers, failure = Evaluator(f"{path}:larger")(*load_model_and_tokenizer("tiny-grpo"))
    assert failure == "" and numbers.keys() == {"larger/right", "larger/tokens"}
    assert 0 <= numbers["larger/right"] <= 1 <= numbers["larger/tokens"] <= 64


# ---- the verifier


@pytest.mark.parametrize("value", [1, 0.5, True, -2.0, torch.tensor(0.25)])
def test_numbers_are_rewards(value):
    assert Verifier(lambda text, problem: value)("a", PROBLEM) == (float(value), "")


def failed(why, text="the answer"):
    return Rollout(PROBLEM, [], [], [], [], text, True, failure=why)


def test_each_kind_of_failure_is_told_once_with_its_count_and_an_example():
    whys = ("raised KeyError: 1\x1b[2J", "", "raised KeyError: 2", "took longer than 5 s")
    rollouts, told = [failed(why) for why in whys], set()
    first, second = failure_reports(rollouts, told)
    example = ("raised KeyError: 1", "own/0", "What is 1 + 1?", "the answer")
    assert all(words in first for words in ("failed on 2 of 4 answers", *example))
    assert "failed on 1 of 4 answers" in second and "took longer than 5 s" in second
    assert "\x1b" not in first  # nothing that a model wrote acts on the terminal
    assert failure_reports(rollouts, told) == []
    (other,) = failure_reports([failed("raised OSError: " + "a" * 10_000, "b" * 10_000)], told)
    assert len(other) < 1_500


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
    assert Verifier(reward, seconds=0.1)("a", PROBLEM) == (0.0, "took longer than 0.1 s")
    assert time.monotonic() - start < 30  # on a busy machine; left alone, it takes years


def outside_of_the_main_thread(call, *given):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, *given).result()


def test_outside_of_the_main_thread_a_slow_verifier_is_left_behind():
    start = time.monotonic()
    with pytest.raises(TooSlow):
        outside_of_the_main_thread(call_with_limit, 0.05, time.sleep, 20)
    assert time.monotonic() - start < 10
    assert outside_of_the_main_thread(call_with_limit, 5.0, lambda: 3) == 3
    failing = Verifier(lambda text, problem: 1 / 0)
    paid, why = outside_of_the_main_thread(failing, "a", PROBLEM)
    assert paid == 0.0 and why.startswith("raised ZeroDivisionError")


# ---- in a run


def test_a_run_outlives_its_verifier_and_learns_from_it(tmp_path):
    path = write(
        tmp_path,
        """
def reward(text, problem):
    if "q" in text:
        raise ValueError("no q, please")
    return 0.5 if "a" in text else 0.0
""",
    )
    config = toy_config(tmp_path / "run", steps=2, reward=f"{path}:reward", problems_per_step=6)
    rows = train(config, quiet=True, **toy_world(tmp_path)).rows
    assert all(row["env/all/reward_failed"] > 0 for row in rows)
    assert all(row["env/all/reward/total"] == row["env/all/correct"] > 0 for row in rows)
    log = (tmp_path / "run" / "logs.log").read_text()
    assert log.count("the reward function failed on") == 1
    assert "raised ValueError: no q, please" in log and "toy/" in log
    lines = open(tmp_path / "run" / "train_iteration_000001_rollout_summaries.jsonl")
    said = [json.loads(line)["steps"][0]["logs"].get("reward_failure") for line in lines]
    assert set(said) == {None, "raised ValueError: no q, please"}


def test_the_next_run_takes_a_file_as_it_is_now(tmp_path):
    """As in a notebook, where both runs are in one process."""

    def rewards(path, name):
        config = toy_config(tmp_path / name, steps=1, reward=f"{path}:reward")
        return train(config, quiet=True, **toy_world(tmp_path)).rows[0]["env/all/correct"]

    text = "NUMBER = {}\n\ndef reward(text, problem):\n    return NUMBER\n\ndef problems():\n"
    text += "    return [{{'problem': f'{{NUMBER}}?', 'answer': '1'}}]\n"
    path = write(tmp_path, text.format(0.25))
    assert rewards(path, "first") == 0.25
    write(tmp_path, text.format(0.5) + "# edited\n")
    assert rewards(path, "second") == 0.5
    write(tmp_path, text.format(1) + "# edited again\n")
    assert load_problems(f"{path}:problems")[0].problem == "1?"


BROKEN = "def reward(text, problem):\n    return float('nan')\n"


def test_a_verifier_that_fails_on_every_answer_ends_the_run(tmp_path):
    path = write(tmp_path, BROKEN)
    config = toy_config(tmp_path / "run", steps=9, reward=f"{path}:reward", eval_every=2)
    result = train(config, quiet=True, **toy_world(tmp_path))
    assert len(result.rows) == 3
    assert re.search(r"task.py:reward failed on every answer of 3 steps in a row", result.stopped)
    log = (tmp_path / "run" / "logs.log").read_text()
    assert log.count("the reward function failed on") == 1  # at step 0's evaluation
    assert "failed on 8 of 8 answers" in log


def test_the_preflight_asks_your_verifier_too(tmp_path):
    path = write(tmp_path, "def reward(text, problem):\n    return 0.5 * ('a' in text)\n")
    settings = {"reward": f"{path}:reward", "steps": 1, "preflight": True}
    train(toy_config(tmp_path / "run", **settings), quiet=True, **toy_world(tmp_path))
    log = (tmp_path / "run" / "logs.log").read_text()
    assert re.search(r"preflight: Training can work.* \d+\.\d% of groups have a signal", log)
    broken = write(tmp_path, BROKEN, "broken.py")
    settings |= {"reward": f"{broken}:reward"}
    train(toy_config(tmp_path / "other", **settings), quiet=True, **toy_world(tmp_path))
    log = (tmp_path / "other" / "logs.log").read_text()
    assert "failed on 64 of 64 answers" in log
    assert "returned no finite number: nan" in log
