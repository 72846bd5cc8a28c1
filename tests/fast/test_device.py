"""Choosing a device, and catching one that computes wrongly."""

import pytest
import torch

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast import device as device_module
from reasoning_from_scratch.fast.device import (
    default_dtype,
    parity_problem,
    resolve_device,
    small_batch_results,
    trusted_device,
)


@pytest.fixture
def has(monkeypatch):
    """A machine that has the devices of our choosing."""

    def install(*kinds):
        here = (*kinds, "cpu")
        monkeypatch.setattr(device_module, "is_available", lambda kind: kind in here)

    return install


@pytest.mark.parametrize(
    "available, expected",
    [
        ((), "cpu"),
        (("xpu",), "xpu"),
        (("mps",), "mps"),
        (("cuda",), "cuda"),
        (("cuda", "mps", "xpu"), "cuda"),
        (("mps", "xpu"), "mps"),
    ],
)
def test_auto_takes_the_best_device(has, available, expected):
    has(*available)
    assert resolve_device("auto").type == expected


def test_a_device_that_is_not_here_is_one_line(has):
    has()
    with pytest.raises(UserError, match="cuda .*; use cpu"):
        resolve_device("cuda")


def test_default_dtype(monkeypatch, caplog):
    caplog.set_level("INFO")
    tiny, wide = {"emb_dim": 128}, {"emb_dim": 576}
    assert default_dtype(torch.device("cpu"), tiny) == torch.float32
    assert default_dtype(torch.device("mps"), wide) == torch.float32
    assert not caplog.text
    # A processor with instructions for bfloat16, and one that converts every number.
    for faster, expected in ((2.0, torch.bfloat16), (0.2, torch.float32)):
        seconds = {torch.float32: 1.0, torch.bfloat16: 1 / faster}
        monkeypatch.setattr(device_module, "product_seconds", seconds.get)
        device_module.cpu_dtype.cache_clear()
        assert default_dtype(torch.device("cpu"), wide) == expected
        assert f"multiplies bfloat16 {faster} times as fast" in caplog.text
    device_module.cpu_dtype.cache_clear()
    # Of a T4, torch says True, unless it is asked for what the card does by itself.
    for by_itself, expected in ((True, torch.bfloat16), (False, torch.float32)):

        def supported(including_emulation=True, by_itself=by_itself):
            return by_itself or including_emulation

        monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
        assert default_dtype(torch.device("cuda"), wide) == expected
    assert caplog.text.count("no bfloat16") == 1


def test_no_attention_plan_for_each_new_shape(has):
    has("cuda")
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        assert trusted_device("auto").type == "cuda"
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def test_cpu_agrees_with_itself():
    assert parity_problem(torch.device("cpu")) is None


@pytest.fixture
def fake_mps(monkeypatch, has):
    """A second device with results of our choosing; the real comparison runs."""
    has("mps")

    def install(change):
        def results(device):
            found = small_batch_results(torch.device("cpu"))
            return change(found) if device.type == "mps" else found

        monkeypatch.setattr(device_module, "small_batch_results", results)

    return install


def test_a_device_that_agrees_is_used(fake_mps, capsys):
    fake_mps(lambda found: {name: tensor * (1 + 1e-5) for name, tensor in found.items()})
    assert trusted_device("auto").type == "mps"
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["logits", "cached logits", "gradients of tok_emb.weight"])
@pytest.mark.parametrize(
    "spoil", [lambda t: t * 1.01, lambda t: t * float("nan"), torch.zeros_like]
)
def test_a_device_that_computes_wrongly_is_not(fake_mps, capsys, name, spoil):
    fake_mps(lambda found: {**found, name: spoil(found[name])})
    assert trusted_device("auto").type == "cpu"
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and name in out and out.rstrip().endswith("using CPU.")
