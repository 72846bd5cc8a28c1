"""Muon: momentum whose update is made orthogonal (Jordan et al. 2024), for weight matrices.

An orthogonal update moves all directions of a matrix equally far, also those that the gradient
hardly ever shows. The tiny model learns its arithmetic in a fraction of AdamW's steps.
"""

import torch
from torch import Tensor

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
