"""The memory that a run needs no matter what it samples, checked before anything long begins."""

import os

import torch

from reasoning_from_scratch.config import Optim, TrainConfig
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.qwen3 import Qwen3Model

GB = 1e9


def check_memory(
    model: Qwen3Model,
    reference: Qwen3Model | None,
    config: TrainConfig,
    device: torch.device,
    ranks: int = 1,
) -> None:
    """Raises a UserError if weights, gradients and optimizer alone do not fit. Each of `ranks` may
    keep a slice of them. (policy.py reduces what depends on lengths while the run is going.)"""
    needed = fixed_bytes(model, config) + (weight_bytes(reference) if reference else 0)
    needed, there = needed // ranks, device_bytes(device)
    if needed <= there:
        return
    smaller = "a smaller --model" if config.lora_rank else "--lora-rank 16"
    raise UserError(
        f"weights, gradients and optimizer of {config.model} take {needed / GB:.1f} GB before the "
        f"first answer is sampled, but {device.type} has only {there / GB:.1f} GB: use {smaller}"
    )


def fixed_bytes(model: Qwen3Model, config: Optim) -> int:
    """Weights; of those that are trained also their gradient, AdamW's two means and, for narrow
    weights, a float32 copy of each."""
    total = weight_bytes(model)
    for weight in (p for p in model.parameters() if p.requires_grad):
        stochastic = config.low_precision_updates == "stochastic"
        narrow = weight.element_size() < 4
        mean, master = (2, 0) if narrow and stochastic else (4, 4 * narrow)
        gradient = 4  # narrow ones are added up in float32
        total += weight.numel() * (gradient + mean + 4 + master)
    return total


def weight_bytes(model: Qwen3Model) -> int:
    return sum(weight.nbytes for weight in model.parameters())


def device_bytes(device: torch.device) -> int:
    """All memory of a device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    if device.type == "mps":
        return torch.mps.recommended_max_memory()
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 2**63  # on Windows this needs a library


def checkpoint_blocks(model: Qwen3Model) -> None:
    """Make each block drop its activations and recompute them in the backward pass."""
    for block in model.trf_blocks:
        block.recompute = True
