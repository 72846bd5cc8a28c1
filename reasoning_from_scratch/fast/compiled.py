"""--compile: the training pass in fewer and larger operations, by torch.compile.

Compiled code is valid only as long as everything that it was compiled for stays true. Attention is
called a few times per micro-batch (packed.py), hardly ever twice with the same number of calls or
the same shapes. With attention included, the pass was compiled anew for each number of calls, until
torch silently gave up. What a block does with each token by itself is the same in all blocks and
for any number of tokens. So that is compiled, once, and attention runs uncompiled between its two
halves. The operations on a block of logits between its matrix products are compiled, too. Most of
the memory traffic is there: forward and backward, some 74 bytes for each logit of bfloat16 if each
operation runs by itself, and some 24 if compiled into one.
"""

import logging
from collections.abc import Callable
from textwrap import shorten

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from reasoning_from_scratch.fast.packed import (
    BlockOperations,
    PackedPlan,
    block_gradient,
    block_sums,
    blockwise_logprobs,
    packed_logprobs,
)
from reasoning_from_scratch.qwen3 import AttentionPlan, Qwen3Model, TransformerBlock, rope_tables
from reasoning_from_scratch.rollouts import Batch

log = logging.getLogger("reasoning_from_scratch")


def before_attention(
    block: TransformerBlock, x: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of x (1, N, D)."""
    return block.att.project(block.norm1(x), AttentionPlan(cos, sin))


def after_attention(block: TransformerBlock, x: Tensor, attended: Tensor) -> Tensor:
    """x (1, N, D) plus the result of attention, then through the feed-forward layers."""
    x = x + block.att.out_proj(attended)
    return x + block.ff(block.norm2(x))


class CompiledPass:
    """`packed_logprobs`, compiled for one model; uncompiled for others (such as the reference) and,
    after one warning, if the compiler fails."""

    def __init__(self, model: Qwen3Model) -> None:
        self.model = model
        self.before: Callable = torch.compile(before_attention, dynamic=True)
        self.after: Callable = torch.compile(after_attention, dynamic=True)
        self.operations = BlockOperations(
            torch.compile(block_sums, dynamic=True), torch.compile(block_gradient, dynamic=True)
        )
        self.can_compile: bool | None = None  # None: not tried yet

    def __call__(self, model: Qwen3Model, batch: Batch, temperature: float) -> Tensor:
        if model is self.model and self.can_compile is None:
            self.can_compile = self.try_compiling(temperature)
        if model is self.model and self.can_compile:
            return packed_logprobs(model, batch, temperature, self.hidden_states, self.operations)
        return packed_logprobs(model, batch, temperature)

    def try_compiling(self, temperature: float) -> bool:
        """Forward and backward through one block and the head. A backward pass is compiled only
        when it is first needed: without this trial it would fail in the middle of a gradient."""
        model = self.model
        try:
            with torch.enable_grad():
                x = model.tok_emb.weight[None, :4].detach().requires_grad_()  # (1, 4, D)
                positions = torch.arange(4, device=x.device)[None, :, None]
                cos, sin = rope_tables(positions, model.cfg, x.dtype)
                queries, keys, values = self.before(model.trf_blocks[0], x, cos, sin)
                # Like attention's result: this shape, and separate memory.
                attended = queries.transpose(1, 2).flatten(2).clone()
                out = self.after(model.trf_blocks[0], x, attended)
                head_rows = model.out_head.weight[:64].detach()
                logprobs = blockwise_logprobs(
                    out[0], head_rows, positions[0, :, 0], temperature, operations=self.operations
                )
                torch.autograd.grad(logprobs.sum() + keys.sum() + values.sum(), x)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # from torch.compile, or from the compiler that it calls
            reason = shorten(str(error), 200, placeholder=" ...")
            log.warning("torch.compile fails, training continues without it: %s", reason)
            return False
        return True

    def hidden_states(self, token_ids: Tensor, plan: PackedPlan) -> Tensor:
        """The model's hidden states (1, N, D)."""
        x = self.model.tok_emb(token_ids)
        for block in self.model.trf_blocks:
            if block.recompute and torch.is_grad_enabled():
                x = checkpoint(self.block, block, x, plan, use_reentrant=False)
            else:
                x = self.block(block, x, plan)
        return self.model.final_norm(x)

    def block(self, block: TransformerBlock, x: Tensor, plan: PackedPlan) -> Tensor:
        queries, keys, values = self.before(block, x, plan.cos, plan.sin)
        return self.after(block, x, plan.attend(queries, keys, values))
