"""Streaming: training begins while others are sampled, and the weights come out the same."""

import pytest
import torch
from toy import toy_config, toy_model, toy_policy, toy_world

from reasoning_from_scratch import rollouts
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.run.options import resolved
from reasoning_from_scratch.run.start import train
from reasoning_from_scratch.sampling import Rollout
from reasoning_from_scratch.scale import streaming
from reasoning_from_scratch.scale.streaming import Stream


def letters(groups, config, tokenizer, verifier=None):
    """A reward that random models have in most groups, and in some not."""
    for group in groups:
        for rollout in group.rollouts:
            rollout.rewards = {"correct": 0.0, "format": 0.0}
            rollout.reward = float(len(set(rollout.response_ids)) % 2) * (rollout.place[0] != 1)


def run(tmp_path, name, monkeypatch, **changes):
    monkeypatch.setattr(rollouts, "reward_groups", letters)
    config = toy_config(tmp_path / name, problems_per_step=6, steps=3, **changes)
    return train(config, quiet=True, **toy_world(tmp_path))


@pytest.mark.parametrize(
    "changes",
    [
        {"aggregate": "token"},
        {"aggregate": "sum"},
        {"aggregate": "sequence", "grad_clip": 0.01},
        {"aggregate": "constant", "kl": "k3", "kl_coef": 0.1},
        {"kl": "reward", "kl_coef": 0.1},
        {"kl": "token", "kl_coef": 0.1, "kl_discount_factor": 0.9},
        {"epochs": 3},
    ],
)
@pytest.mark.parametrize("parts", [2, 6])
def test_streaming_and_plain_give_the_same_weights(tmp_path, monkeypatch, changes, parts):
    """Each of three steps samples from the weights of the one before, so all must agree."""
    plain = run(tmp_path, "plain", monkeypatch, **changes)
    streamed = run(tmp_path, "stream", monkeypatch, num_minibatches=parts, **changes)
    start = dict(toy_model().named_parameters())
    for (name, a), b in zip(
        plain.model.named_parameters(), streamed.model.parameters(), strict=True
    ):
        moved = (a - start[name]).norm()
        assert (a - b).norm() <= 1e-3 * moved + 1e-9, name
    for one, other in zip(plain.rows, streamed.rows, strict=True):
        for key in ("optim/loss", "optim/grad_norm", "optim/kl_loss", "reward/total"):
            assert one[key] == pytest.approx(other[key], rel=1e-4, abs=1e-6), key
    assert any(row["optim/updates"] for row in streamed.rows)


@pytest.mark.parametrize(
    "changes, parts",
    [
        ({"num_substeps": 2}, 3),
        ({"num_substeps": 3, "aggregate": "token", "objective": "importance_sampling"}, 2),
        ({"num_substeps": 2, "epochs": 2, "objective": "cispo", "kl": "k3", "kl_coef": 0.1}, 3),
        ({"num_substeps": 2, "epochs": 2, "kl": "token", "kl_coef": 0.1}, 1),
    ],
)
def test_of_several_substeps_the_first_is_streamed(tmp_path, monkeypatch, changes, parts):
    """The update of the first waits until all is sampled, so the rollouts stay the same."""
    changes |= {"lr": 1e-3}
    plain = run(tmp_path, "plain", monkeypatch, **changes)
    streamed = run(tmp_path, "stream", monkeypatch, num_minibatches=parts, **changes)
    for one, other in zip(plain.rows, streamed.rows, strict=True):
        assert one["optim/updates"] == other["optim/updates"]
        assert one["optim/loss"] == pytest.approx(other["optim/loss"], rel=1e-3, abs=1e-6)
        assert one["reward/total"] == other["reward/total"]
    for a, b in zip(plain.model.parameters(), streamed.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=2e-5)
    moved = [row["optim/updates"] for row in streamed.rows]
    assert max(moved) == changes["num_substeps"] * changes.get("epochs", 1)


def test_training_starts_before_sampling_ends(tmp_path, monkeypatch):
    events = []

    def sampled(*args, original=rollouts.Group, **kwargs):
        events.append("sampled")
        return original(*args, **kwargs)

    def trained(*args, original=LocalPolicy.forward_backward, **kwargs):
        events.append("trained")
        return original(*args, **kwargs)

    monkeypatch.setattr(rollouts, "Group", sampled)
    monkeypatch.setattr(LocalPolicy, "forward_backward", trained)
    run(tmp_path, "run", monkeypatch, num_minibatches=3, sample_rows=8)
    first = events[: 6 + 3]  # one step
    assert sorted(first) == ["sampled"] * 6 + ["trained"] * 3
    assert first.index("trained") == 2, "as soon as two groups are there"


def test_a_last_part_that_is_not_full_is_trained_on_and_nothing_waits(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(streaming, "set_advantages", lambda groups, _: given.append(list(groups)))
    monkeypatch.setattr(streaming, "prepared_update", lambda *_: ([], 1.0))
    stream = Stream(3, 8, toy_policy(toy_model()), resolved(toy_config(tmp_path)))
    groups = [Group(None, [Rollout(place=(place, 0))]) for place in range(10)]
    for group in groups:
        stream.add(group)
    assert given == [groups[:3], groups[3:6]]
    stream.flush()
    assert given == [groups[:3], groups[3:6], groups[6:8]] and stream.waiting == []


def test_a_step_without_signal_moves_nothing(tmp_path, monkeypatch):
    """Rewards all 0: no gradient, no optimizer step, also not by momentum."""
    monkeypatch.setattr("reasoning_from_scratch.rollouts.total_reward", lambda *_: 0.0)
    config = toy_config(tmp_path / "run", num_minibatches=2, steps=2)
    result = train(config, quiet=True, **toy_world(tmp_path))
    for a, b in zip(toy_model().parameters(), result.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert [row["optim/updates"] for row in result.rows] == [0, 0]


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"problems_per_step": 8, "num_minibatches": 3}, "does not divide"),
        ({"problems_per_step": 6, "num_minibatches": 2, "num_substeps": 2}, "in each of --num-sub"),
        ({"num_minibatches": 2, "active_sampling": True}, "leave out"),
        ({"num_minibatches": 0}, "at least 1"),
        (
            {"num_minibatches": 2, "kl": "k2", "kl_coef": 0.1, "kl_schedule": "linear"},
            "leave out --kl-schedule",
        ),
    ],
)
def test_what_cannot_be_streamed_is_said(tmp_path, changes, says):
    with pytest.raises(UserError, match=says):
        resolved(toy_config(tmp_path, **changes))


def test_a_bfloat16_model_learns_from_what_was_streamed(tmp_path, monkeypatch):
    """Its gradients are kept in float32 beside `.grad`, from the first part to the update."""
    for optimizer in ({}, {"low_precision_updates": "stochastic"}):
        changes = {"dtype": "bfloat16", "lr": 1e-3} | optimizer
        rows = []
        for name, parts in (("plain", 1), ("stream", 3)):
            folder = tmp_path / name / str(len(optimizer))
            world = toy_world(tmp_path)
            world["model"].bfloat16()
            monkeypatch.setattr(rollouts, "reward_groups", letters)
            config = toy_config(
                folder, problems_per_step=6, steps=1, num_minibatches=parts, **changes
            )
            rows.append(train(config, quiet=True, **world).rows[0])
        plain, streamed = rows
        assert plain["optim/grad_norm"] > 0
        assert streamed["optim/grad_norm"] == pytest.approx(plain["optim/grad_norm"], rel=0.05)
        assert streamed["optim/update_ratio"] == pytest.approx(plain["optim/update_ratio"], rel=0.2)
