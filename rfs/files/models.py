"""Models as the book opens them, and also by run: runs/mine, runs/mine@150."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files import model_names
from reasoning_from_scratch.text import expand_home
from rfs.files.saved_models import holds_model, run_and_save, which_weights

if TYPE_CHECKING:
    from reasoning_from_scratch.qwen3 import Qwen3Model
    from reasoning_from_scratch.tokenizer import ModelTokenizer


def check_model_name(name: str | Path) -> None:
    """Refuses a name that is neither one of ours, nor a run or a save of one, nor on the disk; LoRA
    without the model that it adds to; and a folder without a model."""
    if run_and_save(name)[0] is not None:
        return
    model_names.check_model_name(name, (*model_names.ACCEPTED_MODELS, "a run", "RUN@SAVE"))
    folder = expand_home(name)
    is_known = model_names.is_model_name(name) or model_names.base_model_of(name)
    if not is_known and folder.is_dir() and not holds_model(folder):
        raise UserError(
            f"{name} is not the folder of a model: it has no config.json that names a model_type"
        )


def load_model_and_tokenizer(
    which_model: str | Path, *args: Any, **kwargs: Any
) -> "tuple[Qwen3Model, ModelTokenizer]":
    """A run folder means its best save, and RUN@SAVE that save (see saved_models)."""
    from reasoning_from_scratch.files import weights  # late: options are read without torch

    return weights.load_model_and_tokenizer(which_weights(which_model), *args, **kwargs)
