"""How a configuration is made, in layers. Each field remembers the layer that set it.

    configure("dapo", steps=50)     the defaults, then what the recipe changes, then what you change
    resolved(config)                checked, and with a value wherever one was left open
    resumed_config("runs/my-run")   that run's configuration, to continue it

option_checks.py refuses what cannot work.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from reasoning_from_scratch.config import fields_marked
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.model_names import base_model_of, is_model_name
from reasoning_from_scratch.problem_sets import GUESS
from reasoning_from_scratch.problems import is_file_function, refuse_bare_file
from reasoning_from_scratch.recipes import Recipe, get_recipe, loss_fn_changes
from reasoning_from_scratch.text import expand_home, read_json_object
from rfs.config import DERIVED, EVALUATES, YOU, RunConfig
from rfs.files.saved_models import run_and_save
from rfs.run.option_checks import (
    check,
    check_loss_fn,
    check_types,
    refuse_ineffective,
)
from rfs.tasks.own_task import forget_changed_files, recipe_from_file
from rfs.tasks.problem_sets import held_out

# Values for fields left at None, by model. "tiny" is any of the shipped tiny models.
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"problems": "tiny", "max_new_tokens": 160, "lr": 1e-4},
    "qwen3": {"problems": "math-train", "max_new_tokens": 512, "lr": 1e-6},
}

# An environment that is a game has problems of its own, and a model that knows its rules.
GAMES: dict[Any, dict[str, Any]] = {"guess": {"model": "tiny-player", "problems": GUESS}}

TINY_VOCABULARY = 10_000  # Qwen3 has 151,936 tokens, the tiny model 1,024
LORA_FACTOR = 10.0  # LoRA Without Regret, Thinking Machines Lab, 2025
SUPERVISED_LR = 1e-5  # at least: solutions allow larger steps than rewards
PRESET = "the model and the problems"  # the layer of values that suit these two
USUAL_CAP = 2.0  # on p_start / p_sampler if the sampler lags or samples in 8 bits

# --smoke: at most this much of everything.
SMOKE: dict[str, Any] = {
    "steps": 2,
    "problems_per_step": 2,
    "num_substeps": 1,
    "num_minibatches": 2,
    "rollouts": 4,
    "train_rollouts": 2,
    "max_new_tokens": 128,
    "epochs": 1,
    "eval_limit": 8,
    "problem_limit": 64,
}


def configure(recipe: str = "grpo", loss_fn: str | None = None, **changes: object) -> RunConfig:
    """The defaults, then what the recipe changes, then Tinker's loss, then what you change. A game
    brings along its problems and its player."""
    row, loss = deepcopy(recipe_row(recipe).changes), loss_fn_changes(loss_fn)
    game = (row | loss | changes).get("environment")
    layers: list[tuple[str, Mapping[str, Any]]] = [
        (f"the game {game}", GAMES.get(game, {})),
        (f"recipe {recipe}", {"recipe": recipe} | row),
        (f"loss {loss_fn}", loss),
        (YOU, changes),
    ]
    config = RunConfig()
    for layer, values in layers:
        config = config.with_layer(layer, **values)
    check_loss_fn(loss_fn, config)
    return config


def recipe_row(name: str) -> Recipe:
    """The row of that name, or of FILE.py:NAME."""
    refuse_bare_file(name, "recipe")
    if not is_file_function(name):
        return get_recipe(name)
    forget_changed_files()
    return recipe_from_file(name)


def resumed_config(path: str | Path, **changes: object) -> RunConfig:
    """The configuration with which `train` continues the run in `path`."""
    from rfs.run.folder import RunFolder  # late: it imports torch

    folder = RunFolder(path)
    if folder.first_config_values().get("served"):
        raise UserError(
            f"{path} was trained by a client of rfs serve, which alone can continue it; to train "
            f"on from its weights: --model {path} --out FOLDER"
        )
    saved = folder.read_config()
    # What was derived from the old settings is derived anew from the changed ones.
    reset: dict[str, Any] = {"resume": str(path), "overwrite": False, "smoke": False}
    reset |= dict.fromkeys(derived_fields(saved))
    config = replace(saved, **reset).with_layer(YOU, **changes)
    refuse_ineffective(config)
    return config


def derived_fields(saved: RunConfig) -> list[str]:
    """The fields that other settings decided. A run of an earlier version does not say which."""
    if saved.set_by:
        return [name for name, layer in saved.set_by.items() if layer == DERIVED]
    return [name for name, v in derived_values(saved).items() if getattr(saved, name) == v]


def preset(model: str) -> dict[str, Any]:
    """The values that suit `model`, judged by its folder's configuration, or else by its name."""
    model = base_model_of(model) or model
    tiny = Path(model).name.startswith("tiny")
    for path in () if is_model_name(model) else config_files(model):
        size = read_json_object(path).get("vocab_size")
        if isinstance(size, int):  # of a run: each of its saves says the same
            tiny = size < TINY_VOCABULARY
            break
    return PRESETS["tiny" if tiny else "qwen3"]


