"""Files made to run code, to lie or to grow: refused in one line, in little time and memory."""

import builtins
import io
import json
import os
import pickle
import random
import resource
import struct
import subprocess
import sys
import tarfile
import time
import unicodedata
import zipfile

import pytest
import torch

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.problem_sets import load_problems
from reasoning_from_scratch.files.tensor_files import FLOATS, load_state
from reasoning_from_scratch.files.weights import (
    load_model_and_tokenizer,
    save_hf_folder,
    save_model,
)
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.tokenizer import Qwen3Tokenizer
from tests.conftest import build_tokenizer

SECONDS, MEGABYTES = 5, 200
CONFIG = {
    "vocab_size": 400,
    "context_length": 64,
    "emb_dim": 32,
    "n_heads": 4,
    "n_layers": 2,
    "hidden_dim": 64,
    "head_dim": 8,
    "qk_norm": True,
    "n_kv_groups": 2,
    "rope_base": 1e4,
    "dtype": torch.float32,
    "tie_embeddings": False,
}


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory):
    """The first model that is loaded imports a part of torch; that is no cost of a bad file."""
    folder = tmp_path_factory.mktemp("warm")
    save_model(Qwen3Model(CONFIG), folder / "model.pth")
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

    def __init__(self, function, *arguments, state=None):
        self.reduced = (function, arguments) + (() if state is None else (state,))

    def __reduce_ex__(self, protocol):
        return self.reduced


class Storage:
    """Stands for a tensor's numbers, which a pickle names and does not hold."""


class Nested(pickle.Pickler):
    """Puts a call where such a name is looked up."""

    def __init__(self, file, command):
        super().__init__(file, 2)
        self.command = command

    def persistent_id(self, item):
        if isinstance(item, Storage):
            return "storage", Calls(os.system, self.command), "0", "cpu", 1
        return None


def touch(path) -> str:
    return f"open({str(path)!r}, 'w').close()"


def opcode(*lines: str) -> bytes:
    return "".join(lines).encode("latin-1")


def text_pickle(module: str, name: str, argument: str) -> bytes:
    """module.name(argument) in the oldest and plainest opcodes."""
    return opcode(f"c{module}\n{name}\n(", f"V{argument}\n", "tR.")


def nested_key(repeat) -> bytes:
    """{key: 1}, the key a tuple of two equal tuples of two equal tuples of ..., 100 deep."""
    tuples = b"".join(repeat(i) + b"\x86" for i in range(100))
    return b"\x80\x02}(X\x01\x00\x00\x00a\x85" + tuples + b"K\x01u."


