"""AdamW whose small updates reach bfloat16 weights."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

EPSILON = 1e-8
# Weights that are updated together: on a CPU 1 MB of each of their numbers, which stays in its
# cache; on a GPU many matrices, since there each operation costs the same however small it is.
SLICE, GPU_SLICE = 2**18, 2**26
TOGETHER = {"cuda"}  # where torch's fused AdamW takes many matrices in one kernel


def kind_of(name: str, parameter: Tensor) -> str:
    """A matrix of a block, the embedding, or the head with the norms."""
    if name.startswith("tok_emb"):
        return "embedding"
    return "matrix" if parameter.dim() == 2 and not name.startswith("out_head") else "head"


class Trainable(Protocol):
    """What an optimizer asks of a model; scale/sharding.py has another than the model itself."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]: ...


class Rows(NamedTuple):
    """Some rows of a parameter, and all that their update reads and writes."""

    weight: Tensor
    gradient: Tensor
    mean: Tensor
    square: Tensor
    master: Tensor | None
    decay: float
    told: int  # so many of the rows count for `moved`


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
        self.named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        self.betas, self.weight_decay, self.seed = (beta1, beta2), weight_decay, seed
        self.stochastic = low_precision_updates == "stochastic"
        self.updates = 0
        # Of the last update, per matrix: squared sizes of the change and of the weights.
        self.moved: list[tuple[Tensor, Tensor]] = []
        # Gradients that are added up beside `.grad`, in float32: see `add_up`.
        self.wide: dict[Tensor, Tensor] = {}
        self.state: dict[str, Tensor] = {}  # "NAME.mean", "NAME.square", "NAME.master"
        for name, parameter in self.named:
            kind = parameter.dtype if self.stochastic else torch.float32
            self.state[f"{name}.mean"] = torch.zeros_like(parameter, dtype=kind)
            self.state[f"{name}.square"] = torch.zeros_like(parameter, dtype=torch.float32)
            if parameter.dtype != torch.float32 and not self.stochastic:
                self.state[f"{name}.master"] = parameter.detach().float()

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [parameter for _, parameter in self.named]

    def add_up(self, model: nn.Module) -> None:
        """Adds the gradient of a micro-batch to that of those before it, in float32.

        Autograd would add each to a bfloat16 `.grad`, whose numbers have 8 bits: what is below
        1/256 of the sum so far is lost, micro-batch after micro-batch. So `.grad` is emptied into
        a float32 sum; the first is kept as it is until there is a second. Float32 weights are
        left to autograd.
        """
        for parameter in model.parameters():
            if parameter.grad is None or torch.finfo(parameter.dtype).bits >= 32:
                continue
            if parameter in self.wide:
                self.wide[parameter] = self.wide[parameter].float().add_(parameter.grad)
            else:
                self.wide[parameter] = parameter.grad
            parameter.grad = None

    def gradient(self, parameter: Tensor) -> Tensor | None:
        return self.wide.get(parameter, parameter.grad)

    def gradients(self) -> list[Tensor]:
        found = [self.gradient(parameter) for parameter in self.parameters]
        return [gradient for gradient in found if gradient is not None]

    def zero_grad(self) -> None:
        self.wide = {}
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
        shrink = largest / (norm + 1e-6)
        if 0 < shrink < 1:
            torch._foreach_mul_(gradients, shrink)
        return float(norm)

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """One update. Large matrices are taken a few rows at a time: what is computed in between
        stays in the processor's cache, and needs no memory to speak of."""
        self.updates += 1
        self.moved = []
        together: list[Rows] = []
        for index, (name, parameter) in enumerate(self.named):
            if self.gradient(parameter) is None:
                continue
            for rows in self._slices(name, parameter):
                if self._goes_together(parameter):
                    together.append(self._rows(name, parameter, rows))
                else:
                    self._step_rows(name, parameter, rows, lr, self._noise_seed(index, rows.start))
        for number, some in enumerate(groups_of(together, GPU_SLICE)):
            self._step_together(some, lr, self._noise_seed(number, 0))

    def _slices(self, name: str, parameter: Tensor) -> list[slice]:
        size = rows_of(parameter, SLICE if parameter.device.type == "cpu" else GPU_SLICE)
        return [slice(start, start + size) for start in range(0, len(parameter), size)]

    def _step_rows(
        self, name: str, parameter: nn.Parameter, rows: slice, lr: float, seed: int
    ) -> None:
        weight, master = parameter[rows], self.state.get(f"{name}.master")
        old = weight if master is None else master[rows]
        new = self._updated(name, rows, old.float(), self.gradient(parameter)[rows].float(), lr)
        if rows.start == 0 and kind_of(name, parameter) == "matrix":  # some rows tell for all
            self.moved.append(((new - old).square().sum(), old.float().square().sum()))
        if master is not None:
            old.copy_(new)
        elif parameter.dtype != torch.float32:
            new = stochastic_round(new, seed)
        weight.copy_(new)

    def _updated(self, name: str, rows: slice, weight: Tensor, grad: Tensor, lr: float) -> Tensor:
        beta1, beta2 = self.betas
        mean, square = self.state[f"{name}.mean"][rows], self.state[f"{name}.square"][rows]
        mean.lerp_(grad.to(mean.dtype), 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        # Both averages start at zero; dividing by 1 - beta^t takes that out again.
        root = (square / (1 - beta2**self.updates)).sqrt_().add_(EPSILON)
        decay = lr * self.weight_decay if weight.dim() > 1 else 0.0
        old = weight * (1 - decay) if decay else weight
        return old.addcdiv(mean.float(), root, value=-lr / (1 - beta1**self.updates))

    # On a GPU: many parameters in a few operations, none of which waits for Python.

    def _goes_together(self, parameter: Tensor) -> bool:
        return parameter.device.type in TOGETHER and parameter.numel() > 0

    def _rows(self, name: str, parameter: Tensor, rows: slice) -> Rows:
        master = self.state.get(f"{name}.master")
        told = rows.start == 0 and kind_of(name, parameter) == "matrix"
        return Rows(
            parameter[rows],
            self.gradient(parameter)[rows].float(),
            self.state[f"{name}.mean"][rows],
            self.state[f"{name}.square"][rows],
            None if master is None else master[rows],
            self.weight_decay if parameter.dim() > 1 else 0.0,
            rows_of(parameter, SLICE) if told else 0,
        )

    def _step_together(self, some: list[Rows], lr: float, seed: int) -> None:
        """`_step_rows` for each of them. torch's kernel works in place and in float32: on masters
        and float32 weights themselves, on copies of what is narrower."""
        new = [(x.weight if x.master is None else x.master).float() for x in some]
        means = [x.mean.float() for x in some]
        told = [tensor[: x.told] for tensor, x in zip(new, some, strict=True) if x.told]
        before = list(torch._foreach_mul(told, 1.0)) if told else []
        for decay in sorted({x.decay for x in some}):
            chosen = [i for i, x in enumerate(some) if x.decay == decay]
            torch._fused_adamw_(
                [new[i] for i in chosen],
                [some[i].gradient for i in chosen],
                [means[i] for i in chosen],
                [some[i].square for i in chosen],
                [],
                [torch.full((), float(self.updates), device=new[0].device)] * len(chosen),
                lr=lr,
                beta1=self.betas[0],
                beta2=self.betas[1],
                weight_decay=decay,
                eps=EPSILON,
                amsgrad=False,
                maximize=False,
            )
        if told:
            changes = torch._foreach_norm(torch._foreach_sub(told, before))
            sizes = torch._foreach_norm(before)
            self.moved.append(
                (torch.stack(changes).square().sum(), torch.stack(sizes).square().sum())
            )
        write_back([x.mean for x in some], means)
        if some[0].master is None and some[0].weight.dtype != torch.float32:
            counts, shapes = [x.numel() for x in new], [x.shape for x in new]
            rounded = stochastic_round(torch.cat([x.flatten() for x in new]), seed).split(counts)
            new = [x.view(shape) for x, shape in zip(rounded, shapes, strict=True)]
        write_back([x.weight for x in some], new)

    def _noise_seed(self, index: int, row: int) -> int:
        """A function of seed, update, parameter and row, so that a resumed run rounds alike."""
        return hash((self.seed, self.updates, index, row)) % 2**63

    def update_ratio(self) -> float | None:
        """How far the last update moved the matrices of the blocks, as a share of their size."""
        if not self.moved:
            return None
        changes, sizes = (torch.stack(sums).sum() for sums in zip(*self.moved, strict=True))
        return float((changes / sizes).sqrt())

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.state)

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor], updates: int) -> None:
        self.updates = updates
        for name, tensor in self.state.items():
            tensor.copy_(state[name])


def rows_of(parameter: Tensor, weights: int) -> int:
    """How many of its rows have together so many weights, at least one."""
    return max(1, weights * len(parameter) // max(1, parameter.numel()))


def groups_of(rows: Iterable[Rows], weights: int) -> Iterator[list[Rows]]:
    """Neighbours of one number format, with at most so many weights unless it is a single one."""
    group: list[Rows] = []
    for each in rows:
        full = sum(x.weight.numel() for x in group) + each.weight.numel() > weights
        if group and (full or each.weight.dtype != group[0].weight.dtype):
            yield group
            group = []
        group.append(each)
    if group:
        yield group


def write_back(targets: list[Tensor], values: list[Tensor]) -> None:
    """Into narrower tensors; the others are what was computed in."""
    pairs = [(x, y) for x, y in zip(targets, values, strict=True) if x.data_ptr() != y.data_ptr()]
    if pairs:
        torch._foreach_copy_([target for target, _ in pairs], [value for _, value in pairs])


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