def config_files(model: str) -> Iterator[Path]:
    """The config files of a folder: its own and, if it is a run, those of its saves."""
    folder = run_and_save(model)[0] or expand_home(model)
    yield folder / "config.json"
    yield from folder.glob("checkpoints/*/config.json")


def resolved(config: RunConfig) -> RunConfig:
    """A checked copy in which every open field has a value that follows from the given ones."""
    check_types(config)
    # A field that was set to None is open.
    set_by = {k: layer for k, layer in config.set_by.items() if getattr(config, k) is not None}
    config = replace(config, set_by=set_by)
    values = preset(config.model) | GAMES.get(config.environment, {})
    if config.data_path and config.problems is None:  # a file alone is the problem set
        config = config.with_layer(YOU, problems=config.data_path, data_path=None)
    # Held-out problems of another task would measure nothing, and a resumed run that is given other
    # problems would train on those that its new set holds out.
    if "problems" in config.given and config.set_by.get("eval_problems") == PRESET:
        config = replace(config, eval_problems=None)
    if config.eval_problems is None:  # this may have to ask the hub
        values = values | {"eval_problems": [held_out(config.problems or values["problems"])]}
    if config.is_supervised:
        values = values | {"lr": max(values["lr"], SUPERVISED_LR)}
    if config.lora_rank:
        values = values | {"lr": lora_learning_rate(values["lr"])}
    # If options say how to evaluate but not when: at the start and at the end.
    evaluates = config.given & {*fields_marked(RunConfig, EVALUATES)}
    values = values | {"eval_every": config.steps if evaluates else 0}
    config = fill_open_fields(config, PRESET, values)
    if "overlong_penalty" not in config.given:  # a recipe does not know this model's limit
        config = capped(config, "the longest answer", overlong_penalty=config.max_new_tokens)
    check(config)
    if not config.resume:  # a resumed run's values were checked when it began
        refuse_ineffective(config)
        check_recipe(config)
    if config.smoke:
        config = capped(config, "smoke", **SMOKE)
    return fill_open_fields(config, DERIVED, derived_values(config))


def derived_values(config: RunConfig) -> dict[str, Any]:
    """Values that follow from other fields, unless they are given."""
    is_capped = config.has_usual_cap and not config.mask_importance
    return {
        "length_constant": float(config.max_new_tokens or 0),
        "keep_sampling_mask": config.cuts_tokens,
        "truncate_importance": USUAL_CAP if is_capped else 0.0,
    }


def lora_learning_rate(lr: float) -> float:
    """LoRA's best learning rate, from that of training all weights. It hardly depends on the rank,
    because alpha / rank makes up for more directions moving at once."""
    return LORA_FACTOR * lr


def fill_open_fields(config: RunConfig, layer: str, values: dict[str, Any]) -> RunConfig:
    """A copy with `values` where the configuration has None."""
    fills = {k: v for k, v in values.items() if getattr(config, k) is None and v is not None}
    return config.with_layer(layer, **fills)


def capped(config: RunConfig, layer: str, **caps: Any) -> RunConfig:
    """A copy with these fields capped; a field that is None gets its cap."""
    values = {name: getattr(config, name) for name in caps}
    exceeded = {k: cap for k, cap in caps.items() if values[k] is None or values[k] > cap}
    return config.with_layer(layer, **exceeded)


def check_recipe(config: RunConfig) -> None:
    """Refuse a recipe if none of its choices are set, so that its name would mislead."""
    row, default = recipe_row(config.recipe).changes, RunConfig()
    if row and all(getattr(config, name) == getattr(default, name) for name in row):
        raise UserError(
            f"--recipe {config.recipe} is named, but none of its choices are set: other flags "
            f"replace them, or in Python configure({config.recipe!r}, ...) is missing"
        )
