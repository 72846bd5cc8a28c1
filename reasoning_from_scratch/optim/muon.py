"""Muon: momentum whose update is made orthogonal (Jordan et al. 2024), for weight matrices.

An orthogonal update moves all directions of a matrix equally far, also those that the gradient
hardly ever shows. The tiny models were pre-trained with it.
"""

import torch
from torch import Tensor, nn

from reasoning_from_scratch.optim.adamw import AdamW, kind_of

# A quintic that drives singular values towards 1 in few rounds, at the price of leaving them
# anywhere between 0.7 and 1.2 (Jordan's coefficients).
QUINTIC = (3.4445, -4.7750, 2.0315)


def orthogonalize(matrix: Tensor, rounds: int = 5) -> Tensor:
    """U V^T of the singular value decomposition U S V^T, roughly, by matrix products alone."""
    a, b, c = QUINTIC
    x = matrix.bfloat16()  # rounding errors are far below what the quintic leaves
    wide = x.shape[0] <= x.shape[1]
    x = x if wide else x.T
    x = x / (x.norm() + 1e-7)  # all singular values are at most 1 now
    for _ in range(rounds):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return (x if wide else x.T).to(matrix.dtype)


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr: float, momentum: float = 0.95):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                mean = self.state[weight].setdefault("mean", torch.zeros_like(weight))
                mean.lerp_(weight.grad, 1 - group["momentum"])
                update = orthogonalize(weight.grad.lerp(mean, group["momentum"]))
                # A tall matrix maps few inputs to many outputs: the same change per output.
                scale = max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
                weight.add_(update, alpha=-group["lr"] * scale)


# Torch's own where it has one (2.9 and later); they differ in the name of the running mean.
TORCH_HAS_MUON = hasattr(torch.optim, "Muon")


class MuonAdamW(AdamW):
    """Muon for the matrices of the blocks, AdamW for embedding, head and norms.

    Each kind has its own rate, which the `lr` of a step multiplies. Left at None, it moves about
    as far as by AdamW at `lr`, so that a rate found for AdamW serves here too, for models of any
    width (measured in benchmarks/README.md). Master weights, rounding and saved state are AdamW's.
    """

    def __init__(
        self,
        model: nn.Module,
        matrix_lr: float | None = None,
        embedding_lr: float | None = None,
        unembedding_lr: float | None = None,
        **others,
    ) -> None:
        super().__init__(model, **others)
        self.rates = {"matrix": matrix_lr, "embedding": embedding_lr, "head": unembedding_lr}
        self.muons: dict[str, torch.optim.Optimizer] = {}
        for name, parameter in self.named:
            if kind_of(name, parameter) == "matrix":
                del self.state[f"{name}.square"]
                self.muons[name] = self._muon_of(f"{name}.mean", parameter)

    def _muon_of(self, mean: str, parameter: nn.Parameter) -> torch.optim.Optimizer:
        """A Muon of one float32 matrix, whose running mean is ours, so that it is saved with it."""
        self.state[mean] = torch.zeros_like(parameter, dtype=torch.float32)
        leaf = nn.Parameter(self.state[mean].new_empty(0, 0))  # each update lends it the weights
        if TORCH_HAS_MUON:
            muon = torch.optim.Muon([leaf], lr=1.0, weight_decay=0.0, momentum=0.95)
        else:
            muon = Muon([leaf], lr=1.0, momentum=0.95)
        muon.state[leaf]["momentum_buffer" if TORCH_HAS_MUON else "mean"] = self.state[mean]
        return muon

    def _slices(self, name: str, parameter: Tensor) -> list[slice]:
        whole = [slice(0, len(parameter))]  # no part of a matrix can be made orthogonal alone
        return whole if name in self.muons else super()._slices(name, parameter)

    def _rate(self, name: str, weight: Tensor) -> float:
        """What `lr` is multiplied by. An orthogonal update has the root mean square
        1 / sqrt(inputs), and AdamW's first update is +lr or -lr in each weight: 1, times lr."""
        rate = self.rates[kind_of(name, weight)]
        if rate is not None:
            return rate
        return weight.shape[1] ** 0.5 if name in self.muons else 1.0

    def _updated(self, name: str, rows: slice, weight: Tensor, grad: Tensor, lr: float) -> Tensor:
        lr = lr * self._rate(name, weight)
        if name not in self.muons:
            return super()._updated(name, rows, weight, grad, lr)
        (group,) = self.muons[name].param_groups
        (leaf,) = group["params"]
        leaf.data, leaf.grad, group["lr"] = weight.clone(), grad, lr
        self.muons[name].step()
        leaf.grad = None
        return leaf.data
