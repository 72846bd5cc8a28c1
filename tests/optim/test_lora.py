"""LoRA: starts as the model it is put on, merges into it, resumes, and is what peft reads."""

import copy
import json

import pytest
import torch
from safetensors.torch import load_file
from small_model import small_model, with_lora
from torch import nn
from toy import toy_config, toy_model, toy_world, train

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.weights import load_state
from reasoning_from_scratch.optim.lora import (
    LoRALinear,
    add_lora,
    load_lora,
    lora_layers,
    lora_state,
    merge_lora,
    save_peft,
)
from rfs.config import RunConfig
from rfs.run.options import resolved, resumed_config

IDS = torch.randint(0, 13, (3, 9), generator=torch.Generator().manual_seed(0))


def test_it_starts_as_the_model_it_is_put_on():
    model = small_model()
    before, names = model(IDS), set(model.state_dict())
    add_lora(model, 4, 8.0)
    assert torch.equal(model(IDS), before)
    assert names == {n for n in model.state_dict() if "lora" not in n}
    assert len(lora_layers(model)) == 2 * 7
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    assert trained == set(lora_state(model))


@pytest.mark.parametrize("rank", [1, 3, 40])
def test_merged_weights_give_the_same_logits(rank):
    model = with_lora(small_model(), rank)
    plain = merge_lora(model)
    assert not lora_layers(plain) and set(plain.state_dict()) == set(small_model().state_dict())
    assert (model(IDS) - small_model()(IDS)).abs().max() > 0.1
    torch.testing.assert_close(plain(IDS), model(IDS), rtol=1e-5, atol=1e-5)


def test_a_bfloat16_weight_is_rounded_once_when_it_is_merged():
    for layer in lora_layers(with_lora(small_model().bfloat16())).values():
        added = layer.lora_B.double() @ layer.lora_A.double() * (6.0 / 3)
        assert torch.equal(layer.merged_weight(), (layer.weight.double() + added).bfloat16())


def test_a_tied_head_stays_tied():
    model = toy_model(tie_embeddings=True)
    add_lora(model, 2, 4.0)
    plain = merge_lora(model)
    assert plain.out_head.weight is plain.tok_emb.weight


def test_full_rank_reproduces_the_dense_direction():
    """The first change of W = s B A by gradient descent is along the dense gradient."""
    torch.manual_seed(0)
    dense = nn.Linear(12, 20, bias=False)
    x, target = torch.randn(30, 12), torch.randn(30, 20)
    (dense(x) - target).square().mean().backward()
    gradient = dense.weight.grad
    similar = {}
    for rank in (1, 4, 12):
        lora = LoRALinear(copy.deepcopy(dense), rank, 12.0, torch.Generator().manual_seed(1))
        start = lora.merged_weight().detach()
        (lora(x) - target).square().mean().backward()
        with torch.no_grad():
            for parameter in (lora.lora_A, lora.lora_B):
                parameter -= 1e-3 * parameter.grad
        change = start - lora.merged_weight().detach()
        similar[rank] = nn.functional.cosine_similarity(change.flatten(), gradient.flatten(), 0)
    assert similar[12] > 0.9999
    assert similar[1] < similar[4] < similar[12]


def test_twice_is_an_error():
    with pytest.raises(UserError, match="has LoRA already"):
        add_lora(with_lora(small_model()), 2, 4.0)
    with pytest.raises(UserError, match="another --lora-rank"):
        load_lora(with_lora(small_model(), 3), lora_state(with_lora(small_model(), 2)))
    with pytest.raises(UserError, match="no LoRA"):
        save_peft(small_model(), "nowhere", "base")


def test_adapter_folder_has_the_format_of_peft(tmp_path):
    """Names and fields with which peft 0.21 computed our logits (to 1e-5), tried by hand."""
    model = with_lora(small_model())
    save_peft(model, tmp_path, "Qwen/Qwen3-0.6B-Base")
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 3, 6.0)
    projections = "down_proj gate_proj k_proj o_proj q_proj up_proj v_proj"
    assert config["target_modules"] == projections.split()
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    assert len(tensors) == 2 * 2 * 7
    layer = lora_layers(model)["trf_blocks.1.ff.fc3"]
    name = "base_model.model.model.layers.1.mlp.down_proj"
    assert torch.equal(tensors[f"{name}.lora_A.weight"], layer.lora_A)
    assert torch.equal(tensors[f"{name}.lora_B.weight"], layer.lora_B)
    assert "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" in tensors


# ---- in a run


def lora_config(folder, **changes):
    return toy_config(folder, lora_rank=4, lr=3e-3, **changes)


def test_a_run_trains_a_and_b_only_and_saves_merged_weights(tmp_path):
    start = toy_model().state_dict()
    result = train(lora_config(tmp_path / "run"), quiet=True, **toy_world(tmp_path))
    assert any(layer.lora_B.any() for layer in lora_layers(result.model).values())
    state = result.model.state_dict()
    for name, tensor in start.items():
        assert torch.equal(state[name], tensor), name
    saved = load_state(tmp_path / "run" / "checkpoints" / "000004")
    for name, tensor in merge_lora(result.model).state_dict().items():
        assert torch.equal(saved[name], tensor), name
    assert (tmp_path / "run" / "adapter" / "adapter_model.safetensors").is_file()


def test_a_resumed_run_ends_as_the_whole_one(tmp_path):
    config = lora_config(tmp_path / "whole", kl="k3", kl_coef=0.1)
    whole = train(config, quiet=True, **toy_world(tmp_path))
    config = lora_config(tmp_path / "half", kl="k3", kl_coef=0.1)
    config.steps = 2
    train(config, quiet=True, **toy_world(tmp_path))
    rest = train(resumed_config(tmp_path / "half", steps=4), quiet=True, **toy_world(tmp_path))
    assert any(tensor.any() for n, tensor in lora_state(whole.model).items() if "lora_B" in n)
    for name, tensor in lora_state(whole.model).items():
        assert torch.equal(tensor, lora_state(rest.model)[name]), name


def test_the_default_rate_is_ten_times_that_of_all_weights():
    full, lora = (resolved(RunConfig(lora_rank=rank)).lr for rank in (0, 8))
    assert lora == pytest.approx(10 * full)
    assert resolved(RunConfig(lora_rank=8, lr=3e-4)).lr == 3e-4


# ---- weights only


@pytest.mark.parametrize("inside", ["", "checkpoints/000004"])
def test_load_checkpoint_path_takes_the_weights_and_nothing_else(tmp_path, inside):
    first = train(toy_config(tmp_path / "first"), quiet=True, **toy_world(tmp_path))
    config = toy_config(
        tmp_path / "second", lr=0.0, steps=1, load_checkpoint_path=str(tmp_path / "first" / inside)
    )
    second = train(config, quiet=True, **toy_world(tmp_path))
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert [row["step"] for row in second.rows] == [0]
