"""Off-policy sampling: lag 0 is the synchronous run, the bound holds, nothing is lost or waits."""

import faulthandler
import os
import random
import signal
import threading
import time

import pytest
import torch
from torch import nn
from toy import LETTERS, toy_config, toy_model, toy_world, train

from reasoning_from_scratch import trainer
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast.decoding import CompiledDecoder
from reasoning_from_scratch.fast.memory import checkpoint_blocks
from reasoning_from_scratch.optim.lora import add_lora
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.qwen3 import Qwen3Model
from rfs.config import replaced
from rfs.report.clock import Clock
from rfs.run import start as training
from rfs.run.options import resolved, resumed_config
from rfs.scale import lag as module
from rfs.scale.lag import async_rollouts
from rfs.scale.ranks import Ranks
from rfs.scale.ranks_policy import RanksPolicy
from rfs.scale.torchrun import check_multi_rank_options
from rfs.tasks.judge import judge_of
from tests.program.run.test_interrupts import timeless


@pytest.fixture(autouse=True)
def bounded_in_time():
    """A deadlock ends the test run with every thread's stack instead of hanging it."""
    faulthandler.dump_traceback_later(900, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    assert not samplers(), "a sampler outlived its test"


def samplers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "sampler"]


# ---- lag 0


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"lora_rank": 2},
        {"gradient_checkpointing": True, "epochs": 2},
        {"active_sampling": True, "truncate_importance": 2.0, "num_substeps": 2},
        {"active_sampling": True, "train_rollouts": 3},
    ],
    ids=["plain", "lora", "checkpointing", "active", "kept"],
)
def test_lag_0_is_the_synchronous_run_to_the_bit(tmp_path, monkeypatch, changes):
    def beside(config, policy, problems, first_step, judge, ranks, clock):
        return async_rollouts(policy, problems, config, first_step, judge, ranks, clock)

    found = []
    for name in ("sync", "async"):
        config = toy_config(tmp_path / name, steps=10, report_every=0, reward=LETTERS, **changes)
        found.append(train(config, quiet=True, **toy_world(tmp_path)))
        monkeypatch.setattr(training, "groups_by_step", beside)
    for one, other in zip(*(result.model.state_dict().items() for result in found), strict=True):
        assert torch.equal(one[1], other[1]), one[0]
    assert timeless(found[0].rows) == timeless(found[1].rows)
    assert any(row["optim/updates"] for row in found[1].rows)


def test_the_copy_is_not_the_trainers_model():
    """Recomputed blocks keep a function of the model they were made for; it must not come along."""
    model, tokens = toy_model(), torch.arange(6)[None]
    checkpoint_blocks(model)
    twin = LocalPolicy(model).snapshot().model
    before = twin(tokens)
    assert torch.equal(before, model(tokens))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    assert torch.equal(before, twin(tokens))
    assert not torch.equal(before, model(tokens))


def test_lora_copies_only_what_changes():
    model = toy_model()
    add_lora(model, rank=2, alpha=32.0)
    twin = LocalPolicy(model).snapshot().model
    for (name, one), other in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert (one is other) == (not one.requires_grad), name


# ---- the bound


