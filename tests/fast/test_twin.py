"""A model's twin gives the same tokens, and only what should be is packed or joined."""

import pytest
import torch
from small_model import drawn, small_model

from reasoning_from_scratch.fast import twin as twins
from reasoning_from_scratch.fast.twin import JoinedAttention, PackedLinear, twin_for_decoding
from reasoning_from_scratch.optim.lora import add_lora
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.run.memory import checkpoint_blocks

needs_onednn = pytest.mark.skipif(
    not twins._can_pack(torch.float32), reason="this build of torch has no oneDNN"
)


@pytest.fixture
def everything_is_large(monkeypatch):
    monkeypatch.setattr(twins, "SMALLEST", 1)
    monkeypatch.setattr(twins, "FEWEST_STEPS", 1)


def packed_layers(model):
    return [part for part in model.modules() if isinstance(part, PackedLinear)]


def joined(model):
    return [part for part in model.modules() if type(part) is JoinedAttention]


@needs_onednn
@pytest.mark.parametrize("settings", [{"temperature": 0.0}, {}, {"top_p": 0.8}, {"top_k": 4}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_tokens(settings, dtype, everything_is_large, monkeypatch):
    if not twins._can_pack(dtype):
        pytest.skip("this processor has no bfloat16")
    model = small_model().to(dtype)
    assert len(packed_layers(twin_for_decoding(model, 5, 40))) == 2 * 4 + 1
    packed_ids, packed_logprobs = drawn(model, **settings)
    monkeypatch.setattr(twins, "FEWEST_STEPS", 2**60)
    assert twin_for_decoding(model, 5, 40) is model
    plain_ids, plain_logprobs = drawn(model, **settings)
    assert packed_ids == plain_ids
    assert packed_logprobs == pytest.approx(plain_logprobs, abs=1e-5)


@pytest.mark.parametrize("rank", [0, 2])
def test_the_same_tokens_where_nothing_is_packed(rank, monkeypatch):
    """LoRA's layers are no matrices that could be packed; their outputs can be joined."""
    model = small_model()
    if rank:
        add_lora(model, rank, alpha=4.0)
        with torch.no_grad():
            for block in model.trf_blocks:
                block.att.W_query.lora_B.normal_()
    with torch.no_grad():  # what is joined wrongly shows only if the two norms differ
        model.trf_blocks[0].att.k_norm.scale.mul_(3)
    twin = twin_for_decoding(model, 5, 40)
    assert len(joined(twin)) == len(model.trf_blocks) and not packed_layers(twin)
    ids, logprobs = drawn(model)
    monkeypatch.setattr(twins, "FEWEST_STEPS", 2**60)
    plain_ids, plain_logprobs = drawn(model)
    assert ids == plain_ids and logprobs == pytest.approx(plain_logprobs, abs=1e-5)


@needs_onednn
def test_the_model_itself_stays_as_it_is(everything_is_large):
    model = small_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    checkpoint_blocks(model)
    twin = twin_for_decoding(model, 5, 40)
    assert not packed_layers(model) and packed_layers(twin)
    assert twin.tok_emb is not model.tok_emb and twin.tok_emb.weight is model.tok_emb.weight
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.trf_blocks[0].recompute  # still checkpointed
    with torch.no_grad():
        ids = torch.tensor([[1, 2, 3]])
        assert torch.allclose(model(ids), twin(ids), atol=1e-5)
        model.trf_blocks[0].ff.fc1.weight.mul_(2)  # an update is seen by the next call only
        assert not torch.allclose(model(ids), twin(ids), atol=1e-5)
        assert torch.allclose(model(ids), twin_for_decoding(model, 5, 40)(ids), atol=1e-5)


@needs_onednn
def test_lora_is_left_as_it_is(everything_is_large):
    model = small_model()
    add_lora(model, rank=2, alpha=4.0)
    assert len(packed_layers(twin_for_decoding(model, 5, 40))) == 1  # the head


@needs_onednn
def test_one_row_alone_needs_larger_matrices(monkeypatch):
    model = small_model()
    monkeypatch.setattr(twins, "SMALLEST", 1)
    assert not packed_layers(twin_for_decoding(model, 1, 40))
    assert packed_layers(twin_for_decoding(model, 2, 40))
    monkeypatch.setattr(twins, "SMALLEST_FOR_ONE_ROW", 1)
    assert packed_layers(twin_for_decoding(model, 1, 40))


def test_what_is_not_packed(monkeypatch):
    model = small_model()
    assert not packed_layers(twin_for_decoding(model, 5, 40))
    monkeypatch.setattr(twins, "SMALLEST", 1)
    assert twin_for_decoding(model, 5, twins.FEWEST_STEPS - 1) is model
    monkeypatch.setattr(twins, "_can_pack", lambda dtype: False)
    assert not packed_layers(twin_for_decoding(model, 5, 40))


def test_a_sharded_model_has_no_twin():
    model = small_model()
    model.final_norm.scale.device_mesh = "as FSDP2's weights have"
    assert twin_for_decoding(model, 5, 40) is model


def test_norms_that_cannot_be_joined_stay_apart():
    model = Qwen3Model(small_model().cfg | {"qk_norm": False})
    assert not joined(twin_for_decoding(model, 5, 40))
