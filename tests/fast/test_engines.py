"""Which engine samples, for every combination of what could send it the slow way; a slow way is
named, once, with the reason."""

from itertools import product

import pytest
import torch
from small_model import FAMILIES_IN_C, SIZES_IN_C, small_model, with_lora

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast import decoding
from reasoning_from_scratch.fast.decoding import (
    WIDE_VOCABULARY,
    CompiledDecoder,
    Decoder,
    load_library,
)
from reasoning_from_scratch.optim.lora import add_lora
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.sampling import (
    PLAIN_ENGINE,
    Sampling,
    generate,
    sample_next_token,
)
from rfs.config import RunConfig
from rfs.engine import FAST

DTYPES = (torch.float32, torch.bfloat16, torch.float64)
LORA = ("none", "all", "att")
REPLIES = ({}, {"calculator": True}, {"environment": "retry"})
CUTS = ({}, {"top_p": 0.9}, {"top_k": 20})
VOCABULARIES = (96, WIDE_VOCABULARY)


@pytest.fixture(autouse=True)
def said_anew():
    decoding.log_once.cache_clear()


def model_of(family, dtype, lora, vocabulary):
    model = small_model(vocabulary, **{**SIZES_IN_C, "dtype": dtype, **FAMILIES_IN_C[family]})
    if lora == "all":
        with_lora(model)
    elif lora == "att":
        add_lora(model, 2, 4.0, places=("att",))
    return model


@pytest.mark.skipif(load_library(torch.float32) is None, reason="this machine has no C compiler")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES_IN_C)
def test_on_a_cpu_all_but_float64_is_sampled_in_c(family, dtype, caplog):
    in_c = dtype != torch.float64
    for lora, vocabulary in product(LORA, VOCABULARIES):
        model = model_of(family, dtype, lora, vocabulary)
        for replies, cut in product(REPLIES, CUTS):
            sampling = RunConfig(max_new_tokens=40, **replies, **cut)
            engine = FAST.with_partners(sampling, None, [Problem("1", "1 + 1?", "2")])
            assert (engine.make_partner is not None) == bool(replies)
            decoder = engine.make_decoder(model, 4, 100)
            assert type(decoder) is (CompiledDecoder if in_c else Decoder), (lora, replies, cut)
            draw = engine.make_draw(model, 4, 100, bool(cut))
            wide = in_c and vocabulary == WIDE_VOCABULARY
            assert (getattr(draw, "func", draw) is sample_next_token) != wide
    assert caplog.text.count("several times slower, since its weights are in float64") == (not in_c)


def test_a_short_job_takes_the_models_own_steps_without_a_word(caplog):
    assert type(FAST.make_decoder(model_of("Qwen3", torch.float64, "none", 96), 4, 10)) is Decoder
    assert not caplog.text


@pytest.mark.skipif(load_library(torch.float32) is None, reason="this machine has no C compiler")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES_IN_C)
def test_who_asks_for_8_bits_gets_them_however_short_the_job_or_a_sentence(family, dtype):
    make_int8 = FAST.choose_decoder(Sampling(sampling_weights="int8"))
    for lora, vocabulary in product(LORA, VOCABULARIES):
        model = model_of(family, dtype, lora, vocabulary)
        if dtype == torch.float64:
            with pytest.raises(UserError, match="int8 does not work here: .* in float64; drop it"):
                make_int8(model, 4, 10)
        else:
            assert make_int8(model, 4, 10).int8


@pytest.mark.parametrize("change", ["hook", "sizes", "device", "compiler", "engine"])
def test_where_8_bits_cannot_be_nothing_else_takes_their_place(change, monkeypatch):
    model = small_model(97 if change == "sizes" else 96, **SIZES_IN_C)
    says = {"hook": "a hook waits", "sizes": "multiples of 32", "device": "the model is on meta"}
    if change == "hook":
        model.register_forward_hook(lambda *_: None)
    elif change == "device":
        model.to("meta")
    elif change == "compiler":
        monkeypatch.setattr(decoding, "load_library", lambda dtype: None)
    elif change == "engine":
        says[change] = "the plain engine has no weights in 8 bits"
    engine = PLAIN_ENGINE if change == "engine" else FAST
    sampling = Sampling(40, rollouts=2, sampling_weights="int8")
    with pytest.raises(UserError, match=says.get(change, "needs decode.c, which is not there")):
        generate(model, [[1, 2]], sampling, stop_ids={0}, engine=engine)


@pytest.mark.parametrize("change, reason", [("hook", "a hook waits"), ("sizes", "multiples of 32")])
def test_a_slow_way_is_named_once(change, reason, caplog):
    model = small_model(97 if change == "sizes" else 96, **SIZES_IN_C)
    if change == "hook":
        model.register_forward_hook(lambda *_: None)
    for _ in range(3):
        assert type(FAST.make_decoder(model, 4, 100)) is Decoder
    assert caplog.text.count(reason) == 1
