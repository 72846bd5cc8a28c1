"""Promises: a request is answered with an id immediately, and its result is fetched with it later.

An id follows from who asks and the request's number, so what a client sends twice, because an
answer was lost on the way, is not computed twice.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

HELD = 40.0  # seconds in which a client that fetches waits for the result; its own limit is 45
KEPT_FETCHED = 60.0  # seconds that a result is kept once it was fetched, if it is asked for again
KEPT = 1800.0  # and one that nobody has fetched
MOST_BYTES = 256 * 2**20  # of results: those fetched first go first


@dataclass
class Promise:
    id: str
    session: str
    future: Future
    made: float = field(default_factory=time.monotonic)
    fetched: float | None = None  # when
    size: int = 0
    cancel: Callable[[], None] = lambda: None


class Promises:
    def __init__(self) -> None:
        self.by_id: dict[str, Promise] = {}
        self.fetched: dict[str, Promise] = {}  # in the order of their fetching
        self.size = 0  # of those

    def make(self, id: str, session: str, future: Future, cancel=lambda: None) -> Promise:
        self.by_id[id] = Promise(id, session, future, cancel=cancel)
        return self.by_id[id]

    async def wait(self, promise: Promise) -> object:
        """Its result, or what went wrong; TimeoutError if it takes longer."""
        await done(promise.future, HELD)
        self.note_fetched(promise)
        return promise.future.result()

    def note_fetched(self, promise: Promise) -> None:
        if promise.fetched is None:
            promise.fetched = time.monotonic()
            promise.cancel = lambda: None  # nor is the request that it holds needed any more
            if not promise.future.cancelled() and promise.future.exception() is None:
                result = promise.future.result()
                promise.size = len(result) if isinstance(result, bytes) else 1000
            self.fetched[promise.id] = promise
            self.size += promise.size
            self.tidy()

    def tidy(self) -> None:
        """Forgets results that were fetched a while ago, and those whose owner never came."""
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
        now = time.monotonic()
        for promise in list(self.by_id.values()):
            if promise.future.done() and promise.made < now - KEPT:
                self.forget(promise)

    def drop(self, session: str) -> None:
        """Its client is gone: what was asked for and has not begun never will."""
        for promise in [p for p in self.by_id.values() if p.session == session]:
            promise.cancel()
            promise.future.cancel()
            self.forget(promise)


async def done(future: Future, seconds: float | None = None) -> None:
    """Waits until there is a result, or an error; TimeoutError where that takes longer."""
    loop = asyncio.get_running_loop()
    known: asyncio.Future = loop.create_future()

    def tell() -> None:
        if not known.done():
            known.set_result(None)

    def from_thread(_: Future) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
            loop.call_soon_threadsafe(tell)

    future.add_done_callback(from_thread)
    await asyncio.wait_for(known, seconds)
