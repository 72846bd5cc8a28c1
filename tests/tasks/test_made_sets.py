"""Sets with rules of their own in a run, an evaluation, a preflight: what is asked, who judges."""

import json

import pytest
import torch
from inference_methods import answer_with
from toy import train

from reasoning_from_scratch.commands.cli import main as commands
from reasoning_from_scratch.commands.preflight import TaskFigures, suggestions, task_figures, to_try
from reasoning_from_scratch.config import Rewards, TrainConfig, replaced
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.evaluation.evaluate import evaluate
from reasoning_from_scratch.files.weights import load_model_and_tokenizer
from reasoning_from_scratch.problems import Problem, problem_prompt, with_prompt
from reasoning_from_scratch.rollouts import Group, Rollout, reward_groups
from reasoning_from_scratch.run.chosen_problems import all_sets, open_problems
from reasoning_from_scratch.run.options import resolved, resumed_config
from reasoning_from_scratch.sampling import Sampling
from reasoning_from_scratch.tasks.judge import RULES, judge_of, verifier_of
from reasoning_from_scratch.tasks.made_sets import made_set
from reasoning_from_scratch.tasks.problem_sets import load_problems

SUM = Problem("sum", "What is 1 + 1?", "2")
NAMES = ["gym:spell_backward?max_word_len=3", "instructions"]
TINY = {
    "steps": 2,
    "problems_per_step": 2,
    "rollouts": 4,
    "max_new_tokens": 12,
    "device": "cpu",
    "preflight": False,
    "report_every": 0,
    "problem_limit": 12,
    "eval_limit": 4,
}


@pytest.fixture(scope="module")
def tiny():
    return load_model_and_tokenizer("tiny-base")


def answer(problem, text):
    return Rollout(problem=problem, prompt_ids=[1], response_ids=[2], text=text, finished=True)


# ---- who judges


@pytest.mark.parametrize(
    "name, made",
    [
        ("gym:chain_sum", True),
        ("gym", True),
        ("instructions@new-constraints", True),
        ("tiny", False),
        ("gymnastics.jsonl", False),
        ("folder/gym.py:problems", False),
        (None, False),
    ],
)
def test_which_sets_are_made_here(name, made):
    assert bool(made_set(name)) == made


def test_each_problem_has_its_judge(tmp_path):
    (word,) = load_problems(NAMES[0], limit=1)
    right = word.answer
    rollouts = [
        answer(word, right),
        answer(word, "no!"),
        answer(SUM, "\\boxed{2}"),
        answer(SUM, "2"),
    ]
    groups = [Group(r.problem, [r]) for r in rollouts]
    reward_groups(groups, Rewards(), None, judge_of(Rewards()))
    assert [r.reward for r in rollouts] == [1.0, 0.0, 1.0, 0.0]
    assert ["reward_failed" in r.rewards for r in rollouts] == [True, True, False, False]
    path = tmp_path / "own.py"
    path.write_text("def reward(text, problem): return len(text)\n")
    own = Rewards(reward=f"{path}:reward")
    reward_groups(groups, own, None, judge_of(own))  # a verifier of one's own wins
    assert [r.reward for r in rollouts] == [len(r.text) for r in rollouts]


def test_rules_that_are_not_handed_in_are_said():
    (word,) = load_problems(NAMES[0], limit=1)
    with pytest.raises(ValueError, match="gym is to judge: take tasks.judge.judge_of"):
        reward_groups([Group(word, [])], Rewards(), None)


def test_an_unknown_judge_is_said():
    with pytest.raises(UserError, match="rules of its own 'gim': did you mean 'gym'"):
        verifier_of(Problem("p", "1?", "1", rules="gim"))


# ---- what is asked


@pytest.mark.parametrize("name", NAMES)
def test_the_question_alone_unless_another_prompt_is_named(name, tiny):
    config = replaced(TrainConfig(), problems=name, eval_every=1, problem_limit=8, eval_limit=5)
    config = resolved(replaced(config, eval_problems=[f"{name}@held-out", "tiny-test"]))
    problems, eval_sets = open_problems(config, tiny[1], 512)
    assert [len(some) for some in (problems, *eval_sets.values())] == [8, 5, 5]
    held_out, test = eval_sets.values()
    assert all(problem_prompt(p) == p.problem for p in [*problems, *held_out])
    assert all("\\boxed" in problem_prompt(p) for p in test)
    (boxed,) = with_prompt(load_problems(name, limit=1), "book", tiny[1])
    assert "\\boxed" in problem_prompt(boxed)


