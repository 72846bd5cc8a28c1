"""Chapter 8's experiment on the tiny model, which knows other words: that it runs and counts."""

import json
import time

import experiment
import pytest
import torch

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.model_names import base_model_of
from reasoning_from_scratch.files.tensor_files import load_state
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.sampling import Rollout
from rfs.files.tables import read_table
from rfs.tasks.own_task import function_from_file
from tests.conftest import ROOT

RIVALS = ("solutions", "teacher-answers", "from-teacher", "on-policy", "self-teacher")
STAGES = ("warm-start", "pass-rates", "grpo", *RIVALS, "adapter", "examples")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stages")
    options = experiment.Options(
        seeds=(0,), stages=STAGES, out=folder / "table.csv", folder=folder, model="tiny",
        examples=16, steps=2, problems_per_step=2, choose_from=4, eval_every=2, held_out=4,
        final=True,
    )  # fmt: skip
    # The tiny model knows other words, so what it answers would be no teacher.
    answers = folder / "seed-0" / "teacher-answers"
    answers.mkdir(parents=True)
    (answers / "row.json").write_text('{"seconds": 0.0}')
    solved = [{"problem": "1 + 1?", "answer": "2", "solution": "1 + 1 = 2\n\\boxed{2}"}]
    (answers / "answers.jsonl").write_text("".join(json.dumps(one) + "\n" for one in solved * 2))
    interrupted = folder / "seed-0" / "solutions" / "pace"  # while it was measuring its speed
    interrupted.mkdir(parents=True)
    (interrupted / "config.json").write_text('{"recipe": "sft", "steps": 5}')
    threads = torch.get_num_threads()
    experiment.main(options)
    torch.set_num_threads(threads)
    return options


def test_each_stage_is_a_row_and_is_not_done_again(run):
    before = run.out.read_text(encoding="utf-8")
    rows = read_table(run.out)
    assert [row["stage"] for row in rows] == [*run.stages[:-1]]
    assert rows[0]["steps"] == rows[2]["steps"] == "2"
    assert all(float(row["seconds"]) > 0 for row in rows if row["steps"])
    assert sum(float(rows[1][name]) for name in ("never", "between", "always")) == 1
    log = run.folder / "seed-0" / "warm-start" / "run" / "metrics.jsonl"
    written = log.stat().st_mtime_ns
    experiment.main(run)
    assert run.out.read_text(encoding="utf-8") == before
    assert log.stat().st_mtime_ns == written


def test_a_finished_stage_is_not_taken_for_one_with_other_settings(run):
    """grpo would be shown as if it had the number of steps that is asked for, and rivals get its
    time."""
    before = run.out.read_text(encoding="utf-8")
    for stage, change, words in (
        ("grpo", {"steps": 3}, "grpo/run was run with steps 2, not 3; choose another --folder"),
        ("solutions", {"sft_lr": 1e-4}, "was run with lr 0.0002, not 0.0001"),
    ):
        asked = {**vars(run), "stages": (stage,), **change}
        with pytest.raises(UserError, match=words):
            experiment.main(experiment.Options(**asked))
    experiment.main(experiment.Options(**{**vars(run), "stages": ("warm-start",), "steps": 3}))
    assert sorted(run.out.read_text(encoding="utf-8").split()) == sorted(before.split())


def test_what_was_measured_at_the_end_stays_in_the_table(run):
    before = read_table(run.out)
    experiment.main(experiment.Options(**{**vars(run), "stages": ("grpo",), "final": False}))
    after = {row["stage"]: row for row in read_table(run.out)}
    assert after["grpo"]["fresh"] and after == {row["stage"]: row for row in before}


def test_an_adapter_needs_the_teachers_answers(run, tmp_path):
    with pytest.raises(UserError, match="run the stage teacher-answers first"):
        experiment.write_adapter_lessons(run, tmp_path)


