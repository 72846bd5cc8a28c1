"""Recipes, flags, presets and resumed runs combine as promised; what cannot work is named."""

import json

import pytest

from reasoning_from_scratch.config import CLIPPING, OBJECTIVES
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.recipes import RECIPES
from rfs.commands.train_options import TrainOptions
from rfs.config import RunConfig, from_json, part_of, replaced, to_json
from rfs.run.folder import RunFolder
from rfs.run.options import configure, resolved, resumed_config

# ---- what a recipe, an evaluation or a resumed run brings along


def test_what_a_recipe_brings_along_is_not_refused():
    resolved(configure("grpo_kl", kl="none"))
    resolved(configure("cispo", objective="reinforce"))
    resolved(configure("rloo", aggregate="token"))
    resolved(resolved(configure("dapo", model="tiny")))  # what was filled in was not given
    resolved(configure("deepseek_v32", kl="none", kl_coef=0.0, kl_importance_weighted=False))
    with pytest.raises(UserError, match="none of its choices are set"):
        resolved(configure("grpo_kl", kl="none", kl_coef=0.0))  # that is grpo
    assert resolved(configure("dapo", max_new_tokens=8)).overlong_penalty == 8
    with pytest.raises(UserError, match="--kl-coef 0.1 does nothing"):
        resolved(configure("grpo_kl", kl="none", kl_coef=0.1))
    with pytest.raises(UserError, match="--clip-high 1.3 does nothing"):
        resolved(configure("dapo", clip_high=1.3))


@pytest.mark.parametrize(
    "changes, every",
    [
        ({}, 0),
        ({"eval_limit": 8}, 7),
        ({"eval_samples": 4}, 7),
        ({"eval_problems": "gsm8k-test"}, 7),
        ({"eval_limit": 8, "eval_every": 2}, 2),
    ],
)
def test_how_to_evaluate_without_when_is_at_the_start_and_at_the_end(changes, every):
    assert resolved(RunConfig(steps=7, **changes)).eval_every == every


def test_an_evaluation_is_asked_for_with_the_default_number_too():
    assert TrainOptions.read(["--eval-limit", "100"]).given == {"eval_limit"}
    assert resolved(configure(steps=7, eval_limit=100)).eval_every == 7
    assert resolved(configure(steps=7, eval_problems=None)).eval_every == 0
    read = from_json(to_json(resolved(configure(aggregate="constant"))))
    assert read.given == set() and resolved(read) == read


LAYERS = [
    (dict(recipe="dapo"), "clip_high", "recipe dapo"),
    (dict(recipe="dapo", clip_high=1.3, epochs=2), "clip_high", "you"),
    (dict(recipe="dapo", clip_high=1.28, epochs=2), "clip_high", "you"),  # the same value
    (dict(recipe="dapo", max_new_tokens=8), "overlong_penalty", "the longest answer"),
    (dict(loss_fn="ppo"), "aggregate", "loss ppo"),
    (dict(environment="guess"), "problems", "the game guess"),
    (dict(environment="guess", problems="tiny"), "problems", "you"),
    (dict(), "lr", "the model and the problems"),
    (dict(lr=None), "lr", "the model and the problems"),
    (dict(aggregate="constant"), "length_constant", "other settings"),
    (dict(aggregate="constant", length_constant=7.0), "length_constant", "you"),
    (dict(steps=50, smoke=True), "steps", "smoke"),
    (dict(), "temperature", None),
]


@pytest.mark.parametrize("asked, name, layer", LAYERS)
def test_each_field_knows_which_layer_set_it(asked, name, layer):
    assert resolved(configure(**asked)).set_by.get(name) == layer


def test_a_run_remembers_who_set_what_and_what_followed_follows_again(tmp_path):
    folder = RunFolder(tmp_path / "run")
    asked = dict(aggregate="constant", max_new_tokens=100, truncate_importance=2.0)
    first = resolved(configure("grpo", **asked, sampling_weights="int8"))
    assert (first.length_constant, first.set_by["truncate_importance"]) == (100.0, "you")
    folder.create(replaced(first, log_path=str(folder.path)))
    folder.close()
    again = resolved(resumed_config(folder.path, max_new_tokens=50, sampling_weights="same"))
    assert again.length_constant == 50.0 and again.truncate_importance == 2.0
    assert again.set_by["max_new_tokens"] == "you"
    assert again.set_by["truncate_importance"] == "you, when the run began"


