"""AdamW whose small updates reach bfloat16 weights."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from reasoning_from_scratch.config import Optim
from reasoning_from_scratch.errors import UserError

EPSILON = 1e-8
# For a mean that is kept in bfloat16: with this beta1 it ends 4% short, with 0.99 20%, with 0.999
# 75%.
MAX_BETA1 = 0.95
STATE = ("mean", "square", "master")  # of each parameter: "NAME.mean", ...
# How many weights are updated together: on a CPU so many that each tensor takes 1 MB, which stays
# in its cache; on a GPU more, since there even the smallest operation has the same cost.
SLICE, GPU_SLICE = 2**18, 2**24


def parameter_kind(name: str, parameter: Tensor) -> str:
    """A matrix of a block, the embedding, or the head with the norms."""
    if name.startswith("tok_emb"):
        return "embedding"
    return "matrix" if parameter.dim() == 2 and not name.startswith("out_head") else "head"


class Trainable(Protocol):
    """What an optimizer needs from a model, or from a rank's slices of it (scale/sharding.py)."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]: ...


class Part(NamedTuple):
    """Some rows of a parameter, and all that their update reads and writes."""

    name: str
    weight: Tensor
    gradient: Tensor
    mean: Tensor
    square: Tensor | None  # Muon's matrices have none
    master: Tensor | None
    measured_rows: int  # how many of the rows `squared_norms` measures
    noise: int  # seed of the draws that round it


