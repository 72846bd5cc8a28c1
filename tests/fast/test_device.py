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


def only(*kinds):
    return lambda kind: kind in (*kinds, "cpu")


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
def test_auto_takes_the_best_device(monkeypatch, available, expected):
    monkeypatch.setattr(device_module, "is_available", only(*available))
    assert resolve_device("auto").type == expected


def test_a_device_that_is_not_here_is_one_line(monkeypatch):
    monkeypatch.setattr(device_module, "is_available", only())
    with pytest.raises(UserError, match="cuda is not available; here are: cpu"):
        resolve_device("cuda")


def test_default_dtype(monkeypatch):
    assert default_dtype(torch.device("cpu")) == torch.float32
    assert default_dtype(torch.device("mps")) == torch.float32
    for supported, expected in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda value=supported: value)
        assert default_dtype(torch.device("cuda")) == expected


def test_cpu_agrees_with_itself():
    assert parity_problem(torch.device("cpu")) is None


@pytest.fixture
def fake_mps(monkeypatch):
    """A second device with results of our choosing; the real comparison runs."""
    monkeypatch.setattr(device_module, "is_available", only("mps"))

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