@pytest.mark.parametrize("model", ["tiny", "base"])
@pytest.mark.parametrize(
    "problems, test_set",
    [
        ("gsm8k", "gsm8k-test"),
        ("math-train", "math-500"),
        ("tiny", "tiny-test"),
        ("ch07/my_task.py:problems", "ch07/my_task.py:test_problems"),
        ("my/problems.jsonl", "my/problems.jsonl@held-out"),
        (None, None),
    ],
)
def test_the_evaluation_set_follows_the_problems(model, problems, test_set):
    test_set = test_set or {"tiny": "tiny-test", "base": "math-500"}[model]
    config = resolved(RunConfig(model=model, problems=problems, eval_every=1))
    assert config.eval_problems == [test_set]
    other = resolved(replaced(config, eval_problems="tiny-longer"))
    assert other.eval_problems == ["tiny-longer"]


def test_several_sets_on_the_command_line():
    words = "--eval-problems tiny-test tiny-longer --evaluators a.py:f b.py:g --eval-every 2"
    config = part_of(TrainOptions.read(words.split()), RunConfig)
    assert config.eval_problems == ["tiny-test", "tiny-longer"]
    assert config.evaluators == ["a.py:f", "b.py:g"]
    assert from_json(json.loads(json.dumps(to_json(config)))) == config
    before = to_json(config) | {"eval_problems": "tiny-test", "evaluators": None}
    assert from_json(before).eval_problems == ["tiny-test"], "as runs of version 0.1.0 have it"


def test_where_cuts_are_the_mask_is_kept_and_where_the_sampler_lags_the_clip_has_a_weight():
    assert not resolved(configure("grpo")).keep_sampling_mask
    assert resolved(configure("grpo", top_p=0.9)).keep_sampling_mask
    assert resolved(configure("dapo", top_k=20)).keep_sampling_mask
    assert not resolved(configure("grpo", top_p=0.9, keep_sampling_mask=False)).keep_sampling_mask
    assert not resolved(configure("ch06")).keep_sampling_mask, "as the book's first GRPO"
    weights = {
        name: resolved(configure(name, max_steps_off_policy=3)).truncate_importance
        for name in RECIPES
        if name != "sft"  # nothing is sampled
    }
    clipping = {name for name in RECIPES if resolved(configure(name)).objective in CLIPPING}
    masks = {"mis"}  # it has another weight
    assert {name for name, weight in weights.items() if weight} == clipping - masks
    assert resolved(configure("grpo")).truncate_importance == 0


def test_where_the_sampler_has_8_bits_the_loss_has_a_weight():
    """Unless its ratio is to the sampler, or the weight is a mask, or was given."""
    weights = {
        objective: resolved(
            configure(objective=objective, sampling_weights="int8", epochs=2)
        ).truncate_importance
        for objective in OBJECTIVES
        if objective != "cross_entropy"  # nothing is sampled
    }
    assert {name for name, weight in weights.items() if weight == 2} == {*CLIPPING, "reinforce"}
    for given in ({"mask_importance": 2.0}, {"truncate_importance": 0.0}):
        assert resolved(configure(sampling_weights="int8", **given)).truncate_importance == 0


def test_smoke_makes_everything_small_and_nothing_larger():
    large = RunConfig(model="base", smoke=True, steps=500, rollouts=2, num_minibatches=4)
    config = resolved(large)
    assert config.num_minibatches <= config.problems_per_step  # each part has a problem
    assert (config.steps, config.rollouts, config.max_new_tokens) == (2, 2, 128)
    assert config.problem_limit == 64 and config.problems_per_step == 2


# ---- the command line


