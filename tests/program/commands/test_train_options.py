"""The options of `rfs train`, and how other commands take them with defaults of their own."""

from dataclasses import dataclass, fields

import pytest

from rfs.commands.compare_options import CompareOptions
from rfs.commands.preflight_options import PreflightOptions
from rfs.commands.train_options import TrainOptions
from rfs.config import EARLIER, RunConfig, part_of, to_json
from rfs.run.folder import RunFolder
from rfs.run.options import configure


@dataclass
class Own(TrainOptions):
    """Those of a script."""

    recipe: str = "dapo"
    steps: int = 7
    often: bool = False
    """Do it again."""


@pytest.mark.parametrize(
    "words, values",
    [
        ("", {"recipe": "dapo", "steps": 7, "often": False, "clip_high": 1.28}),
        ("--often --steps 3", {"steps": 3, "often": True, "clip_high": 1.28}),
        ("--recipe grpo", {"recipe": "grpo", "steps": 7, "clip_high": 1.2}),
        ("--environment guess", {"model": "tiny-player", "problems": "guess", "steps": 7}),
        ("--loss-fn cispo", {"objective": "cispo", "aggregate": "sum", "steps": 7}),
    ],
)
def test_a_command_line_then_the_recipe_then_the_class(words, values):
    options = Own.read(words.split())
    assert {name: getattr(options, name) for name in values} == values
    named = {word.removeprefix("--") for word in words.split() if word.startswith("--")}
    assert options.given == named - {"often", "loss-fn"}  # no fields of a run


def test_what_is_not_on_the_command_line_keeps_the_layer_that_set_it(tmp_path):
    """config.json and the report say so."""
    asked = TrainOptions.read("--recipe dapo --epochs 2 --clip-high 1.3".split())
    layers = {"epochs": "you", "clip_high": "you", "aggregate": "recipe dapo"}
    assert {name: asked.set_by[name] for name in layers} == layers
    assert TrainOptions.read(["--environment", "guess"]).set_by["problems"] == "the game guess"
    RunFolder(tmp_path).write_config(to_json(asked) | {"set_by": asked.set_by})
    again = TrainOptions.read(["--resume", str(tmp_path), "--epochs", "3"])
    layers = {"epochs": "you", "clip_high": EARLIER, "aggregate": "recipe dapo"}
    assert {name: again.set_by[name] for name in layers} == layers


def test_other_commands_repeat_only_what_differs():
    assert TrainOptions.own_defaults() == PreflightOptions.own_defaults() == {}
    assert Own.own_defaults() == {"recipe": "dapo", "steps": 7}
    own = {"steps": 60, "eval_every": 10, "eval_limit": 200, "log_path": "runs/compare"}
    assert CompareOptions.own_defaults() == own
    for kind in (PreflightOptions, CompareOptions):
        names = {item.name for item in fields(RunConfig)}
        assert kind.DECIDES.keys() <= names | {"loss_fn"}


def test_the_words_of_a_run_are_those_of_its_preflight():
    words = "--recipe dapo --lr 0.1 --few-shot 2 --kl k3 --kl-coef 0.1 --out x --wandb mine".split()
    asked = [part_of(kind.read(words), RunConfig) for kind in (TrainOptions, PreflightOptions)]
    assert asked[0] == asked[1] and asked[0].given == asked[1].given
    changes = {"lr": 0.1, "few_shot": 2, "kl": "k3", "kl_coef": 0.1}
    assert asked[0] == configure("dapo", **changes, log_path="x", wandb="mine")