def gadgets(canary) -> dict[str, bytes]:
    """Each would leave the canary file if anything of it ran."""
    code, shell = touch(canary), f"touch '{canary}'"
    compiled = Calls(compile, code, "x", "exec")
    objects = {
        "os.system": Calls(os.system, shell),
        "eval": Calls(eval, code),
        "exec": Calls(exec, code),
        "exec of compile": Calls(exec, compiled),
        "subprocess": Calls(subprocess.check_output, ["touch", str(canary)]),
        "subprocess.Popen": Calls(subprocess.Popen, ["touch", str(canary)]),
        "open": Calls(builtins.open, str(canary), "w"),
        "map": Calls(list, Calls(map, os.system, [shell])),
        "in a state": Calls(dict, state={"x": Calls(os.system, shell)}),
        "in a key": {(Calls(os.system, shell),): 1},
        "deep in a dict": {"model": {"layers": [{"w": (1, [Calls(os.system, shell)])}]}},
        "torch.load": Calls(torch.load, str(canary)),
        "bytearray of 100 GB": Calls(bytearray, 10**11),
        "codecs": Calls(os.system, Calls(bytes.decode, shell.encode())),
    }
    found = {
        f"{name}, protocol {number}": pickle.dumps(item, number)
        for name, item in objects.items()
        for number in (0, 2, 4)
    }
    stream = io.BytesIO()
    Nested(stream, shell).dump({"w": Storage()})
    nested = "cposix\nsystem\n(V" + shell + "\ntR"
    return found | {
        "in a storage's id": stream.getvalue(),
        "in an id by text": opcode("(lp0\nP", shell, "\na."),
        "getattr chain": opcode(
            "cbuiltins\ngetattr\n(c__builtin__\n__import__\n(Vos\ntR", f"Vsystem\ntR(V{shell}\ntR."
        ),
        "after a state dict": pickle.dumps({"w": 1}, 2)[:-1]
        + b"0"
        + text_pickle("os", "system", shell),
        "runpy": text_pickle("runpy", "run_path", str(canary)),
        "timeit": text_pickle("timeit", "timeit", code),
        "pty.spawn": text_pickle("pty", "spawn", shell),
        "webbrowser": text_pickle("webbrowser", "open", str(canary)),
        "pickle in a pickle": opcode("c_pickle\nloads\n(V", nested, ".\ntR."),
        "torch.hub": text_pickle("torch.hub", "load", str(canary)),
        "torch.serialization": text_pickle("torch.serialization", "load", str(canary)),
        "a dotted name": text_pickle("torch", "serialization.os.system", shell),
        "a storage's class": text_pickle("torch", "FloatStorage.__init__.__globals__", shell),
        "INST": opcode("(V", shell, "\niposix\nsystem\n."),
        "OBJ": opcode("(cposix\nsystem\nV", shell, "\no."),
        "EXT": b"\x80\x02\x82\x01.",
        "hash without end": nested_key(lambda i: b"q%c" % i + b"h%c" % i),
        "the same by DUP": nested_key(lambda i: b"2"),
        "the same behind a POP": nested_key(lambda i: b"K\x010q%c" % i + b"h%c" % i),
    }


def in_zip(program: bytes, path, extra=()) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/version", "3\n")
        for name, content in extra:
            archive.writestr(name, content)


def as_legacy(program: bytes, path) -> None:
    """torch.save's form before 1.6: five pickles in a row, the fourth is the object."""
    buffer = io.BytesIO()
    torch.save({}, buffer, _use_new_zipfile_serialization=False)
    buffer.seek(0)
    head = b""
    for _ in range(3):
        start = buffer.tell()
        pickle.load(buffer)
        head += buffer.getvalue()[start : buffer.tell()]
    path.write_bytes(head + program + pickle.dumps([], 2))


def bare(program: bytes, path) -> None:
    path.write_bytes(program)


def in_tar(program: bytes, path) -> None:
    with tarfile.open(path, "w") as archive:
        for name in ("storages", "tensors", "pickle", "../escaped"):
            member = tarfile.TarInfo(name)
            member.size = len(program)
            archive.addfile(member, io.BytesIO(program))


@pytest.mark.parametrize("wrap", [in_zip, as_legacy, bare, in_tar])
def test_no_pickle_runs(tmp_path, wrap):
    canary, path = tmp_path / "it-ran", tmp_path / "model.pth"
    canary.with_suffix(".py").write_text(touch(canary))
    for name, program in gadgets(canary).items():
        wrap(program, path)
        for call in (lambda: load_state(path), lambda: load_model_and_tokenizer(path)):
            refused(call, str(path))
            assert not canary.exists(), name
    assert sorted(p.name for p in tmp_path.iterdir()) == ["it-ran.py", "model.pth"]


RUN_THEM = """
import os, pathlib, pickle, sys, time
canary, ran = pathlib.Path(sys.argv[1]), 0
for program in pickle.load(sys.stdin.buffer):
    try:
        pickle.loads(program)
    except Exception:
        pass
    time.sleep(0.02)
    if canary.exists():
        canary.unlink()
        ran += 1
print(ran)
"""


