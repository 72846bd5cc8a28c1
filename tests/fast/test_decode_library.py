"""decode.c's library: whatever is wrong with compiler, cache or library, torch decodes instead, and
one warning says why."""

import os
import platform
import subprocess

import pytest
import torch
from small_model import drawn, small_model

from reasoning_from_scratch.fast import decode_library
from reasoning_from_scratch.fast.decode_library import SOURCE
from reasoning_from_scratch.fast.decoding import (
    CompiledDecoder,
    decoder_for,
    load_library,
    reason_against_decode_c,
)

needs_compiler = pytest.mark.skipif(
    load_library(torch.float32) is None, reason="this machine has no C compiler"
)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """An empty cache folder, and nothing remembered."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    load_library.cache_clear()
    yield tmp_path / "cache"
    load_library.cache_clear()


@needs_compiler
def test_a_library_is_compiled_once_and_anew_if_it_is_damaged(cache, monkeypatch):
    compiled, run = [], subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *a, **o: compiled.append(1) or run(*a, **o))
    before = torch.get_rng_state()
    assert load_library(torch.float32) is not None
    assert torch.equal(torch.get_rng_state(), before)  # comparing it with torch drew nothing
    (library,) = cache.glob("*/*")
    whole = library.read_bytes()
    library.unlink()  # a new file: this process has the old one open
    library.write_text("not a library")
    for _ in range(2):
        load_library.cache_clear()
        assert load_library(torch.float32) is not None
        assert len(compiled) == 2 and len(library.read_bytes()) == len(whole)


def falls_back_and_says(caplog, *words):
    """Torch samples, and one warning has these words."""
    model = small_model(64, emb_dim=64, head_dim=16, n_heads=4, hidden_dim=64)
    assert reason_against_decode_c(model) is None and not isinstance(
        decoder_for(model, 5, 60), CompiledDecoder
    )
    assert len(drawn(model, 40)[0]) == 12
    assert len(caplog.messages) == 1
    for word in words:
        assert word in caplog.text


def test_a_cache_folder_that_cannot_be_made(cache, caplog):
    cache.write_text("a file")
    falls_back_and_says(caplog, "cannot be kept", str(cache), "XDG_CACHE_HOME")


@pytest.mark.skipif(os.name != "posix", reason="these programs are POSIX's")
@pytest.mark.parametrize(
    "named, words",
    [
        ("no-such-compiler", "no C compiler"),
        ("false", "cannot compile it: exit code 1"),
        ("cc 'unclosed", "cannot be read as a command"),
        ("sh -c 'printf \"\\377\" >&2; exit 3'", "cannot compile"),  # no text in any encoding
    ],
)
def test_compilers_that_do_not_compile(named, words, monkeypatch, caplog):
    monkeypatch.setenv("CC", named)
    falls_back_and_says(caplog, words)


@needs_compiler
@pytest.mark.parametrize(
    "dtype, right, wrong",
    [
        (torch.float32, "factor = 1 / sqrtf(total(squares)", "factor = NAN / sqrtf(total(squares)"),
        (
            torch.bfloat16,
            "factor = 1 / sqrtf(total(squares)",
            "factor = 1.5f / sqrtf(total(squares)",
        ),
        (torch.float32, "return largest / 127;", "return largest / 90;"),  # in 8 bits
    ],
)
def test_a_library_that_computes_something_else(
    dtype, right, wrong, cache, monkeypatch, tmp_path, caplog
):
    source = SOURCE.read_text()
    assert source.count(right) == 1
    changed = tmp_path / "changed.c"
    changed.write_text(source.replace(right, wrong))
    monkeypatch.setattr(decode_library, "SOURCE", changed)
    assert load_library(dtype) is None
    assert "differs from torch" in caplog.text and not list(cache.glob("*/*.so"))


@pytest.mark.parametrize(
    "system, machine, said, flag, known_by",
    [
        ("Darwin", "arm64", "Apple M2\n", "-mcpu=native", "arm64 Apple M2"),
        ("Darwin", "x86_64", "Intel(R) Core(TM) i5\n", "-march=native", "x86_64 Intel"),
        ("Linux", "aarch64", None, "-mcpu=native", "aarch64"),
        ("Linux", "x86_64", None, "-march=native", "x86_64"),
    ],
)
def test_it_is_made_for_the_processor_here_and_known_by_it(
    system, machine, said, flag, known_by, monkeypatch
):
    """Clang on a Mac takes ARM's processors by -mcpu; and a home folder moves from a Mac to the
    next, whose processor /proc/cpuinfo does not tell."""
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    if said:
        answer = subprocess.CompletedProcess([], 0, said)
        monkeypatch.setattr(subprocess, "run", lambda command, **_: answer)
    assert decode_library.native_flag() == flag
    assert decode_library.processor().startswith(known_by)