def test_a_stage_that_is_unknown_or_lacks_what_it_needs_is_refused(tmp_path):
    asked = {"folder": tmp_path / "runs", "out": tmp_path / "a.csv", "seeds": (0,)}
    with pytest.raises(UserError, match="unknown stage 'grop': did you mean 'grpo'"):
        experiment.main(experiment.Options(**asked, stages=("grop",)))
    for stage, needed in (("grpo-chosen", "warm-start"), ("from-teacher", "warm-start")):
        with pytest.raises(UserError, match=f"run the stage {needed} first"):
            experiment.main(experiment.Options(**asked, stages=(stage,)))
    assert not (tmp_path / "runs").exists()


def test_processor_time_is_added_up_over_interruptions():
    def row(step, session, seconds):
        name = "measured_on_the_way"
        found = {"eval_step": step, f"{name}/session": session, f"{name}/seconds": seconds}
        return found | {"step": step, "eval_acc": 0.0}

    # 20 steps in a process that did something else for 10 seconds; killed; 20 more in another.
    rows = [row(0, 1.0, 10.0), {}, row(20, 1.0, 25.0), {}, row(30, 2.0, 7.0), row(40, 2.0, 12.0)]
    assert experiment.training_seconds(rows) == 15 + 12
    # A run of one step is measured before it and after it, in one row.
    before = {f"before/{name}": value for name, value in row(0, 1.0, 10.0).items()}
    assert experiment.training_seconds([before | row(1, 1.0, 14.0) | {"step": 0}]) == 4


def test_a_measurement_before_the_last_step_is_on_the_curve():
    def row(step, **measured):
        known = {"step": step, "reward/total": 0.5, "ac_tokens_per_turn": 9, experiment.MIXED: 0.5}
        return known | measured

    def measured(after, greedy):
        numbers = {"measured_on_the_way/greedy": greedy, "measured_on_the_way/false_steps": 0.0}
        return numbers | {"eval_step": after, "eval_acc": greedy}

    before = {f"before/{name}": value for name, value in measured(1, 0.25).items()}
    lines = experiment.training_curve(
        [row(0, **measured(0, 0.0)), row(1, **before, **measured(2, 0.5))]
    )
    assert [line["greedy"] for line in lines] == ["0", "0.25", "0.5"]


def test_a_resumed_stage_is_not_charged_for_what_the_process_did_before():
    """All stages of a call share one copy of the file, whose counter would go on."""
    counter = function_from_file(experiment.EVALUATOR).__globals__
    counter |= {"BEGAN": time.process_time() - 1000, "spent_measuring": 5.0}
    experiment.reset_processor_time()
    assert time.process_time() - counter["BEGAN"] < 1 and counter["spent_measuring"] == 0


def test_what_is_counted_of_answers():
    problem = Problem("1", "?", "5", type="bus")
    texts = ["2 + 3 = 5\n\\boxed{5}", "2 + 2 = 5\n\\boxed{5}", "2 + 3 = 6\n\\boxed{6}", ""]
    rollouts = [Rollout(problem, [0], [1] * 4, text=text) for text in texts]
    answers = experiment.Answers([Group(problem, rollouts)])
    assert answers.accuracy == 0.5 and answers.pass_at_k == 1 and answers.tokens == 4
    assert answers.false_steps == pytest.approx(2 / 3)
    assert answers.correct_by_mistake == 0.5
    assert answers.accuracy_by(lambda one: one.type) == {"bus": 0.5}


@pytest.mark.parametrize(
    "text, paid", [(" 5\n\nQuestion: 6", 1), ("2 + 3 = 5\n\\boxed{5}\n\nQ", 1), (" 15", 0), ("", 0)]
)
def test_what_counts_of_an_untrained_models_answer(text, paid):
    assert experiment.first_paragraph_is_correct(text, Problem("1", "?", "5")) == paid