def test_the_gadgets_are_live(tmp_path):
    """Python's own unpickler runs them: otherwise the test above would show nothing."""
    harmful = ("GB", "hash", "same", "spawn", "webbrowser", "torch", "pickle in", "timeit")
    programs = [
        program
        for name, program in gadgets(tmp_path / "it-ran").items()
        if not any(word in name for word in harmful)
    ]
    command = [sys.executable, "-c", RUN_THEM, str(tmp_path / "it-ran")]
    done = subprocess.run(command, input=pickle.dumps(programs), capture_output=True, timeout=60)
    assert int(done.stdout.split()[-1]) >= 30, done.stderr.decode()


def test_what_is_refused_is_named(tmp_path):
    path = tmp_path / "model.pth"
    in_zip(pickle.dumps(Calls(os.system, "true"), 2), path)
    refused(lambda: load_state(path), "refused", "could run code")


# ---- archives and tensors that grow


def storage_program(count: int, shape: bytes, stride: bytes) -> bytes:
    """{"tok_emb.weight": a view of that shape into one storage of `count` numbers}."""
    name = b"X\x0e\x00\x00\x00tok_emb.weight"
    number = b"\x8a\x09" + count.to_bytes(9, "little")
    return (
        b"\x80\x02}" + name + b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
        b"ctorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
        + number
        + b"tQK\x00"
        + shape
        + stride
        + b"\x89}tRs."
    )


def write_bomb(path, kind: str) -> None:
    data = [("archive/data/0", bytes(8))]
    if kind == "packed":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02" + b"N0" * 20_000_000 + b"}.")
    elif kind == "packed tensor":
        program = storage_program(5_000_000, b"J@KL\x00\x85", b"K\x01\x85")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("archive/data.pkl", program)
            archive.writestr("archive/data/0", bytes(20_000_000))
    elif kind == "one number, ten thousand times":
        torch.save({"tok_emb.weight": torch.zeros(1).expand(100_000, 100_000)}, path)
    elif kind == "a view of what is not there":
        in_zip(storage_program(10**18, b"J\x00\xca\x9a;\x85", b"K\x01\x85"), path, data)
    elif kind == "a negative shape":
        in_zip(storage_program(2, b"J\xff\xff\xff\xff\x85", b"K\x01\x85"), path, data)
    elif kind == "two programs":
        in_zip(b"\x80\x02}.", path, [("other/data.pkl", b"\x80\x02}.")])
    elif kind == "one name twice":
        with pytest.warns(UserWarning):
            in_zip(b"\x80\x02}.", path, [("archive/data.pkl", b"\x80\x02}.")])
    elif kind == "a size that lies":
        in_zip(b"\x80\x02}.", path)
        content = bytearray(path.read_bytes())
        place = content.rindex(b"PK\x01\x02")
        content[place + 20 : place + 28] = struct.pack("<II", 2**31, 2**31)
        path.write_bytes(content)
    elif kind == "a meta tensor":
        torch.save({"tok_emb.weight": torch.zeros(10**6, 10**6, device="meta")}, path)
    elif kind == "a sparse tensor":
        torch.save({"tok_emb.weight": torch.eye(4).to_sparse()}, path)
    elif kind == "no numbers":
        torch.save({"tok_emb.weight": torch.zeros(0, 2**40)}, path)
    elif kind == "whole numbers":
        torch.save({"tok_emb.weight": torch.zeros(4, 4, dtype=torch.int64)}, path)
    elif kind == "numbers as names":
        torch.save({7: torch.zeros(4, 4)}, path)


BOMBS = [
    "packed",
    "packed tensor",
    "one number, ten thousand times",
    "a view of what is not there",
    "a negative shape",
    "two programs",
    "one name twice",
    "a size that lies",
    "a meta tensor",
    "a sparse tensor",
    "no numbers",
    "whole numbers",
    "numbers as names",
]


@pytest.mark.parametrize("kind", BOMBS)
def test_archives_that_grow_or_lie(tmp_path, kind):
    path = tmp_path / "model.pth"
    write_bomb(path, kind)
    refused(lambda: load_model_and_tokenizer(path), str(path))


