"""Opens models by name, folder or file, with their tokenizers; saves and exports them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from reasoning_from_scratch import qwen3
from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.files.adapters import add_adapter
from reasoning_from_scratch.files.disk import replacing
from reasoning_from_scratch.files.downloads import download_qwen3_small
from reasoning_from_scratch.files.gguf_files import converted_gguf_folder
from reasoning_from_scratch.files.hub_models import hub_model_folder, qwen, smollm2
from reasoning_from_scratch.files.model_names import (
    ADAPTER_CONFIG,
    QWEN3_KINDS,
    QWEN_NAMES,
    SHIPPED,
    base_model_of,
    check_model_name,
    is_hub_name,
    shipped_folder,
    trained_folder,
)
from reasoning_from_scratch.files.tensor_files import (
    NAMES,
    config_from_hf,
    config_to_hf,
    load_state,
    read_json,
    save_state,
    to_hf_names,
    to_our_names,
)
from reasoning_from_scratch.problems import PROMPT_FILE, load_prompt_format
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.text import expand_home
from reasoning_from_scratch.tokenizer import (
    END_OF_TURN,
    ModelTokenizer,
    Qwen3Tokenizer,
    model_stop_ids,
)

__all__ = ["NAMES", "load_state", "to_hf_names", "to_our_names"]  # of tensor_files

GENERATION_FILE, TOKENIZER_CONFIG = "generation_config.json", "tokenizer_config.json"
# A model folder's other files, besides weights and config.json. A save copies them unchanged.
COPIED_FILES = (
    "tokenizer.json",
    TOKENIZER_CONFIG,
    GENERATION_FILE,
    "chat_template.jinja",
    "chat_template.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    PROMPT_FILE,
)


# ---- a model from tensors


def build_model(
    cfg: Mapping, state: dict[str, Tensor], origin: str | Path, dtype: torch.dtype | None = None
) -> Qwen3Model:
    """A model whose parameters are the tensors of `state` themselves, not copies of them.

    `dtype` None keeps the file's, and allocates nothing: the tensors stay mapped from the file.
    """
    embedding = state.get("tok_emb.weight", torch.empty(0))  # if it is missing, check_state says so
    dtype = dtype or embedding.dtype
    # A separate head is used, whatever the configuration says: transformers does the same.
    tied = cfg.get("tie_embeddings", False) and _head_is_embedding(state)
    model = weightless_model({**cfg, "dtype": dtype, "tie_embeddings": tied})
    if tied:
        state = {**state, "out_head.weight": embedding}
    check_state(state, model, origin)
    model.load_state_dict({name: t.to(dtype) for name, t in state.items()}, assign=True)
    if tied:
        model.out_head.weight = model.tok_emb.weight
    return model.eval()


def weightless_model(cfg: Mapping) -> Qwen3Model:
    """A model on the meta device: its parameters have shapes, but neither memory nor values."""
    with torch.device("meta"), NoRandomInit():
        return Qwen3Model(cfg)


class NoRandomInit(TorchFunctionMode):
    """Inside this context `nn.Embedding` draws no random numbers. On the meta device they would be
    lost, and still cost seconds: torch imports its compiler for them."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        return kwargs["tensor"] if function is nn.init.normal_ else function(*args, **kwargs)


def check_state(state: Mapping[str, Tensor], model: Qwen3Model, origin: str | Path) -> None:
    """Raises a UserError unless all names and shapes agree."""
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    different = [n for n in {**expected, **shapes} if expected.get(n) != shapes.get(n)]
    if different:
        name = different[0]
        raise UserError(
            f"{origin} holds another model ({len(different)} tensors differ): expected {name} "
            f"{expected.get(name, 'absent')}, found {shapes.get(name, 'none')}"
        )


def load_weights(model: Qwen3Model, path: str | Path) -> None:
    """Copy the tensors of a file or folder into `model`, on its device and in its dtype."""
    _copy_into(model, load_state(path), path)


def load_hf_weights_into_qwen(model: Qwen3Model, param_config: Mapping, params: Mapping) -> None:
    """Copy tensors by Hugging Face's names into `model`, which was made from `param_config`."""
    _copy_into(model, to_our_names(params), "params")


def _copy_into(model: Qwen3Model, state: dict[str, Tensor], origin: str | Path) -> None:
    if "tok_emb.weight" in state:  # the file of a tied model has no separate head
        state.setdefault("out_head.weight", state["tok_emb.weight"])
    check_state(state, model, origin)
    if model.cfg.get("tie_embeddings", False) and not _head_is_embedding(state):
        raise UserError(
            f"{origin} has a head of its own; in this model head and embedding are one matrix, "
            "which cannot be both"
        )
    model.load_state_dict(state)


