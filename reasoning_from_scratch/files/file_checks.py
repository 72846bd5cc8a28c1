"""Files of tensors, looked through before they are opened: nothing in them may run, or grow.

A .pth is a zip with a pickle in it, and a pickle is a program. PyTorch's own guard
(weights_only) refuses to run foreign code, but it still builds what a program of 100 bytes asks
for: a bytearray of 100 GB, or a key that takes years to hash. So the program is read first, and
has to be one that torch.save writes for a dictionary of tensors.
"""

import json
import math
import pickletools
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

MAX_PICKLE = 50_000_000  # bytes; that of Qwen3-0.6B has 40,000
MAX_HEADER = 10_000_000  # bytes of a safetensors header; that of Qwen3-0.6B has 35,000
MAX_TENSORS, MAX_DIMENSIONS = 20_000, 8
FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

LEGACY_PICKLES = 5  # in a file of torch.save before 1.6, one after the other; then come the tensors
CALLED = {("collections", "OrderedDict"), ("torch.storage", "UntypedStorage")} | {
    ("torch._utils", name) for name in ("_rebuild_tensor_v2", "_rebuild_parameter")
}
VALUES = set(
    "NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 BINFLOAT BINUNICODE"
    " SHORT_BINSTRING GLOBAL EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3"
    " REDUCE BINPERSID".split()
)
TUPLES = {"EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
PUTS, GETS = {"BINPUT", "LONG_BINPUT"}, {"BINGET", "LONG_BINGET"}
FILLS = {"SETITEM", "SETITEMS", "APPEND", "APPENDS", "BUILD"}
KNOWN = VALUES | PUTS | GETS | FILLS | {"PROTO", "MARK", "STOP"}


class Refused(Exception):
    """The file would do something; the message says what."""


class Damaged(Exception):
    """The file is not what it says it is; the message says where."""


# ---- .pth


def check_pth(path: Path) -> None:
    """Refused, Damaged, or nothing: then torch.load builds only a dictionary of tensors."""
    if zipfile.is_zipfile(path):
        _check_archive(path)
        return
    with open(path, "rb") as file:
        if file.read(2) == b"PK":
            raise Damaged("a zip without its end")
        file.seek(0)
        for _ in range(LEGACY_PICKLES):
            _check_program(file)


def _check_archive(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        names = [entry.filename for entry in entries]
        if len(set(names)) < len(names):
            raise Damaged("two entries of one name")
        # torch.save compresses nothing, so a file that unpacks to more than itself is a bomb.
        packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
        if packed or sum(entry.file_size for entry in entries) > path.stat().st_size:
            raise Refused("unpack to more than its size")
        programs = [entry for entry in entries if entry.filename.split("/")[-1] == "data.pkl"]
        if len(programs) != 1 or programs[0].file_size > MAX_PICKLE:
            raise Damaged("no data.pkl of a sensible size")
        with archive.open(programs[0]) as file:
            _check_program(file)


def _check_program(file: BinaryIO) -> None:
    """One pickle: known instructions, known names, and no tuple used twice.

    A tuple of two equal tuples of two equal tuples ... is short to write and endless to hash.
    """
    created: dict[int, str] = {}  # number in the pickle's memory -> the instruction that made it
    last = ""
    for instruction, argument, _ in pickletools.genops(file):
        name = instruction.name
        if name not in KNOWN:
            raise Refused(f"run code ({name})")
        if name == "GLOBAL" and not _may_be_named(*argument.split(" ", 1)):
            raise Refused(f"run code ({argument})")
        if name in PUTS:
            created[argument] = last
        elif name in GETS:
            if created.get(argument, "TUPLE") in TUPLES:
                raise Refused(f"grow without end ({name})")
        last = name


def _may_be_named(module: str, name: str) -> bool:
    if module == "torch":  # "torch FloatStorage", "torch bfloat16"
        kind = getattr(torch, name, None) if name.isidentifier() else None
        return name.endswith("Storage") or isinstance(kind, torch.dtype)
    return (module, name) in CALLED


def check_tensors(state: Mapping[str, Tensor], path: Path) -> None:
    """Damaged unless these are numbers that really stand in the file."""
    for name, tensor in state.items():
        if tensor.dtype not in FLOATS.values():
            raise Damaged(f"{name} has numbers of kind {tensor.dtype}, expected a float")
        plain = tensor.layout == torch.strided and tensor.device.type == "cpu"
        if not plain or tensor.numel() == 0:
            raise Damaged(f"{name} has no plain numbers")
    # A head that is tied to the embedding stands in the file once and in the state twice.
    if sum(tensor.numel() * tensor.itemsize for tensor in state.values()) > 2 * path.stat().st_size:
        raise Damaged("its tensors are larger than the file")


# ---- safetensors


def check_safetensors(path: Path) -> None:
    """Damaged unless the header describes float tensors that the file can hold, each once."""
    with open(path, "rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= min(MAX_HEADER, path.stat().st_size - 8):
            raise Damaged(f"a header of {length:,} bytes")
        header = _read_header(file.read(length))
    if len(header) > MAX_TENSORS:
        raise Damaged(f"{len(header):,} tensors")
    for name, entry in header.items():
        if name != "__metadata__":
            _check_entry(name, entry)


def _read_header(text: bytes) -> dict:
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"its header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise Damaged("its header is not an object")
    return header


def _once(pairs: list[tuple]) -> dict:
    """JSON allows a name twice, and readers differ in which of them counts."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Damaged("a name that stands twice in its header")
    return found


def _check_entry(name: str, entry: object) -> None:
    try:
        kind, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [*shape, begin, end]
    except (TypeError, KeyError, ValueError):
        raise Damaged(f"{name} is not described") from None
    if kind not in FLOATS:
        raise Damaged(f"{name} has numbers of kind {kind}, expected one of {', '.join(FLOATS)}")
    whole = all(type(number) is int and 0 <= number < 2**63 for number in numbers)
    if not whole or 0 in shape or len(shape) > MAX_DIMENSIONS:
        raise Damaged(f"{name} has an impossible shape or place")
    if math.prod(shape) * FLOATS[kind].itemsize != end - begin:
        raise Damaged(f"{name} of shape {shape} does not fit into {end - begin} bytes")
