"""GGUF, llama.cpp's format: one file with weights, sizes, tokenizer and chat template.

Such a file is converted once into a folder in Hugging Face's layout, in the user's cache: weights,
config.json, tokenizer.json, tokenizer_config.json with the chat template. Weights of 4 or 8 bits
become ordinary numbers again; what was lost when they were rounded stays lost. In float32 these are
the file's numbers; bfloat16, which takes half the space, rounds them once more.
"""

import json
import logging
import os
import shutil
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from torch import Tensor

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import (
    disk_errors_as,
    sync_folder,
    user_cache,
    write_atomically,
)
from reasoning_from_scratch.files.tensor_files import (
    FAMILIES,
    WEIGHTS,
    config_to_hf,
    save_state,
)

log = logging.getLogger("reasoning_from_scratch")

# llama.cpp's name -> Hugging Face's; {} is the number of the layer.
HF_TENSOR_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "blk.{}.attn_q.weight": "model.layers.{}.self_attn.q_proj.weight",
    "blk.{}.attn_k.weight": "model.layers.{}.self_attn.k_proj.weight",
    "blk.{}.attn_v.weight": "model.layers.{}.self_attn.v_proj.weight",
    "blk.{}.attn_q.bias": "model.layers.{}.self_attn.q_proj.bias",
    "blk.{}.attn_k.bias": "model.layers.{}.self_attn.k_proj.bias",
    "blk.{}.attn_v.bias": "model.layers.{}.self_attn.v_proj.bias",
    "blk.{}.attn_output.weight": "model.layers.{}.self_attn.o_proj.weight",
    "blk.{}.attn_q_norm.weight": "model.layers.{}.self_attn.q_norm.weight",
    "blk.{}.attn_k_norm.weight": "model.layers.{}.self_attn.k_norm.weight",
    "blk.{}.ffn_gate.weight": "model.layers.{}.mlp.gate_proj.weight",
    "blk.{}.ffn_up.weight": "model.layers.{}.mlp.up_proj.weight",
    "blk.{}.ffn_down.weight": "model.layers.{}.mlp.down_proj.weight",
    "blk.{}.attn_norm.weight": "model.layers.{}.input_layernorm.weight",
    "blk.{}.ffn_norm.weight": "model.layers.{}.post_attention_layernorm.weight",
}
ROPE_FACTORS = "rope_freqs.weight"  # Llama 3: how much slower each pair of features turns

