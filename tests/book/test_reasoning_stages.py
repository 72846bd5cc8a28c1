"""Chapter 8's experiment on the tiny model, which knows other words: that it runs and counts."""

import json
import sys
from pathlib import Path

import pytest
import torch

from reasoning_from_scratch.files.tables import read_table
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.sampling import Rollout

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "ch08"), str(ROOT / "ch06")]
import experiment  # noqa: E402


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stages")
    options = experiment.Options(
        seeds=(0,), stages=("warm-start", "pass-rates", "grpo", "solutions"),
        out=folder / "table.csv", folder=folder, model="tiny", examples=16, steps=2,
        problems_per_step=2, choose_from=4, every=1, held_out=4,
    )  # fmt: skip
    threads = torch.get_num_threads()
    experiment.main(options)
    torch.set_num_threads(threads)
    return options


def test_each_stage_is_a_row_and_is_not_done_again(run):
    before = run.out.read_text(encoding="utf-8")
    rows = read_table(run.out)
    assert [row["stage"] for row in rows] == [*run.stages]
    assert rows[0]["steps"] == rows[2]["steps"] == "2"
    assert all(float(row["seconds"]) > 0 for row in rows)
    assert int(rows[3]["steps"]) >= 2  # the rival gets GRPO's time on top
    assert sum(float(rows[1][name]) for name in ("never", "between", "always")) == 1
    log = run.folder / "seed-0" / "warm-start" / "run" / "metrics.jsonl"
    written = log.stat().st_mtime_ns
    experiment.main(run)
    assert run.out.read_text(encoding="utf-8") == before
    assert log.stat().st_mtime_ns == written


def test_processor_time_is_added_up_over_interruptions():
    def row(step, session, seconds):
        name = "measured_on_the_way"
        return {"eval_step": step, f"{name}/session": session, f"{name}/seconds": seconds}

    # 20 steps in a process that did something else for 10 seconds; killed; 20 more in another.
    rows = [row(0, 1.0, 10.0), {}, row(20, 1.0, 25.0), {}, row(30, 2.0, 7.0), row(40, 2.0, 12.0)]
    assert experiment.seconds_of(rows) == 15 + 12


def test_what_is_counted_of_answers():
    problem = Problem("1", "?", "5", type="bus")
    texts = ["2 + 3 = 5\n\\boxed{5}", "2 + 2 = 5\n\\boxed{5}", "2 + 3 = 6\n\\boxed{6}", ""]
    rollouts = [Rollout(problem, [0], [1] * 4, text=text) for text in texts]
    answers = experiment.Answers([Group(problem, rollouts)])
    assert answers.accuracy == 0.5 and answers.solved == 1 and answers.tokens == 4
    assert answers.false_steps == pytest.approx(2 / 3)
    assert answers.correct_by_mistake == 0.5
    assert answers.by(lambda one: one.type) == {"bus": 0.5}


@pytest.mark.parametrize(
    "text, paid", [(" 5\n\nQuestion: 6", 1), ("2 + 3 = 5\n\\boxed{5}\n\nQ", 1), (" 15", 0), ("", 0)]
)
def test_what_counts_of_an_untrained_models_answer(text, paid):
    assert experiment.answered_in_line(text, Problem("1", "?", "5")) == paid


def test_rows_are_json(run):
    row = json.loads((run.folder / "seed-0" / "grpo" / "row.json").read_text(encoding="utf-8"))
    assert set(row) <= set(experiment.COLUMNS)
