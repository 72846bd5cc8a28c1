"""Files of tensors from strangers: what their own readers leave to us.

PyTorch (weights_only) refuses a pickle that would run code, and safetensors a header that lies.
Both still open what unpacks to more than itself, numbers of any kind, and numbers that are not
in the file.
"""

import pickletools
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class Damaged(Exception):
    """The file is not what it says it is; the message says where."""


def check_pth(path: Path) -> None:
    """Damaged unless this is a zip with one pickle in it, as torch.save has written since 1.6."""
    if not zipfile.is_zipfile(path):
        raise Damaged("it is no whole zip")
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        # torch.save compresses nothing.
        if sum(entry.file_size for entry in entries) > path.stat().st_size:
            raise Damaged("it unpacks to more than its size")
        programs = [entry for entry in entries if entry.filename.endswith("/data.pkl")]
        if len(programs) != 1:
            raise Damaged(f"{len(programs)} entries of the name data.pkl")
        check_tuples(archive.read(programs[0]))


def check_tuples(program: bytes) -> None:
    """Damaged if a pickle uses a tuple twice, which torch.save never does.

    A key that is a tuple of two equal tuples of two equal tuples ... is 500 bytes long, and takes
    years to hash: opening the file would never end.
    """
    tuples, last = set(), ""
    for instruction, argument, _ in pickletools.genops(program):
        if instruction.name in ("BINPUT", "LONG_BINPUT") and last.startswith("TUPLE"):
            tuples.add(argument)
        if instruction.name in ("BINGET", "LONG_BINGET") and argument in tuples:
            raise Damaged("it uses a tuple twice")
        last = instruction.name


def check_tensors(state: Mapping[str, Tensor], path: Path) -> None:
    """Damaged unless these are float numbers that really stand in the file."""
    for name, tensor in state.items():
        if tensor.dtype not in FLOATS.values():
            raise Damaged(f"{name} has numbers of kind {tensor.dtype}, expected a float")
        plain = tensor.layout == torch.strided and tensor.device.type == "cpu"
        if not plain or tensor.numel() == 0:
            raise Damaged(f"{name} has no plain numbers")
    # A head that is tied to the embedding stands in the file once and in the state twice.
    if sum(tensor.numel() * tensor.itemsize for tensor in state.values()) > 2 * path.stat().st_size:
        raise Damaged("its tensors are larger than the file")