def test_flags_win_over_recipe_over_defaults():
    config = TrainOptions.read(["--recipe", "dapo", "--clip-high", "1.5", "--steps=3"])
    assert config.recipe == "dapo" and config.aggregate == "token"  # the recipe's
    assert config.clip_high == 1.5 and config.steps == 3  # the flags'
    assert config.advantage == "zscore"  # the default
    assert TrainOptions.read(["--recipe=gdpo"]).reward_parts == {"correct": 1.0, "format": 1.0}
    parts = TrainOptions.read(["--reward-parts", "correct=1", "format=0.25"]).reward_parts
    assert parts == {"correct": 1.0, "format": 0.25}


def test_resumed_runs_keep_their_settings(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create(configure("dapo", steps=5, log_path=str(folder.path)))
    config = TrainOptions.read(["--resume", str(folder.path), "--steps", "9"])
    assert (config.recipe, config.aggregate, config.steps) == ("dapo", "token", 9)
    assert config.resume == str(folder.path)
    with pytest.raises(UserError, match="drop --recipe"):
        TrainOptions.read(["--resume", str(folder.path), "--recipe", "grpo"])
    with pytest.raises(UserError, match="drop --loss-fn"):
        TrainOptions.read(["--resume", str(folder.path), "--loss-fn", "ppo"])


# ---- a game brings along its problems and its player


@pytest.mark.parametrize(
    "words, model, problems",
    [
        ("", "tiny-player", "guess"),
        ("--model tiny-base", "tiny-base", "guess"),
        ("--problems tiny", "tiny-player", "tiny"),
        ("--recipe dr_grpo", "tiny-player", "guess"),
    ],
)
def test_an_environment_that_is_a_game(words, model, problems):
    config = resolved(TrainOptions.read(["--environment", "guess", *words.split()]))
    assert (config.model, config.problems, config.environment) == (model, problems, "guess")
    assert config.eval_problems == ["guess" if problems == "guess" else "tiny-test"]


def test_without_a_game_nothing_changes():
    for words in ([], ["--environment", "retry"]):
        assert TrainOptions.read(words).model == "tiny-base"
    assert configure(environment="guess").model == "tiny-player"


def test_parts_of_an_environments_reward_are_taken_on_the_command_line():
    words = ["--environment", "guess", "--reward-parts", "correct=1", "speed=0.5"]
    assert resolved(TrainOptions.read(words)).reward_parts == {"correct": 1.0, "speed": 0.5}
    with pytest.raises(UserError, match="unknown reward part 'sped'"):
        resolved(TrainOptions.read(["--reward-parts", "correct=1", "sped=0.5"]))


def test_what_followed_from_old_settings_follows_from_new_ones(tmp_path):
    """Unless it was given: then it stays."""

    def resumed(changes, **first):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        RunFolder(folder).write_config(to_json(resolved(configure("grpo", **first))))
        return resolved(resumed_config(folder, **changes))

    assert resumed({"top_p": 0.8}).keep_sampling_mask
    assert not resumed({"top_p": 0.8}, top_p=0.9, keep_sampling_mask=False).keep_sampling_mask
    assert resumed({"max_steps_off_policy": 2}).truncate_importance == 2
    assert resumed({"max_steps_off_policy": 2}, truncate_importance=3.0).truncate_importance == 3
    masked = resumed({"mask_importance": 2.0}, max_steps_off_policy=2)
    assert (masked.mask_importance, masked.truncate_importance) == (2, 0)
    assert resumed({"max_new_tokens": 40}, aggregate="constant").length_constant == 40
    kept = resumed({"max_new_tokens": 40}, aggregate="constant", length_constant=7.0)
    assert kept.length_constant == 7
    again = resumed({}, top_p=0.9, max_steps_off_policy=2)
    assert again.keep_sampling_mask and again.truncate_importance == 2


def test_what_a_client_trained_is_not_resumed(tmp_path):
    served = to_json(configure("grpo")) | {"served": {"id": "a:train:0"}}
    RunFolder(tmp_path).write_config(served)
    with pytest.raises(UserError, match="by a client of rfs serve.*--model"):
        resumed_config(tmp_path)