# How text is split before bytes are merged, by llama.cpp's name; None: as in GPT-2.
CONTRACTIONS = r"'s|'t|'re|'ve|'m|'ll|'d"
QWEN_2 = (
    rf"(?i:{CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA_3 = QWEN_2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
PRE_TOKENIZERS = {
    "gpt-2": None,
    "smollm": None,
    "qwen2": QWEN_2,
    "llama-bpe": LLAMA_3,
    "llama3": LLAMA_3,
    "llama-v3": LLAMA_3,
}
NEEDS_GGUF = "the extra `gguf` is needed: uv run --extra gguf rfs ..., or pip install gguf"
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5  # token types in GGUF
# A file of Qwen's names only <|im_end|>, which ends a turn. Its generation_config.json on the hub
# also lists <|endoftext|>, which ends a document and so an answer without the chat template.
# llama.cpp stops there, too, in any model.
END_OF_DOCUMENT = "<|endoftext|>"
CONVERSION = 2  # raised when the folder below would be written differently


def converted_gguf_folder(path: Path, dtype: torch.dtype = torch.bfloat16) -> Path:
    """The folder of this file's model in that number format; converted now if it is not there."""
    crc = 0
    with open(path, "rb") as file:
        while block := file.read(2**22):
            crc = zlib.crc32(block, crc)
    name = f"{path.stem}-{path.stat().st_size:x}-{crc:08x}-{CONVERSION}"
    folder = user_cache() / "models" / (name + "-float32" * (dtype == torch.float32))

    def make() -> None:
        log.info("converting %s, once, to %s", path.name, folder)
        convert_gguf(path, folder, dtype)

    return make_once(folder, make)


def make_once(folder: Path, make: Callable[[], None]) -> Path:
    """A folder of the user's cache. If it is not there, one process makes it now."""
    if folder.exists():
        return folder
    advice = "make room, or set XDG_CACHE_HOME to another folder"
    with disk_errors_as(f"cannot write {folder}", advice):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            if not folder.exists():  # otherwise another process has just made it
                make()
    return folder


def convert_gguf(path: Path, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write the complete folder or none. Callers hold its lock, so a partial folder is left from a
    process that was killed."""
    reader = read_gguf(path)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        write_folder(reader, path, partial, dtype)
        os.replace(partial, folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def read_gguf(path: Path):
    try:
        from gguf import GGUFReader
    except ImportError:
        raise UserError(f"to read {path.name} {NEEDS_GGUF}") from None
    try:
        return GGUFReader(path)
    except Exception as error:  # numpy and struct raise any exception for invalid bytes
        raise UserError(f"{path} is damaged, cut off or not a GGUF file") from error


class Fields:
    """The values of a GGUF file, by name; a missing one is reported in one line."""

    def __init__(self, reader, path: Path) -> None:
        self.reader, self.path = reader, path
        self.architecture = str(self.get("general.architecture"))

    def get(self, name: str, default: Any = None) -> Any:
        field = self.reader.get_field(name)
        return default if field is None else field.contents()

    def model_value(self, name: str, default: Any = None) -> Any:
        """A value of the architecture, such as llama.block_count; required if it has no default."""
        value = self.get(f"{self.architecture}.{name}", default)
        if value is None:
            key = f"{self.architecture}.{name}"
            raise UserError(f"{self.path} has no {key}; it is not a complete model")
        return value


def write_folder(reader, path: Path, folder: Path, dtype: torch.dtype) -> None:
    fields = Fields(reader, path)
    state, rope_factors = gguf_state(fields, dtype)
    cfg = gguf_config(fields, state, rope_factors)
    tokenizer, settings = gguf_tokenizer(fields)
    ends = end_token_ids(fields, tokenizer)
    eos = ends if len(ends) > 1 else ends[0]
    pad = fields.get("tokenizer.ggml.padding_token_id", ends[0])
    generation = {"eos_token_id": eos, "pad_token_id": pad}
    if settings["bos_token"] is not None:
        generation["bos_token_id"] = fields.get("tokenizer.ggml.bos_token_id")
    write_atomically(folder / "tokenizer.json", tokenizer.to_str(pretty=True))
    save_state(state, folder / WEIGHTS)
    for name, content in (
        ("tokenizer_config.json", settings),
        ("generation_config.json", generation),
        ("config.json", config_to_hf(cfg, eos, pad)),
    ):
        write_atomically(folder / name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def end_token_ids(fields: Fields, tokenizer: Tokenizer) -> list[int]:
    """The ids of the tokens that end an answer, the end of a turn first."""
    named = [fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    ends = [end for end in named if end is not None]
    if not ends:
        raise UserError(f"{fields.path} does not say which token ends a text")
    ends += [
        number
        for number, token in tokenizer.get_added_tokens_decoder().items()
        if token.content == END_OF_DOCUMENT and token.special  # a control token of the file
    ]
    return list(dict.fromkeys(ends))


# --- weights and sizes


def gguf_state(fields: Fields, dtype: torch.dtype) -> tuple[dict[str, Tensor], np.ndarray | None]:
    """The tensors by Hugging Face's names, and Llama 3's rope factors if there are any."""
    if fields.architecture not in FAMILIES:
        raise UserError(
            f"{fields.path} is a model of architecture {fields.architecture}; expected qwen3, "
            "qwen2 (Qwen2.5) or llama (Llama 3, SmolLM2)"
        )
    if fields.model_value("expert_count", 0):
        raise UserError(f"{fields.path} is a mixture of experts, but ours is a dense model")
    heads = fields.model_value("attention.head_count")
    groups = fields.model_value("attention.head_count_kv", heads)
    state, rope_factors = {}, None
    for tensor in fields.reader.tensors:
        numbers = dequantized(tensor, fields.path)
        if tensor.name == ROPE_FACTORS:
            rope_factors = numbers
            continue
        _, layer, rest = (*tensor.name.split(".", 2), "", "")[:3]
        general = f"blk.{{}}.{rest}" if layer.isdigit() else tensor.name
        if general not in HF_TENSOR_NAMES:
            raise UserError(f"{fields.path} has a tensor {tensor.name}, which our model lacks")
        rotates = general in ("blk.{}.attn_q.weight", "blk.{}.attn_k.weight")
        if rotates and fields.architecture == "llama":
            numbers = in_hf_row_order(numbers, heads if "_q." in general else groups)
        name = HF_TENSOR_NAMES[general].replace("{}", layer)
        state[name] = torch.from_numpy(numbers).to(dtype)
    return state, rope_factors


def dequantized(tensor, path: Path) -> np.ndarray:
    from gguf.quants import dequantize

    try:
        numbers = dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError:
        kind = tensor.tensor_type.name
        raise UserError(f"{path}: {tensor.name} is of type {kind}, which cannot be read") from None
    return np.array(numbers, dtype=np.float32)


def in_hf_row_order(weight: np.ndarray, heads: int) -> np.ndarray:
    """A head's rows in Hugging Face's order: RoPE rotates feature i with i + half. For the llama
    architecture, llama.cpp rotates 2i with 2i + 1, so its rows come in pairs."""
    pairs = weight.reshape(heads, len(weight) // heads // 2, 2, -1)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)


def gguf_config(
    fields: Fields, state: Mapping[str, Tensor], rope_factors: np.ndarray | None
) -> dict:
    """Our model's configuration."""
    emb_dim = fields.model_value("embedding_length")
    heads = fields.model_value("attention.head_count")
    head_dim = fields.model_value("attention.key_length", emb_dim // heads)
    rotated = fields.model_value("rope.dimension_count", head_dim)
    scaling = fields.model_value("rope.scaling.type", "none")
    if rotated != head_dim or scaling != "none":
        raise UserError(
            f"{fields.path}: its rotary angles ({rotated} of {head_dim} features, scaling "
            f"{scaling}) are not among those that our model computes"
        )
    if "model.embed_tokens.weight" not in state:
        raise UserError(
            f"{fields.path} has no tensor token_embd.weight; it is not a complete model"
        )
    family = FAMILIES[fields.architecture]
    eps = fields.model_value("attention.layer_norm_rms_epsilon")
    cfg = {
        "vocab_size": len(state["model.embed_tokens.weight"]),
        "context_length": fields.model_value("context_length"),
        "emb_dim": emb_dim,
        "n_heads": heads,
        "n_layers": fields.model_value("block_count"),
        "hidden_dim": fields.model_value("feed_forward_length"),
        "n_kv_groups": fields.model_value("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "qk_norm": family.qk_norm,
        "qkv_bias": family.qkv_bias,
        "norm_eps": float(f"{eps:.6g}"),  # 1e-05 in float32 is 9.99999975e-06
        "rope_base": float(fields.model_value("rope.freq_base", 10_000.0)),
        "dtype": state["model.embed_tokens.weight"].dtype,
        "tie_embeddings": "lm_head.weight" not in state,
    }
    if rope_factors is not None:
        cfg["rope_scaling"] = llama_3_scaling(cfg, rope_factors, fields)
    return cfg


def llama_3_scaling(cfg: Mapping, rope_factors: np.ndarray, fields: Fields) -> dict:
    """GGUF has only the result of Llama 3's rule, a number per pair of features. All Llama 3
    models have the same limits, so the rule can be recovered, and checked against the numbers."""
    from reasoning_from_scratch.qwen3 import stretch_context

    scaling = {
        "factor": round(float(rope_factors.max()), 3),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    exponents = torch.arange(0, cfg["head_dim"], 2).float() / cfg["head_dim"]
    slowness = cfg["rope_base"] ** exponents
    expected = stretch_context(slowness, **scaling) / slowness
    factors = torch.from_numpy(rope_factors)
    if factors.shape != expected.shape or not torch.allclose(factors, expected, rtol=1e-3):
        raise UserError(f"{fields.path}: its {ROPE_FACTORS} are not those of a Llama 3 model")
    return scaling


# --- the tokenizer


def gguf_tokenizer(fields: Fields) -> tuple[Tokenizer, dict]:
    """Byte-level BPE from its tokens and merges, and what tokenizer_config.json says."""
    model, pre_tokenizer = (fields.get(f"tokenizer.ggml.{name}") for name in ("model", "pre"))
    tokens, kinds, merges = (
        fields.get(f"tokenizer.ggml.{name}", []) for name in ("tokens", "token_type", "merges")
    )
    is_known = model == "gpt2" and pre_tokenizer in PRE_TOKENIZERS
    if not is_known or not merges or len(kinds) != len(tokens):
        raise UserError(
            f"{fields.path}: its tokenizer ({model}, {pre_tokenizer}) is not byte-level BPE of a "
            f"kind known here ({', '.join(PRE_TOKENIZERS)}); use the model's Hugging Face folder"
        )
    vocabulary = {token: i for i, token in enumerate(tokens) if kinds[i] != UNUSED}
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    llama_3 = PRE_TOKENIZERS[pre_tokenizer] == LLAMA_3
    try:
        bpe = models.BPE(vocabulary, pairs, ignore_merges=llama_3)
    except Exception as error:  # the library raises bare Exception, for a merge of unknown tokens
        raise UserError(f"{fields.path}: its tokenizer is damaged: {error}") from None
    tokenizer = Tokenizer(bpe)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(pre_tokenizer_steps(pre_tokenizer))
    if pre_tokenizer == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    for token, kind in zip(tokens, kinds, strict=True):
        if kind in (CONTROL, USER_DEFINED):
            added = AddedToken(token, special=kind == CONTROL, normalized=False)
            tokenizer.add_tokens([added])
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields.model_value("context_length"),
    }
    for name, short in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown")):
        number = fields.get(f"tokenizer.ggml.{short}_token_id")
        settings[f"{name}_token"] = None if number is None else tokens[number]
    bos = settings["bos_token"]
    if bos is not None and fields.get("tokenizer.ggml.add_bos_token", llama_3):
        number = fields.get("tokenizer.ggml.bos_token_id")
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, number)]
        )
    if template := fields.get("tokenizer.chat_template"):
        settings["chat_template"] = template
    return tokenizer, settings


def pre_tokenizer_steps(pre_tokenizer: str) -> list:
    if pattern := PRE_TOKENIZERS[pre_tokenizer]:
        return [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    digits = [pre_tokenizers.Digits(individual_digits=True)] if pre_tokenizer == "smollm" else []
    return [*digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
