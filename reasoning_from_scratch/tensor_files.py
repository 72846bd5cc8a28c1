"""Tensors and configurations in files: our names and Hugging Face's, .pth and safetensors."""

import json
import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.transfers import replacing

# Our name -> Hugging Face's; {} is the number of the layer.
NAMES = {
    "tok_emb.weight": "model.embed_tokens.weight",
    "trf_blocks.{}.att.W_query.weight": "model.layers.{}.self_attn.q_proj.weight",
    "trf_blocks.{}.att.W_key.weight": "model.layers.{}.self_attn.k_proj.weight",
    "trf_blocks.{}.att.W_value.weight": "model.layers.{}.self_attn.v_proj.weight",
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
WRAPPERS = re.compile(r"^((_orig_mod|module)\.)+")  # of torch.compile, DistributedDataParallel


def _rename(state: Mapping[str, Tensor], table: Mapping[str, str]) -> dict[str, Tensor]:
    """Translate every name that the table knows; leave the others for check_state to report."""
    renamed = {}
    for name, tensor in state.items():
        name = WRAPPERS.sub("", name)
        layer = re.search(r"\.(\d+)\.", name)
        general = name.replace(layer[0], ".{}.", 1) if layer else name
        renamed[table.get(general, general).format(layer and layer[1])] = tensor
    return renamed


def to_our_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return _rename(state, HF_NAMES)


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
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return _read_safetensors(folder / "model.safetensors")
    state = {}
    for shard in sorted(set(read_json(index)["weight_map"].values())):
        state |= _read_safetensors(folder / shard)
    return state


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise UserError(f"{path.parent} is incomplete: expected a file {path.name}, found none")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path} is damaged, cut off or not a safetensors file") from error


def _read_pth(path: Path) -> dict[str, Tensor]:
    try:
        # Only files in the zip format can be mapped; PyTorch has written them since 1.6.
        state = torch.load(
            path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
        )
    except Exception as error:  # an unpickler that reads another kind of file raises anything
        if isinstance(error, pickle.UnpicklingError) and "global" in str(error).lower():
            raise UserError(
                f"refused {path}: it is a pickle that would run code, expected tensors only"
            ) from None
        raise UserError(f"{path} is damaged, cut off or not a PyTorch file") from error
    is_state = isinstance(state, dict) and all(isinstance(v, Tensor) for v in state.values())
    if not is_state:
        raise UserError(f"{path} holds {_kind(state)}, expected a state dict of tensors")
    return state


def _kind(found: object) -> str:
    if isinstance(found, dict):
        return f"a dict of {', '.join(map(str, list(found)[:4]))}"
    return f"a {type(found).__name__}"


def read_json(path: Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path.parent} is not a model folder: it has no {path.name}") from None
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from None


def save_state(state: Mapping[str, Tensor], path: str | Path) -> None:
    """Write a .safetensors or .pth file; the old one stays until the new one is whole."""
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


def config_from_hf(hf: Mapping, origin: str | Path = "config.json") -> dict:
    """Our configuration for Hugging Face's; what our model cannot compute is refused."""
    rope = hf.get("rope_parameters") or {}  # transformers 5; before: rope_theta, rope_scaling
    scaling = hf.get("rope_scaling") or {}
    needed = {
        "model_type": ("qwen3", hf.get("model_type")),
        "hidden_act": ("silu", hf.get("hidden_act", "silu")),
        "attention_bias": (False, hf.get("attention_bias", False)),
        "use_sliding_window": (False, hf.get("use_sliding_window", False)),
        "rms_norm_eps": (1e-6, hf.get("rms_norm_eps", 1e-6)),
        "rope_type": ("default", scaling.get("rope_type", rope.get("rope_type", "default"))),
        "quantization_config": (None, hf.get("quantization_config")),
    }
    for key, (expected, found) in needed.items():
        if found != expected:
            raise UserError(f"{origin}: expected {key} {expected}, found {found}")
    try:
        return {
            "vocab_size": hf["vocab_size"],
            "context_length": hf["max_position_embeddings"],
            "emb_dim": hf["hidden_size"],
            "n_heads": hf["num_attention_heads"],
            "n_layers": hf["num_hidden_layers"],
            "hidden_dim": hf["intermediate_size"],
            "head_dim": hf.get("head_dim", 128),  # the default of Qwen3Config
            "qk_norm": True,
            "n_kv_groups": hf["num_key_value_heads"],
            "rope_base": float(hf.get("rope_theta") or rope["rope_theta"]),
            "dtype": getattr(torch, hf.get("dtype") or hf.get("torch_dtype") or "float32"),
            "tie_embeddings": hf.get("tie_word_embeddings", False),
        }
    except KeyError as error:
        raise UserError(f"{origin} has no {error.args[0]}") from None


def config_to_hf(cfg: Mapping, eos_token_id: int, pad_token_id: int) -> dict:
    """Hugging Face's config.json for our configuration, in the form of the published ones."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": cfg["vocab_size"],
        "max_position_embeddings": cfg["context_length"],
        "hidden_size": cfg["emb_dim"],
        "num_attention_heads": cfg["n_heads"],
        "num_hidden_layers": cfg["n_layers"],
        "intermediate_size": cfg["hidden_dim"],
        "head_dim": cfg["head_dim"],
        "num_key_value_heads": cfg["n_kv_groups"],
        "rope_theta": cfg["rope_base"],
        "torch_dtype": str(cfg["dtype"]).removeprefix("torch."),
        "tie_word_embeddings": bool(cfg.get("tie_embeddings", False)),
        "hidden_act": "silu",
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "eos_token_id": eos_token_id,
        "pad_token_id": pad_token_id,
    }
