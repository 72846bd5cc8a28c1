"""Text that is safe to show and to store: what models and files say, and lines of JSON.

Strict when written, forgiving when read.
"""

import json
import math
import os
import re
import sys
from collections.abc import Container, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from sys import intern
from typing import Any

# What would act on a page or a terminal instead of being seen: control codes other than newline and
# tab, marks that reverse or hide the text around them, surrogates (not text at all), noncharacters.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


def is_interactive() -> bool:
    """True in a terminal and in a notebook, where a bar can be redrawn."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return sys.stderr.isatty() or hasattr(shell, "kernel")


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
    if len(text) <= limit + 50:  # the note about the gap would be about as long
        return text
    head, tail = limit * 3 // 4, limit // 4
    gap = f"[... {len(text) - head - tail:,} characters left out ...]"
    return f"{text[:head]}\n{gap}\n{text[-tail:]}"


def json_line(value: Any, indent: int | None = None) -> str:
    """Strict JSON in plain ASCII, which any reader takes: no NaN, no half of a surrogate pair."""
    with suppress(TypeError, ValueError):  # from a tensor, or a number that is not finite
        line = json.dumps(value, indent=indent, allow_nan=False)
        if "\\ud" not in line:  # each half of a surrogate pair begins like this
            return line
    return json.dumps(_storable(value), indent=indent, allow_nan=False)  # looks at every text


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


# --- shares: alike in the terminal, in pictures' words and on pages (percent.js) ---


def percent(share: float) -> str:
    """94.0%: one digit, everywhere. What is more than nothing is never 0.0%."""
    return "< 0.1%" if 0 < share < 0.0005 else f"{100 * share:.1f}%"


def percent_range(low: float, high: float) -> str:
    """92.0 to 96.1%: an interval."""
    return f"{100 * low:.1f} to {percent(high)}"


def percent_error(share: float, error: float) -> str:
    """60.0 ± 1.2%; where there is no error, NaN, just 60.0%."""
    return percent(share) if math.isnan(error) else f"{100 * share:.1f} ± {100 * error:.1f}%"


def points(difference: float) -> str:
    """+3.1: a difference of two shares, in percentage points."""
    return f"{100 * difference:+.1f}"


# --- files of JSON, whole or an object per line ---


def replace_nonfinite(row: dict) -> tuple[dict, list[str]]:
    """The row with None for numbers that are not finite, and their names. JSON has no NaN."""
    bad = [k for k, v in row.items() if isinstance(v, float) and not math.isfinite(v)]
    # Each step builds the names anew. Interned, they do not take half of a long run's memory.
    return {intern(key): None if key in bad else value for key, value in row.items()}, bad


def json_lines(rows: list[dict]) -> str:
    """JSON lines in plain ASCII: a model's text may contain any line separator."""
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def append(path: Path, text: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


def align_table(lines: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table, padded so that it can be read as plain text too."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return [
        "| "
        + " | ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        + " |"
        for line in (lines[0], rule, *lines[1:])
    ]


def mean_and_range(values: Sequence[float], digits: int = 1) -> str:
    """A table's cell: the mean, and in brackets the lowest and the highest where they differ."""
    mean, low, high = (f"{statistic(values):.{digits}f}" for statistic in (fmean, min, max))
    return mean if low == high else f"{mean} ({low} to {high})"


def expand_home(path: str | Path) -> Path:
    """A path with ~ replaced by the home folder. Unlike Path.expanduser, it leaves a ~ that is
    nobody's home folder as it is."""
    return Path(os.path.expanduser(path))


def evenly_spaced(items: Sequence, limit: int) -> Sequence:
    """At most `limit` items: the first, the last, and others evenly spaced between them."""
    if len(items) <= limit:
        return items
    return [items[round(i * (len(items) - 1) / (limit - 1))] for i in range(limit)]


def scan_json_lines(
    path: Path, wanted: Container[int] | None = None
) -> tuple[list[dict], list[int]]:
    """The lines of a JSONL file, or only the `wanted`, and the numbers of damaged ones."""
    rows: list[dict] = []
    bad: list[int] = []
    if not path.exists():
        return rows, bad
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file):
            try:
                if line.strip() and (wanted is None or number in wanted):
                    rows.append(replace_nonfinite(dict(json.loads(line)))[0])
            except (ValueError, TypeError, RecursionError):
                bad.append(number + 1)
    return rows, bad


def read_lines(path: Path) -> list[dict]:
    """The intact lines of a JSONL file."""
    return scan_json_lines(path)[0]


def read_evenly_spaced(path: Path, limit: int) -> list[dict]:
    """At most `limit` of its lines, evenly spaced: memory stays bounded as the file grows."""
    if not path.exists():
        return []
    with open(path, "rb") as file:
        count = sum(1 for _ in file)
    return scan_json_lines(path, set(evenly_spaced(range(count), limit)))[0]


def read_json_object(path: Path) -> dict:
    """The JSON object in a file; an empty one if there is none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
