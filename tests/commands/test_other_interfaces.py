"""The three doors to the same loop: rl_loop on one page, Tinker's rl_basic, nanochat's chat_rl."""

import dataclasses
import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from toy import toy_config, toy_problems, toy_world

from reasoning_from_scratch.commands import chat_rl
from reasoning_from_scratch.commands.chat_rl import (
    ChatRLOptions,
    chat_rl_command,
    chat_rl_config,
    filled_in,
    pass_at_lines,
    tagged_model,
)
from reasoning_from_scratch.commands.train import parse_flags
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.recipes import LOSS_FNS, RECIPES
from reasoning_from_scratch.rollouts import reward_groups, sample_groups
from reasoning_from_scratch.run.option_checks import check
from reasoning_from_scratch.run.options import configure, resolved
from reasoning_from_scratch.run.start import train
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
    monkeypatch.setattr("reasoning_from_scratch.run.start.look_ahead", lambda run: None)
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


# ---- chat_rl


def test_chat_rl_runs_and_goes_on_from_a_step_of_its_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = [
        "--examples-per-step",
        "2",
        "--num-samples",
        "3",
        "--max-new-tokens",
        "6",
        "--problem-limit",
        "4",
        "--device-batch-size",
        "3",
        "--eval-examples",
        "2",
        "--eval-every",
        "1",
        "--save-every",
        "1",
        "--device-type",
        "cpu",
    ]
    monkeypatch.setattr("reasoning_from_scratch.run.start.look_ahead", lambda run: None)
    assert chat_rl_command([*small, "--run", "first"]) == 0
    out = capsys.readouterr().out
    assert "Step 0 | Pass@1: " in out and "Step 2 | " in out and ", Pass@3: " in out
    config = json.loads((tmp_path / "runs/first/config.json").read_text())
    assert config["steps"] == 2 and config["optimizer"] == "muon"
    rates = [row["optim/lr"] for row in read_lines(tmp_path / "runs/first/metrics.jsonl")]
    assert rates == [0.05, 0.025], "down to zero in a straight line"
    more = [*small, "--model-tag", "first", "--model-step", "1", "--run", "second"]
    assert chat_rl_command(more) == 0
    config = json.loads((tmp_path / "runs/second/config.json").read_text())
    assert config["model"] == str(tmp_path / "runs/first/checkpoints/000001")


def test_chat_rl_has_nanochats_flags_and_defaults():
    names = {field.name: field.default for field in dataclasses.fields(ChatRLOptions)}
    nanochat = {
        "run": "dummy",
        "device_type": "",
        "dtype": "bfloat16",
        "model_tag": None,
        "model_step": None,
        "num_epochs": 1,
        "device_batch_size": 8,
        "examples_per_step": 16,
        "num_samples": 16,
        "max_new_tokens": 256,
        "temperature": 1.0,
        "top_k": 50,
        "embedding_lr": 0.2,
        "unembedding_lr": 0.004,
        "matrix_lr": 0.02,
        "weight_decay": 0.0,
        "init_lr_frac": 0.05,
        "eval_every": 60,
        "eval_examples": 400,
        "save_every": 60,
    }
    assert nanochat.keys() <= names.keys()
    for name, value in nanochat.items():
        # Where a preset may decide, nanochat's value stands in the table below the presets.
        assert names[name] == value or chat_rl.NANOCHAT[name] == value, name
    preset_fields = {name for preset in chat_rl.PRESETS.values() for name in preset}
    assert preset_fields <= chat_rl.NANOCHAT.keys()
    assert all(names.get(name) is None for name in chat_rl.NANOCHAT)


def test_chat_rl_is_reinforce_with_token_normalization():
    values = filled_in(ChatRLOptions(examples_per_step=4, init_lr_frac=0.1), "tiny")
    config = chat_rl_config(values, "tiny", toy_problems(19))
    assert config.steps == 4, "whole steps only, as nanochat"
    assert (config.objective, config.advantage, config.aggregate) == ("reinforce", "mean", "token")
    assert (config.kl, config.lr, config.lr_schedule) == ("none", 0.1, "linear")
    assert config.eval_samples == config.sample_rows == 8
    resolved(config)
    values = filled_in(ChatRLOptions(matrix_lr=1.0), "base")
    assert (values["matrix_lr"], values["num_samples"], values["problems"]) == (1.0, 16, "gsm8k")
    with pytest.raises(UserError, match="there are only .*lower --examples-per-step 16"):
        chat_rl_config(values, "base", toy_problems(3))


def test_pass_at_lines_are_those_of_the_evaluations():
    rows = [
        {"step": 0, "progress/done_frac": 0.5, "t/pass@1": 0.25, "t/pass@10": 1.0, "t/pass@2": 0.5},
        {"step": 1, "progress/done_frac": 1.0},
    ]
    assert pass_at_lines(rows, "t") == ["Step 0 | Pass@1: 0.2500, Pass@2: 0.5000, Pass@10: 1.0000"]


def test_tags_find_models_runs_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoints" / "plain").mkdir(parents=True)
    (tmp_path / "checkpoints" / "grpo").mkdir()
    for step in (50, 100):
        (tmp_path / f"checkpoints/grpo/qwen3-0.6B-rlvr-grpo-step{step:05d}.pth").touch()
    train(toy_config("runs/toy", save_every=2), quiet=True, **toy_world(tmp_path))
    assert tagged_model(None, None) is None
    assert tagged_model("plain", None) == "checkpoints/plain"
    assert tagged_model("toy", None) == "runs/toy/checkpoints/000004"
    assert tagged_model("toy", 2) == "runs/toy/checkpoints/000002"
    assert tagged_model("grpo", None).endswith("step00100.pth")
    assert tagged_model("grpo", 50).endswith("step00050.pth")
    for tag, step, says in (
        ("toy", 3, "has no step 3; it has 2, 4"),
        ("plain", 1, "no steps"),
        ("gone", None, "there is no checkpoints/gone and no runs/gone"),
        (None, 1, "needs --model-tag"),
    ):
        with pytest.raises(UserError, match=says):
            tagged_model(tag, step)


def test_torchrun_and_python_m_start_it():
    script = str(CHAPTER / "chat_rl.py")
    # Without "--", torchrun takes --run for a flag of its own.
    torchrun = ["torch.distributed.run", "--standalone", "--nproc_per_node=1", script, "--"]
    for words in (torchrun, ["reasoning_from_scratch.commands.chat_rl"]):
        done = subprocess.run(
            [sys.executable, "-m", *words, "--run=two", "--help"],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0 and "--init-lr-frac" in done.stdout, done.stderr[-2000:]
