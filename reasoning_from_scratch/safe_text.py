"""Text that a model wrote, made safe to show and to store."""

import json
import math
import re
from typing import Any

# What would act on a page or a terminal instead of being seen: control codes other than newline and
# tab, marks that reverse or hide the text around them, surrogates (not text at all), noncharacters.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Spell out what could not be seen: an escape code becomes the four characters `\x1b`."""
    return _UNSEEN.sub(_spell, text)


def _spell(match: re.Match) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def one_line(text: str, limit: int) -> str:
    """`visible` text without line breaks, and not much longer than the limit."""
    text = shorten(visible(shorten(text, limit)), limit)  # spelled out it may be 4 times as long
    return text.replace("\n", " ").replace("\t", " ")


def shorten(text: str, limit: int) -> str:
    """The beginning and the end of a long text, and how much is missing between them."""
    if len(text) <= limit + 50:  # about as long as the words that would stand for the rest
        return text
    head, tail = limit * 3 // 4, limit // 4
    gap = f"[... {len(text) - head - tail:,} characters left out ...]"
    return f"{text[:head]}\n{gap}\n{text[-tail:]}"


def json_line(value: Any, indent: int | None = None) -> str:
    """Strict JSON in plain ASCII, which any reader takes: no NaN, no half of a surrogate pair."""
    return json.dumps(_storable(value), indent=indent, allow_nan=False)


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_storable(str(key)): _storable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_storable(item) for item in value]
    if value is None or isinstance(value, (bool, int)):
        return value
    return _storable(value.item())  # a number that is still a tensor or a NumPy scalar


def counted(number: int, noun: str) -> str:
    """1 problem, 2 problems."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
