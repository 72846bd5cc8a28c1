"""Our model against those of transformers, of each family, with the same random weights."""

import pytest
import torch
import transformers
from small_model import LLAMA_3
from torch._subclasses.fake_tensor import FakeTensorMode
from toy import TOY_CONFIG

from reasoning_from_scratch.files.tensor_files import config_to_hf
from reasoning_from_scratch.qwen3 import (
    QWEN_CONFIG_06_B,
    KVCache,
    Qwen3Model,
    RMSNorm,
    apply_rope,
    attention,
    compute_rope_params,
    load_hf_weights_into_qwen,
)

SIZES = "emb_dim n_heads n_kv_groups head_dim n_layers hidden_dim vocab_size rope_base".split()
SIZES += ["tie_embeddings"]
GEOMETRIES = {
    "one kv group, tied": (32, 4, 1, 8, 2, 64, 61, 1e6, True),
    "one kv group, untied, wide heads": (32, 4, 1, 16, 2, 48, 61, 1e4, False),
    "two kv groups, tied": (48, 6, 2, 16, 3, 80, 97, 1e6, True),
    "two kv groups, untied": (32, 2, 2, 16, 2, 96, 50, 1e6, False),
    "eight kv groups, as 0.6B": (64, 16, 8, 16, 2, 96, 128, 1e6, True),
    "eight kv groups, heads narrower": (64, 8, 8, 4, 3, 64, 33, 1e4, False),
    "three kv groups, one layer": (30, 9, 3, 10, 1, 50, 20, 5e5, False),
    "deep": (32, 4, 2, 8, 8, 64, 64, 1e6, True),
    "Qwen2.5, tied": (32, 4, 2, 8, 2, 64, 61, 1e6, True),
    "Qwen2.5, untied": (56, 7, 1, 8, 2, 48, 61, 1e6, False),
    "SmolLM2": (72, 9, 3, 8, 3, 64, 61, 1e5, True),
    "Llama 2": (32, 4, 4, 8, 2, 64, 61, 1e4, False),
    "Llama 3.2": (32, 4, 1, 16, 2, 64, 61, 5e5, True),
}
# In T tokens each kind of pair of LLAMA_3 shows: unchanged, mixed, slowed.
FAMILIES = {
    "Qwen2.5": {"qk_norm": False, "qkv_bias": True},
    "SmolLM2": {"qk_norm": False, "norm_eps": 1e-2},  # far from 1e-6, so that it shows
    "Llama 2": {"qk_norm": False, "norm_eps": 1e-5},
    "Llama 3.2": {"qk_norm": False, "norm_eps": 1e-5, "rope_scaling": LLAMA_3},
}
# Rounding is the same in every geometry; these have one of each kind.
ROUNDED = ["two kv groups, tied", "deep", "Qwen2.5, untied", "Llama 3.2"]
B, T = 3, 11
LENGTHS = torch.tensor([11, 4, 1])


def hf_model(cfg):
    values = config_to_hf(cfg | {"dtype": torch.float32}, 1, 0)
    del values["pad_token_id"]  # its embedding would get no gradient
    config = transformers.AutoConfig.for_model(**values, attn_implementation="eager")
    return transformers.AutoModelForCausalLM.from_config(config).float().eval()


def make_pair(name, dtype=torch.float32):
    """Ours and theirs. Weights large enough that attention is far from uniform, and norms that
    are not all ones, so that a forgotten scale or a wrong angle shows."""
    sizes = dict(zip(SIZES, GEOMETRIES[name], strict=True))
    family = FAMILIES.get(name.partition(",")[0], {})
    cfg = TOY_CONFIG | {"context_length": 64, "dtype": dtype} | sizes | family
    torch.manual_seed(7)
    theirs = hf_model(cfg)
    with torch.no_grad():
        for parameter in theirs.parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(1 + 0.3 * noise if parameter.dim() == 1 else 0.25 * noise)
    cast(theirs, dtype)
    ours = Qwen3Model(cfg).eval()
    load_hf_weights_into_qwen(ours, cfg, theirs.state_dict())
    return ours, theirs


