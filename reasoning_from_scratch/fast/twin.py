"""For sampling: a twin of the model that takes less time for a decoding step.

Such a step multiplies a few rows by every matrix, so it takes as long as reading them does. On a
CPU oneDNN reads a packed matrix in one stream; a plain one costs it 1.4 times as long in bfloat16
and twice as long in float32. What is left is the start of each operation, on a GPU most of all:
so products are joined, and queries and keys share theirs (benchmarks/README.md has figures).
"""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reasoning_from_scratch.qwen3 import FeedForward, GroupedQueryAttention, RMSNorm, apply_rope

SMALLEST = 2**15  # entries of a matrix whose packed product is faster than the plain one
SMALLEST_FOR_ONE_ROW = 2**19  # a smaller one takes less time than oneDNN takes to start
FEWEST_STEPS = 32  # packing costs as much as it saves in about so many decoding steps


class PackedLinear(nn.Module):
    """A linear layer without bias and without gradient."""

    def __init__(self, rows: int, *layers: nn.Linear) -> None:
        """Several layers with the same inputs become one, their outputs side by side."""
        super().__init__()
        weights = [layer.weight.detach() for layer in layers]
        weight = torch.cat(weights) if len(weights) > 1 else weights[0]
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, None, "none", [], "")


class SideBySide(nn.Module):
    """Layers that are not packed, with the same inputs, their outputs side by side."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([layer(x) for layer in self.layers], dim=-1)


class JoinedAttention(GroupedQueryAttention):
    """Queries, keys and values come from one product if they can; queries and keys are normed
    and turned together."""

    def join(self, rows: int) -> None:
        layers = [self._modules.pop(name) for name in ("W_query", "W_key", "W_value")]
        self.counts = [len(layer.weight) // self.head_dim for layer in layers]
        packed = all(_worth_it(layer, rows) for layer in layers)
        self.W_all = PackedLinear(rows, *layers) if packed else SideBySide(*layers)
        self.out_proj = _twin(self.out_proj, rows)
        norms = [self._modules.pop(name) for name in ("q_norm", "k_norm")]
        self.eps = norms[0].eps
        scales = [
            norm.scale.detach().float().expand(count, 1, -1)
            for norm, count in zip(norms, self.counts[:2], strict=True)
        ]
        self.scales = torch.cat(scales)  # (heads + groups, 1, head_dim)

    def project(self, x, plan):
        heads = self._heads(self.W_all(x))
        turning, values = heads.split((len(self.scales), self.counts[2]), dim=1)
        normed = F.rms_norm(turning.float(), (self.head_dim,), None, self.eps) * self.scales
        turned = apply_rope(normed.to(x.dtype), plan.cos, plan.sin)
        return *turned.split(self.counts[:2], dim=1), values


class JoinedFeedForward(FeedForward):
    """One product for both halves."""

    def join(self, rows: int) -> None:
        halves = [self._modules.pop(name) for name in ("fc1", "fc2")]
        self.halves = PackedLinear(rows, *halves)
        self.fc3 = _twin(self.fc3, rows)

    def forward(self, x):
        gate, up = self.halves(x).chunk(2, dim=-1)
        return self.fc3(F.silu(gate) * up)


def twin_for_decoding(model: nn.Module, rows: int, steps: int) -> nn.Module:
    """A twin that decodes batches of about `rows` rows; all that it need not change is shared.
    The model itself where it is sharded, where hooks want to see or change what its parts
    compute, or where so few steps would not pay for the packing."""
    if steps < FEWEST_STEPS or is_sharded(model) or has_hooks(model):
        return model
    return _twin(model, rows)


def is_sharded(model: nn.Module) -> bool:
    return any(hasattr(weight, "device_mesh") for weight in model.parameters())


def has_hooks(model: nn.Module) -> bool:
    """A hook is called by the part that it was put on, which a faster decoder leaves out."""
    return any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def _worth_it(part: nn.Module, rows: int) -> bool:
    """A plain matrix, not too small, that oneDNN can pack on this processor."""
    weight = part.weight if type(part) is nn.Linear and part.bias is None else None
    return (
        weight is not None
        and weight.device.type == "cpu"
        and weight.numel() >= (SMALLEST if rows > 1 else SMALLEST_FOR_ONE_ROW)
        and _can_pack(weight.dtype)
    )


def _can_pack(dtype: torch.dtype) -> bool:
    operations = torch.ops.mkldnn
    if not (torch.backends.mkldnn.is_available() and hasattr(operations, "_linear_pointwise")):
        return False
    return dtype == torch.float32 or (
        dtype == torch.bfloat16 and operations._is_mkldnn_bf16_supported()
    )


def _twin(part: nn.Module, rows: int) -> nn.Module:
    if _worth_it(part, rows):
        return PackedLinear(rows, part)
    twin = copy.copy(part)
    twin.__dict__.pop("forward", None)  # gradient checkpointing's, bound to the other module
    joined = _joined_class(part, rows)
    if joined:
        twin.__class__, twin._modules = joined, dict(part._modules)
        twin.join(rows)
    else:
        twin._modules = {name: _twin(child, rows) for name, child in part._modules.items()}
    return twin


def _joined_class(part: nn.Module, rows: int) -> type | None:
    if type(part) is FeedForward and _worth_it(part.fc1, rows) and _worth_it(part.fc2, rows):
        return JoinedFeedForward
    norms = (part.q_norm, part.k_norm) if type(part) is GroupedQueryAttention else ()
    if norms and all(map(is_plain_norm, norms)):
        return JoinedAttention
    return None


def is_plain_norm(norm: nn.Module) -> bool:
    """An RMSNorm as Qwen3 has it: it can be joined with another."""
    return type(norm) is RMSNorm and norm.qwen3_compatible and norm.shift is None
