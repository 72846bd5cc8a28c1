"""Weights in files: both naming schemes, both formats, bit for bit; and what is refused."""

import json
import shutil

import pytest
import torch
import transformers
from file_server import hub_at
from toy import TOY_CONFIG

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files import model_names
from reasoning_from_scratch.files.tensor_files import NAMES, config_from_hf, config_to_hf
from reasoning_from_scratch.files.weights import (
    load_hf_weights_into_qwen,
    load_tokenizer_only,
    load_weights,
    save_hf_folder,
    save_model,
    shipped_checkpoint,
    to_hf_names,
    to_our_names,
)
from reasoning_from_scratch.qwen3 import QWEN_CONFIG_06_B, Qwen3Model
from reasoning_from_scratch.tokenizer import Qwen3Tokenizer, stop_ids_of
from rfs.files.models import load_model_and_tokenizer

CONFIG = TOY_CONFIG | {"vocab_size": 400, "context_length": 64, "hidden_dim": 48, "head_dim": 16}
CONFIG |= {"rope_base": 1_000_000.0}
VARIANTS = [(False, torch.float32), (True, torch.bfloat16)]
IDS = torch.tensor([[5, 17, 300, 2, 399, 0, 42]])


def make_model(tied=False, dtype=torch.float32, **changes):
    torch.manual_seed(5)
    model = Qwen3Model({**CONFIG, "tie_embeddings": tied, "dtype": dtype, **changes})
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(1 + 0.3 * noise if parameter.dim() == 1 else 0.2 * noise)
    return model.eval()


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer_file):
    return Qwen3Tokenizer(tiny_tokenizer_file)


def same_bits(model, other):
    ours, theirs = model.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype and torch.equal(tensor, theirs[name]), name
    with torch.no_grad():
        assert torch.equal(model(IDS), other(IDS))


def one_line(info):
    text = str(info.value)
    assert "\n" not in text and len(text) < 400
    return text


# ---- names


def test_the_table_has_every_name_once_in_both_directions():
    assert len(set(NAMES.values())) == len(NAMES)
    state = make_model(n_layers=12).state_dict()
    there = to_hf_names(state)
    assert "model.layers.11.self_attn.q_norm.weight" in there
    back = to_our_names(there)
    assert back.keys() == state.keys()
    assert all(back[name] is state[name] for name in state)
    assert to_our_names(state).keys() == state.keys()
    for name in ("head{", "model.layers.{}.mlp.{0}", "model.layers.3.{x}"):  # left as it is
        assert list(to_our_names({name: IDS})) == [name]


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_prefixes_of_wrapped_models_are_dropped(prefix):
    state = make_model().state_dict()
    wrapped = {f"{prefix}{name}": tensor for name, tensor in state.items()}
    assert to_our_names(wrapped).keys() == state.keys()


@pytest.mark.parametrize("tied", [False, True])
def test_load_hf_weights_into_qwen(tied):
    params = to_hf_names(make_model(tied).state_dict())
    if tied:
        del params["lm_head.weight"]
    other = Qwen3Model(CONFIG)
    load_hf_weights_into_qwen(other, CONFIG, params)
    assert torch.equal(other(IDS), make_model(tied)(IDS))
    del params["model.norm.weight"]
    with pytest.raises(UserError, match=r"expected final_norm.scale \(32,\), found none"):
        load_hf_weights_into_qwen(other, CONFIG, params)


# ---- folders of transformers


def hf_folder(folder, tiny_tokenizer_file, tied=False, **options):
    """A folder written by transformers itself."""
    config = transformers.Qwen3Config(**config_to_hf({**CONFIG, "tie_embeddings": tied}, 2, 0))
    torch.manual_seed(1)
    model = transformers.Qwen3ForCausalLM(config)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder, **options)
    shutil.copy(tiny_tokenizer_file, folder / "tokenizer.json")
    return model.eval()


