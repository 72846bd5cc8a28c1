"""A memory budget: what fits is found out before step 1, not at step 300."""

import ctypes
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from reasoning_from_scratch.config import TrainConfig, replaced
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast.packed import block_elements, packed_logprobs
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.rollouts import Rollout, make_batch
from reasoning_from_scratch.run.folder import log

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
# Python and torch at work, the pages of its libraries included (a build for GPUs has more of
# them), or a GPU's context; without a model.
PROCESS_BYTES = 900_000_000
TRIED_TOKENS = 128
CACHE_COPIES = 2  # the sampler's cache, and the prompts that wait
HOLES = 1.25  # memory that the C library holds, over what is in use
LARGE_BLOCK, LARGEST_KEPT = 2**20, 2**25  # the latter is what the C library comes to by itself
M_MMAP_THRESHOLD = -3  # of glibc's malloc.h


def parse_size(text: str) -> int:
    """ "8GB" -> 8,000,000,000."""
    found = re.fullmatch(r"\s*(\d+\.?\d*)\s*([a-zA-Z]*)\s*", text, re.ASCII)
    if not found or found[2].upper() not in UNITS:
        raise UserError(f"--memory-budget {text!r} is not a size; write it as 8GB or 500MB")
    return int(float(found[1]) * UNITS[found[2].upper()])


def fit_memory(
    model: Qwen3Model,
    optimizer: AdamW,
    config: TrainConfig,
    longest: int,
    reference: Qwen3Model | None = None,
) -> TrainConfig:
    """Micro-batch, checkpointing and sampling rows that keep to the budget for rollouts of
    `longest` tokens; a UserError that says what does not fit."""
    return_freed_memory(at_once=True)
    always = resident_bytes(model, optimizer, reference)
    logits = logit_bytes(model, config.micro_batch_tokens)
    cache = CACHE_COPIES * cache_bytes(model, longest)
    plain = activation_bytes(model, longest)
    frugal = checkpointed_bytes(model, longest, plain)
    # Sampling has packed weights, training has gradients.
    sampling, fixed = always + weight_bytes(model), always + gradient_bytes(model)
    training = fixed + logits
    budget = parse_size(config.memory_budget)
    roomy = (budget - PROCESS_BYTES) / HOLES + PROCESS_BYTES
    checkpointing = config.gradient_checkpointing or roomy < training + plain
    room, each = (budget, HOLES * frugal) if checkpointing else (roomy, plain)
    rows = int((room - training) // each)
    sample_rows = min(config.sample_rows, (budget - sampling) // cache)
    if rows < 1 or sample_rows < 1:
        needed = max(training + HOLES * frugal, sampling + cache)
        raise UserError(
            f"--memory-budget {config.memory_budget} is too small: one rollout of {longest} tokens "
            f"needs {gigabytes(needed)}, of which Python, weights, gradients and optimizer take "
            f"{gigabytes(fixed)}; lower --max-new-tokens, or use --lora-rank 16, or "
            "--dtype bfloat16 with --low-precision-updates stochastic"
        )
    return_freed_memory(at_once=checkpointing)
    tokens = min(config.micro_batch_tokens, rows * longest)
    log.info(
        "memory budget %s: Python, weights, gradients and optimizer take %s; micro-batches of %d "
        "tokens, gradient checkpointing %s, %d rollouts sampled at a time",
        config.memory_budget,
        gigabytes(fixed),
        tokens,
        "on" if checkpointing else "off",
        sample_rows,
    )
    return replaced(
        config,
        micro_batch_tokens=tokens,
        sample_rows=sample_rows,
        gradient_checkpointing=checkpointing,
    )


def resident_bytes(model: Qwen3Model, optimizer: AdamW, reference: Qwen3Model | None = None) -> int:
    """What is there in sampling and in training: weights (and the reference's), optimizer."""
    state = sum(tensor.nbytes for tensor in optimizer.state.values())
    weights = weight_bytes(model) + (weight_bytes(reference) if reference else 0)
    return PROCESS_BYTES + weights + state


def weight_bytes(model: Qwen3Model) -> int:
    return sum(p.nbytes for p in model.parameters())


def gradient_bytes(model: Qwen3Model) -> int:
    """All gradients, and those of head and embedding once more, before they are added to what
    the micro-batches so far gave. Tied, the two meet there: one waits for the other."""
    trained = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    head, embedding = model.out_head.weight, model.tok_emb.weight
    passing = head.nbytes * (2 if head is embedding else 1)
    return trained + (passing if head.requires_grad else 0)


def return_freed_memory(at_once: bool) -> None:
    """Give back to the system what was freed so far; `at_once`: from now on also large blocks when
    they are freed. Otherwise the C library keeps them, and what lies between their holes: 0.9 GB
    in a step of Qwen3-0.6B. Costs up to a third of the update's time."""
    c_library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if hasattr(c_library, "malloc_trim"):  # glibc has it, musl has not
        c_library.mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK if at_once else LARGEST_KEPT)
        c_library.malloc_trim(0)


def activation_bytes(model: Qwen3Model, longest: int) -> int:
    """What one rollout of the longest shape keeps for its backward pass: tried out, once.

    On a GPU the allocator's peak is read; elsewhere the tensors that autograd saves are added up,
    of a few tokens, because they grow with the tokens and the trial must keep to the budget too.
    """
    device = next(model.parameters()).device
    tried = longest if device.type == "cuda" else min(longest, TRIED_TOKENS)
    batch = make_batch([trial_rollout(tried)], device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    with counted_bytes(model) as counted:
        logprobs = packed_logprobs(model, batch)
    logprobs.sum().backward()
    for parameter in model.parameters():
        parameter.grad = None
    if device.type == "cuda":
        # Gradients are counted among what is always there, and so is the block of logits.
        peak = torch.cuda.max_memory_allocated(device) - before - logit_bytes(model, longest)
        return max(peak - weight_bytes(model), counted())
    return counted() * longest // tried


def trial_rollout(length: int) -> Rollout:
    """Of which the training pass reads `length` tokens; the last is only predicted."""
    return Rollout(
        problem=None,
        prompt_ids=[0],
        response_ids=[0] * length,
        logprobs=[0.0] * length,
        entropies=[],
        text="",
        finished=False,
    )


@contextmanager
def counted_bytes(model: Qwen3Model) -> Iterator:
    """Counts the storages that autograd saves inside the block, each once, parameters not."""
    seen = {p.untyped_storage().data_ptr() for p in model.parameters()}
    sizes: list[int] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            sizes.append(storage.nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield lambda: sum(sizes)


def checkpointed_bytes(model: Qwen3Model, longest: int, plain: int) -> int:
    """With checkpointing: each block's input, and one block's inside at a time."""
    layers, width = model.cfg["n_layers"], model.cfg["emb_dim"]
    inputs = layers * longest * width * model.out_head.weight.element_size()
    return inputs + plain // layers


def logit_bytes(model: Qwen3Model, tokens: int) -> int:
    """The logits of one block of the vocabulary and what is computed from them, in float32."""
    most = block_elements(model.out_head.weight.device)
    return 3 * 4 * min(most, tokens * model.cfg["vocab_size"])


def cache_bytes(model: Qwen3Model, longest: int) -> int:
    """Keys and values of one rollout."""
    cfg = model.cfg
    per_token = 2 * cfg["n_layers"] * cfg["n_kv_groups"] * cfg["head_dim"]
    return longest * per_token * model.out_head.weight.element_size()


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def checkpoint_blocks(model: Qwen3Model) -> None:
    """Make each block forget its inside and compute it again in the backward pass."""
    for block in model.trf_blocks:
        block.recompute = True
