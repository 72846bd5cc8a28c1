"""GGUF files, written here by llama.cpp's own package: the same model, tokenizer and template."""

import json
import sys

import gguf
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.gguf_files import (
    HF_TENSOR_NAMES,
    convert_gguf,
    dequantized,
    read_gguf,
)
from reasoning_from_scratch.files.tensor_files import to_hf_names
from reasoning_from_scratch.qwen3 import stretch_context
from reasoning_from_scratch.tokenizer import model_stop_ids
from rfs.files.models import load_model_and_tokenizer
from tests.files.test_weights import LLAMA_3, make_model

TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.role + m.content + eos_token }}{% endfor %}"
KINDS = {
    "llama": {"qk_norm": False, "norm_eps": 1e-5, "rope_base": 5e5, "rope_scaling": LLAMA_3},
    "qwen2": {"qk_norm": False, "qkv_bias": True},
    "qwen3": {"qk_norm": True},
}
CUT = {"llama": "llama-bpe", "qwen2": "qwen2", "qwen3": "qwen2"}
SPECIAL = ["<|begin|>", "<|end|>"]


def byte_level():
    """A small vocabulary; only its tokens and merges go into the file."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=318, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["Say 12 and 345 and then say them again, please."] * 3, trainer)
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def small(kind, **changes):
    sizes = {"vocab_size": 320, "context_length": 128, "emb_dim": 64, "hidden_dim": 96}
    return make_model(True, torch.bfloat16, **sizes | KINDS[kind] | changes)


def write(path, model, kind, quantized=(), leave_out=(), special=SPECIAL, **fields):
    """The file as llama.cpp's converter writes it."""
    cfg, writer = model.cfg, gguf.GGUFWriter(path, fields.get("architecture", kind))
    writer.add_context_length(cfg["context_length"])
    writer.add_embedding_length(cfg["emb_dim"])
    writer.add_block_count(cfg["n_layers"])
    writer.add_feed_forward_length(cfg["hidden_dim"])
    writer.add_head_count(cfg["n_heads"])
    writer.add_head_count_kv(cfg["n_kv_groups"])
    writer.add_key_length(cfg["head_dim"])
    writer.add_rope_freq_base(cfg["rope_base"])
    writer.add_layer_norm_rms_eps(cfg.get("norm_eps", 1e-6))
    if "experts" in fields:
        writer.add_expert_count(fields["experts"])
    tokenizer = byte_level()
    tokenizer.add_special_tokens(special)
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model(fields.get("tokenizer", "gpt2"))
    writer.add_tokenizer_pre(fields.get("pre", CUT[kind]))
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    writer.add_token_merges([" ".join(m) if isinstance(m, list) else m for m in merges])
    writer.add_bos_token_id(tokens.index(SPECIAL[0]))
    writer.add_eos_token_id(tokens.index(SPECIAL[1]))
    writer.add_chat_template(TEMPLATE)
    theirs = {hf: name for name, hf in HF_TENSOR_NAMES.items()}
    for name, tensor in to_hf_names(model.state_dict()).items():
        if name in leave_out or (name == "lm_head.weight" and cfg["tie_embeddings"]):
            continue
        layer = name.split(".")[2] if ".layers." in name else ""
        general = theirs[name.replace(f".{layer}.", ".{}.", 1) if layer else name]
        numbers = tensor.float().numpy()
        if kind == "llama" and general in ("blk.{}.attn_q.weight", "blk.{}.attn_k.weight"):
            heads = cfg["n_heads"] if "_q" in general else cfg["n_kv_groups"]
            halves = numbers.reshape(heads, 2, -1, numbers.shape[1])  # as the converter permutes
            numbers = halves.swapaxes(1, 2).reshape(numbers.shape)
        own = general.replace("{}", layer)
        if general in quantized:
            q8 = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(own, gguf.quants.quantize(numbers, q8), raw_dtype=q8)
        else:
            writer.add_tensor(own, np.ascontiguousarray(numbers))
    if scaling := cfg.get("rope_scaling"):
        slowness = cfg["rope_base"] ** (torch.arange(0, cfg["head_dim"], 2).float() / 16)
        rope_factors = (stretch_context(slowness, **scaling) / slowness).numpy()
        writer.add_tensor("rope_freqs.weight", rope_factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_model_to_the_bit(tmp_path, kind, tied):
    model = small(kind, tie_embeddings=tied)
    path = write(tmp_path / "small.gguf", model, kind)
    if kind == "qwen3":  # its tokenizer has Qwen3's tokens, which this one has not
        convert_gguf(path, tmp_path / "folder")
        return
    loaded, tokenizer = load_model_and_tokenizer(path)
    assert loaded.cfg == model.cfg
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name
    assert tokenizer.eos_token == "<|end|>" and tokenizer.apply_chat_template
    assert tokenizer.wrap_chat("Hi") == "<|begin|>userHi<|end|>"
    text = "Say 12 and 345:\n  é"
    begins = ["<|begin|>"] * (kind == "llama")  # llama-bpe begins texts with a token
    tokenizer.use_chat_template(False)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == "".join(begins) + text
    digits = [tokenizer.decode([i]) for i in ids if tokenizer.decode([i]).strip().isdigit()]
    assert max(map(len, digits)) == (1 if kind == "qwen2" else 2)
    assert len(list((tmp_path / "cache").rglob("model.safetensors"))) == 1


def test_numbers_of_8_bits_become_plain_ones(tmp_path):
    model, names = small("llama"), ("blk.{}.attn_q.weight", "blk.{}.ffn_up.weight")
    path = write(tmp_path / "small.gguf", model, "llama", quantized=names)
    loaded, _ = load_model_and_tokenizer(path)
    for name in ("att.W_query", "ff.fc2"):
        weight = model.get_submodule(f"trf_blocks.1.{name}").weight.float()
        converted = loaded.get_submodule(f"trf_blocks.1.{name}").weight.float()
        assert 0 < (weight - converted).abs().max() < 0.02


def test_in_float32_its_numbers_are_those_of_the_file(tmp_path):
    names = ("blk.{}.attn_output.weight",)
    path = write(tmp_path / "small.gguf", small("llama"), "llama", quantized=names)
    rounded, _ = load_model_and_tokenizer(path)
    exact, _ = load_model_and_tokenizer(path, dtype=torch.float32)
    (there,) = (t for t in read_gguf(path).tensors if t.name == "blk.1.attn_output.weight")
    expected = torch.from_numpy(dequantized(there, path))
    unrounded = exact.trf_blocks[1].att.out_proj.weight
    assert torch.equal(unrounded, expected) and exact.cfg["dtype"] == torch.float32
    assert torch.equal(rounded.trf_blocks[1].att.out_proj.weight, expected.bfloat16())
    assert not torch.equal(expected.bfloat16().float(), expected)


@pytest.mark.parametrize("is_control", [True, False])
def test_the_end_of_a_document_ends_an_answer_too(tmp_path, is_control):
    """A file of Qwen's names the end of a turn alone."""
    special = [*SPECIAL, "<|endoftext|>"] if is_control else SPECIAL
    path = write(tmp_path / "small.gguf", small("qwen2"), "qwen2", special=special)
    _, tokenizer = load_model_and_tokenizer(path)
    turn = tokenizer.encode("<|end|>", chat_wrapped=False)
    document = tokenizer.encode("<|endoftext|>", chat_wrapped=False)
    assert (len(document) == 1) == is_control  # without the token it is spelled
    assert model_stop_ids(tokenizer) == {*turn, *(document if is_control else [])}


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"architecture": "gemma3"}, "of architecture gemma3; expected"),
        ({"experts": 8}, "mixture of experts"),
        ({"pre": "tekken"}, r"tokenizer \(gpt2, tekken\) is not byte-level BPE of a kind"),
        ({"tokenizer": "llama"}, r"tokenizer \(llama, llama-bpe\)"),
        ({"leave_out": ["model.embed_tokens.weight"]}, "no tensor token_embd.weight"),
    ],
)
def test_what_is_refused(tmp_path, fields, message):
    path = write(tmp_path / "small.gguf", small("llama"), "llama", **fields)
    with pytest.raises(UserError, match=message) as info:
        load_model_and_tokenizer(path)
    assert "\n" not in str(info.value)
    assert not list((tmp_path / "cache").rglob("config.json"))
    assert not list((tmp_path / "cache").rglob("*.partial"))