class AdamW:
    """AdamW with decoupled weight decay, for float32 and bfloat16 models.

    A bfloat16 weight of 0.02 has neighbours 1.2e-4 away, so an update of 1e-5 rounds to nothing.
    Two remedies: "master" keeps a float32 copy of every weight, updates that and rounds it into
    the model; "stochastic" keeps no copy, and rounds up or down with the probability that makes
    the expected weight exact (6 instead of 12 bytes per weight beside the model's own 2).
    """

    def __init__(
        self,
        model: Trainable,
        beta1: float = 0.9,
        beta2: float = 0.95,
        weight_decay: float = 0.0,
        low_precision_updates: str = "master",
        seed: int = 0,
    ) -> None:
        self.named_parameters = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        self.betas, self.weight_decay, self.seed = (beta1, beta2), weight_decay, seed
        self.epsilon = EPSILON
        self.stochastic = low_precision_updates == "stochastic"
        self.updates = 0
        # Of the last update, by groups of matrices: squared sizes of the change and of the weights.
        self.squared_norms: list[tuple[Tensor, Tensor]] = []
        # Sums of gradients in float32, instead of `.grad`: see `accumulate_gradients`.
        self.gradient_sums: dict[Tensor, Tensor] = {}

    @classmethod
    def from_config(cls, model: Trainable, config: Optim, seed: int = 0, **others) -> "AdamW":
        """The optimizer that a configuration describes."""
        if config.low_precision_updates == "stochastic":
            check_stochastic(model, config)
        names = ("beta1", "beta2", "weight_decay", "low_precision_updates")
        return cls(model, **{name: getattr(config, name) for name in names}, seed=seed, **others)

    @cached_property
    def state(self) -> dict[str, Tensor]:
        """Made when it is first needed: a policy that only answers and scores never needs it, and
        it is six times as large as a bfloat16 model."""
        return self.new_state()

    def new_state(self) -> dict[str, Tensor]:
        state = {}
        for name, parameter in self.named_parameters:
            mean_dtype = parameter.dtype if self.stochastic else torch.float32
            state[f"{name}.mean"] = torch.zeros_like(parameter, dtype=mean_dtype)
            state[f"{name}.square"] = torch.zeros_like(parameter, dtype=torch.float32)
            if parameter.dtype != torch.float32 and not self.stochastic:
                state[f"{name}.master"] = parameter.detach().float()
        return state

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [parameter for _, parameter in self.named_parameters]

    @contextmanager
    def accumulate_gradients(self, model: nn.Module) -> Iterator[None]:
        """Adds the gradient of the backward pass inside it to that of earlier passes, in float32.

        Autograd would add to a bfloat16 `.grad`, whose numbers have 8 bits: what is below 1/256 of
        the sum so far is lost, micro-batch after micro-batch. So `.grad` is emptied into a float32
        sum (the first gradient stays as it is until a second one arrives). Each weight's gradient
        is added as soon as it is complete: those of all weights together would take another 1.5 GB
        for Qwen3-0.6B. Float32 weights are left to autograd.
        """
        low_precision = filter(is_low_precision, self.parameters)
        hooks = [p.register_post_accumulate_grad_hook(self.add_to_sum) for p in low_precision]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        for parameter in model.parameters():  # FSDP2's slices have no such hooks
            self.add_to_sum(parameter)

    def add_to_sum(self, parameter: Tensor) -> None:
        if parameter.grad is None or not is_low_precision(parameter):
            return
        if parameter in self.gradient_sums:
            self.gradient_sums[parameter] = (
                self.gradient_sums[parameter].float().add_(parameter.grad)
            )
        else:
            self.gradient_sums[parameter] = parameter.grad
        parameter.grad = None

    def gradient(self, parameter: Tensor) -> Tensor | None:
        return self.gradient_sums.get(parameter, parameter.grad)

    def gradients(self) -> list[Tensor]:
        gradients = [self.gradient(parameter) for parameter in self.parameters]
        return [gradient for gradient in gradients if gradient is not None]

    def zero_grad(self) -> None:
        self.gradient_sums = {}
        for parameter in self.parameters:
            parameter.grad = None

    def clip_gradient(self, largest: float) -> float:
        """The gradient's norm before clipping; 0 for `largest` means that nothing is clipped."""
        gradients = self.gradients()
        if not gradients:
            return 0.0
        # In float32 also where the gradient is bfloat16, whose norm would have 8 bits.
        norms = torch._foreach_norm(gradients, dtype=torch.float32)
        norm = torch.linalg.vector_norm(torch.stack(norms))
        shrink = float(largest / (norm + 1e-6))
        if 0 < shrink < 1:
            torch._foreach_mul_(gradients, shrink)
        return float(norm)

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """One update. Small matrices are updated together and large ones a few rows at a time, so
        that intermediate results stay in the processor's cache and take hardly any memory."""
        self.updates += 1
        self.squared_norms = []
        for parts in group_parts(self._each_part()):
            self._update_parts(parts, lr)

    def _each_part(self) -> Iterator[Part]:
        for index, (name, parameter) in enumerate(self.named_parameters):
            gradient = self.gradient(parameter)
            if gradient is None:
                continue
            matrix = parameter_kind(name, parameter) == "matrix"
            state = {kind: self.state.get(f"{name}.{kind}") for kind in STATE}
            for rows in self._slices(name, parameter):
                yield Part(
                    name=name,
                    weight=parameter[rows],
                    gradient=gradient[rows],
                    **{kind: None if x is None else x[rows] for kind, x in state.items()},
                    measured_rows=rows_per_slice(parameter, SLICE)
                    if matrix and rows.start == 0
                    else 0,
                    # So a resumed run rounds as it would have without a break.
                    noise=hash((self.seed, self.updates, index, rows.start)) % 2**63,
                )

    def _slices(self, name: str, parameter: Tensor) -> list[slice]:
        size = rows_per_slice(parameter, weights_per_slice(parameter))
        return [slice(start, start + size) for start in range(0, len(parameter), size)]

    def _update_parts(self, parts: list[Part], lr: float) -> None:
        """All of them in a few operations, in float32."""
        masters = [part.master for part in parts if part.master is not None]
        old = masters or to_float32([part.weight for part in parts])
        new = self._new_weights(parts, old, to_float32([part.gradient for part in parts]), lr)
        self._record_norms(parts, old, new)
        if masters:
            torch._foreach_copy_(masters, new)
        elif parts[0].weight.dtype != torch.float32:
            new = [stochastic_round(x, part.noise) for x, part in zip(new, parts, strict=True)]
        torch._foreach_copy_([part.weight for part in parts], new)

    def _new_weights(
        self, parts: list[Part], weights: list[Tensor], grads: list[Tensor], lr: float
    ) -> list[Tensor]:
        """The new weights. `weights` and `grads` are in float32, whatever the parts are in."""
        beta1, beta2 = self.betas
        means, squares = [part.mean for part in parts], [part.square for part in parts]
        cast = [grad.to(mean.dtype) for grad, mean in zip(grads, means, strict=True)]
        torch._foreach_lerp_(means, cast, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
        # Both averages start at zero; dividing by 1 - beta^t takes that out again.
        roots = torch._foreach_div(squares, 1 - beta2**self.updates)
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, self.epsilon)
        if self.weight_decay:  # none of vectors
            factors = [1 - lr * self.weight_decay * (weight.dim() > 1) for weight in weights]
            weights = list(torch._foreach_mul(weights, factors))
        step_size = -lr / (1 - beta1**self.updates)
        means = [mean.float() for mean in means]
        return list(torch._foreach_addcdiv(weights, means, roots, value=step_size))

    def _record_norms(self, parts: list[Part], old: list[Tensor], new: list[Tensor]) -> None:
        """The squared sizes of matrices and of their changes, estimated from some rows."""
        before = [x[: p.measured_rows] for x, p in zip(old, parts, strict=True) if p.measured_rows]
        after = [x[: p.measured_rows] for x, p in zip(new, parts, strict=True) if p.measured_rows]
        if before:
            changes = torch._foreach_norm(torch._foreach_sub(after, before))
            sizes = torch._foreach_norm(before)
            self.squared_norms.append(
                (torch.stack(changes).square().sum(), torch.stack(sizes).square().sum())
            )

    def update_ratio(self) -> float | None:
        """How far the last update moved the matrices of the blocks, as a share of their size."""
        if not self.squared_norms:
            return None
        changes, sizes = (torch.stack(sums).sum() for sums in zip(*self.squared_norms, strict=True))
        return float((changes / sizes).sqrt())

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.state)

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor], updates: int) -> None:
        if updates < 0:
            raise UserError(f"no optimizer has made {updates} updates")
        for name, tensor in self.state.items():
            if name not in state or state[name].shape != tensor.shape:
                saved = "absent" if name not in state else f"of shape {tuple(state[name].shape)}"
                raise UserError(
                    f"this state is another optimizer's: {name} is {saved}, but must be of shape "
                    f"{tuple(tensor.shape)}"
                )
        self.updates = updates
        for name, tensor in self.state.items():
            tensor.copy_(state[name])


