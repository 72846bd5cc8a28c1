"""Recipes: every name of the design, only differences, each with its source."""

import dataclasses
import re

import pytest

from reasoning_from_scratch.recipes import RECIPES
from rfs.config import RunConfig
from rfs.run.options import configure

NAMES = """
    ch06 grpo grpo_kl format_reward dr_grpo dapo gspo cispo dro rloo reinforce importance_sampling
    olmo3 deepseek_v32 gdpo pods
""".split()


def test_all_names_are_there():
    assert set(NAMES) <= set(RECIPES)
    assert RECIPES["grpo"].changes == {}


@pytest.mark.parametrize("name", RECIPES)
def test_a_row_holds_only_differences_of_fields_that_exist(name):
    defaults = dataclasses.asdict(RunConfig())
    for field, value in RECIPES[name].changes.items():
        assert field in defaults
        assert value != defaults[field], f"{field} is the default already"


@pytest.mark.parametrize("name", RECIPES)
def test_a_row_cites_its_source_with_a_year(name):
    recipe = RECIPES[name]
    assert recipe.about and (re.search(r"\b(19|20)\d\d\b", recipe.paper) or "book" in recipe.paper)
    for number in re.findall(r"arXiv:(\S+)", recipe.paper):
        assert re.fullmatch(r"\d{4}\.\d{5}[,;]?", number)


def test_what_some_rows_say():
    changes = {name: recipe.changes for name, recipe in RECIPES.items()}
    assert changes["dapo"]["clip_high"] == 1.28 and changes["dapo"]["aggregate"] == "token"
    assert (changes["cispo"]["clip_low"], changes["cispo"]["clip_high"]) == (0.0, 4.0)
    assert changes["gspo"]["clip_low"] == pytest.approx(0.9997)
    assert changes["dr_grpo"] == {"advantage": "mean", "aggregate": "constant"}
    assert changes["ch06"]["temperature"] == 0.8 and changes["ch06"]["top_p"] == 0.9
    assert changes["deepseek_v32"]["kl_importance_weighted"]
    assert changes["gdpo"]["advantage_per_part"]
    assert configure("ch06").kl == "none" and configure("dro").dro_beta == 0.05


def test_a_configuration_s_parts_are_its_own():
    """What is changed in one does not reach the recipe."""
    configure("dapo").reward_parts["format"] = 9.0
    assert "format" not in configure("dapo").reward_parts
