"""decode.c's library: whatever is wrong with compiler, cache or library, torch decodes instead,
this process lives, and `rfs doctor` says why."""

import os
import subprocess
import sys

import pytest
import torch
from small_model import drawn, small_model

from reasoning_from_scratch.commands import doctor
from reasoning_from_scratch.fast import decode_library
from reasoning_from_scratch.fast.decode_library import (
    SOURCE,
    NoLibrary,
    load_library,
    usable_library,
)
from reasoning_from_scratch.fast.decoding import CompiledDecoder, decoder_for, fits_decode_c

needs_compiler = pytest.mark.skipif(
    load_library(torch.float32) is None, reason="this machine has no C compiler"
)
needs_signals = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """An empty cache folder, and nothing remembered."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    load_library.cache_clear()
    yield
    load_library.cache_clear()


@pytest.fixture
def runs(monkeypatch):
    """What was started, as "compiler" or "trial"; instead of a compiler or a trial it may do
    something else."""
    started, run = [], subprocess.run

    def watched(command, **options):
        started.append("trial" if command[0] == sys.executable else "compiler")
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", watched)
    return started


def changed_source(monkeypatch, tmp_path, old, new):
    source = SOURCE.read_text()
    assert source.count(old) == 1
    changed = tmp_path / "changed.c"
    changed.write_text(source.replace(old, new))
    monkeypatch.setattr(decode_library, "SOURCE", changed)


def falls_back_and_doctor_says(*words):
    """Twice, as two starts of Python would; and sampling works."""
    for _ in range(2):
        load_library.cache_clear()
        assert load_library(torch.float32) is None
    model = small_model(64, emb_dim=64, head_dim=16, n_heads=4, hidden_dim=64)
    assert fits_decode_c(model) and not isinstance(decoder_for(model, 5, 60), CompiledDecoder)
    assert len(drawn(model, 40)[0]) == 12
    finding = doctor.check_compiler()
    assert finding.state == "note" and finding.advice
    for word in words:
        assert word in finding.found, finding.found


# --- what goes well


@needs_compiler
def test_a_library_is_compiled_and_tried_out_once(runs):
    library = usable_library(torch.float32)
    assert runs == ["compiler", "trial"]
    assert load_library(torch.float32) and usable_library(torch.float32) == library
    assert runs == ["compiler", "trial"]
    names = sorted(path.name for path in library.parent.iterdir())
    assert names == sorted([library.name, library.with_suffix(".json").name])


# --- the cache


DAMAGES = {
    "cut": lambda library, record: library.write_bytes(library.read_bytes()[:5000]),
    "no record": lambda library, record: record.unlink(),
}


@needs_compiler
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_is_damaged_is_never_opened_but_made_anew(damage, runs, monkeypatch):
    tried = []
    monkeypatch.setattr(decode_library, "trial", lambda library, dtype: tried.append(1) or "")
    library = usable_library(torch.float32)
    whole = library.read_bytes()
    library.unlink()  # a new file: the old one may be open in this process
    library.write_bytes(whole)
    damage(library, library.with_suffix(".json"))
    assert load_library(torch.float32) is not None
    assert runs == ["compiler"] * 2 and len(tried) == 2 and library.read_bytes() == whole


def test_a_cache_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "cache").write_text("a file")
    falls_back_and_doctor_says("cannot be saved", str(tmp_path / "cache"))


# --- the compiler


@pytest.mark.parametrize(
    "named, words",
    [
        ("no-such-compiler", "no C compiler found"),
        ("false", "cannot compile: exit code 1"),
        ("cc 'unclosed", "cannot be read as a command"),
        ("sh -c 'printf \"\\377\" >&2; exit 3'", "cannot compile"),  # no text in any encoding
    ],
)
@needs_signals
def test_compilers_that_do_not_compile(named, words, monkeypatch):
    monkeypatch.setenv("CC", named)
    falls_back_and_doctor_says(words)


# --- the trial

START = "int decode(const Model *m, const Step *step) {"


@needs_compiler
@needs_signals
def test_a_library_that_kills_its_process(monkeypatch, tmp_path, runs):
    changed_source(monkeypatch, tmp_path, START, f"#include <signal.h>\n{START} raise(SIGSEGV);")
    falls_back_and_doctor_says("crashes (Segmentation fault)")
    assert runs == ["compiler", "trial"] * 2  # at the first start; and once more for the doctor


@needs_compiler
@pytest.mark.parametrize("dtype, factor", [(torch.float32, "NAN"), (torch.bfloat16, "1.5f")])
def test_a_library_that_computes_something_else(dtype, factor, monkeypatch, tmp_path):
    right = "scores[i] *= 1 / sum"
    changed_source(monkeypatch, tmp_path, right, right.replace("1 /", f"{factor} /"))
    for _ in range(2):
        with pytest.raises(NoLibrary, match="differs from torch"):
            usable_library(dtype)
    load_library.cache_clear()
    assert load_library(dtype) is None
