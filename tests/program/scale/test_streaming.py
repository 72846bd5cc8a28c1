"""Streaming: training begins while others are sampled, and the weights come out the same."""

from types import SimpleNamespace

import pytest
import torch
from toy import LETTERS, toy_config, toy_model, toy_policy, toy_world, train

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.trainer import on_policy_rollouts
from rfs.run.options import resolved
from rfs.scale.streaming import streaming_loop
from rfs.tasks.judge import judge_of


def run(tmp_path, name, **changes):
    config = toy_config(
        tmp_path / name, **{"problems_per_step": 6, "steps": 3, "reward": LETTERS} | changes
    )
    return train(config, quiet=True, **toy_world(tmp_path))


def assert_same_weights(plain, streamed):
    start, found = toy_model().state_dict(), streamed.model.state_dict()
    for name, weight in plain.model.state_dict().items():
        moved = (weight - start[name]).norm()
        assert (weight - found[name]).norm() <= 1e-3 * moved + 1e-9, name


@pytest.mark.parametrize(
    "changes",
    [
        {"aggregate": "token"},
        {"aggregate": "sum"},
        {"aggregate": "sequence", "grad_clip": 0.01},
        {"aggregate": "constant", "kl": "k3", "kl_coef": 0.1, "kl_schedule": "linear"},
        {"kl": "reward", "kl_coef": 0.1},
        {"kl": "token", "kl_coef": 0.1, "kl_discount_factor": 0.9},
        {"epochs": 3},
        {"epochs": 3, "objective": "dro", "lr": 1e-3},
        {"epochs": 2, "drop_uniform_groups": False},
        {"train_rollouts": 3, "kl": "reward", "kl_coef": 0.1, "aggregate": "token"},
    ],
)
@pytest.mark.parametrize("parts", [2, 6])
def test_streaming_and_plain_give_the_same_weights(tmp_path, changes, parts):
    """Each of three steps samples from the weights of the one before, so all must agree."""
    plain = run(tmp_path, "plain", **changes)
    streamed = run(tmp_path, "stream", num_minibatches=parts, **changes)
    assert_same_weights(plain, streamed)
    for one, other in zip(plain.rows, streamed.rows, strict=True):
        for key in ("optim/loss", "optim/grad_norm", "optim/kl_loss", "reward/total"):
            assert one[key] == pytest.approx(other[key], rel=1e-4, abs=1e-6), key
    assert any(row["optim/updates"] for row in streamed.rows)


@pytest.mark.parametrize(
    "changes, parts",
    [
        ({"num_substeps": 2}, 3),
        ({"num_substeps": 2, "train_rollouts": 2}, 3),
        ({"num_substeps": 3, "aggregate": "token", "objective": "importance_sampling"}, 2),
        ({"num_substeps": 2, "epochs": 2, "objective": "cispo", "kl": "k3", "kl_coef": 0.1}, 3),
        ({"num_substeps": 2, "epochs": 2, "kl": "token", "kl_coef": 0.1}, 1),
    ],
)
def test_of_several_substeps_the_first_is_streamed(tmp_path, changes, parts):
    """The update of the first waits until all is sampled, so the rollouts stay the same."""
    changes |= {"lr": 1e-3}
    plain = run(tmp_path, "plain", **changes)
    streamed = run(tmp_path, "stream", num_minibatches=parts, **changes)
    for one, other in zip(plain.rows, streamed.rows, strict=True):
        assert one["optim/updates"] == other["optim/updates"]
        assert one["optim/loss"] == pytest.approx(other["optim/loss"], rel=1e-3, abs=1e-6)
        assert one["reward/total"] == other["reward/total"]
    assert_same_weights(plain, streamed)
    moved = [row["optim/updates"] for row in streamed.rows]
    assert max(moved) == changes["num_substeps"] * changes.get("epochs", 1)


def test_training_starts_before_all_groups_are_here(tmp_path):
    """Groups that come one by one, as from samplers elsewhere: two are trained on while four are
    still to come."""
    events, world = [], toy_world(tmp_path)
    changes = {"problems_per_step": 6, "num_minibatches": 3, "steps": 1, "reward": LETTERS}
    config = resolved(toy_config(tmp_path, **changes))
    learner = toy_policy(world["model"], config, tokenizer=world["tokenizer"])

    def arriving():
        for groups in on_policy_rollouts(learner, world["problems"], config, 0, judge_of(config)):
            for group in groups:
                events.append("came")
                yield group

    class Trained(SimpleNamespace):
        before_update = staticmethod(lambda step, groups: events.append("all"))
        after_update = staticmethod(lambda step, groups, metrics: "")

    def trained(*given, original=learner.forward_backward, **named):
        events.append("trained")
        return original(*given, **named)

    learner.forward_backward = trained
    assert streaming_loop(learner, [arriving()], config, Trained()) == ""
    assert events == ["came", "came", "trained"] * 3 + ["all"]


def test_a_step_without_signal_moves_nothing(tmp_path):
    """Rewards all 0: no gradient, no optimizer step, also not by momentum."""
    (tmp_path / "none.py").write_text("def reward(text, problem):\n    return 0")
    result = run(tmp_path, "run", num_minibatches=2, steps=2, reward=f"{tmp_path}/none.py:reward")
    for a, b in zip(toy_model().parameters(), result.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert [row["optim/updates"] for row in result.rows] == [0, 0]


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"problems_per_step": 8, "num_minibatches": 3}, "does not divide"),
        ({"problems_per_step": 6, "num_minibatches": 2, "num_substeps": 2}, "in each of --num-sub"),
        ({"num_minibatches": 2, "active_sampling": True}, "drop --advantage-per-part"),
        ({"num_minibatches": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_streamed_is_said(tmp_path, changes, says):
    with pytest.raises(UserError, match=says):
        resolved(toy_config(tmp_path, **changes))


def test_a_bfloat16_model_learns_from_what_was_streamed(tmp_path):
    """Its gradients are kept in float32 beside `.grad`, from the first part to the update."""
    for optimizer in ({}, {"low_precision_updates": "stochastic"}):
        changes = {"dtype": "bfloat16", "lr": 1e-3, "steps": 1} | optimizer
        runs = (
            run(tmp_path, f"{parts}-{len(optimizer)}", num_minibatches=parts, **changes)
            for parts in (1, 3)
        )
        plain, streamed = (result.rows[0] for result in runs)
        assert plain["optim/grad_norm"] > 0
        assert streamed["optim/grad_norm"] == pytest.approx(plain["optim/grad_norm"], rel=0.05)
        assert streamed["optim/update_ratio"] == pytest.approx(plain["optim/update_ratio"], rel=0.2)
