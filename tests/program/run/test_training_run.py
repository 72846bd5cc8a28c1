"""What a run does beside the updates: evaluations, gaps measured, why it ends, what it leaves."""

from dataclasses import replace

import pytest
import torch
from command_world import commands, contents, equal, resume, run, saved, train_words
from toy import (
    LETTERS,
    resumed_run,
    toy_config,
    toy_policy,
    toy_problems,
    toy_run,
    toy_tokenizer,
    toy_world,
)

from reasoning_from_scratch.problems import problem_prompt
from reasoning_from_scratch.rollouts import Group, Rollout, reward_groups, sample_groups
from reasoning_from_scratch.text import read_lines
from reasoning_from_scratch.trainer import set_advantages, train_step
from rfs.files.saved_models import evaluations_in, with_final_evaluation
from rfs.run.chosen_problems import load_sets, prepare_problems
from rfs.run.evaluations import eval_metrics
from rfs.run.options import resolved
from rfs.run.training_run import gap_to_sampler
from rfs.tasks.judge import judge_of
from tests.program.run.test_interrupts import press_at

# ---- evaluations


def test_the_numbers_of_an_evaluation_by_hand():
    """Two problems, four answers each: three right, and one right beside one paid in part."""
    groups = [
        Group(problem, [rollout(problem, paid) for paid in all_paid])
        for problem, all_paid in zip(toy_problems(2), ([1, 1, 1, 0], [0, 0, 1, 0.5]), strict=True)
    ]
    metrics = eval_metrics("mine", groups)
    assert metrics["mine/env/all/correct"] == 4.5 / 8  # as it was paid
    assert metrics["eval_acc"] == metrics["mine/pass@1"] == 4 / 8  # whole rewards only
    assert metrics["mine/env/all/ac_tokens_per_turn"] == (5 * 2 + 3 * 3) / 8
    # pass@k counts what is wholly right: 3 and 1 of 4. 1 - (4-c choose k) / (4 choose k)
    shares = [metrics[f"mine/pass@{k}"] for k in (1, 2, 3, 4)]
    assert shares == pytest.approx([(3 / 4 + 1 / 4) / 2, (1 + 1 / 2) / 2, (1 + 3 / 4) / 2, 1.0])
    assert "mine/pass@5" not in metrics


def rollout(problem, paid):
    ids = [1] * (2 if paid else 3)
    return Rollout(problem=problem, response_ids=ids, rewards={"correct": float(paid)})


def test_a_run_made_longer_keeps_both(tmp_path):
    toy_run(tmp_path / "run", steps=1, eval_every=1)
    rows = resumed_run(tmp_path / "run", steps=2).rows
    steps = [found["eval_step"] for row in rows for found in evaluations_in(row)]
    assert steps == [0, 1, 1, 2]


def test_with_one_answer_to_each_problem_an_evaluation_is_greedy(tmp_path):
    """No seed has a say in it."""
    name, answers = "eval_tiny-test_iteration_000000_rollout_summaries.jsonl", []
    for seed in (0, 1):
        place = tmp_path / str(seed)
        folder = toy_run(place, steps=1, eval_every=1, seed=seed).folder
        answers.append([line["text"] for line in read_lines(folder / name)])
    assert answers[0] == answers[1] != []


# ---- the gap between sampler and trainer


@pytest.mark.parametrize("more", [{}, {"num_minibatches": 2}, {"top_p": 0.5}], ids=str)
def test_without_a_signal_the_gap_is_measured_on_all_rollouts(tmp_path, more):
    never = [replace(problem, answer="9") for problem in toy_problems()]
    asked = {"steps": 1, "keep_sampling_mask": False, **more}
    (row,) = toy_run(tmp_path / "run", problems=never, **asked).rows
    assert row["optim/updates"] == 0
    names = ("optim/kl_sample_train_v1", "optim/kl_sample_train_v2")
    first, second = (row[name] for name in names)
    assert row["kl_sample_train_v1"] == first and row["kl_sample_train_v2"] == second
    if "top_p" in more:  # half of the probability is cut away, and the trainer knows nothing of it
        assert first > 0.1 and second > 0.01
    else:
        assert abs(first) < 1e-6 and 0 <= second < 1e-6


# ---- how far a step moved the policy


