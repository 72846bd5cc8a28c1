"""Reads and validates a request's JSON; the client gets the first error as one sentence.

Its length is checked before it is read, then how many values it has, then what they are. Reading a
long one takes a thread of its own, so that the server answers others meanwhile.

A call's values are a class, a `BodyModel`, with a field for each key: its type, its bounds, its
default (tinker_bodies.py, openai_bodies.py). pydantic compares; here its errors become sentences.
"""

import asyncio
import json
import math
import re
from collections.abc import Callable
from functools import partial
from reprlib import Repr
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    model_validator,
)
from starlette.requests import Request

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.sampling import SMALLEST_TEMPERATURE
from reasoning_from_scratch.text import json_line

MAX_BYTES = 64 * 2**20
MAX_JSON_BYTES = 8 * 2**20  # bytes
MAX_VALUES = 2**20  # of a body: the tokens of a long prompt, and a few numbers about each
MAX_LISTS = 2**17  # and objects: making a million of them takes Python most of a second
MAX_DEPTH = 64  # of objects and lists within each other
SHORT_BODY = 2**15  # bytes that are read in less than a millisecond
KEPT_START = 2**12  # bytes of a body that is too large
# In a JSON object a key with a whole number, a text or null, and what comes before it.
SIMPLE_VALUE = re.compile(
    r'\s*[{,]\s*"(\w+)"\s*:\s*("[^"\\\x00-\x1f]*"|0|[1-9]\d*|null)\s*(?=[,}])', re.ASCII
)
MAX_METADATA = 20_000  # characters
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1  # a seed may have 64 bits, with a sign or without
T = TypeVar("T")

BRIEF = Repr()  # a value as error messages quote it, without writing out all of a long one
BRIEF.maxstring = BRIEF.maxother = BRIEF.maxlong = 70


class NotFound(UserError):
    """What was requested does not exist: 404."""


class TooLarge(UserError):
    """413. `body_start`: the first bytes of the body, which may say which call it was."""

    def __init__(self, sentence: str, body: bytes) -> None:
        super().__init__(sentence)
        self.body_start = body[:KEPT_START]

    @property
    def values(self) -> dict[str, Any]:
        """The values with which it begins, if it is a JSON object, up to the first long one."""
        text, place, values = self.body_start.decode(errors="replace"), 0, dict[str, Any]()
        while match := SIMPLE_VALUE.match(text, place):
            values[match[1]], place = json.loads(match[2]), match.end()
        return values


class TooManyRequests(UserError):
    """Too many requests wait already: 429, and clients try again later."""


class BadValues(UserError):
    """JSON with values that its call cannot have. `values` has all: they say whose call it is."""

    def __init__(self, sentence: str, values: dict) -> None:
        super().__init__(sentence)
        self.values = values


class StrictModel(BaseModel):
    """A JSON object. A number in a text is no number, 1.0 is no whole number, 1 is not true."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class BodyModel(StrictModel):
    """A JSON object in which null is the same as nothing."""

    @model_validator(mode="before")
    @classmethod
    def drop_nulls(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {key: value for key, value in values.items() if value is not None}


C = TypeVar("C", bound=BodyModel)


async def read_bytes(request: Request, max_bytes: int = MAX_BYTES) -> bytes:
    """The body, if it has at most so many bytes."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        chunks.append(chunk)
        if size > max_bytes:
            raise TooLarge(f"the body has more than {max_bytes // 2**20} MiB", b"".join(chunks))
    return b"".join(chunks)


async def read_body(request: Request, kind: type[C]) -> C:
    body = await read_bytes(request, MAX_JSON_BYTES) or b"{}"
    return await in_thread_if_long(request, lambda: validate(kind, parse_json(body)))


async def in_thread_if_long(request: Request, function: Callable[[], T]) -> T:
    """What the function returns, called in another thread if the request has many bytes to go
    through, or does not say how many it has."""
    length = request.headers.get("content-length", "")
    is_short = length.isdecimal() and len(length) < 10 and int(length) < SHORT_BODY
    return function() if is_short else await asyncio.to_thread(function)


