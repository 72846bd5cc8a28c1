"""The server: its routes, who may come in, and what a client hears of an error."""

import asyncio
import hmac
import logging
import re
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import disk_errors_as
from reasoning_from_scratch.text import expanded
from rfs.engine import FAST
from rfs.run.folder import FolderLock
from rfs.serve.body import NoSuchThing, TooLarge, TooMany
from rfs.serve.data import STANDS_IN
from rfs.serve.models import Models
from rfs.serve.openai import OpenAI
from rfs.serve.options import HERE, ServeOptions
from rfs.serve.page import Page
from rfs.serve.tinker import Tinker
from rfs.serve.worker import Worker

log = logging.getLogger("reasoning_from_scratch")

TIDIED_EVERY = 10.0  # seconds
NO_KEY_FOR = ("/api/v1/healthz", "/health")  # a supervisor asks these whether the server is up


def build(options: ServeOptions) -> Starlette:
    """The application; its worker runs as long as it does."""
    folder = expanded(options.folder)
    lock = FolderLock(folder)
    with disk_errors_as(f"cannot write to {folder}", "choose another --log-path"):
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()  # two servers would delete each other's saves
    models = Models(
        options.named(),
        folder,
        options.device,
        options.dtype,
        options.all_weights,
        options.keep_samplers,
    )
    worker = Worker(FAST, options.rows)
    tinker = Tinker(models, worker, options.seed, options.stability == "importance")
    words = OpenAI(models, worker, options.seed)
    page = Page(tinker, words)

    @asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        worker.start()
        tidying = asyncio.create_task(tidy(tinker))
        try:
            yield
        finally:
            tidying.cancel()
            await asyncio.to_thread(worker.close)
            tinker.save_all()
            lock.release()

    application = Starlette(
        routes=[*tinker.routes(), *words.routes(), *page.routes()],
        exception_handlers={
            UserError: on_mistake,
            HTTPException: on_http_error,
            ClientDisconnect: on_gone,
        },
        lifespan=running,
    )
    application.state.tinker = tinker
    application.add_middleware(Door, key=options.key, here=options.host in HERE)
    return application


async def tidy(tinker: Tinker) -> None:
    while True:
        await asyncio.sleep(TIDIED_EVERY)
        try:
            await tinker.tidy()
        except UserError as error:
            log.warning("rfs serve: %s", error)


# --- what a client hears


STATUSES = {NoSuchThing: 404, TooLarge: 413, TooMany: 429}


def refused(sentence: str, status: int) -> Response:
    """An error in the formats of both Tinker (detail) and OpenAI (error)."""
    error = {"message": sentence, "type": "invalid_request_error", "param": None, "code": None}
    return JSONResponse({"detail": sentence, "error": error}, status)


async def on_mistake(_: Request, error: Exception) -> Response:
    status = next((code for kind, code in STATUSES.items() if isinstance(error, kind)), 400)
    return refused(str(error), status)


async def on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return refused(f"rfs serve has no call {request.method} {request.url.path}", 404)
    return refused(f"{request.method} {request.url.path}: {error.detail}", error.status_code)


async def on_gone(_: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it


# What a Host header may be: a name or an address in brackets, and perhaps a port.
HOST = re.compile(r"(?:\[([\da-f:.]+)\]|([^\s\[\]:/@]+))(?::\d{1,5})?", re.IGNORECASE)


class Door:
    """Who may come in. If the server has a key: whoever sends it. If not: programs on this machine,
    but no web page from elsewhere, which a browser would let send requests here, too.

    Whatever fails inside is answered here, and the connection stays open for the next request."""

    def __init__(self, app: ASGIApp, key: str, here: bool) -> None:
        self.app, self.key, self.here = app, key, here

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request, begun = Request(scope), False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        if reason := self.refusal(request):
            await refused(*reason)(scope, receive, send)
            return
        try:
            await self.app(scope, receive, sending)
        except Exception as error:
            if begun:  # half an answer: only closing the connection shows that it is not whole
                raise
            log.error("%s %s failed", request.method, request.url.path, exc_info=error)
            words = f"the server failed ({type(error).__name__}): see what it printed"
            await refused(words, 500)(scope, receive, send)

    def refusal(self, request: Request) -> tuple[str, int] | None:
        host = request.headers.get("host", "")
        match = HOST.fullmatch(host)
        name = (match[1] or match[2]).lower() if match else host
        if self.here and name not in HERE:
            return f"this server answers to {HERE[0]} only, not to {name!r}", 403
        origin = request.headers.get("origin")
        if origin and origin not in (f"http://{host}", f"https://{host}"):
            return f"pages of {origin} may not use this server", 403
        if self.key and request.url.path not in NO_KEY_FOR and not self.has_key(request):
            return "the key is missing or wrong: send X-API-Key, or Authorization: Bearer", 401
        return None

    def has_key(self, request: Request) -> bool:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = [request.headers.get("x-api-key", ""), bearer, request.query_params.get("key", "")]
        return any(hmac.compare_digest(one.encode(), self.key.encode()) for one in given)


# --- the command


class Server(uvicorn.Server):
    """Prints how to use it once it listens."""

    words: list[str] = []

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        for line in self.words if self.started else ():
            print(line, flush=True)


def serve(options: ServeOptions) -> int:
    """Serves until Ctrl-C."""
    listening = listen(options)  # before seconds are spent on loading models
    application = build(options)
    config = uvicorn.Config(
        application, log_level="warning", access_log=False, timeout_graceful_shutdown=2
    )
    server = Server(config)
    server.words = words_at_start(options, listening.getsockname()[1])
    with suppress(KeyboardInterrupt):
        server.run([listening])
    unsaved = application.state.tinker.unsaved
    for model_id, why in unsaved.items():
        log.error("%s is not saved: %s", model_id, why)
    print("Stopped." if unsaved else "Stopped; what was learned is saved.", file=sys.stderr)
    return 1 if unsaved else 0


def listen(options: ServeOptions) -> socket.socket:
    kind = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listening = socket.socket(kind)
    if sys.platform != "win32":  # there it would let two servers share a port
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((options.host, options.port))
        # Listen right away: until then, a second server could bind the same port.
        listening.listen(2048)
    except OSError as error:
        raise UserError(
            f"cannot listen on {options.host}, port {options.port} ({error.strerror or error}): "
            "choose another --port, or stop the program that has it"
        ) from None
    return listening


def words_at_start(options: ServeOptions, port: int) -> list[str]:
    here = f"http://{f'[{options.host}]' if ':' in options.host else options.host}:{port}"
    key = "YOUR_KEY" if options.key else "tml-local"
    stands_in = [f"stable_reinforce: {STANDS_IN}"] if options.stability == "importance" else []
    return [
        f"{', '.join(options.named())}: look at {here}",
        *stands_in,
        f"Tinker's client:  export TINKER_BASE_URL={here} TINKER_API_KEY={key}",
        f"OpenAI's client:  export OPENAI_BASE_URL={here}/v1 OPENAI_API_KEY={key}",
    ]