def test_a_missing_shard_is_named(tmp_path, tiny_tokenizer_file):
    hf_folder(tmp_path, tiny_tokenizer_file, max_shard_size="30KB")
    shard = sorted(tmp_path.glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(UserError, match=f"expected a file {shard.name}, found none") as info:
        load_model_and_tokenizer(tmp_path)
    one_line(info)


def test_transformers_opens_our_tokenizer(tmp_path, tiny_tokenizer_file):
    ours = Qwen3Tokenizer(tiny_tokenizer_file, True, True, True)
    save_hf_folder(make_model(), ours, tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.eos_token_id == ours.eos_token_id and theirs.pad_token_id == ours.pad_token_id
    text = "What is 12 + 30? <think> é\n"
    assert theirs(text)["input_ids"] == ours.encode(text, chat_wrapped=False)
    turn = [{"role": "user", "content": "What is 1 + 1?"}]
    for thinking in (True, False):
        ours.add_thinking = thinking
        for generate in (True, False):
            ours.add_generation_prompt = generate
            expected = theirs.apply_chat_template(
                turn, tokenize=False, add_generation_prompt=generate, enable_thinking=thinking
            )
            assert ours.wrap_chat("What is 1 + 1?") == expected


# ---- round trips


@pytest.mark.parametrize("tied, dtype", VARIANTS)
@pytest.mark.parametrize("name", ["model.pth", "model.safetensors"])
def test_round_trip_bit_for_bit(tmp_path, tokenizer, tied, dtype, name):
    model, path = make_model(tied, dtype), tmp_path / name
    assert save_model(model, path) == path
    tokenizer._tok.save(str(tmp_path / "tokenizer.json"))
    loaded, _ = load_model_and_tokenizer(path)
    same_bits(model, loaded)
    assert (loaded.out_head.weight is loaded.tok_emb.weight) == tied
    assert loaded.cfg["tie_embeddings"] == tied and loaded.cfg["dtype"] == dtype


@pytest.mark.parametrize("name", ["model.pth", "model.safetensors"])
def test_a_loaded_model_can_be_trained_and_saved_over_its_own_file(tmp_path, tokenizer, name):
    """Its parameters lie in the file, so neither may disturb the other."""
    tokenizer._tok.save(str(tmp_path / "tokenizer.json"))
    path = save_model(make_model(tied=True), tmp_path / name)
    before = path.read_bytes()
    model, _ = load_model_and_tokenizer(path)
    assert all(parameter.requires_grad for parameter in model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(IDS).log_softmax(dim=-1)[..., 0].mean().backward()
    optimizer.step()
    assert path.read_bytes() == before
    save_model(model, path)
    same_bits(model, load_model_and_tokenizer(path)[0])


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", ["model.pth", "model.safetensors"])
def test_load_weights_into_a_model_that_is_there(tmp_path, tied, name):
    path = save_model(make_model(tied), tmp_path / name)
    model = Qwen3Model({**CONFIG, "tie_embeddings": tied})
    where = model.tok_emb.weight.data_ptr()
    load_weights(model, path)
    same_bits(model, make_model(tied))
    assert model.tok_emb.weight.data_ptr() == where


@pytest.mark.parametrize("how", ["file", "params"])
def test_a_head_of_its_own_does_not_fit_into_a_tied_model(tmp_path, how):
    """One matrix would have to be both; an equal one fits."""
    untied, tied = make_model(), make_model(tied=True)
    before = tied.tok_emb.weight.clone()

    def load(model):
        if how == "file":
            return load_weights(tied, save_model(model, tmp_path / "model.pth"))
        return load_hf_weights_into_qwen(tied, CONFIG, to_hf_names(model.state_dict()))

    with pytest.raises(UserError, match="has a head of its own"):
        load(untied)
    assert torch.equal(tied.tok_emb.weight, before)
    untied.out_head.weight.data.copy_(untied.tok_emb.weight)
    load(untied)
    assert torch.equal(tied(IDS), untied(IDS))


@torch.no_grad()
def test_a_head_of_its_own_is_used_though_the_config_says_tied(tmp_path, tiny_tokenizer_file):
    """As transformers does it."""
    theirs = hf_folder(tmp_path, tiny_tokenizer_file)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    model, _ = load_model_and_tokenizer(tmp_path)
    torch.testing.assert_close(model(IDS), theirs(IDS).logits, rtol=0, atol=1e-5)
    assert not model.cfg["tie_embeddings"]


def test_what_is_saved_over_shards_is_what_is_opened(tmp_path, tiny_tokenizer_file):
    hf_folder(tmp_path, tiny_tokenizer_file, tied=True, max_shard_size="30KB")
    model, tokenizer = load_model_and_tokenizer(tmp_path)
    model.final_norm.scale.data.fill_(3.0)
    save_hf_folder(model, tokenizer, tmp_path)
    assert (tmp_path / "model.safetensors.index.json").exists()
    same_bits(model, load_model_and_tokenizer(tmp_path)[0])


def test_no_weights_are_saved_under_an_adapter(tmp_path, tokenizer):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match="holds a LoRA adapter"):
        save_hf_folder(make_model(), tokenizer, tmp_path)
    assert not (tmp_path / "model.safetensors").exists()


def test_a_folder_whose_config_does_not_fit(tmp_path, tokenizer):
    save_hf_folder(make_model(), tokenizer, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "hidden_size": 64}))
    with pytest.raises(UserError, match=r"expected tok_emb.weight \(400, 64\), found \(400, 32\)"):
        load_model_and_tokenizer(tmp_path)


