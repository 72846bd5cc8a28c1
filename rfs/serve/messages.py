"""Tinker's messages that are sent as protobuf: forward_backward requests, and the answers to them
and to sampling. All other messages are JSON.

A message is a sequence of fields, each with a number and a value:

    field 3, bytes       key = 3 << 3 | 2, then the length, then the bytes
    field 2, integer     key = 2 << 3 | 0, then the integer
    field 1, float64     key = 1 << 3 | 1, then 8 bytes

Keys, lengths and integers are varints: 7 bits to a byte, the lowest first, and the eighth bit says
that more follow. That is all.

Google's library, `protobuf`, would need 0.2 ms instead of 4 for 64 data of 500 tokens. But it makes
a whole message before any limit can be checked, and no other thread runs meanwhile: 8 MB of empty
data keep the server silent for 0.6 s and take 190 MB. Here the first limit that is exceeded ends
the reading. Tests compare what is read and written with the message types of Tinker's own client,
which are made by that library.
"""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from reasoning_from_scratch.errors import UserError

Bytes = bytes | memoryview  # a part of a message, which is not copied
INTEGER, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5  # kinds of fields
# Number formats of tensors, by their number in a message.
FLOAT32, INT64, INT32 = 1, 2, 3
FORMATS = {FLOAT32: np.float32, INT64: np.int64, INT32: np.int32}
DAMAGED = UserError("the body is not a message that this server knows: it is damaged or cut off")
MAX_FIELDS = 2**20  # of a message and those in it; a datum has about 25
MAX_DATA = 2**15  # of a request, its settings included
MAX_SIZE = 2**24  # of a tensor's dimension, and of all matrices whose zeros were omitted
MAX_SEQ_ID = 2**31 - 1
LONGEST_NAME = 1000  # bytes
NO_IMAGES = "images and audio are not supported here: send tokens"


# --- the wire


class Budget:
    """What a message and those inside it may still contain, together: a body of 20 MB can have ten
    million fields that mean nothing, and a datum of 90 bytes a matrix of 16 million zeros."""

    def __init__(self) -> None:
        self.fields = iter(range(MAX_FIELDS))
        self.zeros = MAX_SIZE

    def take_zeros(self, count: int) -> None:
        self.zeros -= count
        if self.zeros < 0:
            raise UserError(
                f"the sparse tensors have more than {MAX_SIZE:,} numbers, zeros included: send "
                "less at a time"
            )


def read_fields(message: Bytes, budget: Budget) -> Iterator[tuple[int, int | Bytes]]:
    """The fields of a message; floats are still bytes."""
    offset, fields_left = 0, budget.fields
    while offset < len(message):
        if next(fields_left, None) is None:
            raise UserError(f"the body has more than {MAX_FIELDS:,} fields")
        key, offset = read_varint(message, offset)
        kind = key & 7
        if kind == INTEGER:
            value, offset = read_varint(message, offset)
            yield key >> 3, value
            continue
        if kind == BYTES:
            length, offset = read_varint(message, offset)
        elif kind in (EIGHT_BYTES, FOUR_BYTES):
            length = 8 if kind == EIGHT_BYTES else 4
        else:
            raise DAMAGED
        if offset + length > len(message):
            raise DAMAGED
        yield key >> 3, message[offset : offset + length]
        offset += length


def read_varint(message: Bytes, offset: int) -> tuple[int, int]:
    """The integer that begins at `offset`, and where the next field begins."""
    value = 0
    for shift in range(0, 70, 7):
        if offset >= len(message):
            break
        byte = message[offset]
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
    raise DAMAGED


