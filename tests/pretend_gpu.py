"""A GPU that is none: tensors that say they are on device "pretend" and lie in main memory.

An operation that mixes them with tensors of the CPU fails as on a real GPU, and each time that
the host would have to wait for the GPU is noted. So code that cannot run on a GPU, or that lets
it idle, is found on machines that have none. What kernels compute is not its business.
"""

import sys
from pathlib import Path

import torch
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import reasoning_from_scratch

PACKAGE = str(Path(reasoning_from_scratch.__file__).parent)
aten = torch.ops.aten
# The host has to know a number, or how large the result is.
WAITS = {aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten._unique2, aten.bincount}
COPIES = {aten._to_copy, aten.copy_}
INDEXED = {aten.index, aten.index_put_, aten._index_put_impl_, aten.index_put}

waits: list[str] = []  # "operation in file function" of each wait


class OnGPU(torch.Tensor):
    """A tensor of the GPU that is none; the numbers are in `inner`."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device="pretend:0",
        )

    def __init__(self, inner):
        self.inner = inner

    def __repr__(self):
        return f"OnGPU({self.inner})"

    def tolist(self):
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        device = torch.device(kwargs.pop("device", None) or "pretend")
        _check_devices(func, [*args, *kwargs.values()])
        if _waits(func.overloadpacket, args, kwargs, device):
            waits.append(_where(func))
        out = func(*_mapped(_inner, args), **{k: _mapped(_inner, x) for k, x in kwargs.items()})
        assert all(x.shape == x.inner.shape for x in args if isinstance(x, OnGPU)), func
        if device.type == "cpu":
            return out
        if func.overloadpacket is aten.copy_:
            return args[0]
        return return_and_correct_aliasing(func, args, kwargs, _mapped(OnGPU, out))


def _on_cpu(x):
    return isinstance(x, torch.Tensor) and not isinstance(x, OnGPU)


def _inner(x):
    return x.inner if isinstance(x, OnGPU) else x


def _mapped(change, x):
    """`change` for each tensor in x."""
    if isinstance(x, (list, tuple)):
        return type(x)(_mapped(change, part) for part in x)
    return change(x) if isinstance(x, torch.Tensor) else x


def _check_devices(func, args):
    if func.overloadpacket in COPIES:
        return
    if func.overloadpacket in INDEXED:  # by an index on the CPU, if need be
        args = (args[0], *args[2:3])

    def check(x):
        if _on_cpu(x) and x.dim():
            raise RuntimeError(
                f"{func}: a tensor of shape {tuple(x.shape)} is on the CPU, others are on the GPU"
            )

    _mapped(check, args)


def _waits(packet, args, kwargs, device):
    if packet in COPIES:
        crosses = any(map(_on_cpu, args[:2])) or device.type == "cpu"
        return crosses and not kwargs.get("non_blocking")
    if packet in INDEXED:
        return any(x is not None and (x.dtype == torch.bool or _on_cpu(x)) for x in args[1])
    return packet in WAITS


def _where(func):
    """The operation, and the project's function that asked for it."""
    frame = sys._getframe()
    while frame and not frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    code = frame and f"{Path(frame.f_code.co_filename).name} {frame.f_code.co_name}"
    return f"{func} in {code}"


class _Module:
    """What torch.pretend has to answer."""

    is_available = is_initialized = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    current_device = staticmethod(lambda: 0)
    get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16])


def _made_on_cpu(make):
    """A kernel that makes a tensor."""
    return lambda *args, **options: OnGPU(make(*args, dtype=options.get("dtype")))


def _copy_from(source, target, non_blocking=False):
    """Numbers of torch.tensor(numbers, device=...)."""
    waits.append(_where("tensor"))
    target.inner.copy_(source)
    return target


_setup_privateuseone_for_python_backend("pretend", backend_module=_Module)
KERNELS = torch.library.Library("aten", "IMPL")
KERNELS.impl("_copy_from", _copy_from, "PrivateUse1")
for name, make in {
    "empty.memory_format": torch.empty,
    "empty_strided": torch.empty_strided,
    "arange": torch.arange,
    "arange.start": torch.arange,
    "arange.start_step": torch.arange,
    "eye": torch.eye,
    "eye.m": torch.eye,
}.items():
    KERNELS.impl(name, _made_on_cpu(make), "PrivateUse1")
torch.__future__.set_swap_module_params_on_conversion(True)  # .to() keeps tied weights tied