def test_folders_without_config_or_tokenizer(tmp_path, tokenizer):
    with pytest.raises(UserError, match="no config.json|found none"):
        load_model_and_tokenizer(tmp_path)
    save_hf_folder(make_model(), tokenizer, tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(UserError, match="there is no tokenizer file"):
        load_model_and_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="config.json is not JSON"):
        load_model_and_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"model_type": "gemma2"}, "model_type is gemma2; expected qwen3, qwen2"),
        ({"model_type": "qwen3_moe"}, "qwen3_moe is a mixture of experts"),
        ({"num_experts": 8}, "mixture of experts"),
        ({"hidden_act": "gelu"}, "its hidden_act is gelu, ours is silu"),
        ({"attention_bias": True}, "attention_bias also adds to the attention's output"),
        ({"mlp_bias": True}, "feed-forward layers have biases"),
        ({"use_sliding_window": True}, "sliding window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding window"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "of type yarn"),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "of type linear"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "of type yarn"),
        ({"partial_rotary_factor": 0.5}, "only a part of each head"),
        ({"quantization_config": {"quant_method": "fp8"}}, "its weights are quantized"),
        ({"num_key_value_heads": 3}, "multiple of num_key_value_heads"),
        ({"head_dim": 15}, "an even head_dim"),
        ({"rms_norm_eps": 0}, "above 0 as rms_norm_eps, found 0"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "has no low_freq_factor"),
    ],
)
def test_configs_that_our_model_cannot_compute(change, message):
    config = config_to_hf(CONFIG, 1, 0)
    assert config_from_hf(config) == CONFIG
    with pytest.raises(UserError, match=message) as info:
        config_from_hf({**config, **change})
    assert one_line(info).startswith("config.json: ") or "has no" in str(info.value)