def test_solved_examples_come_in_the_book_s_prompt(tiny):
    config = resolved(TrainConfig(problems=NAMES[0], few_shot=2, problem_limit=8))
    problems, _ = open_problems(config, tiny[1], 512)
    shown = problem_prompt(problems[0])
    assert shown.count("\\boxed{ANSWER}") == 3 and len(problems) == 6
    with pytest.raises(UserError, match="instructions/0 has no answer: leave it out"):
        all_sets(resolved(TrainConfig(problems="instructions", few_shot=1)))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_takes_no_place_of_a_made_set(name):
    with pytest.raises(UserError, match="yields problems of its own: leave one out"):
        resolved(TrainConfig(problems=name, data_path="some.jsonl"))


# ---- a run, an evaluation, a preflight


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_resumed_is_the_same(name, tmp_path, tiny):
    config = TrainConfig(problems=name, eval_every=2, log_path=str(tmp_path / "whole"), **TINY)
    whole = train(config, quiet=True)
    row = whole.rows[-1]
    assert row["env/all/reward_failed"] == 0 and 0 <= row["eval_acc"] <= 1
    assert f"{name}@held-out/env/all/correct" in row
    saved = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert (saved["problems"], saved["prompt"]) == (name, None)
    train(replaced(config, steps=1, log_path=str(tmp_path / "half")), quiet=True)
    again = train(resumed_config(tmp_path / "half", steps=2), quiet=True)
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_run_in_which_the_rules_always_fail_says_whose_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(RULES["instructions"], "function", lambda text, problem: 1 / 0)
    config = TrainConfig(problems="instructions", log_path=str(tmp_path), eval_every=2, **TINY)
    stopped = train(config, quiet=True).stopped
    assert "the reward function of instructions failed on every answer" in stopped


def test_an_evaluation_is_judged_by_the_rules(tiny):
    problems = with_prompt(load_problems(NAMES[0], limit=3), None, tiny[1])
    sampling = Sampling(max_new_tokens=4, rollouts=2)
    result = evaluate(*tiny, problems, sampling)
    assert len(result.rows) == 6 and all(row["reward_failure"] == "" for row in result.rows)
    with pytest.raises(UserError, match="of gym have rules of their own: take rfs evaluate"):
        answer_with("vote", *tiny, problems, sampling)


def test_the_command_evaluates_and_writes_who_judged(tmp_path, capsys):
    path = tmp_path / "answers.jsonl"
    words = ["evaluate", "--model", "tiny", "--problems", "instructions@held-out", "--limit", "2"]
    words += ["--max-new-tokens", "8", "--device", "cpu"]
    assert commands([*words, "--out-path", str(path)]) in (0, None)
    card = json.loads(next(tmp_path.glob("*card*")).read_text())
    assert card["settings"]["prompt"] == "{problem}"
    assert "instructions" in card["settings"]["answer_read_from"]
    assert commands([*words, "--fallback", "number_only"]) == 2
    assert "instructions@held-out has rules of its own: leave it out" in capsys.readouterr().err


def test_preflight_has_a_line_for_each_task(capsys):
    mixture = 'gym:composite?datasets=[{"name":"gcd"},{"name":"spell_backward"}]'
    words = ["preflight", "--model", "tiny-base", "--problems", mixture]
    words += ["--num-problems", "2", "--rollouts", "2", "--max-new-tokens", "4", "--device", "cpu"]
    words += ["--problems-per-step", "1"]
    assert commands(words) == 1
    out = capsys.readouterr().out
    assert "4 problems x 2 rollouts" in out  # two of each task
    assert "| task" in out and "| mixed groups |" in out and "| spell_backward |        2 |" in out
    assert "too hard, hardly anything to reward: gcd, spell_backward" in out


def test_figures_of_tasks():
    def of(task, rules="gym"):
        return Problem(task, "?", "1", type=task, rules=rules)

    problems = [of("a"), of("b"), of("a"), of("c", rules="")]
    right = [[1, 0], [0, 0], [1, 1], [1, 1]]
    rows = [{"correct": bool(one), "tokens": 3} for group in right for one in group]
    assert task_figures(problems, rows, 2) == [
        TaskFigures("a", 2, 0.75, 1.0, 0.5, 3),
        TaskFigures("b", 1, 0.0, 0.0, 0.0, 3),
    ]
    many = [of("a")] * 30 + [of("b")] * 10
    assert to_try(many, 4) == ([of("a")] * 4 + [of("b")] * 4, 8)
    assert to_try(many[:30], 4) == (many[:30], 4)  # of one task, from all over the set
    others = [of(f"t{n}") for n in range(13)]
    assert to_try(others, 4) == (others, 4)


def test_what_is_suggested():
    def task(name, right, mixed):
        return TaskFigures(name, 24, right, 1.0, mixed, 9)

    tasks = [task("a", 0.4, 0.5), task("b", 0.1, 0.2), task("c", 0.99, 0.04), task("d", 0.0, 0.0)]
    assert suggestions(tasks) == [
        "train on: a",
        "slow to learn from, few groups are mixed: b",
        "known already: c",
        "too hard, hardly anything to reward: d",
    ]
