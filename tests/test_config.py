"""Each field is in one part of a configuration, and a part is all that a room needs."""

import ast
import dataclasses
import inspect
import json
from itertools import islice

import pytest
import torch
from toy import toy_model, toy_problems, toy_tokenizer

from reasoning_from_scratch.config import (
    PARTS,
    Optim,
    Problems,
    Rewards,
    Scale,
    TrainConfig,
    from_json,
    replaced,
    to_json,
)
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.report.metrics import lag_metrics
from reasoning_from_scratch.rollouts import reward_groups, sample_groups
from reasoning_from_scratch.run.options import configure
from reasoning_from_scratch.run.start import make_optimizer
from reasoning_from_scratch.sampling import Sampling, generate
from reasoning_from_scratch.scale.lag import async_rollouts
from reasoning_from_scratch.scale.torchrun import join_ranks
from reasoning_from_scratch.trainer import (
    chosen_groups,
    learning_rate,
    on_policy_rollouts,
    train_step,
)


def test_every_field_belongs_to_exactly_one_part():
    names = [field.name for part in PARTS for field in dataclasses.fields(part)]
    every = {field.name for field in dataclasses.fields(TrainConfig)}
    assert set(names) == every - {"given"}
    assert len(set(names)) == len(names)
    config = TrainConfig()
    assert all(isinstance(config, part) for part in PARTS)
    for part in PARTS:  # whose defaults are those of the whole
        assert all(getattr(config, name) == value for name, value in vars(part()).items())


@pytest.mark.parametrize("part", PARTS)
def test_every_field_has_a_sentence_of_help(part):
    helped = {}
    for base in part.__mro__[:-1]:
        body = ast.parse(inspect.getsource(base)).body[0].body
        helped |= {
            field.target.id: text.value.value
            for field, text in zip(body, body[1:], strict=False)
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
        }
    assert helped.keys() == {field.name for field in dataclasses.fields(part)}
    assert all(text.endswith(".") for text in helped.values())


def test_json_round_trip():
    config = configure("gdpo", steps=7, seed=3)
    assert from_json(json.loads(json.dumps(to_json(config)))) == config
    assert from_json({"steps": 7, "versions": {}, "from_the_future": 1}).steps == 7


def test_a_run_of_a_version_that_had_loss_fn_is_read():
    values = {"loss_fn": "cispo", "objective": "cispo", "aggregate": "sum", "clip_high": 4.0}
    assert from_json(values) == TrainConfig(objective="cispo", aggregate="sum", clip_high=4.0)


def test_a_part_is_replaced_like_the_whole():
    assert replaced(Optim(), lr=0.5) == Optim(lr=0.5)
    with pytest.raises(UserError, match="unknown field of Optim 'temperature'"):
        replaced(Optim(), temperature=0.5)


# ---- each room with its part alone, which has no other fields


@pytest.fixture
def world(tmp_path):
    """Model, tokenizer and problems."""
    return toy_model(), toy_tokenizer(tmp_path), toy_problems(4)


def test_sampling_rewards_loss_and_optimizer(world):
    model, tokenizer, problems = world
    groups = sample_groups(model, tokenizer, problems, Sampling(rollouts=2, max_new_tokens=3), 0)
    reward_groups(groups, Rewards(), tokenizer)
    for group in groups:
        group.rollouts[0].reward = 1.0
    optimizer = make_optimizer(model, Optim())
    before = torch.cat([parameter.flatten() for parameter in optimizer.parameters]).clone()
    lr = learning_rate(Optim(lr=0.1), 0, 10)
    numbers = train_step(LocalPolicy(model, optimizer), groups, TrainConfig(), lr)
    assert numbers["optim/updates"] == 1 and numbers["optim/lr"] == 0.1
    after = torch.cat([parameter.flatten() for parameter in optimizer.parameters])
    assert not torch.equal(before, after)


def test_a_prompt(world):
    model, tokenizer, _ = world
    config = Sampling(rollouts=2, max_new_tokens=3)
    (rollouts,) = generate(model, [tokenizer.encode("a")], config, stop_ids=set())
    assert [len(rollout.response_ids) for rollout in rollouts] == [3, 3]


def test_problems_and_rollouts(world):
    model, tokenizer, problems = world
    config = TrainConfig(steps=2, problems_per_step=2, rollouts=2, max_new_tokens=3)
    policy = LocalPolicy(model, tokenizer=tokenizer)
    steps = list(on_policy_rollouts(policy, problems, config))
    assert [len(chosen_groups(groups, Problems())) for groups in steps] == [2, 2]


def test_scale(world, monkeypatch):
    model, tokenizer, problems = world
    config = TrainConfig(problems_per_step=1, rollouts=2, max_new_tokens=3, max_steps_off_policy=1)
    policy, lagging = LocalPolicy(model, tokenizer=tokenizer), Scale(max_steps_off_policy=1)
    for step, groups in enumerate(islice(async_rollouts(policy, problems, config), 2)):
        assert "sampling_client/step_max" in lag_metrics(list(groups), step, lagging)
    monkeypatch.setenv("WORLD_SIZE", "1")
    ranks = join_ranks(TrainConfig(device="cpu"))
    assert (ranks.size, ranks.device) == (1, "cpu")