def test_what_a_killed_conversion_left_is_cleared_away(tmp_path):
    path = write(tmp_path / "small.gguf", small("llama"), "llama")
    left = tmp_path / ".folder.partial"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half of the weights")
    convert_gguf(path, tmp_path / "folder")
    assert not left.exists()
    load_model_and_tokenizer(tmp_path / "folder")


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    path = write(tmp_path / "small.gguf", small("llama"), "llama")
    monkeypatch.setenv("XDG_CACHE_HOME", str(path))
    with pytest.raises(UserError, match="cannot write .*; make room, or set XDG_CACHE") as info:
        load_model_and_tokenizer(path)
    assert "\n" not in str(info.value)


def test_other_angles_than_llama_3s_are_refused(tmp_path):
    other = LLAMA_3 | {"original_max_position_embeddings": 4096}
    model = small("llama", rope_scaling=other)
    with pytest.raises(UserError, match="rope_freqs.weight"):
        load_model_and_tokenizer(write(tmp_path / "small.gguf", model, "llama"))


@pytest.mark.parametrize("share", [0, 0.3, 0.9])
def test_a_broken_file_is_one_line(tmp_path, share):
    path = write(tmp_path / "small.gguf", small("qwen2"), "qwen2")
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(UserError, match="damaged") as info:
        load_model_and_tokenizer(path)
    assert "\n" not in str(info.value)


def test_the_extra_is_needed_once_for_a_second_start_converts_nothing(tmp_path, monkeypatch):
    path = write(tmp_path / "small.gguf", small("qwen2"), "qwen2")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "gguf", None)
        with pytest.raises(UserError, match="the extra `gguf` is needed"):
            load_model_and_tokenizer(path)
    load_model_and_tokenizer(path)
    monkeypatch.setitem(sys.modules, "gguf", None)
    load_model_and_tokenizer(path)
