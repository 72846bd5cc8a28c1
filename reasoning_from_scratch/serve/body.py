"""A request's JSON, checked: whatever is wrong with it, the client is told in one sentence."""

import json
import math
from typing import Any, TypeVar

from starlette.requests import Request

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.text import json_line

MOST_BYTES = 64 * 2**20
T = TypeVar("T")


class NoSuchThing(UserError):
    """The thing that was requested does not exist: 404."""


class TooLarge(UserError):
    """413."""


async def read_bytes(request: Request) -> bytes:
    """The body, up to MOST_BYTES: a larger one is refused."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise TooLarge(f"the body has more than {MOST_BYTES // 2**20} MiB")
        parts.append(part)
    return b"".join(parts)


async def read_body(request: Request) -> "Body":
    read = await read_bytes(request) or b"{}"
    try:
        values = json.loads(read)
        if b"\\u" in read:  # perhaps half a character, which is not text
            values = json.loads(json_line(values))
    except (ValueError, RecursionError):
        raise UserError("the body is not JSON") from None
    if not isinstance(values, dict):
        raise UserError("the body is not a JSON object")
    return Body(values)


class Body:
    """A JSON object, read key by key. `within` names it in error messages."""

    def __init__(self, values: dict[str, Any], within: str = "") -> None:
        self.values, self.within = values, within

    def wrong(self, key: str, expected: str) -> UserError:
        value = repr(self.values.get(key))
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

    def number(self, key: str, low: float, high: float, default: float) -> float:
        value = self.values.get(key)
        if value is None:
            return default
        good = type(value) in (int, float) and math.isfinite(value) and low <= value <= high
        if not good:
            raise self.wrong(key, f"a number from {low} to {high}")
        return float(value)

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
        if not isinstance(value, list) or len(value) > most:
            raise self.wrong(key, "a list of objects")
        if not all(isinstance(one, dict) for one in value):
            raise self.wrong(key, "a list of objects")
        return [Body(one, f"{self.within}{key}[{i}].") for i, one in enumerate(value)]

    def list_of(self, key: str, kind: type[T], most: int = 2**22) -> list[T]:
        value = self.values.get(key)
        # A bool is an int for Python.
        good = isinstance(value, list) and all(type(one) is kind for one in value)
        if not good or len(value) > most:
            raise self.wrong(key, f"a list of {kind.__name__}")
        return value

    def metadata(self, key: str) -> dict | None:
        """Small notes that a client stores here."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(key, "an object")
        if value and len(json.dumps(value)) > 20_000:
            raise UserError(f"{self.within}{key} has more than 20,000 characters")
        return value
