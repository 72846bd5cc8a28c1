"""--sampling-weights int8: the rollouts are drawn in 8 bits, and nothing else is computed so."""

import pytest
import torch
from command_world import equal
from toy import LETTERS, resumed_run, timeless, toy_config, toy_world, train

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast.decoding import load_library
from rfs import Policy, load_problems
from rfs.config import RunConfig

pytestmark = pytest.mark.skipif(
    load_library(torch.float32) is None, reason="this machine has no C compiler"
)
FITS = {"vocab_size": 64, "head_dim": 32}  # what decode.c computes
GAP = "optim/kl_sample_train_v2"


def run_of(folder, **changes):
    settings = {"max_new_tokens": 8, "reward": LETTERS, "lr": 1e-2, "sampling_weights": "int8"}
    config = toy_config(folder, **(settings | changes))
    return train(config, quiet=True, **toy_world(folder.parent, **FITS))


@pytest.mark.parametrize("lora", [0, 2])
def test_a_run_goes_on_bit_for_bit(tmp_path, lora):
    long = run_of(tmp_path / "long", steps=5, lora_rank=lora)
    run_of(tmp_path / "short", steps=2, lora_rank=lora)
    rest = resumed_run(tmp_path / "short", steps=5)
    assert timeless(rest.rows)[2:] == timeless(long.rows)[2:]
    assert equal(long.model.state_dict(), rest.model.state_dict())


PAIRS = (
    {},
    {"max_steps_off_policy": 1},
    {"lora_rank": 2},
    {"dtype": "bfloat16"},
    {"top_p": 0.9},
    {"num_minibatches": 2},
    {"epochs": 2, "num_substeps": 2},
    {"active_sampling": True},
    {"train_rollouts": 4},
    {"calculator": True},
    {"kl": "k3", "kl_coef": 0.1},
    {"objective": "dro", "aggregate": "token"},
    {"objective": "importance_sampling"},
    {"mask_importance": 2.0},
)


@pytest.mark.parametrize("changes", PAIRS, ids=str)
def test_the_gap_is_small_and_the_metrics_show_it(tmp_path, changes):
    """A sampler in 8 bits is not quite the trainer; with LoRA, too, and whatever the loss is."""
    rows = [row for row in run_of(tmp_path / "run", **changes).rows if row[GAP]]
    first = rows[0]
    assert 1e-9 < first[GAP] < 0.01
    weighs = changes.get("objective", "ppo") == "ppo"
    assert (first["optim/importance_weight"] != 1) == weighs


def test_without_it_sampler_and_trainer_agree(tmp_path):
    first = run_of(tmp_path / "run", sampling_weights="same").rows[0]
    assert first[GAP] < 1e-10 and first["optim/importance_weight"] == 1


def test_evaluations_are_those_of_the_trained_weights(tmp_path):
    """Before the first update, every figure is that of a run without it, though its rollouts are
    others; and whoever scores takes the trained weights, too."""
    evaluated = {"steps": 1, "eval_every": 1, "eval_samples": 4, "max_new_tokens": 40}
    found = {
        weights: run_of(tmp_path / weights, sampling_weights=weights, **evaluated).rows[0]
        for weights in ("int8", "same")
    }
    names = [name for name in found["same"] if "before/" in name and "time/" not in name]
    assert len(names) > 3
    assert [found["int8"][name] for name in names] == [found["same"][name] for name in names]
    assert found["int8"]["optim/entropy"] != found["same"]["optim/entropy"]


def test_a_policy_of_ones_own_samples_in_8_bits_and_scores_exactly():
    config = RunConfig(sampling_weights="int8", max_new_tokens=20, rollouts=2)
    policy, problems = Policy.load("tiny", config), load_problems("tiny", limit=2)
    rollouts = [r for group in policy.sample(problems, config) for r in group.rollouts]
    recorded = torch.cat([torch.tensor(rollout.logprobs) for rollout in rollouts])
    scored = torch.cat(policy.logprobs(rollouts))
    assert 1e-4 < (recorded - scored).abs().mean() < 0.05
    exact = Policy.load("tiny", RunConfig()).logprobs(rollouts)
    assert torch.equal(scored, torch.cat(exact))


def test_where_it_cannot_be_it_is_refused_before_anything_is_written(tmp_path):
    config = toy_config(tmp_path / "run", sampling_weights="int8")
    with pytest.raises(UserError, match="--sampling-weights int8 does not work here: its sizes"):
        train(config, quiet=True, **toy_world(tmp_path))
    assert not list(tmp_path.glob("run/*"))
