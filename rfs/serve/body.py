"""A request's JSON, checked: whatever is wrong with it, the client is told in one sentence.

Its length is checked before it is read, then how many values it has, then what they are. Reading a
long one takes a thread of its own, so that the server answers others meanwhile.
"""

import asyncio
import json
import math
from collections.abc import Callable
from functools import partial
from reprlib import Repr
from typing import Any, TypeVar

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
MOST_METADATA = 20_000  # characters
LEAST_INTEGER, MOST_INTEGER = -(2**63), 2**64 - 1  # a seed may have 64 bits, with a sign or without
T = TypeVar("T")

BRIEF = Repr()  # a value as error messages quote it, without writing out all of a long one
BRIEF.maxstring = BRIEF.maxother = BRIEF.maxlong = 70


class NoSuchThing(UserError):
    """The thing that was requested does not exist: 404."""


class TooLarge(UserError):
    """413."""


class TooMany(UserError):
    """Too many requests wait already: 429, and clients try again later."""


class BadValues(UserError):
    """JSON with values that no call means. `values` has all of them: they say whose call it is."""

    def __init__(self, sentence: str, values: dict) -> None:
        super().__init__(sentence)
        self.values = values


async def read_bytes(request: Request, most: int = MOST_BYTES) -> bytes:
    """The body, if it has at most so many bytes."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise TooLarge(f"the body has more than {most // 2**20} MiB")
        parts.append(part)
    return b"".join(parts)


async def read_body(request: Request) -> "Body":
    read = await read_bytes(request, MOST_JSON) or b"{}"
    return await beside(len(read), lambda: Body(parsed(read), size=len(read)))


async def beside(size: int, function: Callable[[], T]) -> T:
    """What the function returns, called in another thread if it has many bytes to go through."""
    return function() if size < QUICK else await asyncio.to_thread(function)


def parsed(read: bytes) -> dict[str, Any]:
    """The JSON object, with finite numbers of at most 64 bits, and texts that are texts."""
    if read.count(b",") >= MOST_VALUES:
        raise TooLarge(f"the body has more than {MOST_VALUES:,} values")
    lists = read.count(b"[") + read.count(b"{")
    if lists > MOST_LISTS:
        raise TooLarge(f"the body has more than {MOST_LISTS:,} lists and objects")
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


class Body:
    """A JSON object, read key by key. `within` names it in error messages; `size` is how many bytes
    it took, if it is a whole body."""

    def __init__(self, values: dict[str, Any], within: str = "", size: int = 0) -> None:
        self.values, self.within, self.size = values, within, size

    def wrong(self, key: str, expected: str) -> UserError:
        value = BRIEF.repr(self.values.get(key))
        value = value if len(value) < 80 else value[:77] + "..."
        return UserError(f"{self.within}{key} is {value}, but must be {expected}")

    def has(self, key: str) -> bool:
        return self.values.get(key) is not None

    def text(self, key: str, default: str | None = None, most: int = 2**20) -> str:
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or len(value) > most:
            raise self.wrong(key, f"a text of at most {most:,} characters")
        return value

    def maybe_text(self, key: str) -> str | None:
        return self.text(key) if self.has(key) else None

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if type(value) is not int or not low <= value <= high:
            raise self.wrong(key, f"a whole number from {low} to {high}")
        return value

    def maybe_integer(self, key: str, low: int, high: int) -> int | None:
        return self.integer(key, low, high) if self.has(key) else None

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if type(value) not in (int, float) or not low <= value <= high:  # which NaN is not, either
            raise self.wrong(key, f"a number from {low} to {high}")
        return float(value)

    def temperature(self) -> float:
        value = self.number("temperature", 0, 100, 1.0)
        if 0 < value < SMALLEST_TEMPERATURE:
            raise self.wrong("temperature", f"0, or a number from {SMALLEST_TEMPERATURE} to 100")
        return value

    def yes(self, key: str, default: bool = False) -> bool:
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def part(self, key: str, default: dict | None = None) -> "Body":
        value = self.values.get(key)
        value = default if value is None else value
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return Body(value, f"{self.within}{key}.")

    def parts(self, key: str, most: int = 100_000) -> "list[Body]":
        value = self.values.get(key)
        good = isinstance(value, list) and len(value) <= most
        if not good or not all(isinstance(one, dict) for one in value):
            raise self.wrong(key, f"a list of at most {most:,} objects")
        return [Body(one, f"{self.within}{key}[{i}].") for i, one in enumerate(value)]

    def list_of(self, key: str, kind: type[T], most: int = 2**22) -> list[T]:
        value = self.values.get(key)
        good = isinstance(value, list) and len(value) <= most
        # A bool is an int for Python.
        if not good or not all(type(one) is kind for one in value):
            raise self.wrong(key, f"a list of {kind.__name__}, at most {most:,}")
        return value

    def integers(self, key: str, low: int, high: int) -> list[int]:
        """Whole numbers, each in this range."""
        values = self.list_of(key, int)
        if values and not low <= min(values) <= max(values) <= high:
            raise self.wrong(key, f"whole numbers from {low} to {high}")
        return values

    def metadata(self, key: str) -> dict | None:
        """Small notes that a client stores here."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(key, "an object")
        size = 0
        try:
            for piece in json.JSONEncoder(allow_nan=False).iterencode(value):
                size += len(piece)
                if size > MOST_METADATA:
                    break
        except ValueError:  # NaN in a file: no answer can have it
            raise self.wrong(key, "an object with finite numbers") from None
        if size > MOST_METADATA:
            raise UserError(f"{self.within}{key} has more than {MOST_METADATA:,} characters")
        return value