class Counting(nn.Module):
    """A model whose weights all say how many updates they have seen."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ParameterList(torch.zeros(1000) for _ in range(5))

    def forward(self):
        return torch.cat(list(self.parts)).unique().tolist()

    @torch.no_grad()
    def update(self):
        for part in self.parts:
            part += 1
            time.sleep(0.001)  # half of an update must never be published


class World:
    """A trainer and a sampler of given speeds; `sample` stands in for SamplerThread.sample_parts.

    `sampling` and `training` are called with the world and the step, and take their time.
    """

    def __init__(self, monkeypatch, max_lag, sampling, training, steps=12):
        self.config = toy_config("unused", steps=steps, max_steps_off_policy=max_lag)
        self.sampling, self.training = sampling, training
        self.model, self.clock = Counting(), Clock()
        self.began, self.lags, self.updates = [], [], 0
        monkeypatch.setattr(
            module.SamplerThread, "sample_parts", lambda _, *given: self.sample(*given)
        )

    def sample(self, snapshot, step):
        self.began.append(step)
        version = snapshot.version
        assert snapshot.model() == [version]
        self.sampling(self, step)
        assert snapshot.model() == [version], "the weights changed under the sampler"
        yield [(step, version)]

    def rollouts(self, ranks=None):
        policy = LocalPolicy(self.model)
        return async_rollouts(policy, [], self.config, ranks=ranks, clock=self.clock)

    def train(self):
        for step, groups in enumerate(self.rollouts()):
            ((sampled_for, version),) = groups
            assert sampled_for == step
            self.lags.append(step - version)
            self.training(self, step)
            self.model.update()
            self.updates += 1


def slow(world, step):
    time.sleep(0.03)


def fast(world, step):
    pass


def irregular(seed):
    draw = random.Random(seed)
    return lambda world, step: time.sleep(draw.choice([0.0, 0.002, 0.03]))


def slow_trainer(world, step):
    """It waits until the sampler is as far ahead as it may be, however busy this machine is."""
    ahead = min(step + world.config.max_steps_off_policy + 1, world.config.steps)
    while len(world.began) < ahead:
        time.sleep(0.001)


def slow_sampler(world, step):
    """It waits until the trainer has nothing else to do."""
    while world.updates < step:
        time.sleep(0.001)


SPEEDS = {
    "slow trainer": (fast, slow_trainer),
    "slow sampler": (slow_sampler, fast),
    "alike": (slow, slow),
    "irregular": (irregular(1), irregular(2)),
}


@pytest.mark.parametrize("max_lag", [0, 1, 3])
@pytest.mark.parametrize("speeds", SPEEDS)
def test_the_bound_holds_and_nothing_is_wasted(monkeypatch, max_lag, speeds):
    world = World(monkeypatch, max_lag, *SPEEDS[speeds])
    world.train()
    assert world.began == list(range(12)), "each step is sampled once, and trained on"
    assert len(world.lags) == 12 and min(world.lags) >= 0
    assert max(world.lags) <= max_lag
    if speeds == "slow trainer":  # a sampler that is far ahead uses all that the bound allows
        assert world.lags == [min(step, max_lag) for step in range(12)]
    if speeds == "slow sampler":  # one that is late takes the newest weights
        assert max(world.lags) <= 1


# ---- ends


def test_what_goes_wrong_in_the_thread_is_raised_when_its_turn_comes(monkeypatch):
    world = World(monkeypatch, 3, fast, slow)
    sample = world.sample

    def failing(_, snapshot, step):
        if step == 4:
            raise MemoryError("no more")
        return sample(snapshot, step)

    monkeypatch.setattr(module.SamplerThread, "sample_parts", failing)
    with pytest.raises(MemoryError, match="no more") as caught:
        world.train()
    assert len(world.lags) == 4, "what was sampled before is trained on"
    assert "failing" in [entry.name for entry in caught.traceback]
    assert not samplers()


class Pace:
    """Makes every decoding step take so long, from when it is set; `seen` are those who decode."""

    def __init__(self, monkeypatch):
        self.seconds, self.seen = 0.0, set()
        for kind, name in ((Qwen3Model, "forward"), (CompiledDecoder, "__call__")):
            monkeypatch.setattr(kind, name, self.slowed(kind, getattr(kind, name)))

    def slowed(self, kind, step):
        def wait(*inputs, **options):
            self.seen.add(kind)
            time.sleep(self.seconds)
            return step(*inputs, **options)

        return wait


def test_an_error_in_the_update_ends_the_thread_too(tmp_path, monkeypatch):
    """Although the traceback keeps the iterator alive."""
    pace = Pace(monkeypatch)

    def failing(*args):
        pace.seconds = 0.2
        raise ZeroDivisionError

    monkeypatch.setattr(trainer, "train_step", failing)
    config = toy_config(
        tmp_path / "run", max_steps_off_policy=1, max_new_tokens=200, report_every=0
    )
    with pytest.raises(ZeroDivisionError) as kept:
        train(config, quiet=True, **toy_world(tmp_path))
    assert not samplers() and kept.value


def test_ctrl_c_while_waiting_saves_and_the_run_goes_on_from_there(tmp_path, monkeypatch):
    pace, asked = Pace(monkeypatch), []

    def updated(*args, original=trainer.train_step, **kwargs):
        asked.append(threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)))
        if len(asked) == 3:
            pace.seconds = 0.2
            asked[-1].start()
        return original(*args, **kwargs)

    monkeypatch.setattr(trainer, "train_step", updated)
    changes = {"max_new_tokens": 100, "steps": 6, "report_every": 0}
    config = toy_config(tmp_path / "run", max_steps_off_policy=2, **changes)
    start = time.perf_counter()
    result = train(config, quiet=True, **toy_world(tmp_path))
    assert time.perf_counter() - start < 30 and not samplers()
    assert "interrupted after" in result.stopped
    done = len(result.rows)
    assert 3 <= done < 6
    pace.seconds = 0.0
    result = train(resumed_config(tmp_path / "run"), quiet=True, **toy_world(tmp_path))
    assert [row["step"] for row in result.rows] == list(range(6))
    # The sampler starts again with the weights that were saved.
    assert result.rows[done]["sampling_client/step_min"] == done


# ---- what a run with lag reports


@pytest.mark.parametrize("max_lag", [1, 3])
def test_the_metrics_tell_the_lag(tmp_path, max_lag):
    config = toy_config(tmp_path / "run", max_steps_off_policy=max_lag, steps=8)
    rows = train(config, quiet=True, **toy_world(tmp_path)).rows
    for step, row in enumerate(rows):
        assert row["training_client/step"] == step
        versions = [row[f"sampling_client/step_{name}"] for name in ("min", "mean", "max")]
        assert versions[0] == versions[1] == versions[2], "one step, one version"
        assert 0 <= step - versions[0] <= max_lag
        assert row["time/sampler"] > 0 and row["time/sampling"] >= 0
        speed = row["env/all/total_ac_tokens"] / row["time/sampler"]
        assert row["perf/sample_tokens_per_sec"] == pytest.approx(speed)
    assert any(row["sampling_client/step_min"] < row["step"] for row in rows)


def test_the_trainer_streams_what_the_thread_has_sampled_so_far(tmp_path, monkeypatch):
    """Lag and streaming: parts of a step arrive one by one, and come to the plain run's weights."""
    runs, arrived = [], []

    def counted(self, step, original=module.SamplerThread.groups_of_step):
        for part in original(self, step):
            arrived.append(len(part))
            yield part

    monkeypatch.setattr(module.SamplerThread, "groups_of_step", counted)
    for name, changes in (("plain", {}), ("streamed", {"num_minibatches": 4})):
        config = toy_config(tmp_path / name, steps=3, reward=LETTERS, **changes)
        late = replaced(config, max_steps_off_policy=1)
        runs.append(train(late, quiet=True, **toy_world(tmp_path)))
    assert sum(arrived) == 2 * 3 * 4 and min(arrived[3:]) < 4
    for one, other in zip(*(run.model.parameters() for run in runs), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-5)


