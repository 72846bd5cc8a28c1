"""How the ranks that torchrun started find each other, and agree on what they run."""

import atexit
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import cast
from uuid import uuid4

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast.device import is_available
from reasoning_from_scratch.optim.adamw import AdamW, Trainable
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.qwen3 import Qwen3Model
from rfs.config import Run, RunConfig, to_json
from rfs.scale.ranks import Ranks
from rfs.scale.ranks_policy import RanksPolicy

REQUIRED_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
JOIN_TIMEOUT = timedelta(minutes=2)  # for all ranks to come up
# A rank that died is noticed immediately, by its closed connection. This is for one that hangs, and
# must be longer than any rank ever samples, evaluates or saves while the others wait for it.
COLLECTIVE_TIMEOUT = timedelta(hours=1)


def join_ranks(config: RunConfig) -> Ranks:
    """All ranks of this job, as one of them sees them; they were started with equal options. A
    single rank unless torchrun started more."""
    check_restartable(config)
    size = os.environ["WORLD_SIZE"]
    restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    if size == "1":
        return Ranks(device=config.device, restarted=restarted)
    missing = [name for name in REQUIRED_VARIABLES if name not in os.environ]
    if missing:
        raise UserError(
            f"WORLD_SIZE is {size}, but {' and '.join(missing)} is not set: start the "
            f"ranks with torchrun --nproc_per_node={size}"
        )
    check_multi_rank_options(config)
    device = rank_device(config.device, int(os.environ["LOCAL_RANK"]))
    # The count of restarts shows one only on the machine where a rank died; rank 0 knows of all.
    restarted = meet_ranks(device) or restarted
    objects = (
        dist.new_group(backend="gloo", timeout=COLLECTIVE_TIMEOUT) if "cuda" in device else None
    )
    # torch's type allows for processes outside of the new group; all of them are in it.
    group = cast("dist.ProcessGroup | None", objects)
    ranks = Ranks(dist.get_rank(), dist.get_world_size(), device, group, restarted)
    check_equal_options(config, ranks)
    return ranks


def check_multi_rank_options(config: RunConfig) -> None:
    """Refuses options that work in one process but not in several."""
    if config.sampler == "ray" and config.num_minibatches > 1:
        raise UserError(
            "--num-minibatches trains on what has arrived, and with --sampler ray "
            "under torchrun it arrives at rank 0: drop one of the two"
        )
    if config.sampler == "local" and config.max_steps_off_policy and config.active_sampling:
        raise UserError(
            "--active-sampling must know what all ranks sampled, which with "
            "--max-steps-off-policy is not known in time: drop one of the two"
        )


def policy_of_ranks(
    ranks: Ranks,
    shard: str,
    model: Qwen3Model,
    optimizer_of: Callable[[Trainable], AdamW] | None,
    **policy_args,
) -> LocalPolicy:
    """The policy of several ranks: each has all weights, or a slice of each of them. Without an
    optimizer it cannot be trained; `policy_args` are LocalPolicy's other arguments."""
    if shard == "none":
        return RanksPolicy(ranks, model, optimizer_of and optimizer_of(model), **policy_args)
    from rfs.scale import sharding  # late: FSDP2 takes a while to load

    return sharding.sliced_policy(ranks, model, optimizer_of, **policy_args)


def rank_device(name: str, local_rank: int) -> str:
    """Each rank of a machine has its own GPU, or all compute on the CPU."""
    kind = name.partition(":")[0]
    if kind == "auto":
        kind = "cuda" if is_available("cuda") else "cpu"
    if kind not in ("cuda", "cpu") or ":" in name:
        raise UserError(f"--device {name} cannot be shared by several ranks; use cuda or cpu")
    if kind == "cpu":
        return kind
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise UserError(
            f"there are {count} GPUs here for {os.environ.get('LOCAL_WORLD_SIZE', '?')}"
            f" ranks: start torchrun with --nproc_per_node={count}"
        )
    torch.cuda.set_device(local_rank)
    return f"cuda:{local_rank}"


@cache
def meet_ranks(device: str) -> bool:
    """Meet the other ranks at torchrun's address, once per process. On rank 0, return whether ranks
    of this torchrun had met there before: then this is a restart."""
    address = "{MASTER_ADDR}:{MASTER_PORT}".format_map(os.environ)
    backend = "nccl" if "cuda" in device else "gloo"
    try:
        store, rank, size = next(rendezvous("env://", timeout=JOIN_TIMEOUT))
        met_before = rank == 0 and store.check(["rank 0"])
        store = fresh_store(store, rank, size)
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=COLLECTIVE_TIMEOUT
        )
    except (RuntimeError, ValueError) as error:
        if "EADDRINUSE" in str(error):
            raise UserError(
                f"the port of {address} is in use, perhaps by another job on this "
                "machine; choose another --master-port"
            ) from None
        reason = str(error).splitlines()[0]
        raise UserError(
            f"the {os.environ['WORLD_SIZE']} ranks did not meet at {address} within "
            f"{JOIN_TIMEOUT.seconds} s: {reason}"
        ) from None
    atexit.register(destroy_group)
    return met_before


def fresh_store(store: dist.Store, rank: int, size: int) -> dist.Store:
    """A part of torchrun's store that no rank has written in before this start.

    torchrun keeps its store when it restarts the ranks. The first rank to arrive would find a dead
    rank's address there, and try it until COLLECTIVE_TIMEOUT is over. So rank 0 takes a new name
    at every start and answers all who call it by that name; under a dead rank's name, nobody does.
    """
    name = uuid4().hex
    if rank == 0:
        store.set("rank 0", name)
        for other in range(1, size):
            caller = store.get(f"{name} is called by {other}").decode()
            store.set(f"{name} answers {caller}", "")
        return dist.PrefixStore(name, store)
    deadline = time.monotonic() + JOIN_TIMEOUT.total_seconds()
    while time.monotonic() < deadline:
        first = store.get("rank 0").decode()
        store.set(f"{first} is called by {rank}", name)
        if store.check([f"{first} answers {name}"]):
            return dist.PrefixStore(first, store)
        time.sleep(0.05)
    raise RuntimeError("rank 0 has not answered")


def destroy_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def end_rank(code: int) -> None:
    """Ends the process, if it is a rank that has met others.

    It bypasses Python's normal shutdown. The threads that talk to the other ranks run until the
    very end; if one of them needs the interpreter after it is gone, the process aborts, and
    torchrun reports a failed run although all its work is done. (Seen in one run of ten on a busy
    machine.)
    """
    if not dist.is_initialized():
        return
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def check_equal_options(config: RunConfig, ranks: Ranks) -> None:
    """If the ranks' configurations differ, one line on each rank says how. The run folder is rank
    0's, whatever the others call it."""
    configs = ranks.exchange(to_json(config))
    for rank, rank_config in enumerate(configs):
        different = [
            name
            for name, value in configs[0].items()
            if rank_config[name] != value and name != "log_path"
        ]
        if different:
            differences = "; ".join(
                f"{name} is {rank_config[name]!r} there and {configs[0][name]!r} on rank 0"
                for name in different[:3]
            )
            raise UserError(
                f"rank {rank} was started with other options than rank 0: {differences}"
            )


# -- torchrun --max-restarts


def check_restartable(config: Run) -> None:
    """A restarted run finds its folder again by the name that it was given."""
    may_restart = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0
    if may_restart and not (config.log_path or config.resume):
        raise UserError(
            "torchrun --max-restarts needs --out, by which a restarted run finds its folder"
        )
