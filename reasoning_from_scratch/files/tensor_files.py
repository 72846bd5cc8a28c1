"""Tensors and configurations in files: our names and Hugging Face's, .pth and safetensors."""

import json
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import replacing

# Our name -> Hugging Face's; {} is the number of the layer.
NAMES = {
    "tok_emb.weight": "model.embed_tokens.weight",
    "trf_blocks.{}.att.W_query.weight": "model.layers.{}.self_attn.q_proj.weight",
    "trf_blocks.{}.att.W_key.weight": "model.layers.{}.self_attn.k_proj.weight",
    "trf_blocks.{}.att.W_value.weight": "model.layers.{}.self_attn.v_proj.weight",
    "trf_blocks.{}.att.W_query.bias": "model.layers.{}.self_attn.q_proj.bias",
    "trf_blocks.{}.att.W_key.bias": "model.layers.{}.self_attn.k_proj.bias",
    "trf_blocks.{}.att.W_value.bias": "model.layers.{}.self_attn.v_proj.bias",
    "trf_blocks.{}.att.out_proj.weight": "model.layers.{}.self_attn.o_proj.weight",
    "trf_blocks.{}.att.q_norm.scale": "model.layers.{}.self_attn.q_norm.weight",
    "trf_blocks.{}.att.k_norm.scale": "model.layers.{}.self_attn.k_norm.weight",
    "trf_blocks.{}.ff.fc1.weight": "model.layers.{}.mlp.gate_proj.weight",
    "trf_blocks.{}.ff.fc2.weight": "model.layers.{}.mlp.up_proj.weight",
    "trf_blocks.{}.ff.fc3.weight": "model.layers.{}.mlp.down_proj.weight",
    "trf_blocks.{}.norm1.scale": "model.layers.{}.input_layernorm.weight",
    "trf_blocks.{}.norm2.scale": "model.layers.{}.post_attention_layernorm.weight",
    "final_norm.scale": "model.norm.weight",
    "out_head.weight": "lm_head.weight",
}
HF_NAMES = {theirs: ours for ours, theirs in NAMES.items()}
# Some Llama files also hold this tensor, which is computed from the configuration.
COMPUTED_BUFFER = "rotary_emb.inv_freq"
# Our name of a size in a configuration -> Hugging Face's.
HF_SIZES = {
    "vocab_size": "vocab_size",
    "context_length": "max_position_embeddings",
    "emb_dim": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_layers": "num_hidden_layers",
    "hidden_dim": "intermediate_size",
    "n_kv_groups": "num_key_value_heads",
}
SHARD_INDEX, WEIGHTS = "model.safetensors.index.json", "model.safetensors"
MAX_SIZE, MAX_LAYERS = 10_000_000, 1_000  # Qwen3-32B: 151,936 and 64
SHARD_NAME = re.compile(r"[\w-][\w.-]{0,200}", re.ASCII)  # a file beside its index, never elsewhere
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
WRAPPERS = re.compile(r"^((_orig_mod|module)\.)+")  # of torch.compile, DistributedDataParallel


def _rename(state: Mapping[str, Tensor], table: Mapping[str, str]) -> dict[str, Tensor]:
    """Translate every name that the table knows; leave the others for check_state to report."""
    renamed = {}
    for name, tensor in state.items():
        name = WRAPPERS.sub("", name)
        layer = re.search(r"\.(\d+)\.", name)
        general = name.replace(layer[0], ".{}.", 1) if layer else name
        new = table.get(general)
        renamed[new.replace("{}", layer[1]) if new and layer else new or name] = tensor
    return renamed


def to_our_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    stored = {name: t for name, t in state.items() if not name.endswith(COMPUTED_BUFFER)}
    return _rename(stored, HF_NAMES)


def to_hf_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return _rename(state, NAMES)


# ---- reading files


