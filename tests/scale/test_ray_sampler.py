"""A sampler as Ray would run it, here without Ray: weights travel, groups and words come back."""

import sys
from types import SimpleNamespace

import pytest
import torch
from toy import toy_config, toy_model, toy_problems, toy_tokenizer

from reasoning_from_scratch.optim.lora import add_lora
from reasoning_from_scratch.rollouts import grader, reward_groups, sample_groups
from reasoning_from_scratch.run.options import resolved
from reasoning_from_scratch.scale import ray_sampler
from reasoning_from_scratch.scale.ray_sampler import (
    Chunk,
    RemoteSampler,
    SamplerSetup,
    empty_model,
    packed,
    parameters,
    unpack,
)

LORA = (2, 4.0)


def learner(lora=None, **changes):
    model = toy_model(**changes)
    if lora:
        add_lora(model, *lora, seed=1)
        with torch.no_grad():
            for weight in parameters(model, trained=True).values():
                weight += 0.01
    return model


def setup_of(model, config, tokenizer=None, lora=None):
    return SamplerSetup(
        config=config,
        lora=lora,
        cfg=model.cfg,
        tokenizer=tokenizer,
        frozen=packed(parameters(model, trained=False)),
        device="cpu",
        threads=torch.get_num_threads(),
    )


# ---- weights


@pytest.mark.parametrize("lora", [None, LORA], ids=["all", "lora"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_empty_model_and_both_parts_of_the_weights_make_the_learners(tmp_path, dtype, lora):
    model = learner(lora, dtype=dtype)
    setup = setup_of(model, resolved(toy_config(tmp_path)), lora=lora)
    trained = packed(parameters(model, trained=True))
    assert bool(setup.frozen) == bool(lora)  # without LoRA everything is trained
    copy = empty_model(setup)
    unpack(setup.frozen, copy)
    unpack(trained, copy)
    for (name, one), other in zip(model.named_parameters(), copy.parameters(), strict=True):
        assert other.dtype == one.dtype and torch.equal(one, other), name


def test_what_is_under_way_does_not_change_with_the_learner():
    model = toy_model()
    sent, before = packed(parameters(model, trained=True)), toy_model()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    unpack(sent, model)
    for one, other in zip(model.parameters(), before.parameters(), strict=True):
        assert torch.equal(one, other)


# ---- sampling


class Store:
    """Ray's object store: gives what a reference stands for, and counts."""

    def __init__(self, objects):
        self.objects, self.fetched = objects, []

    def get(self, reference):
        self.fetched.append(reference)
        return self.objects[reference]


@pytest.fixture
def sampler(tmp_path, monkeypatch):
    """A sampler, its tokenizer and configuration, and the store with two versions of weights."""
    monkeypatch.setattr(ray_sampler.log, "handlers", [])
    config, tokenizer = resolved(toy_config(tmp_path)), toy_tokenizer(tmp_path)
    versions = {f"weights {seed}": toy_model(seed) for seed in (0, 1)}
    store = Store({name: packed(parameters(m, trained=True)) for name, m in versions.items()})
    monkeypatch.setitem(sys.modules, "ray", store)
    remote = RemoteSampler(setup_of(versions["weights 0"], config, tokenizer))
    return SimpleNamespace(
        remote=remote, store=store, config=config, tokenizer=tokenizer, versions=versions
    )


def test_a_chunk_is_what_the_learner_would_sample_at_these_places(sampler):
    """With the weights, the random streams and the rewards of that step."""
    for step in (0, 1):
        chunk = Chunk(step, version=step, places=[2, 3], problems=toy_problems()[2:4])
        name = f"weights {step}"
        groups, told = sampler.remote.sample(chunk, [name])
        given = (sampler.versions[name], sampler.tokenizer, chunk.problems, sampler.config)
        expected = sample_groups(*given, step, [2, 3], version=step)
        reward_groups(expected, sampler.config, sampler.tokenizer)
        for one, other in zip(groups, expected, strict=True):
            assert one.problem == other.problem
            for a, b in zip(one.rollouts, other.rollouts, strict=True):
                assert (a.response_ids, a.place, a.reward) == (b.response_ids, b.place, b.reward)
                assert a.policy_version == step
        assert told == []


def test_weights_are_fetched_once_per_version(sampler):
    for step, version in enumerate((0, 0, 1, 1)):
        chunk = Chunk(step, version, [0], toy_problems(1))
        sampler.remote.sample(chunk, [f"weights {version}"])
    assert sampler.store.fetched == ["weights 0", "weights 1"]


def test_what_is_said_far_away_comes_back_once(sampler, monkeypatch):
    def judge(rollout, problem):
        if rollout.place == (0, 0):
            ray_sampler.log.warning("the verifier failed")
        return {"correct": 0.0}

    monkeypatch.setattr(ray_sampler, "judge_of", lambda config: judge)
    sampler.remote.ready()
    chunk = Chunk(0, 0, [0, 1], toy_problems(2))
    assert sampler.remote.sample(chunk, ["weights 0"])[1] == ["the verifier failed"]
    monkeypatch.setattr(ray_sampler, "judge_of", lambda config: grader)
    assert sampler.remote.sample(chunk, ["weights 0"])[1] == []
