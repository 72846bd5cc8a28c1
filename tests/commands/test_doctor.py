"""`rfs doctor`: each trap is named in words, with what to do; no check needs a network."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import requests
import torch

from reasoning_from_scratch.commands import doctor
from reasoning_from_scratch.commands.doctor import DoctorOptions, Finding

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def on(monkeypatch):
    """Pretends that the best device is one of this kind."""

    def pretend(kind):
        monkeypatch.setattr(doctor, "resolve_device", lambda: torch.device(kind))

    return pretend


def test_runs_on_this_machine_without_network(capsys):
    code = doctor.doctor(DoctorOptions(network=False))
    out = capsys.readouterr().out
    for topic in ("versions", "device", "dtype", "memory", "disk", "compiler"):
        assert f" {topic} " in out
    assert torch.__version__ in out
    assert code == int("problem " in out.split("\n\n")[0])


def test_the_package_of_the_books_author_is_noticed(monkeypatch, tmp_path):
    """Both are imported as reasoning_from_scratch."""
    assert [finding.state for finding in doctor.check_versions()] == ["ok"]
    (tmp_path / "reasoning_from_scratch-0.2.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    _, other = doctor.check_versions()
    assert other.state == "problem" and "uninstall reasoning-from-scratch" in other.advice


@pytest.mark.parametrize("notebook", ["ch06/ch06_main", "ch07/ch07_main", "ch07/ch07_turns"])
def test_so_it_is_by_a_notebook(monkeypatch, notebook):
    """Its first cell of code, with the other package in place of ours."""
    cells = json.loads((ROOT / f"{notebook}.ipynb").read_text(encoding="utf-8"))["cells"]
    first = next("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    exec(first, {})
    monkeypatch.setitem(sys.modules, "reasoning_from_scratch", ModuleType("reasoning_from_scratch"))
    with pytest.raises(AssertionError, match="book's author"):
        exec(first, {})


def test_a_problem_sets_the_exit_code(monkeypatch, capsys):
    bad = Finding("device", "problem", "an odd GPU", "do this")
    monkeypatch.setattr(doctor, "check_device", lambda: [bad])
    assert doctor.doctor(DoctorOptions(network=False)) == 1
    out = capsys.readouterr().out
    assert "problem  device    an odd GPU\n" in out and "-> do this" in out
    assert "1 problem" in out


@pytest.mark.parametrize(
    "cuda_build, words", [(None, "install a CUDA build"), ("12.8", "update the NVIDIA driver")]
)
def test_a_gpu_that_torch_cannot_use_is_a_problem(on, monkeypatch, cuda_build, words):
    on("cpu")
    monkeypatch.setattr(doctor, "nvidia_driver", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", cuda_build)
    (finding,) = doctor.check_device()
    assert finding.state == "problem" and words in finding.advice


@pytest.mark.parametrize(
    "capability, known, expected",
    [
        ((9, 0), ["sm_80", "sm_90"], True),
        ((8, 6), ["sm_80", "sm_90"], True),  # same major version, built for an earlier minor
        ((8, 0), ["sm_86"], False),
        ((12, 0), ["sm_80", "sm_90"], False),  # a new GPU with an old build
        ((12, 0), ["sm_90", "compute_90"], True),  # its sources are compiled at run time
        ((6, 1), ["sm_75", "compute_90"], False),
        ((9, 0), ["sm_90a", "sm_100"], True),
    ],
)
def test_kernels_for_a_gpu(capability, known, expected):
    assert doctor.covered(*capability, [arch.rstrip("af") for arch in known]) is expected


@pytest.mark.parametrize("problem, state", [(None, "ok"), ("logits differ by 10.0%", "problem")])
def test_a_device_is_compared_with_the_cpu(on, monkeypatch, problem, state):
    on("mps")
    monkeypatch.setattr(doctor, "parity_problem", lambda device: problem)
    (finding,) = doctor.check_parity()
    assert finding.state == state
    assert problem is None or (problem in finding.found and "--device cpu" in finding.advice)


@pytest.mark.parametrize("seconds, state", [((1.0, 1.0), "ok"), ((4.0, 1.0), "note")])
def test_slow_bfloat16_is_noted(on, monkeypatch, seconds, state):
    on("cpu")
    speeds = dict(zip((torch.bfloat16, torch.float32), seconds, strict=True))
    monkeypatch.setattr(doctor, "matmul_seconds", lambda dtype, device: speeds[dtype])
    (finding,) = doctor.check_dtype()
    assert finding.state == state
    assert ("float32" in finding.advice) == (state == "note")


@pytest.mark.parametrize(
    "error, words",
    [
        (requests.exceptions.ConnectionError(), "HTTPS_PROXY"),
        (requests.exceptions.ConnectTimeout(), "HF_ENDPOINT"),
        (requests.exceptions.SSLError(), "REQUESTS_CA_BUNDLE"),
    ],
)
def test_an_unreachable_host_is_a_note_with_advice(error, words):
    def head(url, timeout):
        assert timeout <= 3
        raise error

    finding = doctor.reach("models", "https://example.invalid", head)
    assert finding.state == "note" and words in finding.advice


def test_a_host_that_answers_is_ok():
    assert doctor.reach("models", "https://x", lambda url, timeout: None).state == "ok"


@pytest.mark.parametrize("gib", [0.5, 2, 8, 64])
def test_what_fits_grows_with_memory(gib):
    text = doctor.what_fits(gib * doctor.GIB, "cuda")
    assert ("0.6B" in text) == (gib >= 1)
    assert ("enough to train 0.6B" in text) == (gib >= 12)


def test_available_memory_is_plausible():
    memory = doctor.available_memory()
    assert memory is None or 2**26 < memory < 2**46


@pytest.mark.parametrize(
    "compiler, words", [("no-such-compiler", "no C compiler found"), ("false", "cannot compile")]
)
def test_a_missing_compiler_is_no_problem(monkeypatch, tmp_path, compiler, words):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", compiler)
    (finding,) = doctor.check_compiler()
    assert finding.state == "note" and words in finding.found and "CC" in finding.advice


def test_a_cache_folder_that_cannot_be_made_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (finding,) = doctor.check_compiler()
    assert finding.state == "note" and "XDG_CACHE_HOME" in finding.advice
    assert str(tmp_path / "file") in finding.found
