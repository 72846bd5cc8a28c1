"""For sampling on a CPU: the large matrices once more, in the layout that products read fastest.

A decoding step multiplies a few rows by every matrix of the model, so it takes as long as
reading the weights does. oneDNN reads a packed matrix in one stream; a plain one costs it
1.4 times as long in bfloat16 and twice as long in float32 (benchmarks/README.md).
"""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reasoning_from_scratch.qwen3 import FeedForward, GroupedQueryAttention, RMSNorm, apply_rope

SMALLEST = 2**19  # entries; smaller matrices stay in the processor's cache as they are
FEWEST_STEPS = 32  # packing costs as much as it saves in about so many decoding steps


class PackedLinear(nn.Module):
    """A linear layer without bias and without gradient."""

    def __init__(self, rows: int, *weights: Tensor) -> None:
        """Several matrices with the same inputs become one, their outputs side by side."""
        super().__init__()
        weight = torch.cat(weights).detach() if len(weights) > 1 else weights[0].detach()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, None, "none", [], "")


class PackedAttention(GroupedQueryAttention):
    """One product for queries, keys and values; queries and keys are turned together."""

    def pack(self, rows: int) -> None:
        parts = [self._modules.pop(name).weight for name in ("W_query", "W_key", "W_value")]
        self.counts = [len(weight) // self.head_dim for weight in parts]
        self.W_all = PackedLinear(rows, *parts)
        self.out_proj = PackedLinear(rows, self.out_proj.weight)
        norms = [self._modules.pop(name) for name in ("q_norm", "k_norm")]
        self.eps = norms[0].eps
        scales = [norm.scale.detach().float().expand(count, 1, -1)
                  for norm, count in zip(norms, self.counts[:2], strict=True)]  # fmt: skip
        self.scales = torch.cat(scales)  # (heads + groups, 1, head_dim)

    def project(self, x, plan):
        heads = self._heads(self.W_all(x))
        turning, values = heads.split((len(self.scales), self.counts[2]), dim=1)
        normed = F.rms_norm(turning.float(), (self.head_dim,), None, self.eps) * self.scales
        turned = apply_rope(normed.to(x.dtype), plan.cos, plan.sin)
        return *turned.split(self.counts[:2], dim=1), values


class PackedFeedForward(FeedForward):
    """One product for both halves."""

    def pack(self, rows: int) -> None:
        halves = [self._modules.pop(name).weight for name in ("fc1", "fc2")]
        self.halves = PackedLinear(rows, *halves)
        self.fc3 = PackedLinear(rows, self.fc3.weight)

    def forward(self, x):
        gate, up = self.halves(x).chunk(2, dim=-1)
        return self.fc3(F.silu(gate) * up)


def packed_for_decoding(model: nn.Module, rows: int, steps: int) -> nn.Module:
    """A twin of the model with its large matrices packed for batches of about `rows` rows;
    everything else is shared. The model itself where packing cannot help."""
    if steps < FEWEST_STEPS or not any(_worth_it(part) for part in model.modules()):
        return model
    return _twin(model, rows)


def _worth_it(part: nn.Module) -> bool:
    """A plain, large matrix that oneDNN can pack on this processor."""
    weight = part.weight if type(part) is nn.Linear and part.bias is None else None
    return (
        weight is not None
        and type(weight) is nn.Parameter  # a sharded one has another type
        and weight.device.type == "cpu"
        and weight.numel() >= SMALLEST
        and _can_pack(weight.dtype)
    )


def _can_pack(dtype: torch.dtype) -> bool:
    operations = torch.ops.mkldnn
    if not (torch.backends.mkldnn.is_available() and hasattr(operations, "_linear_pointwise")):
        return False
    return dtype == torch.float32 or (
        dtype == torch.bfloat16 and operations._is_mkldnn_bf16_supported()
    )


TWINS = {GroupedQueryAttention: PackedAttention, FeedForward: PackedFeedForward}


def _twin(part: nn.Module, rows: int) -> nn.Module:
    if _worth_it(part):
        return PackedLinear(rows, part.weight)
    twin = copy.copy(part)
    twin.__dict__.pop("forward", None)  # gradient checkpointing's, bound to the other module
    if type(part) in TWINS and all(map(_fits, part.children())):
        twin.__class__, twin._modules = TWINS[type(part)], dict(part._modules)
        twin.pack(rows)
    else:
        twin._modules = {name: _twin(child, rows) for name, child in part._modules.items()}
    return twin


def _fits(child: nn.Module) -> bool:
    """A part that the packed classes know how to join with others."""
    return _worth_it(child) or (
        type(child) is RMSNorm and child.qwen3_compatible and child.shift is None
    )
