"""How much memory a run needs: compared with what there is before anything long begins."""

import logging
from collections.abc import Mapping

import torch

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast.memory import (
    GB,
    GRADIENTS,
    OPTIMIZER,
    WEIGHTS,
    activation_bytes_per_token,
    available_memory,
    cache_bytes_per_token,
    device_bytes,
    fixed_bytes_by_part,
    weight_bytes,
)
from reasoning_from_scratch.policy import MICRO_BATCH_TOKENS
from reasoning_from_scratch.qwen3 import Qwen3Model
from rfs.config import RunConfig

log = logging.getLogger("reasoning_from_scratch")


def check_memory(
    model: Qwen3Model,
    reference: Qwen3Model | None,
    config: RunConfig,
    device: torch.device,
    ranks: int = 1,
) -> None:
    """Raises a UserError if weights, gradients and optimizer cannot fit, and names the largest of
    them. Each of `ranks` may keep a slice of these.

    What depends on the length of answers comes on top. A GPU that runs out of memory raises an
    error, and policy.py takes smaller pieces from then on. A process that runs out of main memory
    is killed, so on a CPU a warning says beforehand what may not fit beside other programs.
    """
    fixed = {name: size // ranks for name, size in fixed_bytes_by_part(model, config).items()}
    loaded = fixed[WEIGHTS]
    if reference is not None:
        fixed[REFERENCE] = weight_bytes(reference) // ranks
        loaded += fixed[REFERENCE]
    capacity = device_bytes(device)
    if sum(fixed.values()) > capacity:
        raise UserError(
            f"before the first answer is sampled, {needs_text(fixed, config)}, but {device.type} "
            f"has only {capacity / GB:.1f} GB: {advice(fixed, config)}"
        )
    if device.type != "cpu":
        return
    parts = max(phases_on_a_cpu(model, fixed, config), key=lambda parts: sum(parts.values()))
    free = available_memory()
    if sum(parts.values()) - loaded > free:
        log.warning(
            "%s, and beside what is loaded only %.1f GB are free, so the system may end the run: "
            "close other programs, or %s",
            needs_text(parts, config),
            free / GB,
            advice(parts, config),
        )


def largest(parts: Mapping[str, int]) -> str:
    return max(parts, key=lambda name: parts[name])


def needs_text(parts: Mapping[str, int], config: RunConfig) -> str:
    """The memory of these parts together, and which is the largest."""
    name = largest(parts)
    return (
        f"{config.model} needs {sum(parts.values()) / GB:.1f} GB of memory, most of it for {name} "
        f"({parts[name] / GB:.1f} GB)"
    )


def phases_on_a_cpu(
    model: Qwen3Model, fixed: Mapping[str, int], config: RunConfig
) -> list[dict[str, int]]:
    """What is in memory while the longest answers are sampled, and while they are trained on."""
    resident = {name: size for name, size in fixed.items() if name != GRADIENTS}
    answers = config.problems_per_step * config.rollouts
    rows = min(config.sample_rows, answers)
    cache = rows * config.max_new_tokens * cache_bytes_per_token(model)  # the prompts come on top
    tokens = min(config.micro_batch_tokens or MICRO_BATCH_TOKENS, answers * config.max_new_tokens)
    pass_bytes = tokens * activation_bytes_per_token(model, config.gradient_checkpointing)
    sampling = {"the weights once more, in the order that sampling reads": weight_bytes(model)}
    if config.sampling_weights == "int8":  # a byte each, and a float for every 128
        numbers = sum(weight.numel() for weight in model.parameters())
        sampling = {"the weights once more, in 8 bits, for sampling": numbers * 132 // 128}
    training = {f"a training pass over {tokens:,} tokens": pass_bytes}
    return [
        resident | sampling | {f"keys and values of {rows} answers": cache},
        dict(fixed) | training | (sampling if config.lora_rank else {}),  # frozen: they stay
    ]


def advice(parts: Mapping[str, int], config: RunConfig) -> str:
    """What makes the largest part smaller."""
    part = largest(parts)
    if part in (OPTIMIZER, GRADIENTS) and not config.lora_rank:
        return "use --lora-rank 16"
    if part.startswith("keys and values"):
        return f"use --sample-rows {max(1, config.sample_rows // 4)}"
    if part.startswith("a training pass"):
        return "use a smaller --micro-batch-tokens, or --gradient-checkpointing"
    return "use a smaller --model"


REFERENCE = "the KL reference"