# ---- the configuration of a bare file

FIRST_QUERY = "trf_blocks.0.att.W_query.weight"


def config_from_state(state: Mapping[str, Tensor], origin: str | Path = "the file") -> dict:
    """The configuration of a bare state dict: a known one with these shapes, else one from them."""
    shape = {name: tuple(tensor.shape) for name, tensor in state.items()}
    if FIRST_QUERY in shape and "trf_blocks.0.att.q_norm.scale" not in shape:  # no Qwen3
        raise UserError(
            f"{origin}: the head width and the angles of a Qwen2.5, Llama or SmolLM2 model are "
            "not in the file; give a folder with its config.json"
        )
    try:
        vocab_size, emb_dim = shape["tok_emb.weight"]
        head_dim = shape["trf_blocks.0.att.q_norm.scale"][0]
        by_shape = {
            "vocab_size": vocab_size,
            "emb_dim": emb_dim,
            "n_heads": shape[FIRST_QUERY][0] // head_dim,
            "n_layers": len({n.split(".")[1] for n in shape if n.startswith("trf_blocks.")}),
            "hidden_dim": shape["trf_blocks.0.ff.fc1.weight"][0],
            "head_dim": head_dim,
            "n_kv_groups": shape["trf_blocks.0.att.W_key.weight"][0] // head_dim,
        }
    except (KeyError, ValueError, IndexError, ZeroDivisionError):
        names = ", ".join(list(shape)[:3]) or "nothing"
        raise UserError(f"{origin}: expected the names of a Qwen3 model, found {names}") from None
    tied = {"tie_embeddings": _head_is_tied(state)}
    for config in _known_configs():
        if by_shape.items() <= config.items():
            return config | tied
    rest = {key: qwen3.QWEN_CONFIG_06_B[key] for key in ("context_length", "qk_norm", "rope_base")}
    return by_shape | rest | tied | {"dtype": state["tok_emb.weight"].dtype}


def _head_is_tied(state: Mapping[str, Tensor]) -> bool:
    """A tied model's safetensors file has no head; its .pth has one tensor under two names."""
    head = state.get("out_head.weight")
    return head is None or head.data_ptr() == state["tok_emb.weight"].data_ptr()


def _head_is_embedding(state: Mapping[str, Tensor]) -> bool:
    """Whether head and embedding are equal, so that one matrix can serve as both."""
    head, embedding = state.get("out_head.weight"), state.get("tok_emb.weight")
    return head is None or head is embedding or embedding is None or torch.equal(head, embedding)


def _known_configs() -> list[dict]:
    """Shapes do not show the base of the rotary angles; these configurations have it."""
    sizes = [cfg for name, cfg in vars(qwen3).items() if name.startswith("QWEN_CONFIG_")]
    return sizes + [config_from_hf(read_json(file)) for file in shipped_configs()]


def shipped_configs() -> list[Path]:
    """The config.json of each model that came with this installation."""
    files = [shipped_folder(name) / "config.json" for name in SHIPPED]
    return [file for file in files if file.exists()]


# ---- a model and its tokenizer, from a name, a folder or a file


def load_model_and_tokenizer(
    which_model: str | Path,
    device: str | torch.device = "cpu",
    use_compile: bool = False,
    local_dir: str | Path = "qwen3",
    *,
    dtype: torch.dtype | Callable[[Mapping], torch.dtype] | None = None,
) -> tuple[Qwen3Model, ModelTokenizer]:
    """A name of MODEL_NAMES ("tiny" is "tiny-base"), OWNER/NAME on the hub, a folder, or a
    file (.pth, .safetensors, .gguf). A folder of LoRA means its base with the LoRA merged into it.

    `local_dir` is where the files of Qwen3-0.6B are, or are downloaded to. `dtype` may be a
    function of the model's configuration; None keeps that of the file.
    """
    if base := base_model_of(which_model):
        model, tokenizer = load_model_and_tokenizer(
            base, device, use_compile, local_dir, dtype=dtype
        )
        folder = trained_folder(which_model)
        add_adapter(model, folder, base)
        if prompt := load_prompt_format(folder):
            tokenizer.files[PROMPT_FILE] = prompt.to_json()
        return model, tokenizer
    # A function of the configuration may choose float32, too.
    in_float32 = dtype not in (None, torch.bfloat16)
    path = _weights_path(which_model, local_dir, in_float32)
    state = load_state(path)  # by our names, still in the file
    if path.is_dir():
        cfg = config_from_hf(read_json(path / "config.json"), path / "config.json")
    else:
        cfg = config_from_state(state, path)
    number_format = dtype(cfg) if callable(dtype) else dtype
    model = build_model(cfg, state, path, number_format)
    tokenizer = _tokenizer_for(path, model.cfg, local_dir)
    if which_model == "instruct" and isinstance(tokenizer, Qwen3Tokenizer):
        tokenizer.add_thinking = False
    model.to(device)
    if use_compile:
        model.compile()  # in place: the names in its state dict stay the published ones
    return model, tokenizer


