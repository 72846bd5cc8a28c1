"""LoRA in a folder, in the format of `peft`: its two matrices per layer, and the model's name.

optim/lora.py writes such a folder. Here it becomes a model again: the product B A is merged into
the weights.
"""

import re
from pathlib import Path

import torch
from torch import Tensor, nn

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.model_names import ADAPTER_CONFIG
from reasoning_from_scratch.files.tensor_files import load_state, read_json, to_our_names
from reasoning_from_scratch.qwen3 import Qwen3Model

ADAPTER_WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."  # in front of transformers' names of the layers
LORA_MATRIX = re.compile(re.escape(PREFIX) + r"(.+)\.lora_([AB])\.weight")
# Variants of LoRA in `peft` that compute something else.
VARIANTS = ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "fan_in_fan_out")


def merged_weight(weight: Tensor, lora_A: Tensor, lora_B: Tensor, scale: float) -> Tensor:
    """W + scale B A, added up in float32."""
    return (weight.float() + lora_B.float() @ lora_A.float() * scale).to(weight.dtype)


@torch.no_grad()
def add_adapter(model: Qwen3Model, folder: Path, base: str) -> None:
    """Add the LoRA in the folder to the weights of `model`, which is `base`."""
    rank, scale = rank_and_scale(folder / ADAPTER_CONFIG)
    path = folder / ADAPTER_WEIGHTS
    matrices: dict[str, dict[str, Tensor]] = {"A": {}, "B": {}}
    for name, tensor in load_state(path).items():
        match = LORA_MATRIX.fullmatch(name)
        if not match:
            raise UserError(f"{path} holds {name}, but only LoRA of linear layers is supported")
        matrices[match[2]][f"{match[1]}.weight"] = tensor
    if not matrices["A"]:
        raise UserError(f"{path} has no tensors, so it would change nothing in {base}")
    lora_A, lora_B = (to_our_names(matrices[letter]) for letter in "AB")
    layers = model.trf_blocks.named_modules(prefix="trf_blocks")
    linears = {f"{n}.weight": layer for n, layer in layers if isinstance(layer, nn.Linear)}
    for name in {**lora_A, **lora_B}:
        shapes = [tuple(lora[name].shape) if name in lora else () for lora in (lora_A, lora_B)]
        outputs, inputs = linears[name].weight.shape if name in linears else (0, 0)
        expected = [(rank, inputs), (outputs, rank)]
        if name not in linears or shapes != expected:
            raise UserError(
                f"{path} was made for another model than {base}: expected A and B of {name} to be "
                f"{expected if name in linears else 'absent'}, found {shapes}"
            )
    for name, A in lora_A.items():
        weight = linears[name].weight
        matrices_AB = A.to(weight.device), lora_B[name].to(weight.device)
        linears[name].weight = nn.Parameter(merged_weight(weight, *matrices_AB, scale))


def rank_and_scale(path: Path) -> tuple[int, float]:
    config = read_json(path)
    rank, alpha = config.get("r"), config.get("lora_alpha")
    positive = all(isinstance(n, (int, float)) and 0 < n < 1e6 for n in (rank, alpha))
    is_plain_lora = config.get("peft_type") == "LORA" and not any(map(config.get, VARIANTS))
    if not (is_plain_lora and positive):
        raise UserError(
            f"{path}: expected peft_type LORA, numbers above 0 as r and lora_alpha, and none "
            f"of {', '.join(VARIANTS)}"
        )
    return rank, alpha / rank