def test_active_sampling_with_lag_is_for_one_rank(tmp_path):
    config = resolved(toy_config(tmp_path, max_steps_off_policy=1, active_sampling=True))
    with pytest.raises(UserError, match="--active-sampling must know"):
        check_multi_rank_options(config)


def test_ranks_gather_outside_of_the_thread(monkeypatch):
    """Each rank samples its own places; what speaks with the others runs in the main thread."""
    world, threads = World(monkeypatch, 2, fast, fast, steps=5), []

    class TwoRanks(Ranks):
        def gather_groups(self, sample):
            threads.append(threading.current_thread())
            return [*sample(), "from another rank"]

    groups = world.rollouts(TwoRanks(size=2))
    for number, ((step, _), other) in enumerate(groups):
        assert (step, other) == (number, "from another rank")
        world.model.update()
    assert len(threads) == 5
    assert set(threads) == {threading.main_thread()}


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("num_minibatches", [1, 2])
def test_ranks_share_out_the_problems_of_a_step(tmp_path, size, num_minibatches):
    """Each problem is sampled once, also where a rank has none."""
    config = toy_config(
        tmp_path, steps=2, problems_per_step=4, num_minibatches=num_minibatches, reward=LETTERS
    )
    config = resolved(replaced(config, max_steps_off_policy=1))
    world, judge = toy_world(tmp_path), judge_of(config)

    def sampled(rank, size):
        ranks = OneOf(rank, size)
        policy = RanksPolicy(ranks, world["model"], None, config, tokenizer=world["tokenizer"])
        steps = async_rollouts(policy, world["problems"], config, judge=judge, ranks=ranks)
        return [
            {
                group.rollouts[0].place[0]: [rollout.response_ids for rollout in group.rollouts]
                for group in groups
            }
            for groups in steps
        ]

    alone = sampled(0, 1)
    of_ranks = [sampled(rank, size) for rank in range(size)]
    for step, groups in enumerate(alone):
        shares = [of_rank[step] for of_rank in of_ranks]
        assert sum(map(len, shares)) == len(groups) == 4
        assert {place: ids for share in shares for place, ids in share.items()} == groups


class OneOf(Ranks):
    """One of several ranks, which gets to see only its own groups."""

    def gather_groups(self, sample):
        return sample()