def load_tokenizer_only(which_model: str | Path, local_dir: str | Path = "qwen3") -> ModelTokenizer:
    """The tokenizer that load_model_and_tokenizer would return, without the weights."""
    which_model = base_model_of(which_model) or which_model
    if which_model in QWEN3_KINDS:
        tokenizer = _qwen3_tokenizer(QWEN3_KINDS[which_model], local_dir)
        if which_model == "instruct":
            tokenizer.add_thinking = False
        return tokenizer
    path = _weights_path(which_model, local_dir)
    if path.is_dir():
        return _folder_tokenizer(path)
    return _tokenizer_for(path, config_from_state(load_state(path), path), local_dir)


def model_folder(which_model: str | Path) -> Path:
    """Where a model's files are; those of a published model are downloaded first."""
    return _weights_path(which_model, "qwen3")


def _weights_path(which_model: str | Path, local_dir: str | Path, in_float32: bool = False) -> Path:
    """`in_float32`: a GGUF file's weights are not rounded to bfloat16."""
    name = "tiny-base" if which_model == "tiny" else str(which_model)
    if name in SHIPPED:
        return shipped_checkpoint(name)
    if name in QWEN3_KINDS:
        kind = QWEN3_KINDS[name]
        download_qwen3_small(kind, out_dir=local_dir)
        return Path(local_dir) / f"qwen3-0.6B-{kind}.pth"
    if name == "smollm2":
        return smollm2()
    if name in QWEN_NAMES:
        return converted_gguf_folder(qwen(name))
    if is_hub_name(name) and not Path(name).exists():
        return hub_model_folder(name)
    path = expand_home(name)
    check_model_name(path)
    if path.suffix == ".gguf" and path.is_file():
        return converted_gguf_folder(path, torch.float32 if in_float32 else torch.bfloat16)
    return path


def shipped_checkpoint(name: str) -> Path:
    """The folder of a model that comes with the package."""
    name = "tiny-base" if name == "tiny" else name
    if name not in SHIPPED:
        raise unknown_name("shipped model", name, SHIPPED)
    folder = shipped_folder(name)
    if not (folder / "config.json").exists():
        raise UserError(f"the model {name} is missing from this installation; install it again")
    return folder


def _tokenizer_for(path: Path, cfg: Mapping, local_dir: str | Path) -> ModelTokenizer:
    """A folder's own tokenizer; for a bare file one beside it, the shipped one, or Qwen3's."""
    tokenizer = _find_tokenizer(path, cfg, local_dir)
    if tokenizer.vocab_size > cfg["vocab_size"]:
        raise UserError(
            f"the tokenizer found for {path} has {tokenizer.vocab_size} entries, "
            f"expected at most {cfg['vocab_size']}, the vocabulary of the model"
        )
    return tokenizer


def _find_tokenizer(path: Path, cfg: Mapping, local_dir: str | Path) -> ModelTokenizer:
    if path.is_dir():
        return _folder_tokenizer(path)
    kind = "reasoning" if "reasoning" in path.name else "base"
    for name in (f"tokenizer-{kind}.json", "tokenizer.json"):
        if (path.parent / name).exists():
            return _bare_tokenizer(path.parent / name)
    if cfg["vocab_size"] == qwen3.QWEN_CONFIG_06_B["vocab_size"]:
        return _qwen3_tokenizer(kind, local_dir)
    for file in shipped_configs():
        if read_json(file)["vocab_size"] == cfg["vocab_size"]:
            return _folder_tokenizer(file.parent)
    raise UserError(f"no tokenizer for {path}: put its tokenizer.json into the same folder")


def _qwen3_tokenizer(kind: str, local_dir: str | Path) -> Qwen3Tokenizer:
    download_qwen3_small(kind, tokenizer_only=True, out_dir=local_dir)
    return _bare_tokenizer(Path(local_dir) / f"tokenizer-{kind}.json")


