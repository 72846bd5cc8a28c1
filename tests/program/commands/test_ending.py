"""What a run's last lines say: only what was measured twice, and an answer that changed."""

import json

import pytest

from rfs.commands.ending import before_and_after, example_answers, run_summary
from rfs.report.metrics import MIXED


def row(step, reward=None, **measured):
    return {"step": step, "reward/total": reward, MIXED: 0.5, "optim/loss": 0.0, **measured}


def supervised(step, loss):
    return row(step, 1.0) | {MIXED: None, "optim/loss": loss}


def measured(eval_step, accuracy):
    return {"eval_step": eval_step, "eval_acc": accuracy, "eval_problems": 8}


@pytest.mark.parametrize(
    "rows, says",
    [
        ([], ""),
        ([row(0, 0.5)], ""),
        ([row(0, 0.25), row(1, 0.5)], "mean reward: 0.250 in the first step, 0.500 in the last"),
        (
            [supervised(0, 0.5), supervised(1, 0.25)],
            "loss per token: 0.500 in the first step, 0.250 in the last",
        ),
        (
            [row(0, None, **measured(0, 0.5)), row(1, None, **measured(2, 0.75))],
            "correct answers to 8 problems: 50.0% after 0 steps, 75.0% after 2",
        ),
        ([row(0, None, **measured(0, 0.5)), row(1, None, **measured(2, None))], ""),
    ],
)
def test_before_and_after(rows, says):
    assert before_and_after(rows) == says


def probe(text, correct=False, problem="p"):
    return {"problem": problem, "text": text, "correct": correct}


@pytest.mark.parametrize(
    "then, now, shown",
    [
        ([probe("1")], [probe("1")], ""),
        ([probe("1")], [probe("2\x1b")], "Problem: p\nbefore: 1\nafter:  2\\x1b"),
        (
            [probe("1"), probe("3", problem="q")],
            [probe("2"), probe("4", True, problem="q")],
            "Problem: q\nbefore: 3\nafter:  4",
        ),
    ],
)
def test_one_answer(then, now, shown):
    assert example_answers([{"probes": then}, {"probes": now}]) == shown
    assert example_answers([{"probes": then}]) == ""


@pytest.mark.parametrize(
    "rows, sets, limit, why",
    [
        ([row(0)], ["mine"], 100, "the run itself did not"),
        ([row(0, **measured(0, 0.5))], ["mine"], 8, "measure it on all"),
        ([row(0, **measured(0, 0.5))], ["mine"], 100, ""),
        ([row(0, **measured(0, 0.5))], ["mine", "tiny"], 100, "measure it on all"),
    ],
    ids=["never", "the first ones", "all", "of several sets"],
)
def test_it_is_measured_again_only_where_problems_are_left(rows, sets, limit, why, tmp_path):
    config = {"eval_problems": sets, "eval_limit": limit}
    (tmp_path / "config.json").write_text(json.dumps(config))
    said = run_summary(tmp_path, rows)
    assert "rfs report" in said
    assert ("rfs evaluate" in said) == bool(why) and why in said
