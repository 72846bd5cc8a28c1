"""Recipes: every name of the design, only differences, each with its source."""

import dataclasses
import re
from types import SimpleNamespace

import pytest
import torch

from reasoning_from_scratch.advantages import KINDS
from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.losses import AGGREGATES, OBJECTIVES, policy_loss, step_denominator
from reasoning_from_scratch.recipes import RECIPES, get_recipe
from reasoning_from_scratch.rewards import PARTS

NAMES = [
    "ch06",
    "grpo",
    "grpo_kl",
    "format_reward",
    "dr_grpo",
    "dapo",
    "gspo",
    "cispo",
    "dro",
    "rloo",
    "reinforce",
    "importance_sampling",
    "olmo3",
    "deepseek_v32",
    "gdpo",
]


def config_of(name):
    return dataclasses.replace(TrainConfig(), **RECIPES[name].changes)


def test_all_names_are_there():
    assert set(NAMES) <= set(RECIPES)
    assert RECIPES["grpo"].changes == {}


@pytest.mark.parametrize("name", RECIPES)
def test_a_row_holds_only_differences_of_fields_that_exist(name):
    defaults = dataclasses.asdict(TrainConfig())
    for field, value in RECIPES[name].changes.items():
        assert field in defaults
        assert value != defaults[field], f"{field} is the default already"


@pytest.mark.parametrize("name", RECIPES)
def test_a_row_cites_its_source_with_a_year(name):
    recipe = RECIPES[name]
    assert recipe.about and (re.search(r"\b(19|20)\d\d\b", recipe.paper) or "book" in recipe.paper)
    for number in re.findall(r"arXiv:(\S+)", recipe.paper):
        assert re.fullmatch(r"\d{4}\.\d{5}[,;]?", number)


@pytest.mark.parametrize("name", RECIPES)
def test_every_row_gives_a_finite_loss_with_a_gradient(name):
    config = config_of(name)
    assert config.objective in OBJECTIVES and config.aggregate in AGGREGATES
    assert config.advantage in KINDS and set(config.reward_parts) <= set(PARTS)
    assert config.clip_low < 1 < config.clip_high  # absolute ratios
    logprobs = torch.tensor([[-1.0, -2.0], [-0.5, -1.0]], requires_grad=True)
    old = logprobs.detach() + 1e-5
    denominator = step_denominator(config.aggregate, 2, 4, config.length_constant or 64)
    loss, _ = policy_loss(
        logprobs,
        old,
        torch.tensor([1.0, -1.0]),
        torch.ones(2, 2),
        config,
        denominator,
        ref_logprobs=old - 0.1,
    )
    loss.backward()
    assert torch.isfinite(loss) and (logprobs.grad != 0).all()


def test_what_some_rows_say():
    changes = SimpleNamespace(**{name: recipe.changes for name, recipe in RECIPES.items()})
    assert changes.dapo["clip_high"] == 1.28 and changes.dapo["aggregate"] == "token"
    assert (changes.cispo["clip_low"], changes.cispo["clip_high"]) == (0.0, 4.0)
    assert changes.gspo["clip_low"] == pytest.approx(0.9997)
    assert changes.dr_grpo == {"advantage": "mean", "aggregate": "constant"}
    assert changes.ch06["temperature"] == 0.8 and changes.ch06["top_p"] == 0.9
    assert config_of("ch06").kl == "none" and config_of("dro").dro_beta == 0.05
    assert changes.deepseek_v32["kl_importance_weighted"] and changes.gdpo["advantage_per_part"]


@pytest.mark.parametrize("typed, meant", [("grp", "grpo"), ("dapoo", "dapo"), ("olmo", "olmo3")])
def test_an_unknown_name_is_answered_with_the_nearest(typed, meant):
    with pytest.raises(UserError, match=f"did you mean '{meant}'"):
        get_recipe(typed)
