"""For sampling on a CPU: the large matrices once more, in the layout that products read fastest.

A decoding step multiplies a few rows by every matrix of the model, so it takes as long as
reading the weights does. oneDNN reads a packed matrix in one stream; a plain one costs it
1.4 times as long in bfloat16 and twice as long in float32 (benchmarks/README.md).
"""

import copy

import torch
from torch import Tensor, nn

SMALLEST = 2**19  # entries; smaller matrices stay in the processor's cache as they are
FEWEST_STEPS = 32  # packing costs as much as it saves in about so many decoding steps


class PackedLinear(nn.Module):
    """A linear layer without bias and without gradient."""

    def __init__(self, weight: Tensor, rows: int) -> None:
        super().__init__()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), rows)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, None, "none", [], "")


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


def _twin(part: nn.Module, rows: int) -> nn.Module:
    if _worth_it(part):
        return PackedLinear(part.weight, rows)
    twin = copy.copy(part)
    twin.__dict__.pop("forward", None)  # gradient checkpointing's, bound to the other module
    twin._modules = {name: _twin(child, rows) for name, child in part._modules.items()}
    return twin
