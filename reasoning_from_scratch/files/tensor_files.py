"""Tensors and configurations in files: our names and Hugging Face's, .pth and safetensors."""

import json
import pickle
import pickletools
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

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
# The same for the sizes in a configuration.
SIZES = {
    "vocab_size": "vocab_size",
    "context_length": "max_position_embeddings",
    "emb_dim": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_layers": "num_hidden_layers",
    "hidden_dim": "intermediate_size",
    "n_kv_groups": "num_key_value_heads",
}
MAX_SIZE, MAX_LAYERS = 10_000_000, 1_000  # Qwen3-32B: 151,936 and 64
SHARD = re.compile(r"[\w-][\w.-]{0,200}", re.ASCII)  # a file beside its index, never elsewhere
WRAPPERS = re.compile(r"^((_orig_mod|module)\.)+")  # of torch.compile, DistributedDataParallel


FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def _rename(state: Mapping[str, Tensor], table: Mapping[str, str]) -> dict[str, Tensor]:
    """Translate every name that the table knows; leave the others for check_state to report."""
    renamed = {}
    for name, tensor in state.items():
        name = WRAPPERS.sub("", name)
        layer = re.search(r"\.(\d+)\.", name)
        general = name.replace(layer[0], ".{}.", 1) if layer else name
        known = table.get(general)
        renamed[known.replace("{}", layer[1]) if known and layer else known or name] = tensor
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
    for shard in _shards(index):
        state |= _read_safetensors(folder / shard)
    return state


def _shards(index: Path) -> list[str]:
    names = read_json(index).get("weight_map")
    names = list(names.values()) if isinstance(names, dict) else [None]
    if not all(isinstance(name, str) and SHARD.fullmatch(name) for name in names):
        raise UserError(f"{index}: expected a weight_map of names of files beside it")
    return sorted(set(names))


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise UserError(f"{path.parent} is incomplete: expected a file {path.name}, found none")
    try:
        state = load_file(path)
        check_tensors(state, path)
    except Damaged as error:
        raise UserError(f"{path} is damaged, cut off or not a safetensors file: {error}") from None
    except Exception as error:  # a shape beyond 64 bits reaches PyTorch, which raises TypeError
        raise UserError(f"{path} is damaged, cut off or not a safetensors file") from error
    return state


def _read_pth(path: Path) -> dict[str, Tensor]:
    try:
        check_pth(path)
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        if is_state(state):
            check_tensors(state, path)
    except Damaged as error:
        raise UserError(f"{path} is damaged, cut off or not a PyTorch file: {error}") from None
    except pickle.UnpicklingError as error:
        raise UserError(
            f"refused {path}: PyTorch finds more than tensors in it, and that could run code"
        ) from error
    except Exception as error:  # an unpickler that reads another kind of file raises anything
        raise UserError(f"{path} is damaged, cut off or not a PyTorch file") from error
    if not is_state(state):
        raise UserError(f"{path} holds {_kind(state)}, expected a state dict of tensors")
    return state


def is_state(found: object) -> bool:
    return isinstance(found, dict) and all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in found.items()
    )


def _kind(found: object) -> str:
    if isinstance(found, dict):
        return f"a dict of {', '.join(map(str, list(found)[:4]))}"
    return f"a {type(found).__name__}"


def read_json(path: Path) -> dict:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path.parent} is not a model folder: it has no {path.name}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UserError(f"{path} is not a JSON object with fields")
    return found


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
    rope = _fields(hf, "rope_parameters")  # transformers 5; before: rope_theta, rope_scaling
    scaling = _fields(hf, "rope_scaling")
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
    theta = hf.get("rope_theta") or rope.get("rope_theta")
    return {key: _size(hf, theirs, origin) for key, theirs in SIZES.items()} | {
        "head_dim": _size({"head_dim": 128} | dict(hf), "head_dim", origin),  # Qwen3Config's
        "qk_norm": True,
        "rope_base": float(_number(theta, "rope_theta", origin)),
        "dtype": _dtype(hf.get("dtype") or hf.get("torch_dtype") or "float32", origin),
        "tie_embeddings": bool(hf.get("tie_word_embeddings", False)),
    }


def _fields(hf: Mapping, name: str) -> dict:
    found = hf.get(name)
    return found if isinstance(found, dict) else {}


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
    known = {str(dtype).removeprefix("torch."): dtype for dtype in FLOATS.values()}
    if name not in list(known):
        raise UserError(f"{origin}: expected dtype {' or '.join(known)}, found {name}")
    return known[name]


def config_to_hf(cfg: Mapping, eos_token_id: int | list[int], pad_token_id: int) -> dict:
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


# --- files from strangers: PyTorch (weights_only) refuses a pickle that would run code, safetensors
# a header that lies. Both still open what unpacks to more than itself, numbers of any kind, and
# numbers that are not in the file. ---


class Damaged(Exception):
    """The file is not what it says it is; the message says where."""


def check_pth(path: Path) -> None:
    """Damaged unless this is a zip with one pickle in it, as torch.save has written since 1.6."""
    if not zipfile.is_zipfile(path):
        raise Damaged("it is no whole zip")
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        # torch.save compresses nothing.
        if sum(entry.file_size for entry in entries) > path.stat().st_size:
            raise Damaged("it unpacks to more than its size")
        programs = [entry for entry in entries if entry.filename.endswith("/data.pkl")]
        if len(programs) != 1:
            raise Damaged(f"{len(programs)} entries of the name data.pkl")
        check_tuples(archive.read(programs[0]))


def check_tuples(program: bytes) -> None:
    """Damaged if a pickle uses a tuple twice, which torch.save never does.

    A key that is a tuple of two equal tuples of two equal tuples ... is 500 bytes long, and takes
    years to hash: opening the file would never end.
    """
    tuples, last = set(), ""
    for instruction, argument, _ in pickletools.genops(program):
        if instruction.name in ("BINPUT", "LONG_BINPUT") and last.startswith("TUPLE"):
            tuples.add(argument)
        if instruction.name in ("BINGET", "LONG_BINGET") and argument in tuples:
            raise Damaged("it uses a tuple twice")
        last = instruction.name


def check_tensors(state: Mapping[str, Tensor], path: Path) -> None:
    """Damaged unless these are float numbers that really stand in the file."""
    for name, tensor in state.items():
        if tensor.dtype not in FLOATS.values():
            raise Damaged(f"{name} has numbers of kind {tensor.dtype}, expected a float")
        plain = tensor.layout == torch.strided and tensor.device.type == "cpu"
        if not plain or tensor.numel() == 0:
            raise Damaged(f"{name} has no plain numbers")
    # A head that is tied to the embedding stands in the file once and in the state twice.
    if sum(tensor.numel() * tensor.itemsize for tensor in state.values()) > 2 * path.stat().st_size:
        raise Damaged("its tensors are larger than the file")
