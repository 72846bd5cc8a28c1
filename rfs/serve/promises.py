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

FETCH_TIMEOUT = 40.0  # seconds that a fetch waits for the result; the client's own limit is 45
KEEP_FETCHED = 60.0  # seconds that a fetched result is kept, in case it is fetched again
KEEP_UNFETCHED = 1800.0  # and a result that nobody has fetched
MAX_BYTES = 256 * 2**20  # of fetched results: beyond it, those fetched first go first


@dataclass
class Promise:
    id: str
    session: str
    future: Future
    settled_at: float = math.inf  # when there was a result
    fetched_at: float | None = None  # when
    size: int = 0
    cancel: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.future.add_done_callback(self.note_settled)

    def note_settled(self, _: Future) -> None:
        self.settled_at = time.monotonic()


class Promises:
    def __init__(self) -> None:
        self.by_id: dict[str, Promise] = {}
        self.fetched: dict[str, Promise] = {}  # in the order in which they were fetched
        self.size = 0  # bytes of those

    def make(self, id: str, session: str, future: Future, cancel=lambda: None) -> Promise:
        self.by_id[id] = Promise(id, session, future, cancel=cancel)
        return self.by_id[id]

    async def wait(self, promise: Promise) -> object:
        """Its result, or its error; TimeoutError after FETCH_TIMEOUT seconds."""
        await wait_for(promise.future, FETCH_TIMEOUT)
        self.note_fetched(promise)
        return promise.future.result()

    def note_fetched(self, promise: Promise) -> None:
        if promise.fetched_at is None:
            promise.fetched_at = time.monotonic()
            promise.cancel = lambda: None  # which held the request: not needed anymore
            if not promise.future.cancelled() and promise.future.exception() is None:
                result = promise.future.result()
                promise.size = len(result) if isinstance(result, bytes) else 1000
            self.fetched[promise.id] = promise
            self.size += promise.size
            self.tidy()

    def tidy(self) -> None:
        """Forgets results that were fetched a while ago, and more if they take too much memory."""
        deadline = time.monotonic() - KEEP_FETCHED
        while self.fetched:
            oldest = next(iter(self.fetched.values()))
            if self.size <= MAX_BYTES and oldest.fetched_at > deadline:
                break
            self.forget(oldest)

    def forget(self, promise: Promise) -> None:
        self.by_id.pop(promise.id, None)
        if self.fetched.pop(promise.id, None):
            self.size -= promise.size

    def forget_unfetched(self) -> None:
        deadline = time.monotonic() - KEEP_UNFETCHED
        for promise in list(self.by_id.values()):
            if promise.settled_at < deadline:
                self.forget(promise)

    def drop_session(self, session: str) -> None:
        """Cancels and forgets all requests of a session whose client is gone."""
        for promise in [p for p in self.by_id.values() if p.session == session]:
            promise.cancel()
            promise.future.cancel()
            self.forget(promise)


async def result_of(future: Future) -> Any:
    await wait_for(future)
    return future.result()


async def wait_for(future: Future, seconds: float | None = None) -> None:
    """Waits until there is a result, or an error; TimeoutError after `seconds`."""
    loop = asyncio.get_running_loop()
    settled: asyncio.Future = loop.create_future()

    def settle() -> None:
        if not settled.done():
            settled.set_result(None)

    def from_thread(_: Future) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile: nobody is waiting anymore
            loop.call_soon_threadsafe(settle)

    future.add_done_callback(from_thread)
    await asyncio.wait_for(settled, seconds)
