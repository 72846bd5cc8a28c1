"""A request's JSON, checked: whatever is wrong with it, the client is told in one sentence.

Its length is checked before it is read, then how many values it has, then what they are. Reading a
long one takes a thread of its own, so that the server answers others meanwhile.

What a call may have is a class, a `Checked`, with a field for each key: its type, its bounds, its
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

MOST_BYTES = 64 * 2**20
MOST_JSON = 8 * 2**20  # bytes
MOST_VALUES = 2**20  # of a body: the tokens of a long prompt, and a few numbers about each
MOST_LISTS = 2**17  # and objects: making a million of them takes Python most of a second
MOST_DEPTH = 64  # of objects and lists within each other
QUICK = 2**15  # bytes that are read in less than a millisecond
BEGUN = 2**12  # bytes of a body that is too large
# In a JSON object a key with a whole number, a text or null, and what comes before it.
SIMPLE_VALUE = re.compile(
    r'\s*[{,]\s*"(\w+)"\s*:\s*("[^"\\\x00-\x1f]*"|0|[1-9]\d*|null)\s*(?=[,}])', re.ASCII
)
MOST_METADATA = 20_000  # characters
LEAST_INTEGER, MOST_INTEGER = -(2**63), 2**64 - 1  # a seed may have 64 bits, with a sign or without
T = TypeVar("T")

BRIEF = Repr()  # a value as error messages quote it, without writing out all of a long one
BRIEF.maxstring = BRIEF.maxother = BRIEF.maxlong = 70


class NoSuchThing(UserError):
    """The thing that was requested does not exist: 404."""


class TooLarge(UserError):
    """413. `begun`: the first bytes of the body, which may say whose call it is."""

    def __init__(self, sentence: str, body: bytes) -> None:
        super().__init__(sentence)
        self.begun = body[:BEGUN]

    @property
    def values(self) -> dict[str, Any]:
        """The values with which it begins, if it is a JSON object, up to the first long one."""
        text, place, values = self.begun.decode(errors="replace"), 0, dict[str, Any]()
        while match := SIMPLE_VALUE.match(text, place):
            values[match[1]], place = json.loads(match[2]), match.end()
        return values


class TooMany(UserError):
    """Too many requests wait already: 429, and clients try again later."""


class BadValues(UserError):
    """JSON with values that its call cannot have. `values` has all: they say whose call it is."""

    def __init__(self, sentence: str, values: dict) -> None:
        super().__init__(sentence)
        self.values = values


class Strict(BaseModel):
    """A JSON object. A number in a text is no number, 1.0 is no whole number, 1 is not true."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class Checked(Strict):
    """A JSON object in which null is the same as nothing."""

    @model_validator(mode="before")
    @classmethod
    def without_nulls(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {key: value for key, value in values.items() if value is not None}


C = TypeVar("C", bound=Checked)


async def read_bytes(request: Request, most: int = MOST_BYTES) -> bytes:
    """The body, if it has at most so many bytes."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        parts.append(part)
        if size > most:
            raise TooLarge(f"the body has more than {most // 2**20} MiB", b"".join(parts))
    return b"".join(parts)


async def read_body(request: Request, kind: type[C]) -> C:
    read = await read_bytes(request, MOST_JSON) or b"{}"
    return await beside(request, lambda: checked(kind, parsed(read)))


async def beside(request: Request, function: Callable[[], T]) -> T:
    """What the function returns, called in another thread if the request has many bytes to go
    through, or does not say how many it has."""
    length = request.headers.get("content-length", "")
    quick = length.isdecimal() and len(length) < 10 and int(length) < QUICK
    return function() if quick else await asyncio.to_thread(function)


def parsed(read: bytes) -> dict[str, Any]:
    """The JSON object, with finite numbers of at most 64 bits, and texts that are texts."""
    if read.count(b",") >= MOST_VALUES:
        raise TooLarge(f"the body has more than {MOST_VALUES:,} values", read)
    lists = read.count(b"[") + read.count(b"{")
    if lists > MOST_LISTS:
        raise TooLarge(f"the body has more than {MOST_LISTS:,} lists and objects", read)
    strange: list[str] = []  # numbers, as they were written

    def integer(digits: str) -> int:
        number = int(digits) if len(digits) <= 20 else MOST_INTEGER + 1
        if not LEAST_INTEGER <= number <= MOST_INTEGER:
            strange.append(digits)
        return number

    def fraction(digits: str) -> float:
        number = float(digits)
        if math.isinf(number):
            strange.append(digits)
        return number

    loads = partial(
        json.loads, parse_int=integer, parse_float=fraction, parse_constant=strange.append
    )
    try:
        text = read.decode("utf-8-sig")
        values = loads(text)
        if "\\ud" in text or "\\uD" in text:  # perhaps half a character, which is not text
            values = loads(json_line(values))
    except (ValueError, RecursionError):
        raise UserError("the body is not JSON in UTF-8") from None
    if not isinstance(values, dict):
        raise UserError("the body is not a JSON object")
    if strange:
        number, length = strange[0], len(strange[0])
        number = number if length <= 40 else f"{number[:20]}... ({length} characters)"
        why = f"the body has the number {number}: numbers must be finite and of at most 64 bits"
        raise BadValues(why, values)
    if lists > MOST_DEPTH and not is_flat(values):
        why = f"the body has more than {MOST_DEPTH} lists or objects inside each other"
        raise BadValues(why, values)
    return values


def is_flat(values: dict) -> bool:
    """Whether lists and objects are at most MOST_DEPTH deep inside each other."""
    level: list = [values]
    for _ in range(MOST_DEPTH):
        inner = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for several in inner for one in several if isinstance(one, (dict, list))]
        if not level:
            return True
    return False


def checked(kind: type[C], values: Any, within: str = "") -> C:
    """The values as an object of this kind; `within` names, in an error, what they are part of.
    Besides what its fields say, a kind may raise a ValueError about a field that says what the
    value must be, or a UserError, which is told as it is."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        sentence = f"{within}{what_is_wrong(error)}"
    except UserError as error:
        sentence = f"{within}{error}"
    raise BadValues(sentence, values)


# What a value must be, by pydantic's name for what is wrong, where its own words are no plain ones.
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


def what_is_wrong(error: ValidationError) -> str:
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


def not_too_small(value: float) -> float:
    if 0 < value < SMALLEST_TEMPERATURE:
        raise ValueError(f"0, or a number from {SMALLEST_TEMPERATURE} to 100")
    return value


def small_notes(notes: dict) -> dict:
    """Small notes that a client stores here."""
    size = 0
    try:
        for piece in json.JSONEncoder(allow_nan=False).iterencode(notes):
            size += len(piece)
            if size > MOST_METADATA:
                break
    except (ValueError, RecursionError):  # NaN in a file: no answer can have it
        raise ValueError("an object with finite numbers") from None
    if size > MOST_METADATA:
        raise ValueError(f"an object of at most {MOST_METADATA:,} characters")
    return notes


Text = Annotated[str, Field(max_length=2**20)]
Temperature = Annotated[float, Field(ge=0, le=100), AfterValidator(not_too_small)]
TopP = Annotated[float, Field(ge=1e-9, le=1)]
TopK = Annotated[int, Field(ge=-1, le=2**31), AfterValidator(lambda k: max(0, k))]  # 0: all
Notes = Annotated[dict[str, Any], AfterValidator(small_notes)]
Tokens = Annotated[list[int], FailFast(), Field(max_length=2**22)]
