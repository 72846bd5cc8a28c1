"""What a run needs in memory, held against what is there before anything long begins, and how many
tokens a training pass takes at a time."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import torch

from reasoning_from_scratch.config import Optim, TrainConfig
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.policy import MICRO_BATCH_TOKENS
from reasoning_from_scratch.qwen3 import Qwen3Model

log = logging.getLogger("reasoning_from_scratch")

GB = 1e9
# On a CPU a training pass takes 1 GB, or a 24th of the memory that is free if that is more. With
# LoRA on Qwen's 0.5B the process needs 3.8 GB with passes over 512 tokens, 5.2 with 1,024 and 10.6
# with 8,192, and the smallest take a sixth more time than the largest. All 8,192 tokens of the tiny
# models fit into 1 GB, so their runs never depend on what is free.
SHARE_OF_FREE, ALWAYS_FREE = 1 / 24, 1 * GB
STEP = 256  # tokens: the same machine mostly comes to the same number


def check_memory(
    model: Qwen3Model,
    reference: Qwen3Model | None,
    config: TrainConfig,
    device: torch.device,
    ranks: int = 1,
) -> None:
    """Raises a UserError if weights, gradients and optimizer cannot fit, and names the largest of
    them. Each of `ranks` may keep a slice of these.

    What depends on lengths comes on top. A GPU that runs out of memory says so, and policy.py takes
    smaller pieces from then on. A process that runs out of main memory is killed without a word, so
    on a CPU a warning says beforehand what may not fit beside other programs.
    """
    fixed = {name: size // ranks for name, size in fixed_parts(model, config).items()}
    loaded = fixed[WEIGHTS]
    if reference is not None:
        fixed[REFERENCE] = weight_bytes(reference) // ranks
        loaded += fixed[REFERENCE]
    there = device_bytes(device)
    if sum(fixed.values()) > there:
        raise UserError(
            f"before the first answer is sampled, {described(fixed, config)}, but {device.type} "
            f"has only {there / GB:.1f} GB: {advice(fixed, config)}"
        )
    if device.type != "cpu":
        return
    parts = max(phases_on_a_cpu(model, fixed, config), key=lambda parts: sum(parts.values()))
    free = available_memory()
    if sum(parts.values()) - loaded > free:
        log.warning(
            "%s, and beside what is loaded only %.1f GB are free, so the system may end the run: "
            "close other programs, or %s",
            described(parts, config),
            free / GB,
            advice(parts, config),
        )


def largest(parts: Mapping[str, int]) -> str:
    return max(parts, key=lambda name: parts[name])


def described(parts: Mapping[str, int], config: TrainConfig) -> str:
    name = largest(parts)
    return (
        f"{config.model} needs {sum(parts.values()) / GB:.1f} GB of memory, most of it for {name} "
        f"({parts[name] / GB:.1f} GB)"
    )


def phases_on_a_cpu(
    model: Qwen3Model, fixed: Mapping[str, int], config: TrainConfig
) -> list[dict[str, int]]:
    """What is in memory while the longest answers are sampled, and while they are trained on."""
    held = {name: size for name, size in fixed.items() if name != GRADIENTS}
    answers = config.problems_per_step * config.rollouts
    rows = min(config.sample_rows, answers)
    cache = rows * config.max_new_tokens * cache_bytes(model)  # the prompts come on top
    tokens = min(config.micro_batch_tokens or MICRO_BATCH_TOKENS, answers * config.max_new_tokens)
    passed = tokens * token_bytes(model, config.gradient_checkpointing)
    sampling = {"the weights once more, in the order that sampling reads": weight_bytes(model)}
    if config.sampling_weights == "int8":  # a byte each, and a float for every 128
        numbers = sum(weight.numel() for weight in model.parameters())
        sampling = {"the weights once more, in 8 bits, for sampling": numbers * 132 // 128}
    training = {f"a training pass over {tokens:,} tokens": passed}
    return [
        held | sampling | {f"keys and values of {rows} answers": cache},
        dict(fixed) | training | (sampling if config.lora_rank else {}),  # frozen: they stay
    ]


def advice(parts: Mapping[str, int], config: TrainConfig) -> str:
    """What makes the largest part smaller."""
    part = largest(parts)
    if part in (OPTIMIZER, GRADIENTS) and not config.lora_rank:
        return "use --lora-rank 16"
    if part.startswith("keys and values"):
        return f"use --sample-rows {max(1, config.sample_rows // 4)}"
    if part.startswith("a training pass"):
        return "use a smaller --micro-batch-tokens, or --gradient-checkpointing"
    return "use a smaller --model"


WEIGHTS, OPTIMIZER, GRADIENTS = "weights", "the optimizer", "gradients"
REFERENCE = "the KL reference"


def fixed_parts(model: Qwen3Model, config: Optim) -> dict[str, int]:
    """Bytes of the weights; of those that are trained also of their gradient, AdamW's two means
    and, for narrow weights, a float32 copy of each."""
    parts = {WEIGHTS: weight_bytes(model), OPTIMIZER: 0, GRADIENTS: 0}
    for weight in (p for p in model.parameters() if p.requires_grad):
        stochastic = config.low_precision_updates == "stochastic"
        narrow = weight.element_size() < 4
        mean, master = (2, 0) if narrow and stochastic else (4, 4 * narrow)
        parts[OPTIMIZER] += weight.numel() * (mean + 4 + master)
        parts[GRADIENTS] += weight.numel() * 4  # narrow ones are added up in float32
    return parts


def fixed_bytes(model: Qwen3Model, config: Optim) -> int:
    return sum(fixed_parts(model, config).values())


def weight_bytes(model: Qwen3Model) -> int:
    return sum(weight.nbytes for weight in model.parameters())


def cache_bytes(model: Qwen3Model) -> int:
    """Keys and values of one token."""
    numbers = 2 * model.cfg["n_layers"] * model.cfg["n_kv_groups"] * model.cfg["head_dim"]
    return numbers * model.tok_emb.weight.element_size()


def token_bytes(model: Qwen3Model, recompute: bool) -> int:
    """What a training pass holds for one token, at most: the inputs of every operation of a block,
    until its backward pass, and what its norms compute in float32. `recompute`: the input of each
    block, and the inside of one."""
    cfg, size = model.cfg, model.tok_emb.weight.element_size()
    heads, groups = cfg["n_heads"] * cfg["head_dim"], cfg["n_kv_groups"] * cfg["head_dim"]
    numbers = 6 * cfg["emb_dim"] + 4 * (heads + groups + cfg["hidden_dim"])
    block = numbers * size + 4 * cfg["emb_dim"] * 4
    return cfg["n_layers"] * cfg["emb_dim"] * size + block if recompute else cfg["n_layers"] * block


def fitting_micro_batch(
    model: Qwen3Model, config: TrainConfig, device: torch.device, processes: int = 1
) -> int:
    """How many tokens a training pass takes at a time, if --micro-batch-tokens does not say, up to
    MICRO_BATCH_TOKENS. A GPU begins with these, and halves them when its memory runs out."""
    if device.type != "cpu":
        return MICRO_BATCH_TOKENS
    # Gradients and optimizer are still to come, and a second copy of the weights, for sampling.
    free = available_memory() / processes - fixed_bytes(model, config)
    room = max(ALWAYS_FREE, SHARE_OF_FREE * free)
    tokens = min(MICRO_BATCH_TOKENS, room / token_bytes(model, config.gradient_checkpointing))
    fitting = max(STEP, int(tokens) // STEP * STEP)
    if fitting < MICRO_BATCH_TOKENS:
        log.info(
            "training passes take %s tokens at a time, for a part of the %.1f GB of memory that "
            "are free; --micro-batch-tokens sets another number",
            f"{fitting:,}",
            available_memory() / GB,
        )
    return fitting


def available_memory() -> float:
    """Bytes that can still be used, within a container's limit; infinite if unknown."""
    amounts = [float("inf")]
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        rows = dict(line.split(":") for line in meminfo.read_text().splitlines())
        amounts.append(int(rows["MemAvailable"].split()[0]) * 1024)
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:  # macOS: all memory
        amounts.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        amounts.append(int(limit.read_text()) - int(used.read_text()))
    return min(amounts)


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