LLAMA_3 = {
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
FAMILIES = {
    "qwen2": {"qk_norm": False, "qkv_bias": True},
    "llama": {"qk_norm": False, "norm_eps": 1e-5, "rope_scaling": LLAMA_3},
    "qwen3": {"norm_eps": 1e-5},
}


def test_what_published_configs_leave_out():
    """Qwen2.5 says no head_dim, and Llama 2 neither head_dim, rope_theta nor key-value heads."""
    sizes = {"vocab_size": 400, "max_position_embeddings": 64, "hidden_size": 32}
    sizes |= {"num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48}
    qwen = {"num_key_value_heads": 2, "rope_theta": 1e6, "sliding_window": 64, "rms_norm_eps": 1e-6}
    qwen |= {"use_sliding_window": False, "max_window_layers": 2}
    found = config_from_hf({"model_type": "qwen2", **sizes, **qwen})
    assert found == {**CONFIG, **FAMILIES["qwen2"], "head_dim": 8}
    rest = {"rms_norm_eps": 1e-5, "pretraining_tp": 1, "rope_scaling": None, "head_dim": None}
    found = config_from_hf({"model_type": "llama", **sizes, **rest})
    expected = {"head_dim": 8, "n_kv_groups": 4, "rope_base": 1e4, "norm_eps": 1e-5}
    assert found == {**CONFIG, "qk_norm": False, **expected}
    with pytest.raises(UserError, match="has no rope_theta"):
        config_from_hf({"model_type": "qwen2", **sizes, "num_key_value_heads": 2})


def test_rotary_frequencies_in_a_file_are_left_out():
    """Older files of Llama 2 hold them; they follow from the configuration."""
    state = to_hf_names(make_model(**FAMILIES["llama"]).state_dict())
    state["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    model = make_model(**FAMILIES["llama"])
    load_hf_weights_into_qwen(model, model.cfg, state)


@torch.no_grad()
@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("tied, dtype", VARIANTS)
@pytest.mark.parametrize("shards", ["1GB", "30KB"])
def test_a_family_is_saved_and_opened_by_both(tmp_path, tokenizer, kind, tied, dtype, shards):
    model = make_model(tied, dtype, rope_base=5_000.0, **FAMILIES[kind])
    folder = save_hf_folder(model, tokenizer, tmp_path / "ours")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    assert theirs.config.model_type == kind and theirs.dtype == dtype
    assert theirs.config.eos_token_id == tokenizer.eos_token_id
    assert theirs.generation_config.eos_token_id == tokenizer.eos_token_id
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size=shards)
    assert (len(list(tmp_path.glob("theirs/*.safetensors"))) > 1) == (shards == "30KB")
    shutil.copy(folder / "tokenizer.json", tmp_path / "theirs")
    for path in (folder, tmp_path / "theirs"):
        loaded, _ = load_model_and_tokenizer(path)
        assert loaded.cfg == model.cfg and not loaded.training
        assert (loaded.out_head.weight is loaded.tok_emb.weight) == tied
        same_bits(model, loaded)
    expected = theirs.float()(IDS).logits
    assert (model.float()(IDS) - expected).abs().max() < 1e-5 * expected.abs().max()


def test_the_published_config_of_qwen3_06b():
    """What counts in the config.json that is published with Qwen3-0.6B."""
    published = {
        "attention_bias": False,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "max_position_embeddings": 40960,
        "max_window_layers": 28,
        "model_type": "qwen3",
        "num_attention_heads": 16,
        "num_hidden_layers": 28,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_sliding_window": False,
        "vocab_size": 151936,
    }
    assert config_from_hf(published) == {**QWEN_CONFIG_06_B, "tie_embeddings": True}


# ---- names of models, and the tokenizer that belongs to a file


def test_an_unknown_model_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'tiny'") as info:
        load_model_and_tokenizer("tinny")
    assert "tiny-reasoning" in one_line(info)
    with pytest.raises(UserError, match="did you mean 'reasoning'"):
        load_tokenizer_only("reasonning")
    with pytest.raises(UserError, match="did you mean 'tiny-grpo'"):
        shipped_checkpoint("tiny-gpro")


@pytest.fixture
def package(tmp_path, monkeypatch, tokenizer):
    """A package folder of its own, so that shipped models can be put in and left out."""
    folder = tmp_path / "site" / "reasoning_from_scratch"
    folder.mkdir(parents=True)
    monkeypatch.setattr(model_names, "__file__", str(folder / "files" / "model_names.py"))
    return tmp_path / "site"


@pytest.mark.parametrize("place", ["checkpoints", "reasoning_from_scratch/checkpoints"])
def test_shipped_models_in_a_checkout_and_in_a_wheel(package, tokenizer, place):
    model = make_model(tied=True, rope_base=1e4)
    folder = save_hf_folder(model, tokenizer, package / place / "tiny-base")
    assert shipped_checkpoint("tiny-base") == shipped_checkpoint("tiny") == folder
    for name in ("tiny", "tiny-base"):
        loaded, found = load_model_and_tokenizer(name)
        same_bits(model, loaded)
        assert found.eos_token_id == tokenizer.eos_token_id
    with pytest.raises(UserError, match="tiny-grpo is missing"):
        load_model_and_tokenizer("tiny-grpo")


@pytest.mark.parametrize("tied", [False, True])
def test_a_bare_file_of_a_shipped_size_gets_its_config_and_tokenizer(
    package, tmp_path, tiny_tokenizer_file, tied
):
    base = Qwen3Tokenizer(tiny_tokenizer_file, eos_token="<|endoftext|>")
    save_hf_folder(make_model(rope_base=1e4), base, package / "checkpoints" / "tiny-base")
    path = save_model(make_model(tied, rope_base=1e4), tmp_path / "runs" / "step00050.pth")
    model, tokenizer = load_model_and_tokenizer(path)
    assert model.cfg["rope_base"] == 1e4 and tokenizer.eos_token == "<|endoftext|>"
    assert (model.out_head.weight is model.tok_emb.weight) == tied  # as in the file
    assert load_tokenizer_only(path).eos_token == "<|endoftext|>"


TOOLS = "{% if tools %}{{ tools | tojson }}{% endif %}{{ messages[0].content }}\n"


@pytest.fixture
def published(tmp_path, tokenizer):
    """A folder as others publish it: their template, their limits, their layout of the JSON."""
    folder = save_hf_folder(make_model(), tokenizer, tmp_path / "published")
    config = {"eos_token": "<|endoftext|>", "model_max_length": 4096, "chat_template": TOOLS}
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "unknown": [1, {"é": None}]}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False))
    text, turn = (tokenizer._tok.token_to_id(token) for token in ("<|endoftext|>", "<|im_end|>"))
    (folder / "generation_config.json").write_text(
        json.dumps({"temperature": 0.6, "eos_token_id": [turn, text]}, indent=7)
    )
    (folder / "tokenizer.json").write_text(tokenizer._tok.to_str(pretty=False))
    (folder / "chat_template.jinja").write_text(TOOLS)
    (folder / "special_tokens_map.json").write_text('{"eos_token":   "<|endoftext|>"}')
    (folder / "merges.txt").write_bytes(b"#version: 0.2\r\n")
    return folder


