"""What help says a default is, the program takes."""

import re
from dataclasses import fields

import pytest
from tyro._docstrings import get_field_docstring

from rfs.config import PARTS, RunConfig
from rfs.run.options import resolved

HELP = {
    item.name: get_field_docstring(part, item.name, ()) or ""
    for part in PARTS
    for item in fields(part)
}


def taken(model, name, **changes):
    return getattr(resolved(RunConfig(model=model, **changes)), name)


@pytest.mark.parametrize("name", ["max_new_tokens", "lr"])
def test_numbers_that_depend_on_the_model(name):
    told = re.search(r"default: (\S+) for the tiny model, else ([^\s);]+)", HELP[name])
    tiny, other = told.groups()
    assert taken("tiny", name) == float(tiny)
    assert taken("base", name) == float(other)


def test_the_rate_of_lora():
    assert "ten times that for LoRA" in " ".join(HELP["lr"].split())
    for model in ("tiny", "base"):
        plain = taken(model, "lr")
        assert taken(model, "lr", lora_rank=4) == pytest.approx(10 * plain)


def test_the_problems():
    tiny, other = re.search(r"default: (\S+), or ([^\s)]+)", HELP["problems"]).groups()
    assert (taken("tiny", "problems"), taken("base", "problems")) == (tiny, other)


def test_the_weight_of_a_sampler_that_lags():
    (cap,) = re.search(r"default: (\d+) if the sampler lags", HELP["truncate_importance"]).groups()
    assert taken("tiny", "truncate_importance", max_steps_off_policy=2) == float(cap)
    assert taken("tiny", "truncate_importance") == 0
    lags = dict(max_steps_off_policy=2, objective="dro")
    assert taken("tiny", "truncate_importance", **lags) == 0
    assert "if it samples in 8 bits and the loss clips or is" in HELP["truncate_importance"]
    assert taken("tiny", "truncate_importance", sampling_weights="int8") == float(cap)


def test_lengths_and_cuts():
    assert "default: max-new-tokens" in HELP["length_constant"]
    assert taken("tiny", "length_constant", max_new_tokens=77) == 77
    assert "default: yes if they cut" in HELP["keep_sampling_mask"]
    assert taken("tiny", "keep_sampling_mask", top_p=0.9) is True
    assert taken("tiny", "keep_sampling_mask") is False
    assert "default: at both ends if --eval-... is given" in HELP["eval_every"]
    assert taken("tiny", "eval_every", eval_limit=7, steps=30) == 30
    assert taken("tiny", "eval_every") == 0
