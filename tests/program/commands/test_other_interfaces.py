"""The three doors to the same loop: rl_loop on one page, Tinker's rl_basic, nanochat's chat_rl."""

import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest
import rl_basic
import torch
from toy import toy_config, toy_policy, toy_problems, toy_world

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.model_names import shipped_folder
from reasoning_from_scratch.recipes import LOSS_FNS, RECIPES
from reasoning_from_scratch.rollouts import reward_groups, sample_groups
from reasoning_from_scratch.text import read_lines
from reasoning_from_scratch.trainer import prepare_update, set_advantages
from rfs.commands.other_words import SYNONYMS
from rfs.commands.train_options import TrainOptions
from rfs.run.option_checks import check
from rfs.run.options import configure, resolved
from tests.program.run.test_interrupts import press_at

CHAPTER = Path(__file__).parents[3] / "ch07"
TINY = ["batch_size=2", "group_size=3", "max_tokens=6", "model_name=tiny", "--steps", "2"]
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
    code, out, _ = run("rl_loop.py", *TINY, "test_limit=2")
    assert code == 0 and out.count("tiny-test:") == 2
    rows = read_lines(tmp_path / "runs" / "rl_loop" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [row["progress/batch"] for row in rows] == [0, 1]
    assert all(0 <= row["reward/total"] <= 1 for row in rows)


@pytest.mark.parametrize(
    "script, word, says",
    [
        ("rl_loop.py", "group_size=1", "--rollouts is 1; choose 2 or more"),
        ("rl_loop.py", "groups_per_batch=0", "--problems-per-step is 0; choose 1 or more"),
        ("rl_loop.py", "steps=-1", "--steps is -1"),
        ("rl_loop.py", "learning_rate=nan", "--lr is nan"),
        ("rl_loop.py", "problems=instructions", "instructions is judged by its own rules"),
        ("rl_client.py", "test_limit=0", "eval_limit is 0; choose 1 or more"),
        ("rl_client.py", "group_size=1", "choose 2 or more"),
        ("rl_client.py", "lora_rank=-1", "lora_rank is -1; choose 0 or more"),
        ("rl_client.py", "learning_rate=-1", "choose a small number above 0"),
        ("rl_client.py", "problems=instructions", "judged by its own rules"),
    ],
)
def test_a_loop_refuses_what_learns_nothing(run, monkeypatch, script, word, says):
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    code, _, err = run(script, *TINY, word)
    assert code == 2 and says in err and "Traceback" not in err


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
    policy = toy_policy(model, config)
    rollouts, denominator = prepare_update(policy, None, groups, config)
    policy.forward_backward(rollouts, config, denominator)
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


# ---- rl_client.py; tests/program/serve/test_rl_client.py compares it with Tinker's client


def test_rl_client_runs_on_a_policy_of_this_process(run, monkeypatch):
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    code, out, _ = run("rl_client.py", *TINY, "test_limit=2")
    assert code == 0 and out.count("(greedy)") == 2 and "step 1  reward/total 0" in out


def test_rl_client_goes_on_from_a_run(run, tmp_path, monkeypatch):
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    saves = tmp_path / "mine" / "checkpoints"
    shutil.copytree(shipped_folder("tiny-base"), saves / "000002")
    (tmp_path / "mine" / "metrics.jsonl").write_text('{"step": 1}\n')
    code, out, err = run("rl_client.py", *TINY, "test_limit=2", "steps=1", "model=mine")
    assert code == 0 and out.count("(greedy)") == 2 and "taking mine@000002" in err


# ---- rl_basic.py, and Tinker's words for `rfs train`


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--loss_fn", "ppo", "--num_substeps", "2", "--lora_rank", "2", "--compute_post_kl"],
        ["--loss_fn", "cispo", "--num_minibatches", "2", "--kl_penalty_coef", "0.1"],
        ["num_substeps=2", "loss_fn=dro", "beta=0.1", "temperature=0.9", "lr_at_problems=8"],
        ["kl_penalty_coef=0.1", "kl_discount_factor=0.5", "kl_reference=tiny-reasoning"],
    ],
)
def test_rl_basic_runs_and_prints_the_documented_metrics(run, flags):
    code, out, _ = run("rl_basic.py", *SMALL, "--eval_every", "0", *flags)
    assert code == 0
    shown = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert shown["progress/batch"] == ["0", "1"]
    for name in ("reward/total", "ac_tokens_per_turn", "entropy", "optim/lr"):
        assert len(shown[name]) == 2


def test_every_word_of_rl_basic_is_a_choice_of_the_run():
    """Each alone, as a flag or a word, changes the configuration in the field that it names."""
    configured = rl_basic.configured
    words = {
        "model": "base", "problems": "gsm8k", "eval_problems": ["math-500", "gsm8k-test"],
        "eval_limit": 7, "evaluators": ["mine.py:f"],
        "steps": 7, "groups_per_batch": 4, "group_size": 5, "few_shot": 1, "learning_rate": 1e-3,
        "lr_at_problems": 2, "max_tokens": 9, "temperature": 0.5, "loss_fn": "ppo",
        "clip_low_threshold": 0.9, "clip_high_threshold": 3.0, "beta": 0.2, "num_substeps": 2,
        "num_minibatches": 2, "max_steps_off_policy": 1, "remove_constant_reward_groups": False,
        "kl_penalty_coef": 0.1, "kl_discount_factor": 0.5, "kl_reference": "tiny-grpo",
        "compute_post_kl": True, "lora_rank": 2, "eval_every": 7, "save_every": 7,
        "num_groups_to_log": 1, "load_checkpoint_path": "x", "seed": 1, "log_path": "y",
        "wandb_project": "z",
    }  # fmt: skip
    plain, fields = vars(configured([])[0]), {"loss_fn": "objective"}
    for name, value in words.items():
        listed = [str(one) for one in value] if isinstance(value, list) else [str(value)]
        for said in ([f"{name}={value}"], [f"--{name}", *listed]):
            if isinstance(value, list) and len(said) == 1:
                continue
            if isinstance(value, bool) and len(said) == 2:
                said = [f"--{'' if value else 'no_'}{name}"]
            changed = vars(configured(said)[0])
            named = (fields.get(name, name), *SYNONYMS.get(name, ()))
            field = next(one for one in named if one in plain)
            assert changed[field] == value != plain[field], said
    assert configured(["kl_penalty_coef=0.1"])[0].kl == "token"


