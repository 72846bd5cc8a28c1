"""Chapter 7's plain functions by hand and against the trainer's. (Its loop: in the notebook.)"""

import copy
from unittest.mock import Mock

import matplotlib
import pytest
import torch

from reasoning_from_scratch import ch06, ch07, load_model_and_tokenizer
from reasoning_from_scratch.advantages import zscore
from reasoning_from_scratch.losses import policy_loss
from reasoning_from_scratch.rollouts import make_batch
from rfs import load_problems
from rfs.config import RunConfig, replaced

matplotlib.use("Agg")


def test_advantage_stats():
    advantages, mean, std = ch07.compute_advantage_stats([1.0, 0.0, 0.0, 1.0])
    torch.testing.assert_close(advantages, zscore(torch.tensor([1.0, 0.0, 0.0, 1.0])))
    assert mean == pytest.approx(0, abs=1e-6) and std == pytest.approx(1, abs=1e-3)
    advantages, mean, std = ch07.compute_advantage_stats([1, 1, 1])
    assert advantages.tolist() == [0, 0, 0] and mean == 0 and std == 0


S, E, A = 151667, 151668, 5


@pytest.mark.parametrize(
    "answer, expected",
    [
        ([S, A, E, A], 1.0), ([A, S, E], 1.0), ([E, S], 0.0), ([S, A], 0.0), ([A, E], 0.0),
        ([], 0.0), ([A], 0.0),
    ],
)  # fmt: skip
def test_reward_format(answer, expected):
    prompt = [S, A, E]  # what stands in the prompt does not count
    assert ch07.reward_format(torch.tensor(prompt + answer), 3) == expected
    assert ch07.reward_format(prompt + answer, 3) == expected


@pytest.fixture(scope="module")
def tiny():
    return *load_model_and_tokenizer("tiny-base"), load_problems("tiny", limit=64)


@pytest.fixture(scope="module")
def groups(tiny):
    model, tokenizer, problems = tiny
    chosen = ch06.pick_problems(problems, 0, count=2)
    return ch06.draw_rollouts(model, tokenizer, chosen, 0, num_rollouts=4, max_new_tokens=24)


def moved(model):
    """The model after a small push, so that no ratio is 1."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        model.final_norm.scale *= 1.05
    return model


def test_logprobs_per_token_are_those_of_the_sampler_and_add_up_to_chapter_6(tiny, groups):
    model, rollouts = tiny[0], groups[0]
    batch = make_batch(rollouts)
    with torch.no_grad():
        values = ch07.logprobs_per_token(model, batch)
        sums = ch06.rollout_logprobs(model, rollouts, "cpu")
    torch.testing.assert_close(values.sum(-1), sums, atol=1e-3, rtol=0)
    torch.testing.assert_close(values, batch.old_logprobs, atol=1e-3, rtol=0)


@pytest.mark.parametrize("kl_coef", [0.0, 0.5])
def test_the_loss_is_the_trainers(tiny, groups, kl_coef):
    """On weights that have moved, with rollouts that are clipped and others that are not."""
    model = moved(tiny[0])  # so that it did not draw them itself
    reference = moved(model) if kl_coef else None
    advantages = torch.tensor([[1.0, -1.0, 0.5, -0.5]] * 2)
    now = moved(moved(model))
    (batch,) = ch07.batches_of_step(model, reference, groups, advantages, "cpu")
    logprobs = ch07.logprobs_per_token(now, batch)
    ours = ch07.full_grpo_loss(logprobs, batch, 8, (0.9, 1.1), kl_coef)
    kl = {"kl": "k3", "kl_coef": kl_coef} if kl_coef else {}
    config = replaced(RunConfig(), clip_low=0.9, clip_high=1.1, **kl)
    given = logprobs, batch.old_logprobs, batch.advantages, batch.mask, config, 8
    others = {"ref_logprobs": batch.ref_logprobs, "start_logprobs": batch.start_logprobs}
    theirs, sums = policy_loss(*given, **others)
    assert 0 < sums["clipped"] < sums["could_be_clipped"]
    torch.testing.assert_close(ours, theirs)


def test_a_step_without_a_signal_has_no_batch_unless_it_pays_kl(tiny, groups):
    model, nothing = tiny[0], torch.zeros(2, 4)
    assert ch07.batches_of_step(model, None, groups, nothing, "cpu") == []
    batches = ch07.batches_of_step(model, model, groups, nothing, "cpu")
    assert sum(map(len, batches)) == 8
    some = torch.tensor([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    assert sum(map(len, ch07.batches_of_step(model, None, groups, some, "cpu"))) == 2


def test_a_download_through_a_readers_stand_in(tmp_path, monkeypatch):
    """It takes an address and nothing else."""
    asked = []

    def get(url):
        asked.append(url)
        return Mock(content=b"step,loss\n")

    monkeypatch.setattr(ch07.requests, "get", get)
    path = ch07.download_from_github("ch07/logs/metrics.csv", out=tmp_path / "mine.csv")
    assert path.read_bytes() == b"step,loss\n"
    assert ch07.download_from_github("ch07/logs/metrics.csv", out=path) == path
    assert len(asked) == 1 and asked[0].endswith("/ch07/logs/metrics.csv")
