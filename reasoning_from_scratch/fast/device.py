"""Which processor to use, which number format suits it, and whether it computes correctly."""

import logging
import time
from collections.abc import Mapping
from functools import cache

import torch
import torch.nn.functional as F

from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.qwen3 import KVCache, Qwen3Model
from reasoning_from_scratch.text import percent

log = logging.getLogger("reasoning_from_scratch")

NARROW = 512  # features of a small model; Qwen3-0.6B has 1,024
# bfloat16 is the default on a CPU that multiplies it this many times as fast as float32.
MIN_BFLOAT16_SPEEDUP = 1.25
TITLES = {
    "cuda": "NVIDIA CUDA GPU",
    "mps": "Apple Silicon GPU (MPS)",
    "xpu": "Intel GPU (XPU)",
    "cpu": "CPU",
}


def is_available(kind: str) -> bool:
    if kind == "mps":
        return torch.backends.mps.is_available()
    return kind == "cpu" or getattr(torch, kind).is_available()


def get_device(enable_tensor_cores: bool = True) -> torch.device:
    """The best device here; prints which. Tensor cores speed up float32 and round it a little."""
    device = resolve_device("auto")
    print(f"Using {TITLES[device.type]}")
    if enable_tensor_cores and device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    return device


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """A device by name, such as "cuda:1", checked to exist; "auto" is the best one."""
    if str(name) == "auto":
        return torch.device(next(kind for kind in TITLES if is_available(kind)))
    kind, _, index = str(name).partition(":")
    if kind not in TITLES:
        raise unknown_name("device", str(name), ["auto", *TITLES])
    if not is_available(kind):
        here = ", ".join(other for other in TITLES if is_available(other))
        raise UserError(f"device {name} is not available here; use {here} (`rfs doctor` says why)")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if index and not (index.isdigit() and int(index) < count):
        raise UserError(f"device {name} does not exist: expected {kind}:0 to {kind}:{count - 1}")
    return torch.device(str(name))


def dtype_by_name(name: str, device: torch.device, cfg: Mapping) -> torch.dtype:
    """The --dtype of that name; "auto": what suits the device and a model of this configuration."""
    return default_dtype(device, cfg) if name == "auto" else getattr(torch, name)


def default_dtype(device: torch.device, cfg: Mapping) -> torch.dtype:
    """bfloat16 where it is fast and sound; not on MPS (missing on older macOS), on CPUs without
    instructions for it, or for small models on a CPU, which gain nothing from it.

    GPUs before 2020 (T4, V100, GTX) have no bfloat16. There torch emulates it in float32, many
    times slower, and counts that as support unless told not to.
    """
    if device.type == "cpu":
        return torch.float32 if cfg["emb_dim"] < NARROW else cpu_dtype()
    if device.type != "cuda":
        return torch.bfloat16 if device.type == "xpu" else torch.float32
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    log.info("this GPU has no bfloat16, so weights are float32, which takes twice the memory")
    return torch.float32


@cache
def cpu_dtype() -> torch.dtype:
    """The format that this processor multiplies faster, measured in some milliseconds.
    (Instructions for bfloat16 have many names: avx512_bf16, amx_bf16, ARM's bf16; and torch must
    use them.)"""
    speedup = product_seconds(torch.float32) / product_seconds(torch.bfloat16)
    fast = speedup >= MIN_BFLOAT16_SPEEDUP
    log.info(
        "number format: %s, since this processor multiplies bfloat16 %.1f times as fast as float32"
        " (--dtype chooses)",
        "bfloat16" if fast else "float32",
        speedup,
    )
    return torch.bfloat16 if fast else torch.float32


def product_seconds(dtype: torch.dtype) -> float:
    """Seconds for the fastest of some matrix products like those of a model's layers."""
    x, weight = torch.ones(128, 1024, dtype=dtype), torch.ones(1024, 1024, dtype=dtype)
    seconds = []
    for _ in range(6):
        start = time.perf_counter()
        F.linear(x, weight)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def trusted_device(name: str | torch.device = "auto") -> torch.device:
    """The device, or the CPU and a printed warning if the device computes something else.

    MPS has returned wrong numbers in several releases of PyTorch, without an error; training on
    it then fails in ways that look like bad luck. The check costs less than a second.
    """
    device = resolve_device(name)
    if device.type == "cuda":
        # cuDNN's attention makes a plan for each new shape, which was reported to take 0.4 s; here
        # nearly every micro-batch has a new shape. torch has other kernels.
        torch.backends.cuda.enable_cudnn_sdp(False)
    if device.type in ("cpu", "cuda"):
        return device
    problem = parity_problem(device)
    if problem is None:
        return device
    print(f"{TITLES[device.type]} disagrees with the CPU on a small model ({problem}): using CPU.")
    return torch.device("cpu")


def parity_problem(device: torch.device, tolerance: float = 2e-3) -> str | None:
    """What differs between `device` and the CPU on a small batch, or None."""
    expected_results = small_batch_results(torch.device("cpu"))
    try:
        results = small_batch_results(device)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        return str(error).splitlines()[0]
    for name, expected in expected_results.items():
        # NaN compares false with everything, so check for a small difference, not a large one.
        difference = (results[name] - expected).abs().max() / expected.abs().max()
        if not difference <= tolerance:
            return f"{name} differ by {percent(difference.item())}"
    return None


def small_batch_results(device: torch.device) -> dict[str, torch.Tensor]:
    """Logits, cached logits and gradients of a seeded small model on a left-padded batch."""
    model = seeded_model().to(device)
    ids = torch.arange(24).view(3, 8).to(device)  # (B, T)
    mask = (torch.arange(8) >= torch.tensor([[0], [3], [6]])).to(device)  # (B, T)
    cache = KVCache(n_layers=2)
    with torch.no_grad():
        model(ids, cache=cache, attention_mask=mask)
        cached = model(ids[:, :1], cache=cache)  # (B, 1, V)
    logits = model(ids, attention_mask=mask)  # (B, T, V)
    targets = ids.roll(-1, dims=1)[..., None]  # (B, T, 1)
    (logits.log_softmax(dim=-1).gather(-1, targets).squeeze(-1) * mask).mean().backward()
    gradients = {f"gradients of {n}": p.grad for n, p in model.named_parameters()}
    results = {"logits": logits.detach() * mask[..., None], "cached logits": cached, **gradients}
    return {name: tensor.float().cpu() for name, tensor in results.items()}


def seeded_model(**family) -> Qwen3Model:
    """A small model for comparing processors."""
    sizes = {"vocab_size": 32, "context_length": 64, "emb_dim": 32, "hidden_dim": 64}
    heads = {"n_heads": 4, "n_kv_groups": 2, "head_dim": 32, "n_layers": 2, "qk_norm": True}
    with torch.random.fork_rng(devices=()):  # other code's random draws stay the same
        model = Qwen3Model({**sizes, **heads, "rope_base": 1e4, "dtype": torch.float32} | family)
    generator = torch.Generator().manual_seed(1)  # on the CPU: the same weights on every device
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model