def _folder_tokenizer(folder: Path) -> ModelTokenizer:
    """A folder's tokenizer. Answers end with the ids that the first of three files lists. If it
    lists several, the one that a later file names is written at the end of a text or turn."""
    config, tokenizer_config = folder / "config.json", folder / TOKENIZER_CONFIG
    is_qwen3 = not config.exists() or read_json(config).get("model_type") == "qwen3"
    settings = read_json(tokenizer_config) if tokenizer_config.exists() else {}
    tokenizer: ModelTokenizer
    if is_qwen3:
        tokenizer = Qwen3Tokenizer(folder / "tokenizer.json")
    else:
        tokenizer = _tokenizer_from_settings(folder, settings)
    paths = [folder / name for name in COPIED_FILES]
    tokenizer.files = {path.name: path.read_bytes() for path in paths if path.is_file()}
    end_ids = {
        name: ends
        for name in (GENERATION_FILE, "config.json", TOKENIZER_CONFIG)
        if (folder / name).exists() and (ends := _listed_end_token_ids(folder / name, tokenizer))
    }
    if end_ids:
        tokenizer.stops_from, *later = end_ids
        listed = end_ids[tokenizer.stops_from]
        confirmed = [end_ids[name][0] for name in later if end_ids[name][0] in listed]
        tokenizer.eos_token_id = (confirmed or listed)[0]
        tokenizer.other_stop_ids = frozenset(listed) - {tokenizer.eos_token_id}
    if not isinstance(tokenizer, Qwen3Tokenizer):
        tokenizer.use_chat_template(tokenizer.template_ends_turns())
        return tokenizer
    tokenizer = _with_trained_chat_template(tokenizer)
    templates = (tokenizer.files.get(n, b"") for n in (TOKENIZER_CONFIG, "chat_template.jinja"))
    if any(SKIP_UNLESS_ENABLED.encode() in template for template in templates):
        tokenizer.add_thinking = False
    return tokenizer


def _tokenizer_from_settings(folder: Path, settings: Mapping) -> ModelTokenizer:
    """A tokenizer of another family than Qwen3, with the tokens and template of its files."""
    path = folder / "tokenizer.json"
    if not path.exists():
        raise UserError(
            f"{folder} has no tokenizer.json; a SentencePiece tokenizer alone (tokenizer.model) "
            "is not supported"
        )
    tokens = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        token = settings.get(name)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            tokens[name] = token
    ends = tokens.get("eos_token") or _end_token_id(folder)
    jinja = folder / "chat_template.jinja"
    template = settings.get("chat_template")
    if isinstance(template, list):  # several by name
        by_name = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        template = by_name.get("default")
    if jinja.exists():
        template = jinja.read_text(encoding="utf-8")
    template = template if isinstance(template, str) else ""
    return ModelTokenizer(path, ends, tokens.get("pad_token"), template, tokens)


def _end_token_id(folder: Path) -> int:
    """The id that ends a text, for a folder that does not name an eos_token."""
    for name in (GENERATION_FILE, "config.json"):
        ends = read_json(folder / name).get("eos_token_id") if (folder / name).exists() else None
        first = ends[0] if isinstance(ends, list) and ends else ends
        if isinstance(first, int) and 0 <= first < 2**32:
            return first
    raise UserError(f"{folder} does not say which token ends a text (eos_token)")


def _listed_end_token_ids(path: Path, tokenizer: ModelTokenizer) -> list[int]:
    values = read_json(path)
    ends = values.get("eos_token_id")
    token = values.get("eos_token") if path.name == TOKENIZER_CONFIG else None
    if token is not None:
        token = str(token.get("content") if isinstance(token, dict) else token)
        ends = tokenizer._tok.token_to_id(token)
        if ends is None:
            raise UserError(f"{path}: its eos_token {token} is not in tokenizer.json")
    listed = ends if isinstance(ends, list) else [] if ends is None else [ends]
    for token_id in listed:
        if not isinstance(token_id, int) or token_id not in range(tokenizer.vocab_size):
            raise UserError(
                f"{path}: expected eos_token_id below {tokenizer.vocab_size}, the size "
                f"of the tokenizer, found {token_id}"
            )
    return listed


def _bare_tokenizer(path: Path) -> Qwen3Tokenizer:
    """A tokenizer file alone: a chat model ends turns or texts, as in Qwen3's list."""
    tokenizer = _with_trained_chat_template(Qwen3Tokenizer(path))
    if tokenizer.apply_chat_template:
        tokenizer.other_stop_ids = frozenset({tokenizer.pad_token_id})  # end of text
    return tokenizer


