"""How many tokens a training pass takes at a time, from the memory that weights and passes need;
and keeping freed memory, since getting it from the system again takes longer than computing in it.
"""

import ctypes
import logging
import os
import sys
from functools import cache
from pathlib import Path

import torch

from reasoning_from_scratch.config import Optim, TrainConfig
from reasoning_from_scratch.policy import MICRO_BATCH_TOKENS
from reasoning_from_scratch.qwen3 import Qwen3Model

log = logging.getLogger("reasoning_from_scratch")

GB = 1e9
# On a CPU a training pass takes 1 GB, or a 24th of the memory that is free if that is more. With
# LoRA on Qwen's 0.5B the process needs 3.8 GB with passes over 512 tokens, 5.2 with 1,024 and 10.6
# with 8,192, and the smallest take a sixth more time than the largest. All 8,192 tokens of the tiny
# models fit into 1 GB, so their runs never depend on what is free.
PASS_SHARE_OF_FREE, MIN_PASS_BYTES = 1 / 24, 1 * GB
TOKEN_STEP = 256  # coarse, so that the same machine mostly comes to the same number


WEIGHTS, OPTIMIZER, GRADIENTS = "weights", "the optimizer", "gradients"


def fixed_bytes_by_part(model: Qwen3Model, config: Optim) -> dict[str, int]:
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
    return sum(fixed_bytes_by_part(model, config).values())


def weight_bytes(model: Qwen3Model) -> int:
    return sum(weight.nbytes for weight in model.parameters())


def cache_bytes_per_token(model: Qwen3Model) -> int:
    """Bytes of the keys and values of one token."""
    numbers = 2 * model.cfg["n_layers"] * model.cfg["n_kv_groups"] * model.cfg["head_dim"]
    return numbers * model.tok_emb.weight.element_size()


def activation_bytes_per_token(model: Qwen3Model, recompute: bool) -> int:
    """Bytes that a training pass holds for one token, at most: the inputs of every operation of a
    block, until its backward pass, and what its norms compute in float32. `recompute`: the input of
    each block, and the inside of one."""
    cfg, size = model.cfg, model.tok_emb.weight.element_size()
    heads, groups = cfg["n_heads"] * cfg["head_dim"], cfg["n_kv_groups"] * cfg["head_dim"]
    numbers = 6 * cfg["emb_dim"] + 4 * (heads + groups + cfg["hidden_dim"])
    block = numbers * size + 4 * cfg["emb_dim"] * 4
    return cfg["n_layers"] * cfg["emb_dim"] * size + block if recompute else cfg["n_layers"] * block


def fitting_micro_batch(
    model: Qwen3Model, config: TrainConfig, device: torch.device, processes: int = 1
) -> int:
    """How many tokens a training pass takes at a time, if micro_batch_tokens does not say, up to
    MICRO_BATCH_TOKENS. A GPU begins with these, and halves them when its memory runs out."""
    if device.type != "cpu":
        return MICRO_BATCH_TOKENS
    # Gradients and optimizer are still to come, and a second copy of the weights, for sampling.
    free = available_memory() / processes - fixed_bytes(model, config)
    room = max(MIN_PASS_BYTES, PASS_SHARE_OF_FREE * free)
    tokens = min(
        MICRO_BATCH_TOKENS, room / activation_bytes_per_token(model, config.gradient_checkpointing)
    )
    fitting = max(TOKEN_STEP, int(tokens) // TOKEN_STEP * TOKEN_STEP)
    if fitting < MICRO_BATCH_TOKENS:
        log.info(
            "micro_batch_tokens is %d: that many are trained on at a time, for a part of the "
            "%.1f GB of memory that are free",
            fitting,
            available_memory() / GB,
        )
    return fitting


SCARCE_SHARE = 0.25  # of the memory: with less than that unused, nothing is kept
# Parameters of GNU's malloc, and their numbers in its malloc.h.
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3


@cache
def keep_freed_memory() -> None:
    """From now on, memory that tensors no longer use stays with this process, for the next ones.

    GNU's malloc, on Linux, gives every piece of 32 MB or more back to the system at once. Logits
    and activations are larger than that, and are made anew in every step: the system would clear
    the same gigabytes again and again, which took a quarter of the time of a training pass."""
    malloc = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if malloc is not None:
        for parameter, size in (
            (MMAP_THRESHOLD, 2**30),  # a piece that is larger is its own, and is given back
            (TRIM_THRESHOLD, 2**31 - 1),
            (TOP_PAD, 2**26),  # what is taken from the system is taken in pieces of this size
        ):
            malloc(parameter, size)


def give_back_freed_memory() -> None:
    """Give back to the system what `keep_freed_memory` has kept."""
    if keep_freed_memory.cache_info().currsize and hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)


def manage_memory() -> None:
    """Keep what tensors free, as long as there is room. Pieces of many sizes seldom fit into each
    other's places: what is kept grows with every batch of other lengths, by a gigabyte at a time
    for a model of 1.5 billion weights, until the system ends the process."""
    keep_freed_memory()
    if unused_memory() < SCARCE_SHARE * total_memory():
        give_back_freed_memory()


def available_memory() -> float:
    """Bytes that can still be used, with those that are kept."""
    give_back_freed_memory()
    return unused_memory()


def unused_memory() -> float:
    """Bytes that are unused, within a container's limit; infinite if unknown."""
    amounts = [float("inf")]
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        rows = dict(line.split(":") for line in meminfo.read_text().splitlines())
        amounts.append(int(rows["MemAvailable"].split()[0]) * 1024)
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:  # macOS: all memory
        amounts.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if limit := container_limit():
        used = Path("/sys/fs/cgroup/memory.current")
        amounts.append(limit - int(used.read_text()))
    return min(amounts)


@cache
def total_memory() -> float:
    """Bytes of this machine, or a container's limit."""
    return min(device_bytes(torch.device("cpu")), container_limit() or float("inf"))


def container_limit() -> int | None:
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if not (limit.exists() and used.exists()) or limit.read_text().strip() == "max":
        return None
    return int(limit.read_text())


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