def parse_json(body: bytes) -> dict[str, Any]:
    """The JSON object, with finite numbers of at most 64 bits, and texts that are texts."""
    if body.count(b",") >= MAX_VALUES:
        raise TooLarge(f"the body has more than {MAX_VALUES:,} values", body)
    lists = body.count(b"[") + body.count(b"{")
    if lists > MAX_LISTS:
        raise TooLarge(f"the body has more than {MAX_LISTS:,} lists and objects", body)
    bad_numbers: list[str] = []  # numbers, as they were written

    def integer(digits: str) -> int:
        number = int(digits) if len(digits) <= 20 else MAX_INTEGER + 1
        if not MIN_INTEGER <= number <= MAX_INTEGER:
            bad_numbers.append(digits)
        return number

    def fraction(digits: str) -> float:
        number = float(digits)
        if math.isinf(number):
            bad_numbers.append(digits)
        return number

    loads = partial(
        json.loads, parse_int=integer, parse_float=fraction, parse_constant=bad_numbers.append
    )
    try:
        text = body.decode("utf-8-sig")
        values = loads(text)
        if "\\ud" in text or "\\uD" in text:  # perhaps half a character, which is not text
            values = loads(json_line(values))
    except (ValueError, RecursionError):
        raise UserError("the body is not JSON in UTF-8") from None
    if not isinstance(values, dict):
        raise UserError("the body is not a JSON object")
    if bad_numbers:
        number, length = bad_numbers[0], len(bad_numbers[0])
        number = number if length <= 40 else f"{number[:20]}... ({length} characters)"
        why = f"the body has the number {number}: numbers must be finite and of at most 64 bits"
        raise BadValues(why, values)
    if lists > MAX_DEPTH and not is_flat(values):
        why = f"the body has more than {MAX_DEPTH} lists or objects inside each other"
        raise BadValues(why, values)
    return values


def is_flat(values: dict) -> bool:
    """Whether lists and objects are at most MAX_DEPTH deep inside each other."""
    level: list = [values]
    for _ in range(MAX_DEPTH):
        inner = [value.values() if isinstance(value, dict) else value for value in level]
        level = [value for group in inner for value in group if isinstance(value, (dict, list))]
        if not level:
            return True
    return False


def validate(kind: type[C], values: Any, prefix: str = "") -> C:
    """The values as an object of this kind; `prefix` begins the sentence of an error.
    Besides what its fields say, a kind may raise a ValueError about a field that says what the
    value must be, or a UserError, whose sentence is used as it is."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        sentence = f"{prefix}{error_sentence(error)}"
    except UserError as error:
        sentence = f"{prefix}{error}"
    raise BadValues(sentence, values)


# What a value must be, by pydantic's type of error, where pydantic's own wording is technical.
EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "string_too_short": "a text with a character in it",
    "string_too_long": "a text of at most {max_length:,} characters",
    "too_long": "a list of at most {max_length:,}",
    "value_error": "{error}",
}


def error_sentence(error: ValidationError) -> str:
    """The first of the errors. Lists end at their first one, so there are never many."""
    first = error.errors(include_url=False)[0]
    keys = [f"[{key}]" if isinstance(key, int) else f".{key}" for key in first["loc"]]
    where = "".join(keys).removeprefix(".")
    if first["type"] == "missing":
        return f"{where} is missing"
    if first["type"] == UNSUPPORTED:
        return f"{where}.{first['msg']}".removeprefix(".")
    expected = first["msg"].removeprefix("Input should be ")
    if first["type"] in EXPECTED:
        expected = EXPECTED[first["type"]].format(**first.get("ctx", {}))
    return f"{where or 'this'} is {quoted(first['input'])}, but must be {expected}"


UNSUPPORTED = "unsupported"  # an error about a key that an object has and must not have


def quoted(value: object) -> str:
    value = BRIEF.repr(value)
    return value if len(value) < 80 else value[:77] + "..."


def check_temperature(value: float) -> float:
    if 0 < value < SMALLEST_TEMPERATURE:
        raise ValueError(f"0, or a number from {SMALLEST_TEMPERATURE} to 100")
    return value


def check_notes(notes: dict) -> dict:
    """Small notes that a client stores here."""
    size = 0
    try:
        for piece in json.JSONEncoder(allow_nan=False).iterencode(notes):
            size += len(piece)
            if size > MAX_METADATA:
                break
    except (ValueError, RecursionError):  # NaN in a file: no answer can have it
        raise ValueError("an object with finite numbers") from None
    if size > MAX_METADATA:
        raise ValueError(f"an object of at most {MAX_METADATA:,} characters")
    return notes


Text = Annotated[str, Field(max_length=2**20)]
Temperature = Annotated[float, Field(ge=0, le=100), AfterValidator(check_temperature)]
TopP = Annotated[float, Field(ge=1e-9, le=1)]
TopK = Annotated[int, Field(ge=-1, le=2**31), AfterValidator(lambda k: max(0, k))]  # 0: all
Notes = Annotated[dict[str, Any], AfterValidator(check_notes)]
Tokens = Annotated[list[int], FailFast(), Field(max_length=2**22)]
