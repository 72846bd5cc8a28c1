"""Promises: a request is immediately answered with an id, with which its result is fetched later.

An id follows from the client and the request's number, so a request that a client sends again
because an answer was lost on the way is not computed twice.
"""

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

HELD = 40.0  # seconds that a fetch waits for the result; the client's own limit is 45
KEPT_FETCHED = 60.0  # seconds that a fetched result is kept, in case it is fetched again
KEPT = 1800.0  # and a result that nobody has fetched
MOST_BYTES = 256 * 2**20  # of fetched results: beyond it, those fetched first go first


@dataclass
class Promise:
    id: str
    session: str
    future: Future
    known: float = math.inf  # when there was a result
    fetched: float | None = None  # when
    size: int = 0
    cancel: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.future.add_done_callback(self.note_known)

    def note_known(self, _: Future) -> None:
        self.known = time.monotonic()


class Promises:
    def __init__(self) -> None:
        self.by_id: dict[str, Promise] = {}
        self.fetched: dict[str, Promise] = {}  # in the order in which they were fetched
        self.size = 0  # bytes of those

    def make(self, id: str, session: str, future: Future, cancel=lambda: None) -> Promise:
        self.by_id[id] = Promise(id, session, future, cancel=cancel)
        return self.by_id[id]

    async def wait(self, promise: Promise) -> object:
        """Its result, or its error; TimeoutError after `HELD` seconds."""
        await done(promise.future, HELD)
        self.note_fetched(promise)
        return promise.future.result()

    def note_fetched(self, promise: Promise) -> None:
        if promise.fetched is None:
            promise.fetched = time.monotonic()
            promise.cancel = lambda: None  # which held the request: not needed anymore
            if not promise.future.cancelled() and promise.future.exception() is None:
                result = promise.future.result()
                promise.size = len(result) if isinstance(result, bytes) else 1000
            self.fetched[promise.id] = promise
            self.size += promise.size
            self.tidy()

    def tidy(self) -> None:
        """Forgets results that were fetched a while ago, and more if they take too much memory."""
        before = time.monotonic() - KEPT_FETCHED
        while self.fetched:
            oldest = next(iter(self.fetched.values()))
            if self.size <= MOST_BYTES and oldest.fetched > before:
                break
            self.forget(oldest)

    def forget(self, promise: Promise) -> None:
        self.by_id.pop(promise.id, None)
        if self.fetched.pop(promise.id, None):
            self.size -= promise.size

    def tidy_unfetched(self) -> None:
        before = time.monotonic() - KEPT
        for promise in list(self.by_id.values()):
            if promise.known < before:
                self.forget(promise)

    def drop(self, session: str) -> None:
        """The session's client is gone: what it requested is cancelled and forgotten."""
        for promise in [p for p in self.by_id.values() if p.session == session]:
            promise.cancel()
            promise.future.cancel()
            self.forget(promise)


async def result_of(future: Future) -> Any:
    await done(future)
    return future.result()


async def done(future: Future, seconds: float | None = None) -> None:
    """Waits until there is a result, or an error; TimeoutError after `seconds`."""
    loop = asyncio.get_running_loop()
    known: asyncio.Future = loop.create_future()

    def tell() -> None:
        if not known.done():
            known.set_result(None)

    def from_thread(_: Future) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile: nobody is waiting anymore
            loop.call_soon_threadsafe(tell)

    future.add_done_callback(from_thread)
    await asyncio.wait_for(known, seconds)
