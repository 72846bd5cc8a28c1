"""The three doors to the same loop: rl_loop on one page, Tinker's rl_basic, nanochat's chat_rl."""

import runpy
import sys
from pathlib import Path

import pytest
import torch
from toy import toy_config, toy_problems, toy_world

from reasoning_from_scratch.commands.train import parse_flags
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.recipes import LOSS_FNS, RECIPES
from reasoning_from_scratch.rollouts import reward_groups, sample_groups
from reasoning_from_scratch.run.option_checks import check
from reasoning_from_scratch.run.options import configure, resolved
from reasoning_from_scratch.text import read_lines
from reasoning_from_scratch.trainer import backward, prepared_part, set_advantages

CHAPTER = Path(__file__).parents[2] / "ch07"
SMALL = ["--groups_per_batch", "2", "--group_size", "3", "--max_tokens", "6", "--steps", "2"]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a script of the chapter in an empty folder: (exit code, out, err)."""
    monkeypatch.chdir(tmp_path)

    def run_script(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(CHAPTER / name), run_name="__main__")
        return end.value.code, *capsys.readouterr()

    return run_script


# ---- rl_loop.py


def test_rl_loop_runs_and_writes_its_metrics(run, tmp_path):
    code, out, _ = run("rl_loop.py", *SMALL, "--test_limit", "2")
    assert code == 0 and out.count("tiny-test:") == 2
    rows = read_lines(tmp_path / "runs" / "rl_loop" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [0, 1]
    assert all(0 <= row["reward/total"] <= 1 for row in rows)


def test_rl_loop_is_one_page():
    assert len((CHAPTER / "rl_loop.py").read_text(encoding="utf-8").splitlines()) <= 150


def test_rl_loop_says_what_is_wrong(run):
    code, _, err = run("rl_loop.py", "--model", "tiny-basic")
    assert code == 2 and "did you mean 'tiny-base'" in err


def test_rl_loop_has_the_gradient_of_the_library(tmp_path):
    """Its loss on some groups, and the recipe importance_sampling's: the same gradient."""
    world, model = toy_world(tmp_path), toy_world(tmp_path)["model"]
    config = resolved(
        toy_config(tmp_path, aggregate="sum", advantage="mean", objective="importance_sampling")
    )
    groups = sample_groups(model, world["tokenizer"], toy_problems(5), config, 0)
    reward_groups(groups, config, world["tokenizer"])
    for group in groups:
        for rollout in group.rollouts:
            rollout.reward = float(len(set(rollout.response_ids)) % 2)
    set_advantages(groups, config)
    part = prepared_part(model, None, groups, config)
    backward(model, part, config)
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    rl_loop_backward = runpy.run_path(str(CHAPTER / "rl_loop.py"))["backward"]
    for group in groups:
        rewards = torch.tensor(group.rewards)
        if len(set(group.rewards)) > 1:
            prompt = group.rollouts[0].prompt_ids
            rl_loop_backward(model, prompt, group.rollouts, rewards - rewards.mean())
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


# ---- rl_basic.py, and Tinker's words for `rfs train`


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--loss_fn", "ppo", "--num_substeps", "2", "--lora_rank", "2", "--compute_post_kl"],
        ["--loss_fn", "cispo", "--num_minibatches", "2", "--kl_penalty_coef", "0.1"],
    ],
)
def test_rl_basic_runs_and_prints_the_documented_metrics(run, flags, monkeypatch):
    monkeypatch.setattr("reasoning_from_scratch.run.start.look_ahead", lambda run, plain: None)
    code, out, _ = run("rl_basic.py", *SMALL, "--eval_every", "0", *flags)
    assert code == 0
    shown = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert shown["progress/batch"] == ["0", "1"]
    for name in ("reward/total", "ac_tokens_per_turn", "entropy", "optim/lr"):
        assert len(shown[name]) == 2


def test_tinkers_losses_are_sums_with_their_bounds():
    ppo, cispo = ({"clip_low": low, "clip_high": high} for low, high in ((0.8, 1.2), (0.0, 4.0)))
    expected = {"importance_sampling": {}, "ppo": ppo, "cispo": cispo, "dro": {"dro_beta": 0.05}}
    assert LOSS_FNS == expected
    for name, bounds in expected.items():
        for recipe in RECIPES:
            config = configure(recipe, loss_fn=name)
            assert (config.objective, config.aggregate) == (name, "sum")
            assert all(getattr(config, key) == value for key, value in bounds.items())
            check(config)
    with pytest.raises(UserError, match="did you mean 'cispo'"):
        configure("grpo", loss_fn="cipso")
    with pytest.raises(UserError, match="leave one of them out"):
        configure("grpo", loss_fn="ppo", objective="dro")
    with pytest.raises(UserError, match="leave one of them out"):
        parse_flags(["--loss_fn=ppo", "--aggregate", "token"])


def test_rfs_train_knows_tinkers_flags():
    words = (
        "--loss-fn cispo --clip-high 3 --groups-per-batch 16 --group-size 4 --max-tokens 99 "
        "--learning-rate 3e-5 --no-remove-constant-reward-groups --kl-penalty-coef 0.1 "
        "--kl reward --model-name tiny --compute-post-kl --num-minibatches 4"
    )
    config = parse_flags(words.split())
    assert (config.objective, config.aggregate) == ("cispo", "sum")
    assert (config.clip_low, config.clip_high) == (0.0, 3.0), "a flag wins over the loss"
    assert (config.problems_per_step, config.rollouts, config.max_new_tokens) == (16, 4, 99)
    assert (config.lr, config.drop_uniform_groups, config.kl_coef) == (3e-5, False, 0.1)
    assert (config.model, config.compute_post_kl, config.num_minibatches) == ("tiny", True, 4)
