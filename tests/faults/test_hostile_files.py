"""Files made to run code, to lie or to grow: refused in one line, in little time and memory."""

import json
import os
import pickle
import resource
import struct
import time
import unicodedata
import zipfile

import pytest
import torch
from toy import toy_model

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.tensor_files import load_state
from reasoning_from_scratch.files.weights import save_hf_folder, save_model
from reasoning_from_scratch.tokenizer import Qwen3Tokenizer
from rfs.files.models import load_model_and_tokenizer
from tests.conftest import build_tokenizer

SECONDS, MEGABYTES = 5, 200
SIZES = {"vocab_size": 400, "context_length": 64}  # of build_tokenizer's words


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory):
    """The first model that is loaded imports a part of torch; that is no cost of a bad file."""
    folder = tmp_path_factory.mktemp("warm")
    save_model(toy_model(**SIZES), folder / "model.pth")
    build_tokenizer().save(str(folder / "tokenizer.json"))
    load_model_and_tokenizer(folder / "model.pth")


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def harmless(text: str) -> bool:
    """Nothing in it that a terminal obeys: no control, no direction mark, no line separator."""
    return not {unicodedata.category(letter) for letter in text} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


def refused(call, *words: str) -> str:
    """A UserError of one short line, within SECONDS and MEGABYTES."""
    before, started = peak(), time.process_time()  # what others do meanwhile does not count
    with pytest.raises(UserError) as info:
        call()
    assert time.process_time() - started < SECONDS
    assert peak() - before < MEGABYTES
    text = str(info.value)
    assert harmless(text) and len(text) < 2_200
    assert all(word in text for word in words), text
    return text


# ---- pickles that would run code


class Calls:
    """Unpickled, it calls a function."""

    def __init__(self, function, *arguments):
        self.reduced = (function, arguments)

    def __reduce__(self):
        return self.reduced


def in_zip(program: bytes, path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/version", "3\n")


def bare(program: bytes, path) -> None:
    path.write_bytes(program)


@pytest.mark.parametrize("wrap", [in_zip, bare])
def test_no_pickle_runs(tmp_path, wrap):
    canary, path = tmp_path / "it-ran", tmp_path / "model.pth"
    call = Calls(os.system, f"touch '{canary}'")
    wrap(pickle.dumps({"model": {"w": (1, [call])}}, 2), path)
    refused(lambda: load_state(path), str(path))
    refused(lambda: load_model_and_tokenizer(path), str(path))
    assert not canary.exists()
    pickle.loads(pickle.dumps(call))
    assert canary.exists(), "they are live: otherwise the lines above would show nothing"


@pytest.mark.parametrize(
    "content, says",
    [
        ({"tok_emb.weight": torch.zeros(4, 4, dtype=torch.int64)}, "expected a tensor of floats"),
        ({7: torch.zeros(4, 4)}, "expected a state dict"),
    ],
)
def test_what_is_no_state_of_a_model(tmp_path, content, says):
    torch.save(content, tmp_path / "model.pth")
    refused(lambda: load_model_and_tokenizer(tmp_path / "model.pth"), says)


# ---- safetensors headers that lie


def entry(kind="F32", shape=(2,), place=(0, 8)) -> dict:
    return {"dtype": kind, "shape": list(shape), "data_offsets": list(place)}


HEADERS = {  # header (an object, or text), bytes that follow
    "end after the file": ({"a": entry(shape=[2**20], place=(0, 2**22))}, 8),
    "shape that overflows": ({"a": entry(shape=(2**40, 2**40))}, 8),
    "deep": ("[" * 100_000, 0),
    "escape codes": ({"\x1b[2J\u202ename": entry("\x1b]0;owned\x07")}, 8),
}


@pytest.mark.parametrize("header, following", HEADERS.values(), ids=HEADERS.keys())
def test_safetensors_headers_that_lie(tmp_path, header, following):
    path = tmp_path / "model.safetensors"
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(following))
    refused(lambda: load_state(path), str(path), "is damaged, cut off or not a safetensors file")


# ---- configurations and tokenizers


@pytest.fixture
def folder(tmp_path):
    build_tokenizer().save(str(tmp_path / "some.json"))
    tokenizer = Qwen3Tokenizer(tmp_path / "some.json")
    return save_hf_folder(toy_model(**SIZES), tokenizer, tmp_path / "model")


LONG = "\x1b[31m" * 5_000
NUMBERS = [-1, 10**12, 10**400, 1.5, float("nan")]
WRONG = [None, *NUMBERS, True, "__class__", LONG, [], {}, [[1]]]


def test_every_field_of_a_config_may_hold_anything(folder):
    """Refused, or of no meaning to our model; never another error, never a long wait."""
    good = json.loads((folder / "config.json").read_text())
    accepted = set()
    for name in good | {"rope_parameters": 0, "rope_scaling": 0, "dtype": 0}:
        for value in WRONG:
            (folder / "config.json").write_text(json.dumps({**good, name: value}))
            try:
                refused(lambda: load_model_and_tokenizer(folder))
            except pytest.fail.Exception:  # it was loaded
                accepted.add(name)
    assert not accepted & {"vocab_size", "hidden_size", "num_hidden_layers", "model_type"}


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[" * 100_000,
        b"\xff",
        b"{}",
        b'{"vocab_size":' + b"9" * 10_000 + b"}",
        b'{"weight_map": {"a": 3}}',
        b'{"weight_map": {"a": "../../etc/passwd"}}',
    ],
    ids=lambda content: repr(content[:28]),
)
def test_json_of_a_model_folder_that_is_something_else(folder, name, content):
    if name != "config.json":  # an index is read where there is no file with all weights
        (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(content)
    assert "passwd" not in refused(lambda: load_model_and_tokenizer(folder), str(folder))


TOKENIZERS = {
    "deep": b"[" * 200_000,
    "not UTF-8": b"\xff\xfe",
    "large": b'{"version": "1.0", "x": "' + b"y" * 10_000_000 + b'"}',
}


@pytest.mark.parametrize("content", TOKENIZERS.values(), ids=TOKENIZERS.keys())
def test_tokenizers_that_are_something_else(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    refused(lambda: Qwen3Tokenizer(path), str(path), "not a tokenizer in tokenizers' JSON format")