def _with_trained_chat_template(tokenizer: Qwen3Tokenizer) -> Qwen3Tokenizer:
    """A model that ends turns was trained on the chat template, so its prompts use it."""
    tokenizer.use_chat_template(tokenizer.eos_token == END_OF_TURN)
    return tokenizer


# ---- saving


def save_model(model: Qwen3Model, path: str | Path) -> Path:
    """Write the weights by our names, as .pth or .safetensors, completely or not at all."""
    state = _cpu_state(model)
    if any(name.endswith("lora_A") for name in state):
        raise UserError("this model has LoRA matrices beside its weights: Policy.save merges them")
    if Path(path).suffix == ".safetensors" and model.cfg.get("tie_embeddings", False):
        del state["out_head.weight"]  # safetensors stores no tensor twice; loading ties it again
    save_state(state, path)
    return Path(path)


def _cpu_state(model: Qwen3Model) -> dict[str, Tensor]:
    state = to_our_names(model.state_dict())  # also strips the prefixes of wrapped models
    state = {name: tensor.detach().cpu() for name, tensor in state.items()}
    if model.cfg.get("tie_embeddings", False):  # from a GPU they come as two copies
        state["out_head.weight"] = state["tok_emb.weight"]
    return state


# The same strings as Qwen3Tokenizer.wrap_chat, in the template language of transformers. As in
# render_past_turn, an answer that is not the last message loses its thinking.
SKIP_IF_DISABLED = "enable_thinking is defined and not enable_thinking"
SKIP_UNLESS_ENABLED = "enable_thinking is not defined or not enable_thinking"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% set content = message['content'] %}"
    "{% if message['role'] == 'assistant' and not loop.last %}"
    "{% set content = content.split('</think>')[-1].lstrip('\n') %}"
    "{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + content + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if " + SKIP_IF_DISABLED + " %}"
    "{{ '<think>\n\n</think>\n\n' }}"
    "{% endif %}{% endif %}"
)


def save_hf_folder(model: Qwen3Model, tokenizer: ModelTokenizer, folder: str | Path) -> Path:
    """Write a folder that transformers' Auto classes, vLLM and load_model_and_tokenizer open. The
    tokenizer's files are those that it was opened from; missing ones are written anew."""
    folder = Path(folder)
    if (folder / ADAPTER_CONFIG).exists():
        raise UserError(
            f"{folder} holds a LoRA adapter, which would be added to these weights when they are "
            "loaded; choose another folder"
        )
    state = to_hf_names(_cpu_state(model))
    if model.cfg.get("tie_embeddings", False):
        del state["lm_head.weight"]
    save_state(state, folder / "model.safetensors")
    cfg = {**model.cfg, "dtype": model.tok_emb.weight.dtype}
    ends = [tokenizer.eos_token_id, *sorted(model_stop_ids(tokenizer) - {tokenizer.eos_token_id})]
    listed, pad = ends if len(ends) > 1 else ends[0], tokenizer.pad_token_id
    written = {
        "tokenizer.json": tokenizer._tok.to_str(pretty=True).encode(),
        TOKENIZER_CONFIG: _json_bytes(_tokenizer_config(tokenizer)),
        GENERATION_FILE: _json_bytes({"eos_token_id": listed, "pad_token_id": pad}),
    }
    written |= tokenizer.files
    # The copied generation config may not say which tokens end an answer.
    eos = listed if tokenizer.stops_from == "config.json" else tokenizer.eos_token_id
    # Written last: only with it is the folder complete.
    written["config.json"] = _json_bytes(config_to_hf(cfg, eos, pad))
    for name, content in written.items():
        with replacing(folder / name) as temporary:
            temporary.write_bytes(content)
    for name in set(COPIED_FILES) - set(written):  # of a model that was here before
        (folder / name).unlink(missing_ok=True)
    return folder


def _tokenizer_config(tokenizer: ModelTokenizer) -> dict:
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": tokenizer.eos_token,
        "pad_token": tokenizer.pad_token,
        "clean_up_tokenization_spaces": False,
    }
    if not isinstance(tokenizer, Qwen3Tokenizer):
        config |= tokenizer.named_tokens
        if tokenizer.chat_template:
            config["chat_template"] = tokenizer.chat_template
    elif tokenizer.apply_chat_template:
        skip = SKIP_IF_DISABLED if tokenizer.add_thinking else SKIP_UNLESS_ENABLED
        config["chat_template"] = CHAT_TEMPLATE.replace(SKIP_IF_DISABLED, skip)
    return config


def _json_bytes(content: Mapping) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()
