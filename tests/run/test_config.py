"""Values that cannot work are named; recipes, flags and resumed runs combine as promised."""

import ast
import dataclasses
import inspect
import json

import pytest
from toy import toy_config, toy_world

from reasoning_from_scratch import config as config_module
from reasoning_from_scratch.commands.train import last_value, parse_flags
from reasoning_from_scratch.config import TrainConfig, from_json, replaced, resolved, to_json
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.losses import CLIPPING
from reasoning_from_scratch.recipes import RECIPES
from reasoning_from_scratch.run.folder import RunFolder
from reasoning_from_scratch.run.start import configure
from reasoning_from_scratch.run.training import train


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"steps": 0}, "--steps is 0"),
        ({"steps": -3}, "--steps is -3"),
        ({"rollouts": 1}, "--rollouts is 1, but must be at least 2"),
        ({"problems_per_step": 0}, "--problems-per-step"),
        ({"max_new_tokens": 0}, "--max-new-tokens"),
        ({"lr": -1.0}, "--lr"),
        ({"lr": float("nan")}, "--lr is nan"),
        ({"micro_batch_tokens": 0}, "--micro-batch-tokens"),
        ({"temperature": 0.0}, "--temperature"),
        ({"top_p": 0.0}, "--top-p"),
        ({"top_p": 1.5}, "--top-p"),
        ({"problems_per_step": 8, "num_substeps": 3}, "does not divide"),
        ({"kl": "k3"}, "--kl-coef"),
        ({"keep_sampling_mask": True}, "--top-p below 1"),
        ({"objective": "dro", "truncate_importance": 2.0}, "dro's penalty covers that"),
        ({"memory_budget": "lots"}, "is not a size"),
    ],
)
def test_bad_values_are_named(changes, says, tmp_path):
    with pytest.raises(UserError, match=says):
        train(replaced(toy_config(tmp_path / "run"), **changes), quiet=True, **toy_world(tmp_path))


def test_unknown_names_get_the_nearest():
    with pytest.raises(UserError, match="did you mean 'dapo'"):
        configure("dappo")
    with pytest.raises(UserError, match="did you mean 'temperature'"):
        configure("grpo", temprature=0.5)


def test_every_field_has_one_line_of_help():
    tree = ast.parse(inspect.getsource(config_module))
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef)).body
    pairs = zip(body, body[1:], strict=False)
    helped = {
        a.target.id: b.value.value
        for a, b in pairs
        if isinstance(a, ast.AnnAssign) and isinstance(b, ast.Expr)
    }
    assert helped.keys() == {field.name for field in dataclasses.fields(TrainConfig)}
    assert all("\n" not in text and text.endswith(".") for text in helped.values())


def test_where_cuts_are_the_mask_is_kept_and_where_the_sampler_lags_the_clip_has_a_weight():
    assert not resolved(configure("grpo")).keep_sampling_mask
    assert resolved(configure("grpo", top_p=0.9)).keep_sampling_mask
    assert resolved(configure("dapo", top_k=20)).keep_sampling_mask
    assert not resolved(configure("grpo", top_p=0.9, keep_sampling_mask=False)).keep_sampling_mask
    assert not resolved(configure("ch06")).keep_sampling_mask, "as the book's first GRPO"
    weights = {
        name: resolved(configure(name, max_steps_off_policy=3)).truncate_importance
        for name in RECIPES
    }
    clipping = {name for name in RECIPES if resolved(configure(name)).objective in CLIPPING}
    assert {name for name, weight in weights.items() if weight} == clipping
    assert resolved(configure("grpo")).truncate_importance == 0


def test_recipes_change_existing_fields_to_values_that_work():
    for name in RECIPES:
        resolved(configure(name))


def test_preset_fills_only_what_was_left_open():
    tiny, large = resolved(TrainConfig()), resolved(TrainConfig(model="base", lr=3e-6))
    assert (tiny.problems, tiny.eval_problems, tiny.lr) == ("tiny", "tiny-test", 5e-5)
    assert (large.problems, large.max_new_tokens, large.lr) == ("math-train", 512, 3e-6)
    assert large.length_constant == 512


def test_smoke_makes_everything_small_and_nothing_larger():
    config = resolved(TrainConfig(model="base", smoke=True, steps=500, rollouts=2))
    assert (config.steps, config.rollouts, config.max_new_tokens) == (2, 2, 128)
    assert config.problem_limit == 64 and config.problems_per_step == 2


def test_json_round_trip():
    config = configure("gdpo", steps=7, seed=3)
    assert from_json(json.loads(json.dumps(to_json(config)))) == config
    assert from_json({"steps": 7, "versions": {}, "from_the_future": 1}).steps == 7


# ---- the command line


def test_flags_win_over_recipe_over_defaults():
    config = parse_flags(["--recipe", "dapo", "--clip-high", "1.5", "--steps=3"])
    assert config.recipe == "dapo" and config.aggregate == "token"  # the recipe's
    assert config.clip_high == 1.5 and config.steps == 3  # the flags'
    assert config.advantage == "zscore"  # the default
    assert parse_flags(["--recipe=gdpo"]).reward_parts == {"correct": 1.0, "format": 1.0}
    parts = parse_flags(["--reward-parts", "correct=1", "format=0.25"]).reward_parts
    assert parts == {"correct": 1.0, "format": 0.25}


def test_names_people_expect_are_flags():
    words = """--model tiny --problems gsm8k --recipe grpo --steps 1 --problems-per-step 2
    --rollouts 3 --max-new-tokens 4 --temperature 0.5 --top-p 0.6 --top-k 7 --lr 0.8 --seed 9
    --save-every 10 --eval-every 11 --report-every 12 --log-path x --overwrite --device cpu
    --dtype float32""".split()
    config = parse_flags(words)
    assert (config.top_k, config.lr, config.report_every, config.overwrite) == (7, 0.8, 12, True)


def test_resumed_runs_keep_their_settings(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create(configure("dapo", steps=5, log_path=str(folder.path)))
    config = parse_flags(["--resume", str(folder.path), "--steps", "9"])
    assert (config.recipe, config.aggregate, config.steps) == ("dapo", "token", 9)
    assert config.resume == str(folder.path)
    with pytest.raises(UserError, match="leave out --recipe"):
        parse_flags(["--resume", str(folder.path), "--recipe", "grpo"])


def test_last_value():
    argv = ["--recipe", "a", "--steps", "3", "--recipe=b"]
    assert last_value("--recipe", argv) == "b" and last_value("--resume", argv) is None