def test_rivals_take_the_time_of_grpo_and_begin_with_the_warm_start(run):
    rows = {row["stage"]: row for row in read_table(run.out)}
    for stage in ("solutions", "from-teacher", "on-policy", "self-teacher"):
        folder = run.folder / "seed-0" / stage
        config = json.loads((folder / "run" / "config.json").read_text(encoding="utf-8"))
        assert config["model"] == str(run.folder / "seed-0/warm-start/run/checkpoints/000002")
        assert config["steps"] == int(rows[stage]["steps"]) >= 1
        assert not (folder / "pace").exists()
    teacher = config | json.loads(
        (run.folder / "seed-0/on-policy/run/config.json").read_text(encoding="utf-8")
    )
    assert teacher["kl_reference"] == str(run.folder / "seed-0/grpo/run/checkpoints/000002")
    assert config["kl_reference"] is None and config["kl_solution"]


def test_models_are_measured_on_fresh_problems_when_asked(run):
    for row in read_table(run.out):
        has_model = row["stage"] not in ("pass-rates", "teacher-answers")
        assert bool(row["fresh"]) == has_model
        assert bool(row["fresh_pass@8"]) == has_model


def test_the_untrained_model_gets_the_fresh_problems_after_examples(tmp_path, monkeypatch):
    put = []

    def sample(self, problems, sampling):
        put.extend(problems)
        texts = [f" {p.answer}\n\nQuestion" for p in problems]
        pairs = zip(problems, texts, strict=True)
        return [Group(p, [Rollout(p, [0], [1], text=text)]) for p, text in pairs]

    monkeypatch.setattr(experiment.Policy, "sample", sample)  # the tiny model's context is short
    options = experiment.Options(model="tiny", held_out=4)
    assert experiment.measure_fresh(options, tmp_path) == {"fresh_answer_only": 1, "fresh": 1}
    assert len(put) == 2 * 24
    assert all(p.prompt.count("Question: ") == 5 for p in put)


def test_examples_and_the_curve_of_grpo_stand_beside_the_table(run):
    examples = json.loads(run.out.with_name("table_examples_0.json").read_text(encoding="utf-8"))
    assert sum(kind["count"] for kind in examples.values()) == 4 * 4
    for kind, found in examples.items():
        for one in found["first"]:
            answer = one["solution"].split("{")[1].rstrip("}")
            for stage in ("warm-start", "grpo"):
                right = experiment.correctness(one[stage], answer)
                assert bool(right) == (kind in ("both", f"only {stage}"))
    curve = read_table(run.out.with_name("table_curve.csv"))
    assert [line["step"] for line in curve] == ["0", "1", "2"]
    assert [bool(line["reward"]) for line in curve] == [True, True, False]
    assert curve[0]["greedy"] and curve[2]["greedy"]


def test_a_teachers_correct_answers_are_worked_solutions(tmp_path, monkeypatch):
    def answered(teacher, problems, sampling):
        texts = [p.solution if int(p.answer) < 10 else "\\boxed{0}" for p in problems]
        return experiment.Answers(
            [
                Group(p, [Rollout(p, [0], [1], text=text)])
                for p, text in zip(problems, texts, strict=True)
            ]
        )

    monkeypatch.setattr(experiment, "sample_answers", answered)
    path = tmp_path / "answers.jsonl"
    row = experiment.sample_teacher_answers(experiment.Options(answers=40), None, 0, path)
    kept = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert 0 < len(kept) == round(40 * row["sampled"]) < 40
    assert all(one["solution"].endswith(f"\\boxed{{{one['answer']}}}") for one in kept)


def test_rows_are_json(run):
    row = json.loads((run.folder / "seed-0" / "grpo" / "row.json").read_text(encoding="utf-8"))
    assert set(row) <= set(experiment.COLUMNS)


def test_the_shipped_adapter_is_small_and_names_its_base():
    folder = ROOT / "ch08" / "adapter"
    assert base_model_of(folder) == "smollm2"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 5_000_000
    tensors = load_state(folder / "adapter_model.safetensors")
    assert len(tensors) == 30 * 7 * 2  # two for each of the seven matrices of a block
    assert all(tensor.isfinite().all() and tensor.any() for tensor in tensors.values())
