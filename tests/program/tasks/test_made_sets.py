"""Sets with rules of their own in a run, an evaluation, a preflight: what is asked, who judges."""

import json

import pytest
import torch
from inference_methods import answer_with

from reasoning_from_scratch.config import Rewards
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import Problem, problem_prompt, with_prompt
from reasoning_from_scratch.rollouts import Group, Rollout, reward_groups
from reasoning_from_scratch.sampling import Sampling
from rfs.commands.cli import main as commands
from rfs.config import RunConfig, replaced
from rfs.evaluation.evaluate import evaluate
from rfs.files.models import load_model_and_tokenizer
from rfs.run.chosen_problems import load_sets, prepare_problems
from rfs.run.options import resolved, resumed_config
from rfs.run.start import train
from rfs.tasks.judge import judge_of, verifier_of
from rfs.tasks.problem_sets import load_problems

SUM = Problem("sum", "What is 1 + 1?", "2")
NAMES = ["gym:spell_backward?max_word_len=3", "instructions"]
TINY = {"steps": 2, "problems_per_step": 2, "rollouts": 4, "max_new_tokens": 12, "device": "cpu"}
TINY |= {"preflight": False, "report_every": 0, "problem_limit": 12, "eval_limit": 4}


@pytest.fixture(scope="module")
def tiny():
    return load_model_and_tokenizer("tiny-base")


def answer(problem, text):
    return Rollout(problem=problem, prompt_ids=[1], response_ids=[2], text=text, finished=True)


def test_each_problem_has_its_judge(tmp_path):
    (word,) = load_problems(NAMES[0], limit=1)
    rollouts = [answer(word, word.answer), answer(word, "no!")]
    rollouts += [answer(SUM, "\\boxed{2}"), answer(SUM, "2")]
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
    with pytest.raises(ValueError, match="gym must judge these: pass judge=tasks.judge.judge_of"):
        reward_groups([Group(word, [])], Rewards(), None)


def test_an_unknown_judge_is_said():
    with pytest.raises(UserError, match="did you mean 'gym'"):
        verifier_of(Problem("p", "1?", "1", rules="gim"))


@pytest.mark.parametrize("name", NAMES)
def test_the_question_alone_unless_another_prompt_is_named(name, tiny):
    config = replaced(RunConfig(), problems=name, eval_every=1, problem_limit=8, eval_limit=5)
    config = resolved(replaced(config, eval_problems=[f"{name}@held-out", "tiny-test"]))
    problems, eval_sets = prepare_problems(config, load_sets(config), tiny[1], 512)
    assert [len(some) for some in (problems, *eval_sets.values())] == [8, 5, 5]
    held_out, test = eval_sets.values()
    assert all(problem_prompt(p) == p.problem for p in [*problems, *held_out])
    assert all("\\boxed" in problem_prompt(p) for p in test)
    (boxed,) = with_prompt(load_problems(name, limit=1), "book", tiny[1])
    assert "\\boxed" in problem_prompt(boxed)


def test_solved_examples_come_in_the_book_s_prompt(tiny):
    config = resolved(RunConfig(problems=NAMES[0], few_shot=2, problem_limit=8))
    problems, _ = prepare_problems(config, load_sets(config), tiny[1], 512)
    shown = problem_prompt(problems[0])
    assert shown.count("\\boxed{ANSWER}") == 3 and len(problems) == 6
    with pytest.raises(UserError, match="instructions/0 has no answer: omit --few-shot"):
        load_sets(resolved(RunConfig(problems="instructions", few_shot=1)))


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_resumed_is_the_same(name, tmp_path):
    config = RunConfig(problems=name, eval_every=2, log_path=str(tmp_path / "whole"), **TINY)
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


def test_an_evaluation_is_judged_by_the_rules(tiny):
    problems = with_prompt(load_problems(NAMES[0], limit=3), None, tiny[1])
    sampling = Sampling(max_new_tokens=4, rollouts=2)
    result = evaluate(*tiny, problems, sampling)
    assert len(result.rows) == 6 and all(row["reward_failure"] == "" for row in result.rows)
    with pytest.raises(UserError, match="use rfs evaluate"):
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
    assert "has its own rules: drop it" in capsys.readouterr().err