@pytest.mark.parametrize("dtype", FLOATS.values())
def test_what_torch_itself_writes_passes(tmp_path, dtype):
    path = tmp_path / "model.pth"
    model = Qwen3Model(CONFIG | {"dtype": dtype})
    shared = {"again": model.tok_emb.weight, "once more": model.tok_emb.weight}
    state = model.state_dict() | {"parameter": torch.nn.Parameter(torch.ones(2, dtype=dtype))}
    for content in (model.state_dict(), dict(state), state, shared):
        torch.save(content, path)
        found = load_state(path)
        assert found.keys() == content.keys()
        assert all(torch.equal(found[name], content[name]) for name in content)


# ---- safetensors headers that lie


def entry(kind="F32", shape=(2,), place=(0, 8)) -> dict:
    return {"dtype": kind, "shape": list(shape), "data_offsets": list(place)}


A = '"a": {"dtype": "F32", "shape": [2], "data_offsets": '
HEADERS = {  # header (an object, or text), bytes that follow
    "end after the file": ({"a": entry(shape=[2**20], place=(0, 2**22))}, 8),
    "offset of 64 bits": ({"a": entry(place=(0, 2**64 - 1))}, 8),
    "offset of 80 bits": ("{" + A + "[0, 999999999999999999999999]}}", 8),
    "number of 5,000 digits": ("{" + A + "[0, " + "9" * 5000 + "]}}", 8),
    "offsets that wrap": ({"a": entry(shape=[2**62], place=(2**63, 2**63 + 2**64))}, 8),
    "negative offset": ({"a": entry(place=(-8, 0))}, 8),
    "offsets reversed": ({"a": entry(place=(8, 0))}, 8),
    "shape that overflows": ({"a": entry(shape=(2**40, 2**40))}, 8),
    "shape that overflows behind a 0": ({"a": entry(shape=(0, 2**63, 2**63), place=(0, 0))}, 0),
    "negative shape": ({"a": entry(shape=(-1, -2))}, 8),
    "shape of fractions": ({"a": entry(shape=(2.0,))}, 8),
    "shape of truth values": ({"a": entry(shape=(True, 2))}, 8),
    "overlapping": ({"a": entry(), "b": entry()}, 8),
    "half overlapping": ({"a": entry(), "b": entry(place=(4, 12))}, 12),
    "gap": ({"a": entry(), "b": entry(place=(16, 24))}, 24),
    "bytes that belong to nothing": ({"a": entry()}, 80),
    "name twice": ("{" + A + "[0, 8]}, " + A + "[8, 16]}}", 16),
    "name twice, one place": ("{" + A + "[0, 8]}, " + A.replace("F32", "I32") + "[0, 8]}}", 8),
    "field twice": (
        '{"a": {"dtype": "F32", "shape": [2], "shape": [1, 2], "data_offsets": [0, 8]}}',
        8,
    ),
    "wrong type": ({"a": entry("F64")}, 8),
    "unknown type": ({"a": entry("Q9")}, 8),
    "type of code": ({"a": entry("__reduce__")}, 8),
    "whole numbers": ({"a": entry("I32")}, 8),
    "4-bit numbers": ({"a": entry("F4", place=(0, 1))}, 1),
    "8-bit exponents": ({"a": entry("F8_E8M0", place=(0, 2))}, 2),
    "no fields": ({"a": {}}, 0),
    "text for an entry": ({"a": "F32"}, 0),
    "null for an entry": ({"a": None}, 0),
    "a list": ([1, 2], 0),
    "a number": ("7 ", 0),
    "half of JSON": ('{"a":', 0),
    "not UTF-8": (b'{"\xff": 1}', 0),
    "deep": ("[" * 100_000, 0),
    "deep objects": ('{"a":' * 100_000, 0),
    "metadata of numbers": ({"__metadata__": {"a": 1}, "a": entry()}, 8),
    "escape codes": ({"\x1b[2J\u202ename": entry("\x1b]0;owned\x07")}, 8),
}


