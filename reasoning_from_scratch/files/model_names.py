"""How a model is named: one that comes with the package, one on the hub, or a path on this disk.

Nothing here opens a model, so a mistyped name is refused before torch is imported.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.text import expand_home, read_json_object

SHIPPED = (
    "tiny-base", "tiny-reasoning", "tiny-grpo", "tiny-grpo-longer",
    "tiny-player", "tiny-player-grpo",
)  # fmt: skip
SHIPPED_LORA = ("qwen-gsm8k",)  # only the adapter; its base model is downloaded
# Qwen3-0.6B: `instruct` is `reasoning` with thinking switched off.
QWEN3_KINDS = {"base": "base", "reasoning": "reasoning", "instruct": "reasoning"}
QWEN_NAMES = ("qwen-0.5b", "qwen-1.5b")  # Qwen2.5-Coder-Instruct, in 4 bits
MODEL_NAMES = ("tiny", *SHIPPED, *QWEN3_KINDS, "smollm2", *QWEN_NAMES, *SHIPPED_LORA)
ACCEPTED_MODELS = (*MODEL_NAMES, "OWNER/NAME on the hub", "a folder", "a file")

HUB_NAME = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", re.ASCII)
PROJECT_FOLDERS = ("runs", "checkpoints")  # folders of this project, whether or not they are there
ADAPTER_CONFIG = "adapter_config.json"
FILE_SUFFIXES = (".pth", ".safetensors", ".gguf", ".json", ".jsonl", ".txt", ".py")


def is_hub_name(name: str | Path) -> bool:
    """Whether it is OWNER/NAME. If OWNER is a folder here, it is a path, perhaps a mistyped one."""
    name = str(name)
    owner = name.partition("/")[0]
    is_path = owner in PROJECT_FOLDERS or name.endswith(FILE_SUFFIXES) or Path(owner).exists()
    return bool(HUB_NAME.fullmatch(name)) and not is_path


def is_model_name(model: str | Path | None) -> bool:
    """Whether a model is known by its name, not by a path on this disk."""
    return str(model) in MODEL_NAMES or (is_hub_name(str(model)) and not Path(model).exists())


def shipped_folder(name: str) -> Path:
    """The folder of a model of SHIPPED or SHIPPED_LORA."""
    package = Path(__file__).parents[1]  # a wheel carries the folder in here, a checkout beside it
    inside, beside = (folder / "checkpoints" / name for folder in (package, package.parent))
    return inside if inside.exists() else beside


def trained_folder(model: str | Path) -> Path:
    """The folder of a model that was trained here: shipped LoRA, or a path."""
    name = str(model)
    return shipped_folder(name) if name in SHIPPED_LORA else expand_home(model)


def base_model_of(model: str | Path) -> str | None:
    """The base model of a LoRA folder; None for anything else."""
    config = trained_folder(model) / ADAPTER_CONFIG
    if (is_model_name(model) and str(model) not in SHIPPED_LORA) or not config.is_file():
        return None
    base = read_json_object(config).get("base_model_name_or_path")
    if not isinstance(base, str) or not model_exists(base):
        raise UserError(
            f"{model} is LoRA for the model {base}, which is not here: put it back, or set "
            f"base_model_name_or_path in {config} to its new place"
        )
    if (expand_home(base) / ADAPTER_CONFIG).is_file():
        raise UserError(
            f"{model} is LoRA for {base}, itself LoRA: run `rfs export {base} --out FOLDER` and "
            f"set base_model_name_or_path in {config} to that folder"
        )
    return base


def model_exists(name: str | Path) -> bool:
    return is_model_name(name) or expand_home(name).exists()


def check_model_name(name: str | Path, accepted: Sequence[str] = ACCEPTED_MODELS) -> None:
    """Refuses what is neither a known name nor on the disk, and LoRA without its base model."""
    if model_exists(name):
        base_model_of(name)
        return
    raise unknown_name("model", str(name), accepted)
