"""Qwen2.5's and Llama's rows of the model table, with all that trains and samples."""

from copy import deepcopy

import pytest
import torch
from small_model import FAMILIES, PROMPTS, drawn, small_model, uneven, with_lora
from toy import toy_config, toy_model, toy_problems, toy_tokenizer, train

from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.files.tensor_files import read_json
from reasoning_from_scratch.logprobs import padded_logprobs
from reasoning_from_scratch.optim.lora import merge_lora
from reasoning_from_scratch.rollouts import make_batch
from reasoning_from_scratch.sampling import PLAIN_ENGINE, Rollout
from rfs.files.models import load_model_and_tokenizer


@pytest.fixture(params=FAMILIES)
def model(request):
    return uneven(small_model(**FAMILIES[request.param]))


def test_the_fast_sampler_draws_what_the_plain_one_draws(model):
    assert drawn(model)[0] == drawn(model, engine=PLAIN_ENGINE)[0]


def test_packed_rows_give_the_gradients_of_padded_ones(model):
    rollouts = [
        Rollout(prompt_ids=prompt, response_ids=answer, logprobs=[0.0] * len(answer))
        for prompt in PROMPTS
        for answer in ([1, 2, 3, 4], [5, 6])
    ]
    batch, found = make_batch(rollouts), []
    for compute in (packed_logprobs, padded_logprobs):
        model.zero_grad()
        logprobs = compute(model, batch)
        (logprobs * batch.mask).sum().backward()
        found.append([logprobs, *(weight.grad for weight in model.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_lora_begins_as_the_model_and_merges_with_its_bias(model):
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    before = model(ids)
    assert torch.equal(with_lora(deepcopy(model), size=0)(ids), before)
    with_lora(model)
    assert (model(ids) - before).abs().max() > 0.01
    torch.testing.assert_close(merge_lora(model)(ids), model(ids), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "options",
    [
        {"gradient_checkpointing": True},
        {"optimizer": "muon"},
        {"dtype": "bfloat16", "low_precision_updates": "stochastic"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_a_run_saves_its_own_family(tmp_path, family, options):
    dtype = getattr(torch, options.get("dtype", "float32"))
    model = toy_model(**FAMILIES[family], dtype=dtype)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    config = toy_config(tmp_path / "run", steps=2, report_every=0, lr=1e-2, **options)
    given = {"tokenizer": toy_tokenizer(tmp_path), "problems": toy_problems()}
    result = train(config, model=model, **given)
    assert any(not torch.equal(before[n], w) for n, w in result.model.state_dict().items())
    saved, _ = load_model_and_tokenizer(tmp_path / "run")
    for name, weight in result.model.state_dict().items():
        assert torch.equal(weight, saved.state_dict()[name]), name
    *_, place = sorted((tmp_path / "run").glob("checkpoints/*/config.json"))
    assert read_json(place)["model_type"] == family
