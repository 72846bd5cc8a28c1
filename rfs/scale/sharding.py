"""FSDP2: each rank keeps a slice of every weight, of its gradient and of the optimizer's state.

In a training pass each block's weights are gathered just before they are needed, forward and
backward, and freed afterwards. Sampling that way would gather them for every token, with all ranks
in lockstep. So while they sample, all ranks hold the whole weights (and nothing else) in a model
that FSDP2 does not manage, and each samples at its own pace. Saves are whole too: any number of
ranks can continue from them.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.weights import build_model
from reasoning_from_scratch.losses import Loss
from reasoning_from_scratch.optim.adamw import AdamW, Trainable
from reasoning_from_scratch.optim.lora import add_lora, load_lora, lora_layers
from reasoning_from_scratch.policy import LocalPolicy, LossSums
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.rollouts import Rollout
from rfs.scale.ranks import Ranks
from rfs.scale.ranks_policy import RanksPolicy

CAN_SHARD_ON_CPU = hasattr(torch.cpu.Stream, "record_event")  # torch 2.6 shards on GPUs only


def sliced_policy(
    ranks: Ranks,
    model: Qwen3Model,
    optimizer_of: Callable[[Trainable], AdamW] | None,
    **policy_args,
) -> "SlicedPolicy":
    """A policy for a whole model, of which each rank keeps only a slice from now on."""
    if ranks.device == "cpu" and not CAN_SHARD_ON_CPU:
        raise UserError(f"torch {torch.__version__} shards on GPUs only: install a newer one")
    slices = Slices(ranks, model)
    return SlicedPolicy(slices, ranks, model, optimizer_of and optimizer_of(slices), **policy_args)


class Slices:
    """The slices of one model's weights on this rank. An optimizer sees each as a plain tensor."""

    def __init__(self, ranks: Ranks, model: Qwen3Model) -> None:
        # Not managed by FSDP2; it has weights only in `full_model`.
        self.unsharded = copy_without_weights(model)
        mesh = init_device_mesh(torch.device(ranks.device).type, (ranks.size,))
        precision = MixedPrecisionPolicy(reduce_dtype=torch.float32)
        for block in model.trf_blocks:
            fully_shard(block, mesh=mesh, mp_policy=precision)
        # Embedding, head and last norm. It returns the same object.
        sharded = fully_shard(model, mesh=mesh, mp_policy=precision)
        register_fsdp_forward_method(model, "hidden_states")
        # FSDP2 sets itself up in its first pass.
        with torch.no_grad(), ranks.watching_ranks():
            model.hidden_states(torch.zeros(1, 1, dtype=torch.long, device=ranks.device))
            sharded.reshard()
        self.sharded: dict[str, DTensor] = {}  # the model's parameters
        self.local: dict[str, nn.Parameter] = {}  # this rank's slices of them: the same memory
        for name, weight in model.named_parameters():
            assert isinstance(weight, DTensor)
            self.sharded[name] = weight
            self.local[name] = nn.Parameter(weight.to_local().detach(), weight.requires_grad)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        return iter(self.local.items())


