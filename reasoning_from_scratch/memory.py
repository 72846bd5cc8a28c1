"""A memory budget: what fits is found out before step 1, not at step 300."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from reasoning_from_scratch.config import TrainConfig, replaced
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.logprobs import CHUNK_ELEMENTS, token_logprobs
from reasoning_from_scratch.optim import AdamW
from reasoning_from_scratch.run_folder import log

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
TRIED_TOKENS = 128
CACHE_COPIES = 2  # the sampler's cache, and the prompts that wait


def parse_size(text: str) -> int:
    """ "8GB" -> 8,000,000,000."""
    found = re.fullmatch(r"\s*([0-9.]+)\s*([a-zA-Z]*)\s*", text)
    if not found or found[2].upper() not in UNITS:
        raise UserError(f"--memory-budget {text!r} is not a size; write it as 8GB or 500MB")
    return int(float(found[1]) * UNITS[found[2].upper()])


def fit_memory(
    model: nn.Module, optimizer: AdamW, config: TrainConfig, longest: int
) -> TrainConfig:
    """Micro-batch, checkpointing and sampling rows that keep to the budget for rollouts of
    `longest` tokens; a UserError that says what does not fit."""
    budget = parse_size(config.memory_budget)
    fixed = resident_bytes(model, optimizer, copies=1 if config.kl == "none" else 2)
    room = budget - fixed
    plain = activation_bytes(model, longest)
    frugal = checkpointed_bytes(model, longest, plain)
    logits = logit_bytes(model, longest)
    checkpointing = config.gradient_checkpointing or room < plain + logits
    rows = (room - logits) // (frugal if checkpointing else plain)
    sample_rows = min(config.sample_rows, room // (CACHE_COPIES * cache_bytes(model, longest)))
    if rows < 1 or sample_rows < 1:
        needed = fixed + max(frugal + logits, CACHE_COPIES * cache_bytes(model, longest))
        raise UserError(
            f"--memory-budget {config.memory_budget} is too small: one rollout of {longest} tokens "
            f"needs {gigabytes(needed)}, of which weights, gradients and optimizer take "
            f"{gigabytes(fixed)}; lower --max-new-tokens, or --low-precision-updates stochastic"
        )
    tokens = min(config.micro_batch_tokens, rows * longest)
    log.info(
        "memory budget %s: %s are always there; micro-batches of %d tokens, gradient "
        "checkpointing %s, %d rollouts sampled at a time", config.memory_budget,
        gigabytes(fixed), tokens, "on" if checkpointing else "off", sample_rows,
    )  # fmt: skip
    return replaced(config, micro_batch_tokens=tokens, sample_rows=sample_rows,
                    gradient_checkpointing=checkpointing)  # fmt: skip


def resident_bytes(model: nn.Module, optimizer: AdamW, copies: int) -> int:
    """Weights (and the reference's), gradients, optimizer."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    state = sum(tensor.numel() * tensor.element_size() for tensor in optimizer.state.values())
    return (copies + 1) * weights + state


def activation_bytes(model: nn.Module, longest: int) -> int:
    """What one rollout of the longest shape keeps for its backward pass: tried out, once.

    On a GPU the allocator's peak is read; elsewhere the tensors that autograd saves are added up,
    of a few tokens, because they grow with the tokens and the trial must keep to the budget too.
    """
    device = next(model.parameters()).device
    tried = longest if device.type == "cuda" else min(longest, TRIED_TOKENS)
    token_ids = torch.zeros(1, tried, dtype=torch.long, device=device)  # (1, T)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    with counted_bytes(model) as counted:
        hidden = model.hidden_states(token_ids)
        logprobs, _ = token_logprobs(
            hidden, model.out_head.weight, token_ids, torch.ones_like(token_ids)
        )
    logprobs.sum().backward()
    for parameter in model.parameters():
        parameter.grad = None
    if device.type == "cuda":
        # Gradients are counted among what is always there, and so is the chunk of logits.
        peak = torch.cuda.max_memory_allocated(device) - before - logit_bytes(model, longest)
        weights = sum(p.numel() * p.element_size() for p in model.parameters())
        return max(peak - weights, counted())
    return counted() * longest // tried


@contextmanager
def counted_bytes(model: nn.Module) -> Iterator:
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


def checkpointed_bytes(model: nn.Module, longest: int, plain: int) -> int:
    """With checkpointing: each block's input, and one block's inside at a time."""
    layers, width = model.cfg["n_layers"], model.cfg["emb_dim"]
    inputs = layers * longest * width * model.out_head.weight.element_size()
    return inputs + plain // layers


def logit_bytes(model: nn.Module, longest: int) -> int:
    """The logits of one block of the vocabulary and their gradient, in float32."""
    return 2 * 4 * min(CHUNK_ELEMENTS, longest * model.cfg["vocab_size"])


def cache_bytes(model: nn.Module, longest: int) -> int:
    """Keys and values of one rollout."""
    cfg = model.cfg
    per_token = 2 * cfg["n_layers"] * cfg["n_kv_groups"] * cfg["head_dim"]
    return longest * per_token * model.out_head.weight.element_size()


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def checkpoint_blocks(model: nn.Module) -> None:
    """Make each block forget its inside and compute it again in the backward pass."""
    for block in model.trf_blocks:
        block.forward = _recomputed(block.forward)


def _recomputed(forward):
    def run(*inputs):
        if torch.is_grad_enabled():
            return checkpoint(forward, *inputs, use_reentrant=False)
        return forward(*inputs)

    return run
