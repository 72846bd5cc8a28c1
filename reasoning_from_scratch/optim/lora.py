"""LoRA: train W + (alpha / rank) B A by its small B and A, and leave W alone (Hu et al. 2021).

A (rank x inputs) chooses which directions of the input are read, B (outputs x rank) what they
add. B begins at zero, so the model begins unchanged. Applied to the seven matrices of each
block; optimizer state and saves shrink with the rank.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.adapters import ADAPTER_WEIGHTS, PREFIX, merged_weight
from reasoning_from_scratch.files.disk import replacing
from reasoning_from_scratch.files.model_names import ADAPTER_CONFIG
from reasoning_from_scratch.files.tensor_files import save_state, to_hf_names
from reasoning_from_scratch.files.weights import build_model
from reasoning_from_scratch.qwen3 import Qwen3Model


class LoRALinear(nn.Module):
    """A linear layer whose weight is frozen; its place in the state dict stays the same."""

    def __init__(self, linear: nn.Linear, rank: int, alpha: float, generator: torch.Generator):
        super().__init__()
        self.weight, self.bias = linear.weight.requires_grad_(False), linear.bias
        self.rank, self.alpha = rank, alpha
        outputs, inputs = self.weight.shape
        # Orthogonal rows: at full rank B A can reach every direction equally well.
        rows = nn.init.orthogonal_(torch.empty(rank, inputs), gain=3**-0.5, generator=generator)
        self.lora_A = nn.Parameter(rows.to(self.weight))  # (rank, inputs)
        self.lora_B = nn.Parameter(self.weight.new_zeros(outputs, rank))  # (outputs, rank)

    def forward(self, x: Tensor) -> Tensor:
        # Scaled while it has few numbers, and added by the second product: a tensor as large as
        # the output is written only once.
        low_rank = F.linear(x, self.lora_A) * (self.alpha / self.rank)  # (..., rank)
        out = F.linear(x, self.weight, self.bias)
        return torch.addmm(out.flatten(0, -2), low_rank.flatten(0, -2), self.lora_B.T).view_as(out)

    def merged_weight(self) -> Tensor:
        """W + (alpha / rank) B A, added up in float32."""
        return merged_weight(self.weight, self.lora_A, self.lora_B, self.alpha / self.rank)


def add_lora(
    model: Qwen3Model,
    rank: int,
    alpha: float,
    seed: int = 0,
    places: Sequence[str] = ("att", "ff"),
) -> None:
    """Freeze the model and put LoRA on every matrix of its blocks, or on those of attention (att)
    or of the feed-forward layers (ff) alone."""
    if lora_layers(model):
        raise UserError("this model has LoRA already; go on from merge_lora(model)")
    generator = torch.Generator().manual_seed(seed)
    model.requires_grad_(False)
    for block in model.trf_blocks:
        for part in [getattr(block, place) for place in places]:
            for name, linear in list(part.named_children()):
                if isinstance(linear, nn.Linear):
                    setattr(part, name, LoRALinear(linear, rank, alpha, generator))


def lora_layers(model: nn.Module) -> dict[str, LoRALinear]:
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, LoRALinear)}


def lora_state(model: nn.Module) -> dict[str, Tensor]:
    """What is trained: every A and B by name; empty for a model without LoRA."""
    return {
        f"{name}.{letter}": getattr(layer, letter).detach()
        for name, layer in lora_layers(model).items()
        for letter in ("lora_A", "lora_B")
    }


@torch.no_grad()
def load_lora(model: nn.Module, state: dict[str, Tensor]) -> None:
    for name, tensor in lora_state(model).items():
        if name not in state or state[name].shape != tensor.shape:
            raise UserError(
                f"the save has no {name} of shape {tuple(tensor.shape)}: it was made "
                "with another --lora-rank"
            )
        tensor.copy_(state[name])


@torch.no_grad()
def merge_lora(model: Qwen3Model) -> Qwen3Model:
    """A plain model that computes the same; what it has in common with `model` is shared."""
    layers = lora_layers(model)
    state = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if not name.endswith(("lora_A", "lora_B"))
    }
    state |= {f"{name}.weight": layer.merged_weight() for name, layer in layers.items()}
    return build_model(model.cfg, state, "the merged model")


# --- the format of `peft`, which transformers and vLLM load


def save_peft(model: Qwen3Model, folder: str | Path, base_model: str) -> Path:
    """An adapter folder: PeftModel.from_pretrained(base, folder) gives the trained model."""
    layers = lora_layers(model)
    if not layers:
        raise UserError("this model has no LoRA, so there is no adapter; save the model itself")
    first = next(iter(layers.values()))
    tensors = {}
    for name, layer in layers.items():
        (hf_name,) = to_hf_names({f"{name}.weight": layer.weight})
        path = PREFIX + hf_name.removesuffix(".weight")
        tensors[f"{path}.lora_A.weight"] = layer.lora_A.detach().cpu()
        tensors[f"{path}.lora_B.weight"] = layer.lora_B.detach().cpu()
    save_state(tensors, Path(folder) / ADAPTER_WEIGHTS)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": first.rank,
        "lora_alpha": first.alpha,
        "target_modules": sorted({name.split(".")[-3] for name in tensors}),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    with replacing(Path(folder) / ADAPTER_CONFIG) as temporary:
        temporary.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return Path(folder)