def load_state(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a .pth or .safetensors file or of a Hugging Face folder, by our names.

    Tensors stay in the file, mapped into memory, until they are used.
    """
    path = Path(path)
    if path.is_dir():
        state = _read_folder(path)
    elif not path.is_file():
        raise UserError(f"there is no checkpoint {path}")
    elif path.suffix == ".safetensors":
        state = _read_safetensors(path)
    else:
        state = _read_pth(path)
    return to_our_names(state)


def _read_folder(folder: Path) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    for name in weight_files(folder):
        state |= _read_safetensors(folder / name)
    return state


def weight_files(folder: Path) -> list[str]:
    """The names of a folder's weight files: one file or, if that is not there, the shards of an
    index, as transformers looks for them."""
    sharded = (folder / SHARD_INDEX).exists() and not (folder / WEIGHTS).exists()
    return shard_names(folder / SHARD_INDEX) if sharded else [WEIGHTS]


def shard_names(index: Path) -> list[str]:
    names = read_json(index).get("weight_map")
    names = list(names.values()) if isinstance(names, dict) else [None]
    if not all(isinstance(name, str) and SHARD_NAME.fullmatch(name) for name in names):
        raise UserError(f"{index}: expected a weight_map of names of files beside it")
    return sorted(set(names))


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise UserError(f"{path.parent} is incomplete: expected a file {path.name}, found none")
    try:
        state = load_file(path)
    except Exception as error:  # a shape beyond 64 bits reaches PyTorch, which raises TypeError
        raise UserError(f"{path} is damaged, cut off or not a safetensors file") from error
    return check_tensors(state, path)


def _read_pth(path: Path) -> dict[str, Tensor]:
    """torch.load runs no code from the file: weights_only refuses everything but tensors."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"refused {path}: PyTorch finds more than tensors in it, and that could run code"
        ) from error
    except Exception as error:  # an unpickler that reads another kind of file raises anything
        raise UserError(f"{path} is damaged, cut off or not a PyTorch file") from error
    return check_tensors(state, path)


def check_tensors(state: Any, path: Path) -> dict[str, Tensor]:
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise UserError(f"{path} holds a {type(state).__name__}, expected a state dict of tensors")
    for name, value in state.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise UserError(f"{path}: {name} is {kind}, expected a tensor of floats")
    return state


def read_json(path: Path) -> dict:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path.parent} is not a model folder: it has no {path.name}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise UserError(f"{path} is not a JSON object with fields")
    return fields


def save_state(state: Mapping[str, Tensor], path: str | Path) -> None:
    """Write a .safetensors or .pth file; the old one stays until the new one is complete."""
    path = Path(path)
    if path.suffix not in (".safetensors", ".pth"):
        raise UserError(f"cannot save {path}: expected a name that ends in .safetensors or .pth")
    with replacing(path) as temporary:
        if path.suffix == ".pth":
            torch.save(dict(state), temporary)
        else:
            tensors = {name: tensor.contiguous() for name, tensor in state.items()}
            save_file(tensors, temporary, metadata={"format": "pt"})  # transformers looks for it


# ---- configurations


class Family(NamedTuple):
    """What our model does for the models of one of Hugging Face's model types."""

    architecture: str
    qk_norm: bool = False
    qkv_bias: bool = False


FAMILIES = {
    "qwen3": Family("Qwen3ForCausalLM", qk_norm=True),
    "qwen2": Family("Qwen2ForCausalLM", qkv_bias=True),  # Qwen2.5, too
    "llama": Family("LlamaForCausalLM"),  # Llama 2 and 3, SmolLM2
}
LLAMA_3_SCALING = (
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
)


def family_of(cfg: Mapping) -> str:
    """The model_type of our configuration."""
    features = (cfg["qk_norm"], cfg.get("qkv_bias", False))
    return next(name for name, f in FAMILIES.items() if (f.qk_norm, f.qkv_bias) == features)


def config_from_hf(hf: Mapping, origin: str | Path = "config.json") -> dict:
    """Our configuration for Hugging Face's; refuses what our model cannot compute."""
    # transformers 5 has one object; before, rope_theta and rope_scaling stood side by side.
    rope = _fields(hf, "rope_parameters") | _fields(hf, "rope_scaling")
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    refuse_unsupported(hf, rope, rope_type, origin)
    kind = hf["model_type"]
    family = FAMILIES[kind]
    # Missing values get the defaults of transformers' classes.
    given = {name: value for name, value in hf.items() if value is not None}
    heads = _size(hf, "num_attention_heads", origin)
    if kind == "llama":
        given = {"num_key_value_heads": heads, "rope_theta": 10_000.0} | given
    head_dim = 128 if kind == "qwen3" else _size(hf, "hidden_size", origin) // heads
    theta = rope.get("rope_theta") or given.get("rope_theta")
    sizes = {key: _size(given, theirs, origin) for key, theirs in HF_SIZES.items()}
    cfg: dict[str, Any] = sizes | {
        "head_dim": _size({"head_dim": head_dim} | given, "head_dim", origin),
        "qk_norm": family.qk_norm,
        "rope_base": float(_number(theta, "rope_theta", origin)),
        "dtype": _dtype(hf.get("dtype") or hf.get("torch_dtype") or "float32", origin),
        "tie_embeddings": bool(hf.get("tie_word_embeddings", False)),
    }
    if cfg["n_heads"] % cfg["n_kv_groups"] or cfg["head_dim"] % 2:
        raise UserError(
            f"{origin}: expected num_attention_heads to be a multiple of num_key_value_heads, and "
            f"an even head_dim; found {heads}, {cfg['n_kv_groups']} and {cfg['head_dim']}"
        )
    # Qwen3's configuration, as the book writes it, has none of these.
    if family.qkv_bias:
        cfg["qkv_bias"] = True
    eps = _number(given.get("rms_norm_eps", 1e-6), "rms_norm_eps", origin)
    if eps != 1e-6:
        cfg["norm_eps"] = float(eps)
    if rope_type == "llama3":
        cfg["rope_scaling"] = {
            name: _number(rope.get(name), name, origin) for name in LLAMA_3_SCALING
        }
    return cfg