def test_rl_basic_keeps_the_kl_of_a_recipe():
    for name in RECIPES:
        config, _ = rl_basic.configured([f"recipe={name}"])
        assert (config.kl, config.kl_coef) == (configure(name).kl, configure(name).kl_coef)
    config, _ = rl_basic.configured(["kl_penalty_coef=0.02"])
    assert (config.kl, config.kl_coef) == ("token", 0.02)
    config, _ = rl_basic.configured(["kl_penalty_coef=0.0"])  # no penalty, in Tinker's words
    assert resolved(config).kl == "none"
    with pytest.raises(UserError, match="exclude each other"):
        rl_basic.configured(["--kl", "none", "kl_penalty_coef=0.1"])


def test_rl_basic_takes_several_parts_of_the_reward():
    for words in (
        ["--reward_parts", "correct=1", "format=0.5", "steps=3"],
        ["reward_parts=correct=1,format=0.5", "steps=3"],
    ):
        config, _ = rl_basic.configured(words)
        assert (config.reward_parts, config.steps) == ({"correct": 1.0, "format": 0.5}, 3)


@pytest.mark.parametrize("interrupted_at", [0, 1])
def test_rl_basic_interrupted_ends_with_130(run, monkeypatch, interrupted_at):
    press_at("reasoning_from_scratch.policy.sample_groups", interrupted_at + 1, monkeypatch)
    code, out, err = run("rl_basic.py", *SMALL, "--eval_every", "0")
    assert code == 130
    assert (out + err).count(f"interrupted after {interrupted_at} of 2 steps") == 1


def test_rl_basic_with_a_folder_that_holds_a_run(run, tmp_path):
    words = [*SMALL, "eval_every=0", "--log_path", "mine"]
    metrics = tmp_path / "mine" / "metrics.jsonl"
    # Nothing is there yet to be resumed.
    assert run("rl_basic.py", *words, "behavior_if_log_dir_exists=resume")[0] == 0
    for behavior in ("ask", "raise"):  # nobody is at this terminal
        code, _, err = run("rl_basic.py", *words, f"behavior_if_log_dir_exists={behavior}")
        assert code == 2 and len(err.splitlines()) == 1
        for choice in ("--behavior_if_log_dir_exists resume,", "--log_path", "exists delete"):
            assert choice in err
    first, second = metrics.read_text().splitlines()
    more = [*words, "steps=3", "--behavior_if_log_dir_exists", "resume"]
    assert run("rl_basic.py", *more)[0] == 0
    assert [row["step"] for row in read_lines(metrics)] == [0, 1, 2]
    kept = [json.loads(line) for line in (first, second)]
    assert [row["time/total"] for row in kept] == [
        row["time/total"] for row in read_lines(metrics)[:2]
    ]
    code, _, err = run("rl_basic.py", *more, "model=tiny-grpo")
    assert code == 2 and "cannot continue with another --model" in err
    code, _, err = run("rl_basic.py", *more, "beta=0.1")
    assert code == 2 and "--dro-beta 0.1 does nothing" in err
    assert run("rl_basic.py", *words, "behavior_if_log_dir_exists=delete")[0] == 0
    assert [row["step"] for row in read_lines(metrics)] == [0, 1]


def test_tinkers_losses_are_sums_with_their_bounds():
    ppo, cispo = ({"clip_low": low, "clip_high": high} for low, high in ((0.8, 1.2), (0.0, 4.0)))
    expected = {"importance_sampling": {}, "ppo": ppo, "cispo": cispo, "dro": {"dro_beta": 0.05}}
    assert LOSS_FNS == expected
    for name, bounds in expected.items():
        for recipe in RECIPES:
            config = configure(recipe, loss_fn=name)
            assert (config.objective, config.aggregate) == (name, "sum")
            assert all(getattr(config, key) == value for key, value in bounds.items())
            assert (config.truncate_importance, config.mask_importance) == (None, None)
            assert config.sequence_mask_threshold is None and config.importance_level == "token"
            check(config)
    config = TrainOptions.read(["--loss-fn", "cispo", "--clip-high-threshold", "3"])
    assert (config.clip_low, config.clip_high) == (0.0, 3.0), "a flag wins over the loss"
    with pytest.raises(UserError, match="did you mean 'cispo'"):
        configure("grpo", loss_fn="cipso")
    with pytest.raises(UserError, match="drop one of them"):
        configure("grpo", loss_fn="ppo", objective="dro")
    with pytest.raises(UserError, match="drop one of them"):
        TrainOptions.read(["--loss_fn=ppo", "--aggregate", "token"])