def test_post_kl_is_what_one_update_did(tmp_path):
    """Zero without an update; with one, the mean log-ratio of the samples under both policies."""
    world = toy_world(tmp_path)
    config = resolved(toy_config(tmp_path, compute_post_kl=True, reward=LETTERS))
    groups = sample_groups(world["model"], world["tokenizer"], toy_problems(4), config, 0)
    reward_groups(groups, config, None, judge_of(config))
    set_advantages(groups, config)
    model = world["model"]

    live = [group for group in groups if group.live]
    assert 0 < len(live) < len(groups)

    def measured(lr: float) -> list[float]:
        train_step(toy_policy(model, config), groups, config, lr)
        return gap_to_sampler(toy_policy(model, config), live)

    first, second = measured(lr=0.0)
    assert abs(first) < 1e-6 and second < 1e-9
    first, second = measured(lr=1e-3)
    differences = []
    for rollout in (rollout for group in live for rollout in group.rollouts):
        ids = torch.tensor([rollout.prompt_ids + rollout.response_ids])
        with torch.no_grad():
            logprobs = world["model"](ids)[0].log_softmax(-1)
        start = len(rollout.prompt_ids)
        for t, (token, old) in enumerate(zip(rollout.response_ids, rollout.logprobs, strict=True)):
            differences.append(old - logprobs[start + t - 1, token].item())
    expected = torch.tensor(differences)
    assert first == pytest.approx(expected.mean().item(), abs=1e-6)
    assert second == pytest.approx((expected**2).mean().item() / 2, rel=1e-4)
    assert second > 1e-6
    assert gap_to_sampler(toy_policy(model, config), []) == []


def test_post_kl_is_measured_where_only_a_kl_term_trains(tmp_path):
    """No group is live, and yet all are trained on."""
    (tmp_path / "all.py").write_text("def reward(text, problem):\n    return 1")
    changes = dict(steps=2, compute_post_kl=True, kl="k3", kl_coef=1.0, drop_uniform_groups=False)
    rows = toy_run(tmp_path / "run", reward=f"{tmp_path}/all.py:reward", **changes).rows
    assert all("kl_pre_post_v1" in row and row["optim/updates"] == 1 for row in rows)


SLOW = """
import time

def slow(logprobs, advantages):
    time.sleep(0.05)
    return logprobs * advantages
"""


@pytest.mark.parametrize("parts", [1, 4])
def test_the_time_of_training_has_every_pass_in_it(tmp_path, parts):
    """Also those that come before the step's last group, with minibatches."""
    (tmp_path / "mine.py").write_text(SLOW)
    changes = dict(steps=2, kl="k3", kl_coef=1.0, drop_uniform_groups=False)
    own = f"{tmp_path}/mine.py:slow"
    for row in toy_run(tmp_path / "run", objective=own, num_minibatches=parts, **changes).rows:
        inside = ("train", "sampling", "reward", "eval", "report", "save")
        known = sum(row.get(f"time/{name}", 0) for name in inside)
        assert 0.05 * parts <= row["time/train"] <= known <= row["time/total"] + 1e-6


# ---- the end of a run


def test_a_run_may_end_where_it_was_interrupted(world, monkeypatch):
    press_at("reasoning_from_scratch.trainer.set_advantages", 4, monkeypatch)
    assert commands(train_words(world, world / "Y")) == 130
    monkeypatch.undo()
    assert commands(resume(world / "Y", "--steps", 3)) == 0
    fresh = run(world, "fresh", "--steps", 3)
    assert equal(saved(world / "Y", 3), saved(fresh, 3))
    rows, others = (read_lines(x / "metrics.jsonl") for x in (world / "Y", fresh))
    assert [r.get("eval_acc") for r in rows] == [r.get("eval_acc") for r in others]
    lines = read_lines(world / "Y" / "checkpoints.jsonl")
    assert lines[-1]["final"] and lines[-1]["batch"] == 3


@pytest.mark.parametrize("name", ["report.html", "metrics.csv"])
def test_a_finished_run_writes_again_what_was_lost(world, name):
    (world / "X" / name).unlink()
    assert commands(resume(world / "X")) == 0
    assert (world / "X" / name).stat().st_size > 0


