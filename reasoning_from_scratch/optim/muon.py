"""Muon: momentum whose update is made orthogonal (Jordan et al. 2024), for weight matrices.

An orthogonal update moves all directions of a matrix equally far, also those that the gradient
hardly ever shows. The tiny models were pre-trained with it, by checkpoints/pretrain.py.
"""

import torch
from torch import Tensor

from reasoning_from_scratch.config import Optim
from reasoning_from_scratch.optim.adamw import AdamW, Part, Trainable, parameter_kind

# A quintic that drives singular values towards 1 in few rounds, at the price of leaving them
# anywhere between 0.7 and 1.2 (Jordan's coefficients).
QUINTIC = (3.4445, -4.7750, 2.0315)
MOMENTUM = 0.95


def orthogonalize(matrix: Tensor, rounds: int = 5) -> Tensor:
    """U V^T of the singular value decomposition U S V^T, roughly, by matrix products alone."""
    a, b, c = QUINTIC
    # In bfloat16 the rounds would turn its last bit into whole directions, and two ranks whose
    # gradients differ in the seventh digit would part ways.
    x = matrix.float()
    wide = x.shape[0] <= x.shape[1]
    x = x if wide else x.T
    x = x / x.norm().clamp(min=1e-7)  # all singular values are at most 1 now
    for _ in range(rounds):
        square = x @ x.T
        factor = torch.addmm(square, square, square, beta=b, alpha=c)  # b S + c S S
        x = torch.addmm(x, factor, x, beta=a)  # a X + (b S + c S S) X
    return (x if wide else x.T).to(matrix.dtype)


class MuonAdamW(AdamW):
    """Muon for the matrices of the blocks, AdamW for embedding, head and norms.

    Each kind has its own rate, which the `lr` of a step multiplies. Left at None, it moves about
    as far as by AdamW at `lr`, so that a rate found for AdamW serves here too, for models of any
    width (measured in benchmarks/README.md). Master weights, rounding and saved state are AdamW's.
    """

    def __init__(
        self,
        model: Trainable,
        matrix_lr: float | None = None,
        embedding_lr: float | None = None,
        unembedding_lr: float | None = None,
        **others,
    ) -> None:
        super().__init__(model, **others)
        self.rates = {"matrix": matrix_lr, "embedding": embedding_lr, "head": unembedding_lr}

    @classmethod
    def from_config(cls, model: Trainable, config: Optim, seed: int = 0, **others) -> "AdamW":
        names = ("matrix_lr", "embedding_lr", "unembedding_lr")
        rates = {name: getattr(config, name) for name in names}
        return super().from_config(model, config, seed, **rates, **others)

    def new_state(self) -> dict[str, Tensor]:
        state = super().new_state()
        for name, parameter in self.named_parameters:
            # A matrix has only a running mean, always in float32.
            if parameter_kind(name, parameter) == "matrix":
                state[f"{name}.mean"] = torch.zeros_like(parameter, dtype=torch.float32)
                del state[f"{name}.square"]
        return state

    def _slices(self, name: str, parameter: Tensor) -> list[slice]:
        # No part of a matrix can be made orthogonal alone.
        if parameter_kind(name, parameter) == "matrix":
            return [slice(0, len(parameter))]
        return super()._slices(name, parameter)

    def _lr_factor(self, kind: str, weight: Tensor) -> float:
        """What `lr` is multiplied by. An orthogonal update has the root mean square
        1 / sqrt(inputs), and AdamW's first update is +lr or -lr in each weight: 1, times lr."""
        rate = self.rates[kind]
        if rate is not None:
            return rate
        return weight.shape[1] ** 0.5 if kind == "matrix" else 1.0

    def _new_weights(
        self, parts: list[Part], weights: list[Tensor], grads: list[Tensor], lr: float
    ) -> list[Tensor]:
        """One by one: each kind has its own learning rate, and matrices their own update."""
        new: list[Tensor] = []
        for part, weight, grad in zip(parts, weights, grads, strict=True):
            kind = parameter_kind(part.name, weight)
            rate = lr * self._lr_factor(kind, weight)
            if kind == "matrix":
                decayed = weight * (1 - lr * self.weight_decay) if self.weight_decay else weight
                new.append(muon_update(decayed, part.mean, grad, rate))
            else:
                new += super()._new_weights([part], [weight], [grad], rate)
        return new


OPTIMIZERS: dict[str, type[AdamW]] = {
    "adamw": AdamW,
    "muon": MuonAdamW,
}  # by their names in a configuration


def muon_update(weight: Tensor, mean: Tensor, grad: Tensor, lr: float) -> Tensor:
    """The new matrix; the gradient also enters the running mean, in place."""
    mean.lerp_(grad, 1 - MOMENTUM)
    update = orthogonalize(grad.lerp(mean, MOMENTUM))
    # A tall matrix maps few inputs to many outputs: the same change per output.
    outputs, inputs = weight.shape
    return weight.sub(update, alpha=lr * max(1.0, outputs / inputs) ** 0.5)
