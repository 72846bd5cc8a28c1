"""chat_rl.py: nanochat's flags, its reinforce, its tags."""

import json

import pytest
from chat_rl import ChatRLOptions, chat_rl_command, chat_rl_config, filled_in, tagged_model
from toy import toy_config, toy_problems, toy_world, train

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.text import read_lines
from rfs.run.options import resolved, resumed_config

SMALL = """
    --examples-per-step 2 --num-samples 3 --max-new-tokens 6 --problem-limit 4
    --device-batch-size 3 --eval-examples 2 --eval-every 1 --save-every 1 --device-type cpu
""".split()


@pytest.fixture(autouse=True)
def nothing_is_logged_elsewhere(monkeypatch):
    """A run with a name logs to Weights & Biases, where that is installed."""
    monkeypatch.setenv("WANDB_MODE", "disabled")


def test_chat_rl_runs_and_goes_on_from_a_step_of_its_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert chat_rl_command([*SMALL, "--run", "first"]) == 0
    out = capsys.readouterr().out
    assert "Step 0 | Pass@1: " in out and "Step 2 | " in out and ", Pass@3: " in out
    config = json.loads((tmp_path / "runs/first/config.json").read_text())
    assert config["steps"] == 2 and config["optimizer"] == "muon"
    rates = [row["optim/lr"] for row in read_lines(tmp_path / "runs/first/metrics.jsonl")]
    assert rates == [0.05, 0.025], "down to zero in a straight line"
    more = [*SMALL, "--model-tag", "first", "--model-step", "1", "--run", "my/second"]
    assert chat_rl_command(more) == 0
    config = json.loads((tmp_path / "runs/my/second/config.json").read_text())
    assert config["model"] == str(tmp_path / "runs/first/checkpoints/000001")
    tag = capsys.readouterr().out.split("--model-tag ")[-1].strip()
    assert tagged_model(tag, 2) == "runs/my/second/checkpoints/000002"


def test_chat_rl_is_reinforce_with_token_normalization():
    values = filled_in(ChatRLOptions(problems_per_step=4, init_lr_frac=0.1), "tiny")
    config = chat_rl_config(values, "tiny", toy_problems(19))
    assert config.steps == 4, "whole steps only, as nanochat"
    assert (config.objective, config.advantage, config.aggregate) == ("reinforce", "mean", "token")
    assert (config.kl, config.lr, config.lr_schedule) == ("none", 0.1, "linear")
    assert config.eval_samples == config.sample_rows == 8
    resolved(config)
    values = filled_in(ChatRLOptions(matrix_lr=1.0), "base")
    assert (values["matrix_lr"], values["rollouts"], values["problems"]) == (1.0, 16, "gsm8k")
    with pytest.raises(UserError, match="--problems-per-step 16"):
        chat_rl_config(values, "base", toy_problems(3))
    for name, wrong in (("rollouts", 1), ("device_batch_size", 0), ("eval_limit", 0),
                        ("init_lr_frac", 0.0)):  # fmt: skip
        with pytest.raises(UserError, match=f"--{name.replace('_', '-')} is {wrong}; choose"):
            chat_rl_config(values | {name: wrong}, "base", toy_problems(30))


def test_answers_as_nanochats_models_give_them(tmp_path, monkeypatch):
    """The question alone, the number after ####, a calculator; and the run keeps all of it."""
    monkeypatch.chdir(tmp_path)
    words = [*SMALL, "--answers", "gsm8k", "--calculator", "--run", "mine"]
    assert chat_rl_command(words) == 0
    config = resumed_config("runs/mine")
    assert (config.prompt, config.reward, config.calculator) == ("question", "gsm8k", True)
    tree = (tmp_path / "runs/mine/train_iteration_000000_logtree.json").read_text()
    assert "helpful math assistant" not in tree and "boxed{ANSWER}" not in tree
    assert chat_rl_command([*SMALL, "--answers", "nanochat"]) == 2


def test_tags_find_models_runs_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("checkpoints/plain", "checkpoints/grpo", "checkpoints/both", "runs/both"):
        (tmp_path / folder).mkdir(parents=True)
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
        ("toy", 3, "has no step 3; it has 0, 2, 4"),
        ("plain", 1, "no steps"),
        ("gone", None, "there is no checkpoints/gone and no runs/gone"),
        ("both", None, "may be checkpoints/both and runs/both: name one of them with --model"),
        (None, 1, "needs --model-tag"),
    ):
        with pytest.raises(UserError, match=says):
            tagged_model(tag, step)
