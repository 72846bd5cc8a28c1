"""Sampling by actors of Ray: the same run, whoever samples and whoever dies."""

import os
import random
import signal
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from parallel_job import run_job
from small_model import with_lora
from toy import toy_config, toy_model, toy_world, train

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.optim.lora import add_lora
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.trainer import on_policy_rollouts
from rfs.run.options import resolved
from rfs.scale import ray_rollouts, ray_start
from rfs.scale.ray_rollouts import Actors, equal_parts
from rfs.scale.ray_sampler import SamplerSetup, empty_model, pack, select_parameters, unpack
from rfs.tasks.judge import judge_of
from tests.program.scale.test_ranks import same, torchrun_jobs
from tests.program.scale.test_ray_start import needs_ray

# A reward that random models have in some rollouts of most groups.
REWARD = """
def reward(text, problem):
    if text.startswith(problem.problem[0]):
        raise ValueError("an answer like the question")
    return float(len(set(text)) % 2)
"""


@pytest.fixture(scope="module")
def ray():
    """One local Ray for all tests here: it takes seconds to start."""
    needs_ray()
    module = ray_start.connect(None)
    yield module
    module.shutdown()


@pytest.fixture
def world(tmp_path, ray, monkeypatch):
    """A toy, and one thread for whoever computes with it: the last bits depend on how many."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 1.0})
    (tmp_path / "mine.py").write_text(REWARD)
    yield toy_world(tmp_path)
    torch.set_num_threads(threads)


def settings(tmp_path, name, **changes):
    values = {"steps": 10, "reward": str(tmp_path / "mine.py:reward"), "num_groups_to_log": 0}
    return toy_config(tmp_path / name, **(values | changes))


def trained(tmp_path, name, **changes):
    return train(settings(tmp_path, name, **changes), quiet=True, **toy_world(tmp_path))


@pytest.fixture(scope="module")
def calm(ray, tmp_path_factory):
    """Two samplers that nothing disturbs: the run, and its folder. Several tests compare with the
    same one, and each sampler that starts imports torch."""

    @cache
    def run(steps, lag=0):
        folder = tmp_path_factory.mktemp("calm")
        (folder / "mine.py").write_text(REWARD)
        changes = {"sampler": "ray", "steps": steps, "max_steps_off_policy": lag}
        return trained(folder, "run", **changes), folder / "run"

    return run


def assert_same_run(one, other):
    """The same rewards and losses at every step, the same weights at the end, bit for bit."""
    for key in ("reward/total", "optim/loss", "optim/grad_norm", "env/all/total_ac_tokens"):
        assert [row[key] for row in one.rows] == [row[key] for row in other.rows], key
    assert any(row["optim/updates"] for row in one.rows)
    for (name, a), b in zip(one.model.named_parameters(), other.model.parameters(), strict=True):
        assert torch.equal(a, b), name


# ---- the model of a sampler


@pytest.mark.parametrize("lora", [None, (2, 4.0)], ids=["whole", "lora"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_sampler_has_the_learners_model(tmp_path, tied, lora):
    learners = toy_model(tie_embeddings=tied)
    if lora:
        add_lora(learners, *lora)
    frozen, trained = (pack(select_parameters(learners, trained)) for trained in (False, True))
    cfg = {**learners.cfg, "dtype": torch.float32}
    setup = SamplerSetup(toy_config(tmp_path), lora, cfg, None, frozen, "cpu", threads=1)
    torch.use_deterministic_algorithms(True)  # memory that nobody has filled is full of NaN
    try:
        model = empty_model(setup)
    finally:
        torch.use_deterministic_algorithms(False)
    unpack(frozen, model)
    unpack(trained, model)
    tokens = torch.arange(6)[None]
    assert torch.equal(model(tokens), learners(tokens))


# ---- the same run


def assert_same_rollouts(tmp_path, local, *others):
    """Weights within 1e-5: fewer prompts at a time round otherwise. How the verifier failed is told
    by each, also from afar."""
    assert any(row["optim/updates"] for row in local.rows)
    for far, folder in others:
        for key in ("reward/total", "env/all/total_ac_tokens", "optim/updates"):
            assert [row[key] for row in local.rows] == [row[key] for row in far.rows], key
        for a, b in zip(local.model.parameters(), far.model.parameters(), strict=True):
            assert (a - b).abs().max() < 1e-5
        assert "an answer like the question" in (folder / "logs.log").read_text()
    assert "an answer like the question" in (tmp_path / "local/logs.log").read_text()


def test_one_two_and_no_sampler_give_the_same_run(ray, world, tmp_path, calm):
    local = trained(tmp_path, "local", steps=8)
    one = trained(tmp_path, "one", sampler="ray", num_samplers=1, steps=8)
    assert_same_rollouts(tmp_path, local, (one, tmp_path / "one"), calm(steps=8))


def test_two_samplers_give_the_same_run_in_minibatches(ray, world, tmp_path):
    changes = {"num_minibatches": 2, "steps": 3}
    local = trained(tmp_path, "local", **changes)
    two = trained(tmp_path, "two", sampler="ray", num_samplers=2, **changes)
    assert_same_rollouts(tmp_path, local, (two, tmp_path / "two"))


@pytest.mark.parametrize(
    "changes",
    [
        {"active_sampling": True, "rollouts": 2, "problems_per_step": 3},
        {"lora_rank": 2, "problems_per_step": 1},  # fewer than samplers
    ],
)
def test_the_same_groups(ray, world, tmp_path, changes):
    config = resolved(settings(tmp_path, "run", steps=3, sampler="ray", **changes))
    if config.lora_rank:
        with_lora(world["model"], config.lora_rank, config.lora_alpha, size=0.02)
    policy = LocalPolicy(world["model"], tokenizer=world["tokenizer"])
    local = list(on_policy_rollouts(policy, world["problems"], config, judge=judge_of(config)))
    far = list(ray_rollouts.ray_rollouts(policy, world["problems"], config))
    assert len(far) == 3 and (len(far[0]) > 3 or not config.active_sampling)
    for one, other in zip(sum(local, []), sum(far, []), strict=True):
        for a, b in zip(one.rollouts, other.rollouts, strict=True):
            # A few rows at a time may be multiplied in another order than many.
            assert b.logprobs == pytest.approx(a.logprobs, abs=1e-5)
            same = replace(b, logprobs=a.logprobs, entropies=a.entropies) == a
            assert same, (a.place, b.place)


# ---- samplers that die


def sampler_processes(address: str) -> list[int]:
    """Those of the Ray at this address; another one on this machine is not ours."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # a process that has ended meanwhile
            if (folder / "cmdline").read_bytes().startswith(b"ray::RemoteSampler"):
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                if address.encode() in Path("/proc", parent, "cmdline").read_bytes():
                    found.append(int(folder.name))
    return found