def test_a_finished_run_that_is_whole_stays_as_it_is(world):
    assert commands(resume(world / "X")) == 0  # it was copied: checkpoints.jsonl says so now
    before = contents(world / "X")
    assert commands(resume(world / "X")) == 0
    after = contents(world / "X")
    assert {name for name in after if after[name] != before.get(name)} == {"logs.log"}


def test_an_alarm_goes_into_the_log(tmp_path):
    toy_run(tmp_path / "run", steps=10, num_groups_to_log=0)
    assert "ALARM length_limit" in (tmp_path / "run" / "logs.log").read_text()


# ---- several evaluation sets


OWN = """
def politeness(model, tokenizer):
    assert not model.tok_emb.weight.isnan().any()
    return {"please": 0.25, "thanks": len(tokenizer.encode("abc"))}

def broken(model, tokenizer):
    return {}["nothing"]

def silent(model, tokenizer):
    return {"said": None}
"""


@pytest.fixture
def more(tmp_path):
    """A second evaluation set, and evaluators, in files."""
    (tmp_path / "mine.py").write_text(OWN)
    rows = [f'{{"problem": "{"abcd"[i % 4] * 2}", "answer": "{i % 4}"}}\n' for i in range(6)]
    (tmp_path / "more.jsonl").write_text("".join(rows))
    return tmp_path


def test_each_set_has_its_name_in_metrics_pages_and_the_report(more):
    folder = toy_run(
        more / "run",
        steps=3,
        eval_every=3,
        eval_limit=5,
        eval_samples=2,
        eval_problems=["tiny-test", str(more / "more.jsonl")],
        evaluators=f"{more}/mine.py:politeness",
        iteration_folders=True,
    ).folder
    first, _, last = read_lines(folder / "metrics.jsonl")
    for row in (first, last):
        assert row["eval_acc"] == row["tiny-test/env/all/correct"]
        assert 0 <= row["more.jsonl/pass@1"] <= row["more.jsonl/pass@2"] <= 1
        assert (row["politeness/please"], row["politeness/thanks"]) == (0.25, 3)
    for step in (0, 3):
        answers = read_lines(
            folder / f"eval_more.jsonl_iteration_{step:06d}_rollout_summaries.jsonl"
        )
        assert len(answers) == 5 * 2 and {row["split"] for row in answers} == {"eval/more.jsonl"}
        assert (folder / f"iteration_{step:06d}" / "eval_tiny-test.html").exists()
    page = (folder / "report.html").read_text(encoding="utf-8")
    for words in ("accuracy, tiny-test", "accuracy, more.jsonl", "politeness", "thanks"):
        assert words in page


def test_every_set_is_put_with_the_prompt_of_the_run(more):
    names = ["tiny-test", str(more / "more.jsonl")]
    config = toy_config(more / "run", prompt="question", eval_every=1, eval_problems=names)
    config = resolved(config)
    problems, sets = prepare_problems(config, load_sets(config), toy_tokenizer(more), 512)
    assert sets.keys() == {"tiny-test", "more.jsonl"}
    for problem in (*problems, *(one for held_out in sets.values() for one in held_out)):
        assert problem_prompt(problem) == problem.problem


def test_an_older_number_does_not_stand_beside_the_final_evaluation():
    row = {"step": 1, "eval_step": 1, "eval_acc": 0.1, "mine/x": 3.0, "reward/total": 1.0}
    found = with_final_evaluation(row, {"eval_step": 2, "eval_acc": 0.2}, ["mine"])
    assert found["before/mine/x"] == 3 and "mine/x" not in found
    assert (found["eval_acc"], found["before/eval_acc"], found["reward/total"]) == (0.2, 0.1, 1)


@pytest.mark.parametrize(
    "name, why",
    [("broken", "raised KeyError: 'nothing'"), ("silent", "returned no dict of finite")],
)
def test_an_evaluator_that_fails_is_told_and_the_run_goes_on(more, name, why):
    evaluators = [f"{more}/mine.py:{name}", f"{more}/mine.py:politeness"]
    rows = toy_run(more / "run", steps=2, eval_every=1, evaluators=evaluators).rows
    assert len(rows) == 2 and rows[1]["politeness/please"] == 0.25
    assert not any(key.startswith(name) for row in rows for key in row)
    log = (more / "run" / "logs.log").read_text()
    assert log.count(f"evaluator {name} after 1 step: it {why}") == 1
