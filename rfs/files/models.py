"""Models as the book opens them, and also by run: runs/mine, runs/mine@150."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from reasoning_from_scratch.files import model_names
from rfs.files.saved_models import run_and_save, which_weights

if TYPE_CHECKING:
    from reasoning_from_scratch.qwen3 import Qwen3Model
    from reasoning_from_scratch.tokenizer import ModelTokenizer


def check_model_name(name: str | Path) -> None:
    """Refuses what is neither a name of ours, nor a run or a save of one, nor on the disk; and LoRA
    without the model that it adds to."""
    if run_and_save(name)[0] is None:
        model_names.check_model_name(name, (*model_names.KNOWN, "a run", "RUN@SAVE"))


def load_model_and_tokenizer(
    which_model: str | Path, *how: Any, **named: Any
) -> "tuple[Qwen3Model, ModelTokenizer]":
    """A run folder means its best save, and RUN@SAVE that save (see saved_models)."""
    from reasoning_from_scratch.files import weights  # late: options are read without torch

    return weights.load_model_and_tokenizer(which_weights(which_model), *how, **named)