def check_stochastic(model: Trainable, config: Optim) -> None:
    """Refuses what rounding to bfloat16 cannot do."""
    _, weight = next(iter(model.named_parameters()))
    if not is_low_precision(weight):
        raise UserError(
            "--low-precision-updates stochastic rounds to bfloat16, and these weights "
            "are float32: add --dtype bfloat16, or drop it"
        )
    if config.beta1 > MAX_BETA1:
        raise UserError(
            f"--low-precision-updates stochastic keeps the mean of gradients in bfloat16, whose 8 "
            f"bits cannot follow so slow a mean as --beta1 {config.beta1:g}: at most "
            f"{MAX_BETA1}, or drop it"
        )


def is_low_precision(parameter: Tensor) -> bool:
    return torch.finfo(parameter.dtype).bits < 32


def weights_per_slice(parameter: Tensor) -> int:
    return SLICE if parameter.device.type == "cpu" else GPU_SLICE


def to_float32(tensors: list[Tensor]) -> list[Tensor]:
    """Themselves, or copies that a GPU makes in one operation."""
    if all(tensor.dtype == torch.float32 for tensor in tensors):
        return tensors
    copies = [torch.empty_like(tensor, dtype=torch.float32) for tensor in tensors]
    torch._foreach_copy_(copies, tensors)
    return copies


def rows_per_slice(parameter: Tensor, weights: int) -> int:
    """How many rows of a parameter hold this many weights together, at least one."""
    return max(1, weights * len(parameter) // max(1, parameter.numel()))


def group_parts(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Neighbors of one number format that are updated together; a large part is alone."""
    group: list[Part] = []
    room = 0
    for part in parts:
        room -= part.weight.numel()
        if group and (room < 0 or part.weight.dtype != group[0].weight.dtype):
            yield group
            group = []
        if not group:
            room = weights_per_slice(part.weight) - part.weight.numel()
        group.append(part)
    if group:
        yield group


def stochastic_round(values: Tensor, seed: int) -> Tensor:
    """Round float32 to bfloat16, up or down with probability by distance: right on average.

    bfloat16 is the upper half of a float32's bits. Adding a uniform number below one unit of the
    upper half carries into it exactly as often as the lower half is large.
    """
    generator = torch.Generator(values.device).manual_seed(seed)
    draws = torch.empty(-(-values.numel() // 4), dtype=torch.int64, device=values.device)
    draws.random_(-(2**63), None, generator=generator)  # each is good for four numbers of 16 bits
    noise = draws.view(torch.int16)[: values.numel()].view(values.shape).int() & 0xFFFF
    bits = values.contiguous().view(torch.int32) + noise
    return (bits & ~0xFFFF).view(torch.float32).to(torch.bfloat16)
