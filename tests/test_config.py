"""Each field is in one part of a configuration, and a part is all that a room needs."""

import ast
import dataclasses
import inspect
import json

import pytest

from reasoning_from_scratch.config import (
    Drawing,
    Loss,
    Optim,
    TrainConfig,
    check_numbers,
    field_facts,
    fields_marked,
)
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.facts import AS_TRAINED, Needs
from rfs.config import PARTS, RunConfig, from_json, replaced, to_json
from rfs.run.options import configure


def test_every_field_belongs_to_exactly_one_part():
    names = [field.name for part in PARTS for field in dataclasses.fields(part)]
    every = {field.name for field in dataclasses.fields(RunConfig)}
    assert set(names) == every - {"set_by"}
    assert len(set(names)) == len(names)
    config = RunConfig()
    assert all(isinstance(config, part) for part in PARTS)
    for part in PARTS:  # whose defaults are those of the whole
        assert all(getattr(config, name) == value for name, value in vars(part()).items())


def sentences_of(part):
    """The string under each field of a part, from its source."""
    helped = {}
    for base in part.__mro__[:-1]:
        body = ast.parse(inspect.getsource(base)).body[0].body
        helped |= {
            field.target.id: text.value.value
            for field, text in zip(body, body[1:], strict=False)
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
        }
    return helped


# Read while the tests are collected, before any test starts a thread: Python 3.11's ast.parse now
# and then fails with a SystemError while another thread parses, too, as one does that formats a
# traceback (github.com/python/cpython/issues/106905).
SENTENCES = [(part, sentences_of(part)) for part in PARTS]


@pytest.mark.parametrize("part, sentences", SENTENCES)
def test_every_field_has_a_sentence_of_help(part, sentences):
    assert sentences.keys() == {field.name for field in dataclasses.fields(part)}
    assert all(text.endswith(".") for text in sentences.values())


def test_what_a_field_needs_is_another_or_a_property():
    facts = [fact for facts in field_facts(RunConfig).values() for fact in facts]
    needs = {fact.name for fact in facts if isinstance(fact, Needs)}
    assert len(needs) > 10 and all(hasattr(RunConfig, name) for name in needs)


def test_a_field_that_a_subclass_repeats_keeps_its_facts():
    @dataclasses.dataclass
    class Longer(Drawing):
        max_new_tokens: int = 2048

    assert fields_marked(Longer, AS_TRAINED) == ["max_new_tokens"]
    with pytest.raises(UserError, match="^max_new_tokens is 0, but must be at least 1$"):
        check_numbers(Longer(max_new_tokens=0))
    check_numbers(TrainConfig(max_new_tokens=0), Loss)  # of a part only


def test_json_round_trip():
    config = configure("gdpo", steps=7, seed=3)
    assert from_json(json.loads(json.dumps(to_json(config)))) == config
    assert from_json({"steps": 7, "versions": {}, "from_the_future": 1}).steps == 7


def test_a_run_of_a_version_that_had_loss_fn_is_read():
    values = {"loss_fn": "cispo", "objective": "cispo", "aggregate": "sum", "clip_high": 4.0}
    assert from_json(values) == RunConfig(objective="cispo", aggregate="sum", clip_high=4.0)


def test_a_part_is_replaced_like_the_whole():
    assert replaced(Optim(), lr=0.5) == Optim(lr=0.5)
    with pytest.raises(UserError, match="unknown field of Optim 'temperature'"):
        replaced(Optim(), temperature=0.5)
