"""`--recipe opsd`: the model that is shown the solution teaches the one that is not."""

import pytest
import torch
from toy import toy_config, toy_policy, toy_teacher, toy_tokenizer, toy_world, train

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import Problem, problem_prompt, told_prompt
from reasoning_from_scratch.recipes import RECIPES
from reasoning_from_scratch.rollouts import Rollout, grader, told_rollouts
from reasoning_from_scratch.trainer import prepare_update, sample_step, set_advantages, train_step
from rfs.run.options import configure, resolved

OPSD = RECIPES["opsd"].changes


@pytest.fixture
def world(tmp_path):
    return toy_world(tmp_path)


def policies(world, config):
    policy = toy_policy(world["model"], config, tokenizer=world["tokenizer"])
    return policy, policy.snapshot()


@pytest.mark.parametrize("prompt", ["", "shown: abc?"])
def test_the_teacher_reads_the_solution_behind_the_question(prompt):
    problem = Problem("p", "abc", "4", solution="2 + 2 = 4", prompt=prompt, prefix="before abc\n")
    told = told_prompt(problem)
    usual = problem_prompt(problem)
    start = usual.rindex("abc") + 3
    assert told.startswith(usual[:start]) and told.endswith(usual[start:])
    assert "2 + 2 = 4\n\\boxed{4}" in told


def test_its_answers_are_the_students(tmp_path):
    problem, tokenizer = Problem("p", "ab", "1", solution="c"), toy_tokenizer(tmp_path)
    rollout = Rollout(problem, [1, 2], [3, 4], [-1.0, -1.0])
    (told,) = told_rollouts([rollout], tokenizer)
    assert told.prompt_ids == tokenizer.encode(told_prompt(problem)) != rollout.prompt_ids
    assert told.response_ids is rollout.response_ids and rollout.prompt_ids == [1, 2]


def test_a_solution_that_says_nothing_teaches_nothing(world, tmp_path, monkeypatch):
    """A teacher who is the student, and reads what the student reads: no gradient at all."""
    monkeypatch.setattr("reasoning_from_scratch.rollouts.told_prompt", problem_prompt)
    config = resolved(toy_config(tmp_path, **OPSD))
    policy, reference = policies(world, config)
    groups = sample_step(policy, world["problems"], config, 0, grader)
    before = {name: weight.clone() for name, weight in policy.model.state_dict().items()}
    numbers = train_step(policy, groups, config, 1e-3, reference)
    assert numbers["optim/grad_norm"] == 0
    assert all(torch.equal(before[name], w) for name, w in policy.model.state_dict().items())


def test_each_token_is_paid_for_being_likelier_to_the_one_who_was_told(world, tmp_path):
    config = resolved(toy_config(tmp_path, **OPSD))
    policy, reference = policies(world, config)
    groups = sample_step(policy, world["problems"], config, 0, grader)
    set_advantages(groups, config)
    rollouts, _ = prepare_update(policy, reference, groups, config)
    expected = policy.logprobs(told_rollouts(rollouts, policy.tokenizer))
    differs = False
    for rollout, told in zip(rollouts, expected, strict=True):
        torch.testing.assert_close(rollout.ref_logprobs, told)
        gain = told - rollout.start_logprobs
        # Compared with the other answers' tokens: the same constant for all of one answer's.
        constant = rollout.token_advantages - gain
        torch.testing.assert_close(constant, constant[:1].expand_as(constant))
        differs |= bool((gain.abs() > 1e-4).any())
    assert differs


def test_without_solutions_or_a_penalty_it_is_refused(world, tmp_path):
    with pytest.raises(UserError, match="--kl-solution True does nothing"):
        resolved(configure("grpo", kl_solution=True))
    world["problems"] = [Problem("p", "ab", "1")] * 4
    with pytest.raises(UserError, match="all problems have no worked solution"):
        train(toy_config(tmp_path / "run", **OPSD), quiet=True, **world)


def test_a_stronger_teacher_may_be_told_too(world, tmp_path):
    asked = OPSD | toy_teacher("distill", tmp_path) | {"steps": 2}
    assert len(train(toy_config(tmp_path / "run", **asked), quiet=True, **world).rows) == 2
