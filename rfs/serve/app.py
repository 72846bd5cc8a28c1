"""The server: its routes, access control, and error responses."""

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
from reasoning_from_scratch.text import expand_home
from rfs.engine import FAST
from rfs.run.folder import FolderLock
from rfs.serve.body import NotFound, TooLarge, TooManyRequests
from rfs.serve.data import STAND_IN_NOTE
from rfs.serve.models import Models
from rfs.serve.openai import OpenAI
from rfs.serve.options import LOCAL_HOSTS, ServeOptions
from rfs.serve.page import Pages
from rfs.serve.tinker import Tinker
from rfs.serve.worker import Worker

log = logging.getLogger("reasoning_from_scratch")

TIDY_INTERVAL = 10.0  # seconds
KEYLESS_PATHS = ("/api/v1/healthz", "/health")  # a supervisor asks these whether the server is up


def build(options: ServeOptions) -> Starlette:
    """The application, whose worker runs for as long as it does."""
    folder = expand_home(options.folder)
    lock = FolderLock(folder)
    with disk_errors_as(f"cannot write to {folder}", "choose another --log-path"):
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()  # two servers would delete each other's saves
    models = Models(
        options.model_sources(),
        folder,
        options.device,
        options.dtype,
        options.all_weights,
        options.keep_samplers,
    )
    worker = Worker(FAST, options.rows)
    tinker = Tinker(models, worker, options.seed, options.stability == "importance")
    openai = OpenAI(models, worker, options.seed)
    pages = Pages(tinker, openai)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
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
        routes=[*tinker.routes(), *openai.routes(), *pages.routes()],
        exception_handlers={
            UserError: on_user_error,
            HTTPException: on_http_error,
            ClientDisconnect: on_disconnect,
        },
        lifespan=lifespan,
    )
    application.state.tinker = tinker
    application.add_middleware(
        AccessControl, key=options.key, local_only=options.host in LOCAL_HOSTS
    )
    return application


async def tidy(tinker: Tinker) -> None:
    while True:
        await asyncio.sleep(TIDY_INTERVAL)
        try:
            await tinker.tidy()
        except UserError as error:
            log.warning("rfs serve: %s", error)


# --- error responses


STATUSES = {NotFound: 404, TooLarge: 413, TooManyRequests: 429}


def error_response(sentence: str, status: int) -> Response:
    """An error in the formats of both Tinker (detail) and OpenAI (error)."""
    error = {"message": sentence, "type": "invalid_request_error", "param": None, "code": None}
    return JSONResponse({"detail": sentence, "error": error}, status)


async def on_user_error(_: Request, error: Exception) -> Response:
    status = next((code for kind, code in STATUSES.items() if isinstance(error, kind)), 400)
    return error_response(str(error), status)


async def on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return error_response(f"rfs serve has no call {request.method} {request.url.path}", 404)
    return error_response(f"{request.method} {request.url.path}: {error.detail}", error.status_code)


async def on_disconnect(_: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it


# What a Host header may be: a name or an address in brackets, and perhaps a port.
HOST = re.compile(r"(?:\[([\da-f:.]+)\]|([^\s\[\]:/@]+))(?::\d{1,5})?", re.IGNORECASE)


class AccessControl:
    """Decides whose requests are answered. With a key: those that send it. Without one: programs on
    this machine, but not web pages from elsewhere, whose requests a browser would let through.

    An exception inside becomes an error response, and the connection stays open."""

    def __init__(self, app: ASGIApp, key: str, local_only: bool) -> None:
        self.app, self.key, self.local_only = app, key, local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request, started = Request(scope), False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        if reason := self.refusal(request):
            await error_response(*reason)(scope, receive, send)
            return
        try:
            await self.app(scope, receive, sending)
        except Exception as error:
            if started:  # only closing the connection shows that this answer is incomplete
                raise
            log.error("%s %s failed", request.method, request.url.path, exc_info=error)
            words = f"the server failed ({type(error).__name__}): see what it printed"
            await error_response(words, 500)(scope, receive, send)

    def refusal(self, request: Request) -> tuple[str, int] | None:
        host = request.headers.get("host", "")
        match = HOST.fullmatch(host)
        name = (match[1] or match[2]).lower() if match else host
        if self.local_only and name not in LOCAL_HOSTS:
            return f"this server answers to {LOCAL_HOSTS[0]} only, not to {name!r}", 403
        origin = request.headers.get("origin")
        if origin and origin not in (f"http://{host}", f"https://{host}"):
            return f"pages of {origin} may not use this server", 403
        if self.key and request.url.path not in KEYLESS_PATHS and not self.has_key(request):
            return "the key is missing or wrong: send X-API-Key, or Authorization: Bearer", 401
        return None

    def has_key(self, request: Request) -> bool:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        keys = [
            request.headers.get("x-api-key", ""),
            bearer,
            request.query_params.get("key", ""),
        ]
        return any(hmac.compare_digest(key.encode(), self.key.encode()) for key in keys)


# --- the command


class Server(uvicorn.Server):
    """Prints how to use it once it listens."""

    startup_lines: list[str] = []

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        for line in self.startup_lines if self.started else ():
            print(line, flush=True)


def serve(options: ServeOptions) -> int:
    """Serves until Ctrl-C."""
    listener = listen(options)  # before seconds are spent on loading models
    application = build(options)
    config = uvicorn.Config(
        application, log_level="warning", access_log=False, timeout_graceful_shutdown=2
    )
    server = Server(config)
    server.startup_lines = startup_lines(options, listener.getsockname()[1])
    with suppress(KeyboardInterrupt):
        server.run([listener])
    unsaved = application.state.tinker.unsaved
    for model_id, why in unsaved.items():
        log.error("%s is not saved: %s", model_id, why)
    print("Stopped." if unsaved else "Stopped; what was learned is saved.", file=sys.stderr)
    return 1 if unsaved else 0


def listen(options: ServeOptions) -> socket.socket:
    kind = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(kind)
    if sys.platform != "win32":  # there it would let two servers share a port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
        # Listen right away: until then, a second server could bind the same port.
        listener.listen(2048)
    except OSError as error:
        raise UserError(
            f"cannot listen on {options.host}, port {options.port} ({error.strerror or error}): "
            "choose another --port, or stop the program that has it"
        ) from None
    return listener


def startup_lines(options: ServeOptions, port: int) -> list[str]:
    here = f"http://{f'[{options.host}]' if ':' in options.host else options.host}:{port}"
    key = "YOUR_KEY" if options.key else "tml-local"
    stands_in = [f"stable_reinforce: {STAND_IN_NOTE}"] if options.stability == "importance" else []
    return [
        f"{', '.join(options.model_sources())}: look at {here}",
        *stands_in,
        f"Tinker's client:  export TINKER_BASE_URL={here} TINKER_API_KEY={key}",
        f"OpenAI's client:  export OPENAI_BASE_URL={here}/v1 OPENAI_API_KEY={key}",
    ]