def test_a_save_hands_on_the_tokenizers_files_byte_for_byte(published, tmp_path):
    before = {path.name: path.read_bytes() for path in published.iterdir()}
    model, tokenizer = load_model_and_tokenizer(published)
    shutil.rmtree(published)  # they are kept, not looked for again
    first = save_hf_folder(model, tokenizer, tmp_path / "first")
    second = save_hf_folder(*load_model_and_tokenizer(first), tmp_path / "second")
    for folder in (first, second):
        assert {path.name for path in folder.iterdir()} == set(before)
        for name in set(before) - {"config.json", "model.safetensors"}:
            assert (folder / name).read_bytes() == before[name], name
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        assert theirs.model_max_length == 4096 and theirs.chat_template == TOOLS
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).generation_config
        assert theirs.temperature == 0.6
        assert set(theirs.eos_token_id) == stop_ids_of(load_tokenizer_only(folder))


@pytest.mark.parametrize(
    "generation, config, tokens, stops, eos, source",
    [
        (["im", "text"], "text", "text", ["im", "text"], "text", "generation_config.json"),
        (["text", "im"], "im", "text", ["im", "text"], "im", "generation_config.json"),
        ("text", "im", "im", ["text"], "text", "generation_config.json"),
        (None, "text", "im", ["text"], "text", "config.json"),
        (None, ["im", "text"], "text", ["im", "text"], "text", "config.json"),
        (None, None, "text", ["text"], "text", "tokenizer_config.json"),
        (None, None, {"content": "text"}, ["text"], "text", "tokenizer_config.json"),
        (None, None, None, ["im"], "im", ""),
    ],
)
def test_who_says_where_answers_end(
    tmp_path, tokenizer, generation, config, tokens, stops, eos, source
):
    """generation_config, then config, then tokenizer_config; a folder that says end of text does
    not become a chat model by being saved."""
    spelled = {"im": "<|im_end|>", "text": "<|endoftext|>"}

    def ids(said):
        if isinstance(said, list):
            return [ids(one) for one in said]
        return said and tokenizer._tok.token_to_id(spelled[said])

    folder = save_hf_folder(make_model(), tokenizer, tmp_path / "published")
    token = {"content": spelled["text"]} if isinstance(tokens, dict) else tokens and spelled[tokens]
    ours = json.loads((folder / "config.json").read_text())
    for name, values in {
        "generation_config.json": {"eos_token_id": ids(generation)},
        "config.json": ours | {"eos_token_id": ids(config)},
        "tokenizer_config.json": {"eos_token": token},
    }.items():
        (folder / name).write_text(json.dumps(values))
    saved = save_hf_folder(*load_model_and_tokenizer(folder), tmp_path / "saved")
    for place in (folder, saved):
        found = load_tokenizer_only(place)
        assert stop_ids_of(found) == set(ids(stops))
        assert found.eos_token_id == ids(eos) and found.apply_chat_template == (eos == "im")
    assert load_tokenizer_only(folder).stops_from == source


TURN = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    "name, kind, chat, expected",
    [
        ("base", "base", False, "hi"),
        ("reasoning", "reasoning", True, TURN),
        ("instruct", "reasoning", True, TURN + "<think>\n\n</think>\n\n"),
    ],
)
def test_published_models_by_name(
    tmp_path, monkeypatch, tiny_tokenizer_file, name, kind, chat, expected
):
    """With files that are already in local_dir, no network; a stand-in of small size."""
    hub_at(monkeypatch, "http://127.0.0.1:9", tmp_path / "hub cache")
    model = make_model(dtype=torch.bfloat16)
    torch.save(model.state_dict(), tmp_path / f"qwen3-0.6B-{kind}.pth")
    (tmp_path / f"tokenizer-{kind}.json").write_bytes(tiny_tokenizer_file.read_bytes())
    loaded, tokenizer = load_model_and_tokenizer(name, "cpu", False, local_dir=tmp_path)
    same_bits(model, loaded)
    alone = load_tokenizer_only(name, local_dir=tmp_path)
    for found in (tokenizer, alone):
        assert found.eos_token == ("<|im_end|>" if chat else "<|endoftext|>")
        assert found.apply_chat_template == chat
        assert found.decode(found.encode("hi")) == expected
    folder = save_hf_folder(model, tokenizer, tmp_path / "saved")  # as a run of it does
    saved = load_tokenizer_only(folder)
    assert saved.decode(saved.encode("hi")) == expected
    if chat:
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        turn = [{"role": "user", "content": "hi"}]
        assert (
            theirs.apply_chat_template(turn, tokenize=False, add_generation_prompt=True) == expected
        )