def write_header(path, header, following: int, length: int | None = None) -> None:
    text = header if isinstance(header, (bytes, str)) else json.dumps(header)
    text = text.encode() if isinstance(text, str) else text
    size = len(text) if length is None else length
    path.write_bytes(struct.pack("<Q", size) + text + bytes(following))


@pytest.mark.parametrize("header, following", HEADERS.values(), ids=HEADERS.keys())
def test_safetensors_headers_that_lie(tmp_path, header, following):
    path = tmp_path / "model.safetensors"
    write_header(path, header, following)
    refused(lambda: load_state(path), str(path), "is damaged, cut off or not a safetensors file")


@pytest.mark.parametrize("length", [0, 1, 3, 10**6, 10**8, 2**31, 2**63, 2**64 - 1])
def test_header_lengths_that_lie(tmp_path, length):
    path = tmp_path / "model.safetensors"
    write_header(path, {"a": entry()}, 8, length)
    refused(lambda: load_state(path), "is damaged, cut off or not a safetensors file")


# ---- configurations and tokenizers


@pytest.fixture
def folder(tmp_path):
    build_tokenizer().save(str(tmp_path / "some.json"))
    tokenizer = Qwen3Tokenizer(tmp_path / "some.json")
    return save_hf_folder(Qwen3Model(CONFIG), tokenizer, tmp_path / "model")


WRONG = [
    None,
    -1,
    10**12,
    10**400,
    1.5,
    float("nan"),
    True,
    "__class__",
    "\x1b[31m" * 5_000,
    [],
    {},
    [[1]],
]


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
    assert (
        accepted
        == {
            "architectures",
            "pad_token_id",
            "tie_word_embeddings",
            "attention_bias",
            "eos_token_id",
            "head_dim",
            "max_position_embeddings",
            "rms_norm_eps",
            "rope_theta",
            "dtype",
            "torch_dtype",
            "rope_parameters",
            "rope_scaling",
        }
        & accepted
    )


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"3",
        b'"x"',
        b"null",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xff",
        b"{}",
        b'{"vocab_size":' + b"9" * 10_000 + b"}",
        b'{"weight_map": []}',
        b'{"weight_map": {"a": 3}}',
        b'{"weight_map": {"a": ["x"]}}',
        b'{"weight_map": {"a": "../../etc/passwd"}}',
        b'{"weight_map": {"a": "/etc/passwd"}}',
        b'{"weight_map": {"a": "\\u0000"}}',
        b'{"weight_map": {"a": "' + b"x" * 5_000 + b'"}}',
        b'{"weight_map": {}}',
    ],
    ids=lambda content: repr(content[:28]),
)
def test_json_of_a_model_folder_that_is_something_else(folder, name, content):
    (folder / name).write_bytes(content)
    assert "passwd" not in refused(lambda: load_model_and_tokenizer(folder), str(folder))


TOKENIZERS = {
    "empty": b"",
    "list": b"[]",
    "null": b"null",
    "number": b"5",
    "deep": b"[" * 200_000,
    "deep objects": b'{"version":' * 200_000,
    "not UTF-8": b"\xff\xfe",
    "zeros": bytes(100),
    "a web page": b"<!doctype html>",
    "a pickle": pickle.dumps({"a": 1}),
    "{}": b"{}",
    "large": b'{"version": "1.0", "x": "' + b"y" * 10_000_000 + b'"}',
}