def refuse_unsupported(hf: Mapping, rope: Mapping, rope_type: object, origin: str | Path) -> None:
    """Raises the first reason why our model cannot compute the one that `hf` describes."""
    kind, layers = hf.get("model_type"), hf.get("layer_types") or ["full_attention"]
    if any("expert" in name for name in hf) or "moe" in str(kind) or kind == "mixtral":
        raise UserError(f"{origin}: {kind} is a mixture of experts, but ours is a dense model")
    if kind not in list(FAMILIES):
        raise UserError(
            f"{origin}: model_type is {kind}; expected qwen3, qwen2 (Qwen2.5) or llama (Llama 2 "
            "and 3, SmolLM2)"
        )
    full = isinstance(layers, list) and set(map(str, layers)) == {"full_attention"}
    reasons = {
        "its attention looks through a sliding window, ours at the whole text": (
            bool(hf.get("use_sliding_window")) or not full
        ),
        "its attention_bias also adds to the attention's output, ours only to q, k and v": bool(
            hf.get("attention_bias") and kind != "qwen2"  # which always adds to q, k and v alone
        ),
        "its feed-forward layers have biases (mlp_bias), ours have none": bool(hf.get("mlp_bias")),
        f"its hidden_act is {hf.get('hidden_act')}, ours is silu": hf.get("hidden_act", "silu")
        != "silu",
        f"its rotary angles are of type {rope_type}, ours default or llama3": rope_type
        not in ["default", "llama3"],
        "it rotates only a part of each head (partial_rotary_factor), ours all of it": 1
        != (hf.get("partial_rotary_factor") or rope.get("partial_rotary_factor") or 1),
        "its weights are quantized (quantization_config); use the folder of the full weights": (
            hf.get("quantization_config") is not None
        ),
    }
    for reason, holds in reasons.items():
        if holds:
            raise UserError(f"{origin}: {reason}")


def _fields(hf: Mapping, name: str) -> dict:
    value = hf.get(name)
    return value if isinstance(value, dict) else {}


def _size(hf: Mapping, name: str, origin: str | Path) -> int:
    if type(_number(hf.get(name), name, origin)) is not int:
        raise UserError(f"{origin}: expected a whole number as {name}, found {hf[name]}")
    largest = MAX_LAYERS if name == "num_hidden_layers" else MAX_SIZE
    if hf[name] > largest:
        raise UserError(f"{origin}: expected {name} up to {largest:,}, found {hf[name]}")
    return hf[name]


def _number(value: object, name: str, origin: str | Path) -> int | float:
    if value is None:
        raise UserError(f"{origin} has no {name}")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e18:
        raise UserError(f"{origin}: expected a number above 0 as {name}, found {value}")
    return value


def _dtype(name: object, origin: str | Path) -> torch.dtype:
    by_name = {str(dtype).removeprefix("torch."): dtype for dtype in FLOATS}
    if name not in list(by_name):
        raise UserError(f"{origin}: expected dtype {' or '.join(by_name)}, found {name}")
    return by_name[name]


def config_to_hf(cfg: Mapping, eos_token_id: int | list[int], pad_token_id: int) -> dict:
    """Hugging Face's config.json for our configuration, in the form of the published ones."""
    kind = family_of(cfg)
    scaling = cfg.get("rope_scaling")
    return {
        "architectures": [FAMILIES[kind].architecture],
        "model_type": kind,
        "vocab_size": cfg["vocab_size"],
        "max_position_embeddings": cfg["context_length"],
        "hidden_size": cfg["emb_dim"],
        "num_attention_heads": cfg["n_heads"],
        "num_hidden_layers": cfg["n_layers"],
        "intermediate_size": cfg["hidden_dim"],
        "head_dim": cfg["head_dim"],
        "num_key_value_heads": cfg["n_kv_groups"],
        "rope_theta": cfg["rope_base"],
        **({"rope_scaling": {"rope_type": "llama3", **scaling}} if scaling else {}),
        "torch_dtype": str(cfg["dtype"]).removeprefix("torch."),
        "tie_word_embeddings": bool(cfg.get("tie_embeddings", False)),
        "hidden_act": "silu",
        "attention_bias": False,
        "rms_norm_eps": cfg.get("norm_eps", 1e-6),
        "eos_token_id": eos_token_id,
        "pad_token_id": pad_token_id,
    }
