"""Bring a file from a URL: verified, resumed, whole or not there at all.

A file that is already in its place is used without asking the network. A new one grows under
the name `.NAME.part` and gets its own name only when length, hash and content have been checked.
A part is continued, also by a later run, if the file's hash is known: then it shows in the end
whether the pieces belong together.
"""

import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import requests
from filelock import FileLock

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.counters import counter

log = logging.getLogger("reasoning_from_scratch")

TIMEOUT = (10, 30)  # seconds to connect; seconds without a byte
TRIES = 3  # in a row that bring nothing new
PAUSE = 1.0  # seconds before the second try, doubled for the third
CHUNK = 1 << 14  # bytes; what a break can lose


class SourceFailed(Exception):
    """This URL cannot give the file; the message says why."""


class Interrupted(SourceFailed):
    """The transfer broke; another try may get further."""


@dataclass(frozen=True)
class Expected:
    """What is known about a file beforehand."""

    size: int | None = None
    sha256: str | None = None
    finish: Callable[[Path], None] | None = None  # checks the content, may rewrite it; ValueError
    headers: dict = field(default_factory=dict)  # to be sent along


def download_file(
    url: str, path: str | Path, *backup_urls: str, expected: Expected | None = None
) -> Path:
    """Bring `url`, or else one of the backups, to `path`, unless a file is there already."""
    path, expected = Path(path), expected or Expected()
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(f".{path.name}.lock")
        try:
            with FileLock(lock):
                if not path.exists():  # otherwise another process has just brought it
                    _download_from_any([url, *backup_urls], path, expected)
        finally:
            with suppress(OSError):  # who still waits for the lock will find the file, or look anew
                lock.unlink()
    except OSError as error:
        raise UserError(f"cannot write {path}: {error}") from error
    return path


def _download_from_any(urls: list[str], path: Path, expected: Expected) -> None:
    part = path.with_name(f".{path.name}.part")
    failures = []
    for url in urls:
        try:
            _transfer_and_verify(url, part, expected)
        except SourceFailed as error:
            failures.append(f"{url}: {error}")
            expected = replace(expected, headers={})  # a token is for the first address alone
            continue
        os.replace(part, path)
        tell_of_another_source(url, failures)
        return
    raise could_not_download(path, failures)


def tell_of_another_source(url: str, failures: list[str]) -> None:
    if failures:
        log.warning("took %s instead (%s)", url, "; ".join(failures))


def could_not_download(path: Path, failures: list[str]) -> UserError:
    return UserError(
        f"could not download {path.name} ({'; '.join(failures)}). "
        f"Fetch it in another way, for example in a browser, and put it at {path.resolve()}"
    )


def _transfer_and_verify(url: str, part: Path, expected: Expected) -> None:
    resumed = expected.sha256 and part.exists()
    _transfer_with_retries(url, part, expected)
    try:
        _verify(part, expected)
    except SourceFailed:
        if not resumed:
            raise
        _transfer_with_retries(url, part, expected)  # perhaps only the old part was bad
        _verify(part, expected)


def _transfer_with_retries(url: str, part: Path, expected: Expected) -> None:
    furthest, failures = 0, 0
    while True:
        try:
            return _transfer(url, part, expected)
        except Interrupted:
            size = part.stat().st_size if part.exists() else 0
            failures = 0 if size > furthest else failures + 1
            furthest = max(size, furthest)
            if failures == TRIES:
                raise
            time.sleep(PAUSE * failures)


def _transfer(url: str, part: Path, expected: Expected) -> None:
    """One request: the rest of the file if a part of it is there, else all of it."""
    start = part.stat().st_size if expected.sha256 and part.exists() else 0
    headers = {**expected.headers, "Accept-Encoding": "identity"}  # compressed has no length
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            start = _check_status(response, part, start)
            chunks = _not_a_web_page(response)
            total = _total_length(response, start, expected)
            # Only now is it known to be the file: a login page must not cost the bytes so far.
            _write_body(chunks, part, start, total)
    except (requests.RequestException, ConnectionError) as error:
        raise Interrupted(network_reason(error)) from error


def _check_status(response: requests.Response, part: Path, start: int) -> int:
    """The byte at which the body starts: 0 where a server has no ranges."""
    status = response.status_code
    if status == 416:  # there is nothing after what we have: it is not the file we think it is
        part.unlink(missing_ok=True)
        raise Interrupted("the server rejects the range")
    if status >= 500 or status in (408, 429):
        raise Interrupted(f"the server answers {status}")
    if status >= 400:
        raise SourceFailed(f"the server answers {status}")
    return start if status == 206 else 0


def _total_length(response: requests.Response, start: int, expected: Expected) -> int | None:
    length = response.headers.get("Content-Length", "")
    if not length.isdecimal():
        return expected.size
    total = start + int(length)
    if expected.size is not None and total != expected.size:
        raise SourceFailed(f"expected {expected.size} bytes, the server has {total}")
    return total


def _not_a_web_page(response: requests.Response) -> Iterator[bytes]:
    """The body. Hotels and companies answer any request with a login page, status 200."""
    chunks = response.iter_content(CHUNK)
    first = next(chunks, b"")
    if not first:
        raise Interrupted("the server sent nothing")
    if is_web_page(first) or response.headers.get("Content-Type", "").startswith("text/html"):
        raise SourceFailed("a web page came instead of the file (a login page or proxy?)")
    return chain([first], chunks)


def is_web_page(content: bytes) -> bool:
    return content.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html"))


def _write_body(chunks: Iterator[bytes], part: Path, start: int, total: int | None) -> None:
    bar = counter(total, start, part.name[1:-5], unit="B", unit_scale=True, leave=False)
    with open(part, "ab" if start else "wb") as file, bar:
        for chunk in chunks:
            file.write(chunk)
            bar.update(len(chunk))
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    if total is not None and size != total:  # urllib3 notices by itself only since version 2
        raise Interrupted(f"the connection ended after {size} of {total} bytes")


def network_reason(error: Exception) -> str:
    """Requests wraps several exceptions into one; people need to know which it was."""
    text = str(error)
    if "timed out" in text.lower():
        return f"no answer for {TIMEOUT[1]} seconds"
    if isinstance(error, requests.exceptions.ProxyError):
        status = re.search(r"Tunnel connection failed: (\d+)", text)
        return f"the proxy answers {status[1]}" if status else "no connection to the proxy"
    if isinstance(error, requests.exceptions.SSLError):
        return "the secure connection failed (a proxy or antivirus that inspects traffic?)"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke in the middle"
    if isinstance(error, requests.ConnectionError):
        return "no connection (offline, refused or blocked)"
    return f"{type(error).__name__}: {text}".splitlines()[0]


def _verify(part: Path, expected: Expected) -> None:
    """What fails here is thrown away: its bytes are not those of the file."""
    try:
        check_size_and_hash(part, expected)
        if expected.finish:
            expected.finish(part)
    except ValueError as error:
        part.unlink()
        raise SourceFailed(str(error)) from None


def check_size_and_hash(part: Path, expected: Expected) -> None:
    size = part.stat().st_size
    if expected.size is not None and size != expected.size:
        raise ValueError(f"expected {expected.size} bytes, found {size}")
    if expected.sha256 and (found := _sha256(part)) != expected.sha256:
        raise ValueError(f"expected sha256 {expected.sha256[:12]}..., found {found[:12]}...")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
