"""`rfs doctor`: each trap is named in words, with what to do; no check needs a network."""

import json
import sys
from types import ModuleType

import pytest
import tomllib
import torch
from file_server import closed_port, hub_at, serving

from rfs.commands import doctor
from rfs.commands.doctor import DoctorOptions
from tests.conftest import ROOT


@pytest.fixture
def on(monkeypatch):
    """Pretends that the best device is one of this kind."""

    def pretend(kind):
        monkeypatch.setattr(doctor, "resolve_device", lambda: torch.device(kind))

    return pretend


def test_all_that_is_checked_without_a_network(capsys):
    problems = doctor.doctor(DoctorOptions(network=False))
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("rlvr-from-scratch") and "Python 3" in first
    states = {line.split()[1]: line.split()[0] for line in lines if line[:1] not in (" ", "")}
    checked = {"device", "dtype", "compiler", "memory", "disk", "extras"}
    assert checked <= states.keys()
    assert problems == ("problem" in states.values())


@pytest.mark.parametrize(
    "notebook", ["ch06/ch06_main", "ch07/ch07_main", "ch07/ch07_turns", "ch08/ch08_main"]
)
def test_a_notebook_notices_the_package_of_the_books_author(monkeypatch, notebook):
    """Its first cell of code, with that package, imported by the same name, in place of ours."""
    cells = json.loads((ROOT / f"{notebook}.ipynb").read_text(encoding="utf-8"))["cells"]
    first = next("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    exec(first, {})
    monkeypatch.setitem(sys.modules, "reasoning_from_scratch", ModuleType("reasoning_from_scratch"))
    with pytest.raises(AssertionError, match="another package of the same name"):
        exec(first, {})


@pytest.mark.parametrize(
    "cuda_build, words", [(None, "for a CUDA build"), ("12.8", "update the NVIDIA driver")]
)
def test_a_gpu_that_torch_cannot_use_is_a_problem(on, monkeypatch, cuda_build, words):
    on("cpu")
    monkeypatch.setattr(doctor, "nvidia_driver", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", cuda_build)
    finding = doctor.check_device()
    assert finding.state == "problem" and words in finding.advice


@pytest.mark.parametrize("cuda_build, state", [(None, "ok"), ("12.8", "note")])
def test_a_cuda_build_without_a_gpu_is_gigabytes_too_many(on, monkeypatch, cuda_build, state):
    on("cpu")
    monkeypatch.setattr(doctor, "nvidia_driver", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda_build)
    finding = doctor.check_device()
    assert finding.state == state
    assert ("gigabytes that no GPU here uses" in finding.advice) == bool(cuda_build)


@pytest.mark.parametrize("library, state", [(object(), "ok"), (None, "note")])
def test_the_compiler(monkeypatch, library, state):
    monkeypatch.setattr(doctor, "load_library", lambda dtype: library)
    finding = doctor.check_compiler()
    assert finding.state == state and ("build-essential" in finding.advice) == (library is None)


def test_the_extras(monkeypatch):
    """Those of pyproject.toml, and how to get one."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert doctor.EXTRAS.keys() == listed["optional-dependencies"].keys()
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "ray" else object())
    finding = doctor.check_extras()
    assert "serve" in finding.message and "ray" not in finding.message
    assert finding.advice.endswith("not installed: ray") and "--extra NAME" in finding.advice


@pytest.mark.parametrize("problem, state", [(None, "ok"), ("no kernel image", "problem")])
def test_a_device_is_compared_with_the_cpu(on, monkeypatch, problem, state):
    on("mps")
    monkeypatch.setattr(doctor, "parity_problem", lambda device: problem)
    finding = doctor.check_device()
    assert finding.state == state
    assert problem is None or (problem in finding.message and "--device cpu" in finding.advice)


def test_the_hub(monkeypatch, tmp_path):
    with serving() as server:
        hub_at(monkeypatch, server.url, tmp_path)
        assert doctor.check_hub().state == "ok"
    hub_at(monkeypatch, f"http://127.0.0.1:{closed_port()}", tmp_path)
    finding = doctor.check_hub()
    assert finding.state == "note" and "no connection" in finding.message
    assert "HF_ENDPOINT" in finding.advice