def varint_bytes(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def integer_field(number: int, value: int) -> bytes:
    """An integer field; 0 is omitted, since it is what readers assume."""
    return varint_bytes(number << 3 | INTEGER) + varint_bytes(value) if value else b""


def bytes_field(number: int, value: bytes | str) -> bytes:
    value = value.encode() if isinstance(value, str) else value
    return varint_bytes(number << 3 | BYTES) + varint_bytes(len(value)) + value


def array_field(number: int, values, kind: type) -> bytes:
    return bytes_field(number, np.ascontiguousarray(values, dtype=kind).tobytes())


def packed_field(number: int, values: Sequence[int]) -> bytes:
    """A packed list; an empty one is omitted."""
    return bytes_field(number, b"".join(map(varint_bytes, values))) if values else b""


def map_entry(number: int, key: str, value: bytes) -> bytes:
    """An entry of a map is a message with its key as field 1 and its value as field 2."""
    return bytes_field(number, bytes_field(1, key) + value)


# --- what a client sends


@dataclass
class Datum:
    """One row to learn from: the model reads `tokens`, and `inputs` has what the loss needs at each
    of them: target_tokens, and weights, or logprobs and advantages."""

    tokens: list[int] = field(default_factory=list)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass
class LossRequest:
    """forward_backward, or forward alone."""

    model_id: str = ""
    seq_id: int | None = None  # of the calls that change the model; None: the next one
    data: list[Datum] = field(default_factory=list)
    loss: str = ""
    config: dict[str, float | str] = field(default_factory=dict)
    forward_only: bool = False

    def read(self, message: bytes, context: int) -> "LossRequest":
        """`context`: no datum may have more tokens. Model and number are read first: if the rest is
        wrong, they say whose turn it was."""
        budget = Budget()
        rest: list[tuple[int, int | Bytes]] = []
        for number, value in read_fields(memoryview(message), budget):
            if number == 1:
                self.model_id = as_text(value)
            elif number == 2:
                self.seq_id = checked_seq_id(as_int(value))
            elif len(rest) == MAX_DATA:
                raise UserError(f"the request has more than {MAX_DATA:,} data: split it")
            elif number in (3, 4, 5, 6, 7):
                rest.append((number, value))
        for number, value in rest:
            if number == 3:
                name = f"datum {len(self.data)}"
                self.data.append(read_datum(as_bytes(value), name, context, budget))
            elif number == 4:
                self.loss = as_text(value)
            elif number == 6:
                self.forward_only = bool(value)
            elif number in (5, 7):  # field 7 may hold texts, too
                key, setting = read_setting(as_bytes(value), number == 7, budget)
                self.config[key] = setting
        return self


def checked_seq_id(number: int) -> int:
    if not 1 <= number <= MAX_SEQ_ID:
        raise UserError(f"seq_id is {number}, but must be a whole number from 1 to {MAX_SEQ_ID}")
    return number


def read_setting(message: Bytes, has_texts: bool, budget: Budget) -> tuple[str, float | str]:
    key = ""
    setting: float | str = 0.0
    for number, value in read_fields(message, budget):
        if number == 1:
            key = as_text(value)
        elif number == 2 and not has_texts:
            setting = as_float(value)
        elif number == 2:
            for kind, inner in read_fields(as_bytes(value), budget):
                setting = as_float(inner) if kind == 1 else as_text(inner)
    return key, setting


def read_datum(message: Bytes, datum_name: str, context: int, budget: Budget) -> Datum:
    datum = Datum()
    for number, value in read_fields(message, budget):
        if number == 1:  # a chunk, of which there are three kinds
            for kind, chunk in read_fields(as_bytes(value), budget):
                if kind != 1:
                    raise UserError(NO_IMAGES)
                for part, numbers in read_fields(as_bytes(chunk), budget):
                    if part == 1:
                        tokens = as_array(numbers, np.int32)
                        check_length(len(datum.tokens) + len(tokens), datum_name, context)
                        datum.tokens += tokens.tolist()
        elif number == 2:
            key = ""
            tensor: Bytes = b""
            for part, inner in read_fields(as_bytes(value), budget):
                if part == 1:
                    key = as_text(inner)
                else:
                    tensor = as_bytes(inner)
            datum.inputs[key] = read_tensor(tensor, budget)
    return datum


def check_length(count: int, datum_name: str, context: int) -> None:
    if count > context:
        raise UserError(f"{datum_name} has {count} tokens; the model reads {context}")


def read_tensor(message: Bytes, budget: Budget) -> np.ndarray:
    """A tensor, dense or as the nonzero entries of its rows (CSR)."""
    kind, shape = 0, list[int]()
    dense: Bytes = b""
    sparse: Bytes = b""
    for number, value in read_fields(message, budget):
        if number == 1:
            dense = as_bytes(value)
        elif number == 2:
            sparse = as_bytes(value)
        elif number == 3:
            kind = as_int(value)
        elif number == 4:
            shape += [value] if isinstance(value, int) else sizes_in(value)
    if kind not in FORMATS:
        raise DAMAGED
    if len(shape) > 2:
        raise UserError("a tensor has more than 2 dimensions")
    if max(shape, default=0) > MAX_SIZE:
        raise UserError(f"a tensor has the shape {shape}, but at most {MAX_SIZE:,} each way")
    if not sparse:
        array = as_array(dense, FORMATS[kind])
        return reshape(array, shape or [len(array)])
    budget.take_zeros(math.prod(shape))
    parts = {number: as_bytes(value) for number, value in read_fields(sparse, budget)}
    return dense_matrix(
        as_array(parts.get(1, b""), FORMATS[kind]),
        as_array(parts.get(2, b""), np.int64),
        as_array(parts.get(3, b""), np.int64),
        shape,
    )


def sizes_in(packed: Bytes) -> list[int]:
    """The first few integers of a packed list."""
    sizes, offset = list[int](), 0
    while offset < len(packed) and len(sizes) < 8:
        size, offset = read_varint(packed, offset)
        sizes.append(size)
    return sizes


def reshape(array: np.ndarray, shape: list[int]) -> np.ndarray:
    if len(array) != math.prod(shape):
        raise UserError(f"a tensor has {len(array)} numbers, but its shape is given as {shape}")
    return array.reshape(shape)


def dense_matrix(
    values: np.ndarray, starts: np.ndarray, columns: np.ndarray, shape: list[int], fill: int = 0
) -> np.ndarray:
    """A matrix from the entries of its rows: those of row i are starts[i] to starts[i + 1]."""
    fits = len(shape) == 2 and shape[0] * shape[1] <= MAX_SIZE and len(starts) == shape[0] + 1
    # Only between 0 and the number of values is the difference of two of them sure to be one.
    fits = fits and bool(((0 <= starts) & (starts <= len(values))).all())
    counts = np.diff(starts) if fits else np.array([-1])
    if (
        (counts < 0).any()
        or not starts[0] == 0
        or not starts[-1] == len(values) == len(columns)
        or ((columns < 0) | (columns >= shape[1])).any()
    ):
        raise UserError("a sparse tensor's indices do not fit its shape")
    matrix = np.full(shape, fill, dtype=values.dtype)
    matrix[np.repeat(np.arange(shape[0]), counts), columns] = values
    return matrix


def as_array(value: int | Bytes, kind: type) -> np.ndarray:
    numbers = as_bytes(value)
    if len(numbers) % np.dtype(kind).itemsize:
        raise DAMAGED
    return np.frombuffer(numbers, kind)


def as_bytes(value: int | Bytes) -> Bytes:
    if isinstance(value, int):
        raise DAMAGED
    return value


def as_int(value: int | Bytes) -> int:
    if not isinstance(value, int):
        raise DAMAGED
    return value


def as_float(value: int | Bytes) -> float:
    if len(as_bytes(value)) != 8:
        raise DAMAGED
    return struct.unpack("<d", as_bytes(value))[0]


def as_text(value: int | Bytes) -> str:
    """The names that a message has are short."""
    if len(as_bytes(value)) > LONGEST_NAME:
        raise DAMAGED
    try:
        return str(as_bytes(value), "utf-8")
    except UnicodeDecodeError:
        raise DAMAGED from None


# --- what it gets back


def loss_answer(outputs: Sequence[np.ndarray], metrics: Mapping[str, float]) -> bytes:
    """For each datum the log-probabilities of its targets, (N,) or (N, K), and metrics of them all.
    Consecutive data with the same K are one record: their numbers joined, and where each begins."""
    message = bytes_field(1, "ArrayRecord")
    for trailing, group in groupby(outputs, key=lambda array: array.shape[1:]):
        arrays = [np.ascontiguousarray(array, np.float32) for array in group]
        offsets = np.cumsum([0, *(array.nbytes for array in arrays)])
        tensor = (
            bytes_field(1, b"".join(array.tobytes() for array in arrays))
            + array_field(2, offsets, np.int64)
            + integer_field(3, FLOAT32)
            + packed_field(4, trailing)
        )
        record = map_entry(2, "logprobs", bytes_field(2, tensor)) + integer_field(3, len(arrays))
        message += bytes_field(2, bytes_field(1, "ArrayRecord") + record)
    for name, value in metrics.items():
        number = varint_bytes(2 << 3 | EIGHT_BYTES) + struct.pack("<d", value)
        message += map_entry(3, name, number)
    return message


Likely = Sequence[Sequence[tuple[int, float]]]  # at each place, tokens and log-probabilities


@dataclass
class SampleAnswer:
    """The result of sampling: sequences as (finished, tokens, log-probabilities, likely tokens or
    None), and what was requested about the prompt."""

    sequences: list[tuple[bool, Sequence[int], Sequence[float], Likely | None]]
    prompt_logprobs: Sequence[float] | None = None  # NaN where there is none
    likely_in_prompt: Likely | None = None
    target_logprobs: np.ndarray | None = None  # (T - 1, K)
    other_tokens: tuple[np.ndarray, np.ndarray] | None = None  # drawn, (T - 1, K) each

    def __bytes__(self) -> bytes:
        message = b""
        for finished, tokens, logprobs, likely in self.sequences:
            message += bytes_field(
                1,
                integer_field(1, 0 if finished else 1)
                + array_field(2, tokens, np.int32)
                + array_field(3, logprobs, np.float32)
                + (likely_field(4, likely) if likely is not None else b""),
            )
        if self.prompt_logprobs is not None:
            message += array_field(2, self.prompt_logprobs, np.float32)
        if self.likely_in_prompt is not None:
            message += likely_field(3, self.likely_in_prompt)
        if self.target_logprobs is not None:
            message += tensor_field(5, self.target_logprobs, FLOAT32)
        if self.other_tokens is not None:
            ids, other_logprobs = self.other_tokens
            message += bytes_field(
                6, tensor_field(1, ids, INT32) + tensor_field(2, other_logprobs, FLOAT32)
            )
        return message


PADDING = (0, -99999.0)  # fills up a position that has fewer likely tokens than others


def likely_field(number: int, positions: Likely) -> bytes:
    count = max(map(len, positions), default=0)
    rows = [[*position, *[PADDING] * (count - len(position))] for position in positions]
    message = array_field(1, [[token for token, _ in row] for row in rows], np.int32)
    message += array_field(2, [[logprob for _, logprob in row] for row in rows], np.float32)
    return bytes_field(number, message + integer_field(3, count) + integer_field(4, len(rows)))


def tensor_field(number: int, array: np.ndarray, kind: int) -> bytes:
    message = array_field(1, array, FORMATS[kind]) + integer_field(3, kind)
    return bytes_field(number, message + packed_field(4, array.shape))