@pytest.mark.parametrize("content", TOKENIZERS.values(), ids=TOKENIZERS.keys())
def test_tokenizers_that_are_something_else(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    refused(lambda: Qwen3Tokenizer(path), str(path), "not a tokenizer in tokenizers' JSON format")


def spoiled_tokenizers(count: int, path) -> int:
    """How many of so many randomly changed files were refused; any other error is raised."""
    chance = random.Random(0)
    whole, bad = json.dumps(json.loads(build_tokenizer().to_str())).encode(), 0
    for _ in range(count):
        content = bytearray(whole)
        for _ in range(chance.choice([1, 1, 3, 20])):
            content[chance.randrange(len(content))] = chance.choice(b'0129{}[],:"-\xff\x00eE.')
        path.write_bytes(content)
        try:
            Qwen3Tokenizer(path).encode("What is 12? \\boxed{3}")
        except UserError as error:
            assert harmless(str(error))
            bad += 1
    return bad


def test_spoiled_tokenizers(tmp_path):
    assert 100 < spoiled_tokenizers(150, tmp_path / "tokenizer.json") < 150


@pytest.mark.soak
def test_many_spoiled_tokenizers(tmp_path):
    assert spoiled_tokenizers(20_000, tmp_path / "tokenizer.json") > 10_000


def spoiled_weights(count: int, path, content: bytes, length: int) -> int:
    """The same for files of weights: a few bytes of their first `length` are changed."""
    chance, bad = random.Random(1), 0
    for _ in range(count):
        changed = bytearray(content)
        for _ in range(chance.choice([1, 1, 2, 8])):
            changed[chance.randrange(length)] = chance.randrange(256)
        path.write_bytes(changed)
        try:
            load_state(path)
        except UserError as error:
            assert harmless(str(error))
            bad += 1
    return bad


@pytest.mark.parametrize("name", ["model.pth", "model.safetensors"])
@pytest.mark.parametrize("count", [150, pytest.param(20_000, marks=pytest.mark.soak)])
def test_spoiled_weights(tmp_path, name, count):
    model = Qwen3Model(CONFIG | {"n_layers": 1, "vocab_size": 8, "emb_dim": 4, "hidden_dim": 4})
    content = save_model(model, tmp_path / name).read_bytes()
    length = len(content) if name == "model.pth" else 8 + struct.unpack("<Q", content[:8])[0]
    assert spoiled_weights(count, tmp_path / name, content, length) > count // 20


# ---- data sets (more of them: tests/files/test_problem_sets.py)


def filled(path, start: bytes, piece: bytes, times: int, end: bytes) -> None:
    with open(path, "wb") as file:
        file.write(start)
        for _ in range(times):
            file.write(piece)
        file.write(end)


LARGE = {
    "a line of 100 MB": (b'{"problem": "', b"x" * 10**6, 100, b'", "answer": "1"}'),
    "100 MB without a line": (b"x", b"x" * 10**6, 100, b""),
    "a list of more than 100 MB": (b"[", b" " * 10**6, 101, b"]"),
    "one entry of 50 MB": (b'[{"problem": "', b"x" * 10**6, 50, b'", "answer": "1"}]'),
    "10 million lists": (b"[[]", b",[]" * 10**5, 100, b"]"),
    "10 million objects": (b"[{}", b",{}" * 10**5, 100, b"]"),
    "deep, 50 MB": (b"", b"[" * 10**6, 50, b""),
    "deep, one line": (b'{"problem": ', b"[" * 10**5, 5, b""),
    "not UTF-8, 50 MB": (b"[\xff", b" " * 10**6, 50, b"]"),
}


@pytest.mark.parametrize("parts", LARGE.values(), ids=LARGE.keys())
def test_large_data_sets(tmp_path, parts):
    path = tmp_path / "data.json"
    filled(path, *parts)
    refused(lambda: load_problems(str(path)), "data.json")
    path.unlink()


def test_fields_of_a_data_set_reach_no_terminal(tmp_path):
    path = tmp_path / "data.jsonl"
    for row in (
        {"problem": "p", "answer": ["\x1b[2J"]},
        {"question": "q", "answer": "####\x1b[2J"},
        {"problem\x1b[2J": 1, "answer": "x"},
    ):
        path.write_text(json.dumps(row))
        refused(lambda: load_problems(str(path)), "line 1")