def cast(model, dtype):
    """Like model.to(dtype), which would also round transformers' table of rotary frequencies."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


@pytest.fixture(scope="module", params=GEOMETRIES)
def pair(request):
    return make_pair(request.param)


def random_ids(model, batch=B, length=T):
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, model.cfg["vocab_size"], (batch, length), generator=generator)


def padding_mask(side, lengths=LENGTHS, length=T):
    steps = torch.arange(length)
    if side == "left":
        return steps >= length - lengths[:, None]  # (B, T)
    return steps < lengths[:, None]


def told_of_padding(mask):
    """What transformers has to be told."""
    positions = (mask.long().cumsum(dim=1) - 1).clamp(min=0)
    return {"attention_mask": mask.long(), "position_ids": positions}


@torch.no_grad()
def their_logits(theirs, ids, mask=None):
    return theirs(ids, **({} if mask is None else told_of_padding(mask))).logits


def assert_close(ours, theirs):
    assert ours.shape == theirs.shape
    assert theirs.abs().max() > 1  # otherwise 1e-4 would say little
    assert (ours - theirs).abs().max() < 1e-4


@torch.no_grad()
@pytest.mark.parametrize("name", ["Qwen2.5, untied", "SmolLM2", "Llama 2", "Llama 3.2"])
def test_what_a_family_adds_is_felt(name):
    """A bias, an eps or an angle that is left out changes the logits."""
    ours, _ = make_pair(name)
    ids = random_ids(ours)
    for key in ("qkv_bias", "norm_eps", "rope_scaling"):
        if key in ours.cfg and name != "Llama 2":
            without = Qwen3Model({k: v for k, v in ours.cfg.items() if k != key}).eval()
            without.load_state_dict(ours.state_dict(), strict=False)
            assert (without(ids) - ours(ids)).abs().max() > (1e-6 if key == "norm_eps" else 0.1)


@torch.no_grad()
def test_full_forward(pair):
    ours, theirs = pair
    ids = random_ids(ours)
    assert_close(ours(ids), their_logits(theirs, ids))


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_batch(pair, side):
    ours, theirs = pair
    ids, mask = random_ids(ours), padding_mask(side)
    logits = ours(ids, attention_mask=mask)
    assert torch.isfinite(logits).all()
    assert_close(logits[mask], their_logits(theirs, ids, mask)[mask])


@torch.no_grad()
@pytest.mark.parametrize("max_length, pieces", [(None, [1] * T), (T, [5, 1, 3, 2])])
def test_reading_with_a_cache_in_pieces(pair, max_length, pieces):
    ours, theirs = pair
    ids = random_ids(ours)
    cache = KVCache(ours.cfg["n_layers"], max_length)
    logits = [ours(piece, cache=cache) for piece in ids.split(pieces, dim=1)]
    assert_close(torch.cat(logits, dim=1), their_logits(theirs, ids))
    assert cache.lengths.tolist() == [T] * B


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("max_length", [None, T + 5])
def test_ragged_prefill_then_decoding_equals_one_by_one(pair, side, max_length):
    ours, theirs = pair
    ids, mask = random_ids(ours), padding_mask(side)
    answer = random_ids(ours, length=5).flip(0)
    cache = KVCache(ours.cfg["n_layers"], max_length)
    prefill = ours(ids, cache=cache, attention_mask=mask)
    steps = torch.cat([ours(answer[:, t : t + 1], cache=cache) for t in range(5)], dim=1)
    assert cache.lengths.tolist() == (LENGTHS + 5).tolist()
    for row in range(B):
        prompt = ids[row][mask[row]]
        alone = their_logits(theirs, torch.cat([prompt, answer[row]])[None])[0]
        batched = torch.cat([prefill[row][mask[row]], steps[row]])
        assert_close(batched, alone)


@torch.no_grad()
def test_hidden_states_are_the_logits_without_the_head(pair):
    ours, theirs = pair
    ids, mask = random_ids(ours), padding_mask("left")
    hidden = ours.hidden_states(ids, attention_mask=mask)
    assert hidden.shape == (B, T, ours.cfg["emb_dim"])
    assert torch.equal(ours.out_head(hidden), ours(ids, attention_mask=mask))
    expected = theirs.model(ids, **told_of_padding(mask))
    assert_close(hidden[mask], expected.last_hidden_state[mask])


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_filling_the_cache_is_a_pass_without_its_result(pair, side):
    ours, _ = pair
    ids, mask = random_ids(ours), padding_mask(side)
    filled, passed = (KVCache(ours.cfg["n_layers"]) for _ in range(2))
    ours.fill_cache(ids, filled, mask)
    ours(ids, cache=passed, attention_mask=mask)
    assert torch.equal(filled.lengths, passed.lengths)
    for found, expected in zip(filled.get_all(), passed.get_all(), strict=True):
        assert all(map(torch.equal, found, expected))


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_with_a_cache_or_without_a_mask_means_the_same(pair, side):
    """Also where a row has nothing at all to read."""
    ours, _ = pair
    ids, mask = random_ids(ours), padding_mask(side)
    mask[1] = False
    cache = KVCache(ours.cfg["n_layers"])
    hidden = ours.hidden_states(ids, cache=cache, attention_mask=mask)
    assert cache.lengths.tolist() == mask.sum(1).tolist()
    assert torch.isfinite(hidden).all()
    assert_close(hidden[mask], ours.hidden_states(ids, attention_mask=mask)[mask])


@pytest.mark.parametrize("side", ["left", "right"])
def test_gradients(pair, side):
    ours, theirs = pair
    ids, mask = random_ids(ours), padding_mask(side)
    targets = ids.roll(-1, dims=1)[..., None]
    all_logits = ours(ids, attention_mask=mask), theirs(ids, **told_of_padding(mask)).logits
    for model, logits in zip(pair, all_logits, strict=True):
        model.zero_grad()
        picked = logits.log_softmax(dim=-1).gather(-1, targets).squeeze(-1)
        (picked * mask).sum().backward()
    found = Qwen3Model(ours.cfg)  # carries their gradients to our names
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    load_hf_weights_into_qwen(found, ours.cfg, gradients)
    for name, expected in found.named_parameters():
        gradient = ours.get_parameter(name).grad
        assert torch.isfinite(gradient).all()
        torch.testing.assert_close(gradient, expected.data, rtol=1e-3, atol=2e-4, msg=name)


def assert_no_worse(our_error, their_error):
    """Over 48 batches the ratio of means was 0.72 to 1.01, that of the largest 0.3 to 1.9."""
    assert our_error.mean() <= 1.15 * their_error.mean()
    assert our_error.max() <= 4 * their_error.max()


@torch.no_grad()
@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("side", ["left", "right"])
def test_bfloat16_within_its_rounding(name, side):
    """Against float32 with the same (rounded) weights we must err no more than transformers."""
    ours, theirs = make_pair(name, torch.bfloat16)
    ids, mask = random_ids(ours), padding_mask(side)
    exact = their_logits(cast(theirs, torch.float32), ids, mask)[mask]
    rounded = their_logits(cast(theirs, torch.bfloat16), ids, mask)[mask]
    their_error = (rounded.float() - exact).abs()
    cached = ours(ids, cache=KVCache(ours.cfg["n_layers"]), attention_mask=mask)
    for logits in (ours(ids, attention_mask=mask), cached):
        assert logits.dtype == torch.bfloat16
        assert_no_worse((logits[mask].float() - exact).abs(), their_error)


@torch.no_grad()
@pytest.mark.parametrize("name", ROUNDED)
def test_bfloat16_decoding_within_its_rounding(name):
    ours, theirs = make_pair(name, torch.bfloat16)
    ids = random_ids(ours)
    cache = KVCache(ours.cfg["n_layers"])
    steps = torch.cat([ours(ids[:, t : t + 1], cache=cache) for t in range(T)], dim=1)
    exact = their_logits(cast(theirs, torch.float32), ids)
    their_error = (their_logits(cast(theirs, torch.bfloat16), ids).float() - exact).abs()
    assert_no_worse((steps.float() - exact).abs(), their_error)


def test_a_tied_head_has_no_weight_of_its_own():
    tied, _ = make_pair("two kv groups, tied")
    untied, _ = make_pair("two kv groups, untied")
    assert tied.out_head.weight is tied.tok_emb.weight
    assert untied.out_head.weight is not untied.tok_emb.weight
    assert not QWEN_CONFIG_06_B.get("tie_embeddings")  # the published .pth files are not tied


def test_state_dict_has_exactly_the_published_names():
    with torch.device("meta"):
        model = Qwen3Model(QWEN_CONFIG_06_B)
    block = [
        *(f"att.{name}.weight" for name in ("W_query", "W_key", "W_value", "out_proj")),
        *("att.q_norm.scale", "att.k_norm.scale"),
        *(f"ff.{name}.weight" for name in ("fc1", "fc2", "fc3")),
        *("norm1.scale", "norm2.scale"),
    ]
    names = {f"trf_blocks.{n}.{name}" for n in range(28) for name in block}
    names |= {"tok_emb.weight", "final_norm.scale", "out_head.weight"}
    state = model.state_dict()
    assert set(state) == names
    assert {tensor.dtype for tensor in state.values()} == {torch.bfloat16}
    assert state["trf_blocks.27.att.W_key.weight"].shape == (8 * 128, 1024)
    assert sum(tensor.numel() for tensor in state.values()) == 751_632_384
    for part in ("(tok_emb): Embedding(151936, 1024)", "(W_query)", "(q_norm)", "(fc3)"):
        assert part in repr(model)


def test_rms_norm_is_computed_in_float32():
    norm = RMSNorm(16, dtype=torch.bfloat16)
    x = (torch.randn(4, 16, generator=torch.Generator().manual_seed(0)) * 50).bfloat16()
    exact = x.double() / (x.double().pow(2).mean(dim=-1, keepdim=True) + 1e-6).sqrt()
    assert norm(x).dtype == torch.bfloat16
    assert torch.equal(norm(x), exact.bfloat16())


def test_rms_norm_options():
    norm = RMSNorm(8, eps=0.5, bias=True)
    with torch.no_grad():
        norm.scale.copy_(torch.arange(8.0))
        norm.shift.fill_(2.0)
    x = torch.full((1, 8), 0.5)
    expected = torch.arange(8.0) * 0.5 / (0.25 + 0.5) ** 0.5 + 2
    torch.testing.assert_close(norm(x)[0], expected)


def test_rope_tables_and_rotation():
    cos, sin = compute_rope_params(head_dim=4, theta_base=100, context_length=7)
    assert cos.shape == sin.shape == (7, 4) and cos.dtype == torch.float32
    # Pair i of (0, 1) is features (i, i + 2); at position p it turns by p / 100^(i / 2).
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).expand(1, 1, 3, 4)
    rotated = apply_rope(x, cos, sin, offset=4)
    for step in range(3):
        for pair in (0, 1):
            angle = torch.tensor((4 + step) / 10.0**pair)
            first, second = x[0, 0, step, pair], x[0, 0, step, pair + 2]
            expected = first * angle.cos() - second * angle.sin()
            torch.testing.assert_close(rotated[0, 0, step, pair], expected)
            expected = second * angle.cos() + first * angle.sin()
            torch.testing.assert_close(rotated[0, 0, step, pair + 2], expected)


def test_rope_keeps_long_positions_apart():
    """Angles in bfloat16 would be the same for positions 4,000 and 4,001."""
    cos, sin = compute_rope_params(128, 1e6, 40_960)
    exact = torch.arange(40_960).double()[:, None] / 1e6 ** (torch.arange(64).double() / 64)
    assert (cos[:, :64] - exact.cos()).abs().max() < 0.01
    assert (sin[:, 64:] - exact.sin()).abs().max() < 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", [False, True])
def test_a_gpu_never_has_to_store_all_scores(dtype, masked, monkeypatch):
    """Of torch's attention for GPUs, none that takes a mask or float32 knows groups of heads, and
    with `enable_gqa` it would fall back on one that stores scores for every pair of tokens."""
    calls = []

    def called(queries, keys, values, attn_mask, is_causal, enable_gqa):
        calls.append((keys, values, enable_gqa))
        return queries

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", called)
    with FakeTensorMode():  # tensors of a GPU that is not here
        queries = torch.empty(3, 6, 4, 8, dtype=dtype, device="cuda")
        keys = torch.empty(3, 2, 7, 8, dtype=dtype, device="cuda")
        mask = torch.empty(3, 1, 4, 7, dtype=torch.bool, device="cuda") if masked else None
        attention(queries, keys, keys, mask)
    ((keys, values, in_groups),) = calls
    assert in_groups == (dtype == torch.bfloat16 and not masked)
    assert keys.shape == values.shape == (3, 2 if in_groups else 6, 7, 8)