class Killer:
    """Kills samplers at chosen receipts, once something has been handed out."""

    def __init__(self, ray, monkeypatch, receipts):
        self.ray, self.receipts, self.random = ray, set(receipts), random.Random(3)
        self.count = self.dead = self.signals = 0
        receive, lost = Actors.receive, Actors.handle_death

        def watched(samplers):
            self.count += 1
            if self.count in self.receipts:
                samplers.assign()
                working = [sampler for sampler, _ in samplers.tasks.values()]
                known = {str(sampler): sampler for sampler in [*samplers.chunk_counts, *working]}
                self.kill(known[self.random.choice(sorted(known))])
            receive(samplers)

        def counted(samplers, *what):
            self.dead += 1
            lost(samplers, *what)

        monkeypatch.setattr(Actors, "receive", watched)
        monkeypatch.setattr(Actors, "handle_death", counted)

    def kill(self, sampler):
        pids = sampler_processes(self.ray.get_runtime_context().gcs_address)
        if pids and self.random.random() < 0.5:
            self.signals += 1
            with suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(self.random.choice(pids), signal.SIGKILL)
        else:
            self.ray.kill(sampler)


@pytest.mark.parametrize(
    ("steps", "lag", "kills"),
    [
        (8, 0, 3),
        pytest.param(30, 0, 10, marks=pytest.mark.soak),
        (6, 1, 2),
    ],
)
def test_who_dies_changes_nothing(ray, world, tmp_path, monkeypatch, calm, steps, lag, kills):
    undisturbed, _ = calm(steps=steps, lag=lag)
    receipts = random.Random(0).sample(range(3, 2 * steps), kills)
    killer = Killer(ray, monkeypatch, receipts)
    changes = {"sampler": "ray", "steps": steps, "max_steps_off_policy": lag}
    stormy = trained(tmp_path, "stormy", **changes)
    assert killer.dead >= kills - 1  # two may hit the same one
    assert killer.signals or kills < 4
    assert_same_run(undisturbed, stormy)


def test_samplers_that_cannot_live_end_the_run(ray, world, tmp_path, monkeypatch):
    class Dying:
        def __init__(self, setup):
            pass

        def ready(self):
            os._exit(1)

    monkeypatch.setattr(ray_rollouts, "RemoteSampler", Dying)
    monkeypatch.setattr(ray_rollouts, "MAX_DEATHS", 2)
    with pytest.raises(UserError, match="2 samplers in a row died") as error:
        trained(tmp_path, "run", sampler="ray", num_samplers=1)
    assert "\n" not in str(error.value)


def test_a_mistake_on_a_node_is_one_line_and_no_retry(ray, world, tmp_path):
    config = settings(tmp_path, "run", sampler="ray", num_samplers=1, reward="none.py:reward")
    config = resolved(config)
    policy = LocalPolicy(world["model"], tokenizer=world["tokenizer"])
    with pytest.raises(UserError, match="there is no file .*none.py") as error:
        next(ray_rollouts.ray_rollouts(policy, world["problems"], config))
    assert "\n" not in str(error.value)


# ---- lag


def test_the_lag_is_bounded_and_used(ray, world, calm):
    result, _ = calm(steps=6, lag=1)
    lags = [row["training_client/step"] - row["sampling_client/step_mean"] for row in result.rows]
    assert lags == [0, 1, 1, 1, 1, 1]


def test_parts():
    assert equal_parts(5, 2) == [range(0, 2), range(2, 5)]
    assert equal_parts(2, 4) == [range(0, 1), range(1, 2)]


# ---- several learners


def test_rank_0_talks_to_ray_for_all(ray, world, tmp_path):
    """Two ranks under torchrun, whole and in slices, at the address of a running Ray."""
    config = {"reward": str(tmp_path / "mine.py:reward"), "steps": 3}
    run_job({"name": "one", "config": config}, tmp_path)
    address = ray.get_runtime_context().gcs_address
    config |= {"sampler": "ray", "num_samplers": 1, "ray_address": address}
    late = config | {"max_steps_off_policy": 1}
    run_job({"name": "late", "config": late}, tmp_path)
    jobs = [
        {"name": "two", "config": config},
        {"name": "late slices", "config": late | {"shard": "fsdp"}},
    ]
    done = torchrun_jobs(tmp_path, 2, jobs)
    assert done.returncode == 0, done.stderr
    same(tmp_path, tmp_path, "one", "two")
    same(tmp_path, tmp_path, "late", "late slices")