class SlicedPolicy(RanksPolicy):
    """Several ranks, each with a slice of the weights."""

    def __init__(self, slices: Slices, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.slices = slices
        self.engine.free_memory()  # what sampling keeps is as large as the weights

    def forward_backward(
        self,
        rollouts: Sequence[Rollout],
        config: Loss,
        denominator: float,
        logprobs_into: list[Tensor] | None = None,
    ) -> list[LossSums]:
        """A pass gathers weights from all ranks, so all ranks make as many passes as the one with
        the most; the extra ones read only a prompt, of which no token counts."""
        assert logprobs_into is None, "no rank computes all of them: call `logprobs`"
        if not rollouts:
            return []
        local_pass, idle_rollouts = LocalPolicy.forward_backward, [without_response(rollouts[0])]
        rank_rollouts = [rollouts[place] for place in self.rollouts_here(rollouts)] or idle_rollouts
        # Exchanged before any rank begins.
        max_passes = max(self.ranks.exchange(len(self.split_into_micro_batches(rank_rollouts))))
        all_sums = local_pass(self, rank_rollouts, config, denominator)
        while len(all_sums) < max_passes:
            all_sums += local_pass(self, idle_rollouts, config, denominator)
        return self.gather_sums(all_sums)

    def discard_failed_call(self) -> None:
        """Leaves it: the run ends, and a pass would wait for ranks that make none."""

    def use_less_memory(self) -> None:
        """All ranks make their passes together: one alone cannot start over."""
        raise UserError("this GPU's memory has run out: lower --micro-batch-tokens") from None

    def sum_gradients(self) -> None:
        sums: dict[Tensor, Tensor] = {}
        for name, slice_ in self.optimizer.named_parameters:
            # FSDP2 has averaged over ranks; the denominator already counts all ranks' rows.
            weight = self.slices.sharded[name]
            total = self.optimizer.gradient(weight)
            assert isinstance(total, DTensor)
            sums[slice_] = total.to_local().float() * self.ranks.size
            weight.grad = None
        self.optimizer.gradient_sums = sums

    @torch.no_grad()
    def clip_gradient(self, largest: float) -> float:
        squares = [gradient.square().sum() for gradient in self.optimizer.gradients()]
        total = torch.stack(squares).sum()
        with self.ranks.watching_ranks():
            dist.all_reduce(total)
        norm = math.sqrt(float(total))
        if 0 < largest < norm:
            for gradient in self.optimizer.gradients():
                gradient *= largest / norm
        return norm

    @torch.no_grad()
    def update_ratio(self) -> float | None:
        """Changes and sizes are sums over the slices of all ranks."""
        pairs = [torch.stack(pair) for pair in self.optimizer.squared_norms]
        # With LoRA's few rows a rank may have none of any matrix; it takes part nonetheless.
        total = torch.stack([torch.zeros(2, device=self.ranks.device), *pairs]).sum(0)
        with self.ranks.watching_ranks():
            dist.all_reduce(total)
        changed, size = total.tolist()
        return math.sqrt(changed / size) if size else None

    # -- all weights on every rank, for sampling

    @contextmanager
    def full_model(self) -> Iterator[Qwen3Model]:
        """FSDP2 gathers the weights and frees them again; in between, `unsharded` has them."""
        full = self.slices.unsharded
        fsdp_modules = [module for module in self.model.modules() if isinstance(module, FSDPModule)]
        with self.ranks.watching_ranks():
            for module in fsdp_modules:
                module.unshard()
        for name, weight in self.model.named_parameters(remove_duplicate=False):
            owner, _, kind = name.rpartition(".")
            setattr(full.get_submodule(owner), kind, weight)  # the same memory, no copy
        try:
            yield full
        finally:
            for module in fsdp_modules:
                module.reshard()

    # -- saving and resuming

    def model_to_save(self) -> Qwen3Model | None:
        """A plain copy in the memory of rank 0's machine, gathered tensor by tensor."""
        model, slices = self.model, self.model.state_dict()
        if model.cfg.get("tie_embeddings", False):
            del slices["out_head.weight"]  # the same weights under a second name
        state = {name: self.gather(tensor) for name, tensor in slices.items()}
        if not self.ranks.writes:
            return None
        weights = {name: tensor for name, tensor in state.items() if ".lora_" not in name}
        full = build_model(model.cfg, weights, "the gathered model")
        if layers := lora_layers(model):
            first = next(iter(layers.values()))
            add_lora(full, first.rank, first.alpha)
            load_lora(full, state)
        return full

    def optimizer_state(self) -> dict[str, Tensor]:
        state = {}
        for name, slice_ in self.optimizer.state.items():
            weight = self.slices.sharded[name.rpartition(".")[0]]
            sharded = DTensor.from_local(
                slice_,
                weight.device_mesh,
                weight.placements,
                run_check=False,
                shape=weight.shape,
                stride=weight.stride(),
            )
            state[name] = self.gather(sharded)
        return state if self.ranks.writes else {}

    def gather(self, tensor: DTensor) -> Tensor | None:
        with self.ranks.watching_ranks():
            full = tensor.full_tensor().detach()
        return full.cpu() if self.ranks.writes else None

    @torch.no_grad()
    def load_optimizer(self, state: dict[str, Tensor], updates: int) -> None:
        self.optimizer.updates = updates
        for name, slice_ in self.optimizer.state.items():
            shape = self.slices.sharded[name.rpartition(".")[0]].shape
            full = torch.empty(shape, dtype=slice_.dtype, device=slice_.device)
            if self.ranks.writes:
                full.copy_(state[name])
            self.ranks.copy_from_first({name: full})
            slices = full.chunk(self.ranks.size)
            if self.ranks.rank < len(slices):
                slice_.copy_(slices[self.ranks.rank])


def without_response(rollout: Rollout) -> Rollout:
    """The rollout without its answer: its records are still there, but empty."""
    records = ("token_advantages", "start_logprobs", "ref_logprobs")
    empty = {name: record[:0] for name in records if (record := getattr(rollout, name)) is not None}
    return replace(rollout, response_ids=[], logprobs=[], forced=[], kept=None, **empty)


def copy_without_weights(model: Qwen3Model) -> Qwen3Model:
    """A copy without weights, which takes no memory: its parameters are on the meta device."""
    empty = {
        id(weight): nn.Parameter(torch.empty_like(weight, device="meta"), weight.requires_grad)
        for weight in model.parameters()
    }
    return copy.deepcopy(model, empty)
