"""--recipe FILE.py:NAME: an advantage, an objective and choices of one's own."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from command_world import SHORT, commands, equal, make_world, saved
from toy import toy_config, toy_world, train

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.text import read_lines
from rfs.run.options import configure, resolved, resumed_config
from rfs.tasks.own_task import FunctionFromFile, forget_changed_files, recipe_from_file

EXAMPLE = Path(__file__).parents[3] / "ch07" / "my_recipe.py"

OWN = """
import torch
from reasoning_from_scratch.advantages import mean_centered
from reasoning_from_scratch.losses import ppo

def centered(rewards):
    return torch.stack([mean_centered(row) for row in rewards])

def clipped(logprobs, start_logprobs, advantages):
    return ppo((logprobs - start_logprobs).exp(), advantages, 0.8, 1.2)

def against_the_sampler(logprobs, old_logprobs, advantages):
    return ppo((logprobs - old_logprobs).exp(), advantages, 0.8, 1.2)

def zeros(logprobs):
    return logprobs.detach() * 0

def too_short(rewards):
    return rewards[0]

def wants_more(logprobs, values):
    return logprobs

def raises(rewards):
    return 1 / 0

row = {"advantage": centered, "objective": clipped, "aggregate": "constant", "epochs": 2}
sampler = {"objective": against_the_sampler, "epochs": 2}
within = {"recipe": "dapo", "epochs": 2}
"""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def weights(config, folder):
    torch.manual_seed(0)
    return train(config, **toy_world(folder), quiet=True).model.state_dict()


def toy(folder, name, recipe, **changes):
    values = {k: v for k, v in vars(toy_config(folder / name)).items() if k in KEPT}
    return configure(recipe, **(values | changes))


KEPT = "model steps problems_per_step rollouts max_new_tokens lr device preflight log_path".split()


def test_a_row_written_by_hand_is_the_row_it_repeats(own, tmp_path):
    """Dr. GRPO with two passes, its advantage and its clip written out: the same weights."""
    ours = weights(toy(tmp_path, "ours", f"{own}:row"), tmp_path)
    theirs = weights(toy(tmp_path, "theirs", "dr_grpo", epochs=2), tmp_path)
    assert equal(ours, theirs)
    plain = weights(toy(tmp_path, "plain", "grpo", epochs=2), tmp_path)
    assert not equal(ours, plain)


def test_the_ratio_may_be_against_the_sampler(own, tmp_path):
    """On a CPU in float32 sampler and trainer differ in the last digit: nearly the same weights."""
    ours = weights(toy(tmp_path, "ours", f"{own}:sampler"), tmp_path)
    theirs = weights(toy(tmp_path, "theirs", "grpo", epochs=2), tmp_path)
    for name in ours:
        assert torch.allclose(ours[name], theirs[name], atol=1e-4)


def test_the_example_trains_is_written_down_and_goes_on(tmp_path):
    make_world(tmp_path)
    shutil.copy(EXAMPLE, tmp_path / "my_recipe.py")
    words = ["train", "--model", "tiny-toy", "--problems", "problems.jsonl", *SHORT]
    words += ["--eval-problems", "problems.jsonl", "--recipe", "my_recipe.py:recipe"]
    assert commands([*words, "--log-path", "whole"], tmp_path) == 0
    assert commands([*words, "--log-path", "part", "--steps", "2"], tmp_path) == 0
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert config["advantage"] == f"{tmp_path}/my_recipe.py:over_the_step"
    assert config["objective"] == f"{tmp_path}/my_recipe.py:clipped"
    assert config["recipe"] == f"{tmp_path}/my_recipe.py:recipe"
    assert commands(["train", "--resume", "part", "--steps", "4"], tmp_path) == 0
    assert equal(saved(tmp_path / "part", 4), saved(tmp_path / "whole", 4))
    rows = read_lines(tmp_path / "whole" / "metrics.jsonl")
    assert all(row["optim/nonfinite"] == 0 for row in rows)


def test_a_run_goes_on_and_is_saved_without_the_file_of_its_recipe(tmp_path):
    """Its choices are in config.json, and on the card of each save."""
    path = tmp_path / "row.py"
    path.write_text('row = {"epochs": 2, "aggregate": "token", "clip_high": 1.3}')
    train(toy(tmp_path, "run", f"{path}:row", steps=1), **toy_world(tmp_path), quiet=True)
    path.unlink()
    forget_changed_files()  # as if a new process continued it
    train(resumed_config(tmp_path / "run", steps=2), quiet=True)
    card = (tmp_path / "run" / "checkpoints" / "000002" / "README.md").read_text()
    assert "--recipe row.py:row" in card
    assert "--epochs 2" in card and "--aggregate token" in card and "--clip-high 1.3" in card


def test_reinforce_plus_plus_shares_one_baseline():
    rewards = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    advantage = recipe_from_file(f"{EXAMPLE}:recipe").changes["advantage"]
    assert advantage == f"{EXAMPLE}:over_the_step"
    found = advantage(rewards=rewards)
    assert found[0, 0] == found[0, 1] > 0 > found[1, 0], "also where a group's rewards are equal"
    assert abs(found.mean()) < 1e-6 and abs(found.std() - 1) < 1e-3


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"recipe": "own.py:nothing"}, "own.py has no recipe 'nothing'; define one"),
        ({"recipe": "own.py:within"}, "within names another recipe, 'dapo', .* write out what"),
        ({"recipe": "own.py"}, "own.py is a file: name the recipe in it, as own.py:RECIPE"),
        ({"recipe": "none.py:row"}, "there is no file none.py; give its path"),
        ({"advantage": "own.py:too_short"}, r"returned \(2,\), not a tensor of shape \(2, 2\)"),
        ({"advantage": "own.py:raises"}, "own.py:raises raised ZeroDivisionError"),
        ({"objective": "own.py:wants_more"}, "asks for 'values'; there is logprobs, old_logprobs"),
        ({"objective": "own.py:zeros"}, "values with no gradient: compute them from logprobs"),
        ({"objective": "own.py:missing"}, "defines no function 'missing'"),
        ({"objective": "pppo"}, "unknown --objective 'pppo'.*did you mean 'ppo'"),
        ({"advantage": "own.py:centered", "num_minibatches": 2}, "an --advantage of your own"),
    ],
)
def test_what_is_wrong_is_said_before_the_first_step(own, tmp_path, monkeypatch, changes, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=words):
        config = toy(tmp_path, "run", changes.pop("recipe", "grpo"), **changes)
        train(config, **toy_world(tmp_path), quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_name_that_can_be_called(own):
    function = FunctionFromFile(f"{own}:centered")
    assert json.dumps(function) == json.dumps(f"{own}:centered")
    assert not callable(str(function)) and callable(function)
    config = resolved(configure(f"{own}:row", model="tiny", steps=2))
    assert config.advantage == f"{own}:centered" and config.aggregate == "constant"
