"""How a model is named: one that comes along, one of the hub, or a place on this disk.

Nothing here opens a model, so a mistyped name is refused before torch is imported.
"""

import re
from pathlib import Path

from reasoning_from_scratch.errors import unknown_name
from reasoning_from_scratch.files.saved_models import run_and_save

SHIPPED = (
    "tiny-base", "tiny-reasoning", "tiny-grpo", "tiny-grpo-longer",
    "tiny-player", "tiny-player-grpo",
)  # fmt: skip
# Qwen3-0.6B: `instruct` is `reasoning` told not to think.
PUBLISHED = {"base": "base", "reasoning": "reasoning", "instruct": "reasoning"}
MODEL_NAMES = ("tiny", *SHIPPED, *PUBLISHED, "smollm2")

HUB_NAME = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", re.ASCII)
OURS = ("runs", "checkpoints")  # folders of this project, whether or not they are there
FILES = (".pth", ".safetensors", ".gguf", ".json", ".jsonl", ".txt", ".py")


def is_hub_name(name: str | Path) -> bool:
    """OWNER/NAME, where OWNER is no folder here: then it is a path, perhaps a mistyped one."""
    name = str(name)
    owner = name.partition("/")[0]
    is_path = owner in OURS or name.endswith(FILES) or Path(owner).exists()
    return bool(HUB_NAME.fullmatch(name)) and not is_path


def is_name(model: str | Path | None) -> bool:
    """Whether a model is known by its name, not by a place on this disk."""
    return str(model) in MODEL_NAMES or (is_hub_name(str(model)) and not Path(model).exists())


def check_model_name(name: str | Path) -> None:
    """Refuses what is neither a name of ours, nor a run or a save of one, nor on the disk."""
    if is_name(name) or run_and_save(name)[0] or Path(name).expanduser().exists():
        return
    raise unknown_name(
        "model",
        str(name),
        [*MODEL_NAMES, "OWNER/NAME on the hub", "a folder", "a file", "a run", "RUN@SAVE"],
    )
