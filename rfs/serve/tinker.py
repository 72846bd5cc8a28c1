"""Tinker's API. A call is read here, becomes one of the policy's verbs in the worker's thread,
and its result waits as a promise:

    POST forward_backward  ->  LossRequest.read   ->  queue of the model, in the order of seq_id
         { request_id }    <-  promise                      |
    POST retrieve_future   ->  the promise's result  <-  policy.forward_backward, in the worker

Names of calls, keys and types are those of Tinker's client.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import torch
from starlette.requests import Request as HttpRequest
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from reasoning_from_scratch.config import Loss
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.sampling import Rollout, stream_key
from reasoning_from_scratch.tokenizer import model_stop_ids
from rfs.serve.body import (
    BadValues,
    Body,
    NoSuchThing,
    TooMany,
    beside,
    read_body,
    read_bytes,
)
from rfs.serve.data import (
    NO_STABLE_REINFORCE,
    STAND_IN,
    as_output,
    check_tokens,
    loss_of,
    rollouts_of,
)
from rfs.serve.messages import (
    MOST_SEQ_ID,
    LossRequest,
    Numbered,
    SampleAnswer,
    densified,
    loss_answer,
)
from rfs.serve.models import (
    EXTERNAL,
    KINDS,
    SAMPLING,
    SAVE_NAME,
    TRAINING,
    Lora,
    Models,
    Sampler,
    Saved,
    Trained,
    lora_of,
    record_may_fail,
    total_size,
    training_only,
)
from rfs.serve.options import HERE
from rfs.serve.promises import Promises, done
from rfs.serve.prompts import MOST_NUMBERS, Known, Wanted, as_rollout, look_at
from rfs.serve.watch import Call, Watch, loss_at
from rfs.serve.worker import Request, Stops, Worker, noted, settle

log = logging.getLogger("reasoning_from_scratch")

PROTOBUF = "application/x-protobuf"
SILENT = 300.0  # seconds without a sign of life after which a client counts as gone
MOST_SAMPLES = 1024
MOST_MODELS, MOST_SESSIONS = 64, 1000
MOST_WAITING = 4096  # calls of a model, or of a session's samplers
PATIENCE = 120.0  # seconds that calls of a model wait for one before them that never came
LONGEST_STOP = 500  # characters
HOUR, TEN_YEARS = 3600, 10 * 366 * 24 * 3600
UNEMBEDDING = "here LoRA goes only on attention and MLP: train_unembed has no effect"


@dataclass
class Session:
    """A client's program."""

    id: str
    name: str | None = None
    metadata: dict | None = None
    began: float = field(default_factory=time.time)
    heard: float = field(default_factory=time.monotonic)
    models: list[str] = field(default_factory=list)
    samplers: list[str] = field(default_factory=list)
    copies: int = 0  # of its samplers, in other processes
    sampling: set[str] = field(default_factory=set)  # its requests that are not answered yet


@dataclass
class Queue:
    """The calls that wait for a model, begun in the order of seq_id, without gaps."""

    next: int = 1
    waiting: dict[int, tuple[Future, Callable]] = field(default_factory=dict)
    since: float = 0.0  # when the next one was first missing

    def awaits(self, seq_id: int) -> bool:
        """Whether the call has not come before; those far ahead are refused."""
        new = self.next <= seq_id and seq_id not in self.waiting
        return new and seq_id - self.next <= MOST_WAITING

    def put(self, seq_id: int, future: Future, begin: Callable) -> None:
        if not self.waiting:
            self.since = time.monotonic()
        self.waiting[seq_id] = future, begin
        while self.next in self.waiting:
            _, begin = self.waiting.pop(self.next)
            begin()
            self.next += 1
            self.since = time.monotonic()

    def tidy(self) -> None:
        """Ends calls that have waited too long for one before them, which the server never got or
        could not read: without it, they would mean something else."""
        if not self.waiting or time.monotonic() - self.since < PATIENCE:
            return
        missing, late = self.next, self.waiting
        self.next, self.waiting = max(late) + 1, {}
        for seq_id, (future, _) in late.items():
            why = f"call {missing} of this model never arrived, so call {seq_id} had no turn"
            settle(future, UserError(f"{why}: send both again"))


class Tinker:
    """The calls of Tinker's client."""

    def __init__(
        self, models: Models, worker: Worker, seed: int = 0, stable_stands_in: bool = False
    ) -> None:
        self.models, self.worker, self.seed = models, worker, seed
        self.stable_stands_in = stable_stands_in  # for stable_reinforce: data.STAND_IN
        self.promises, self.watch = Promises(), Watch()
        self.sessions: dict[str, Session] = {}
        self.queues: dict[str, Queue] = {}
        self.unsaved: dict[str, str] = {}  # what `save_all` could not save, and why

    def routes(self) -> list[Route]:
        run = "training_runs/{model_id}"
        save = run + "/checkpoints/{kind}/{name}"
        calls = {
            # Called for every answer, so these come first: routes are tried in order.
            ("POST", "retrieve_future"): self.retrieve_future,
            ("POST", "asample"): self.asample,
            ("GET", "healthz"): self.healthz,
            ("GET", "get_server_capabilities"): self.get_server_capabilities,
            ("POST", "client/config"): self.client_config,
            ("POST", "client/dynamic_config"): self.client_dynamic_config,
            ("POST", "telemetry"): self.telemetry,
            ("POST", "create_session"): self.create_session,
            ("POST", "session_heartbeat"): self.session_heartbeat,
            ("GET", "sessions"): self.list_sessions,
            ("POST", "sessions/search"): self.search_sessions,
            ("GET", "sessions/{session_id}"): self.get_session,
            ("POST", "sessions/{session_id}/finish"): self.finish_session,
            ("POST", "create_model"): self.create_model,
            ("POST", "get_info"): self.get_info,
            ("POST", "unload_model"): self.unload_model,
            ("POST", "forward_backward"): self.forward_backward,
            ("POST", "optim_step"): self.optim_step,
            ("POST", "save_weights"): self.save_weights,
            ("POST", "save_weights_for_sampler"): self.save_weights_for_sampler,
            ("POST", "save_weights_external"): self.save_weights_external,
            ("POST", "load_weights"): self.load_weights,
            ("POST", "weights_info"): self.weights_info,
            ("POST", "create_sampling_session"): self.create_sampling_session,
            ("POST", "join_sampling_session"): self.join_sampling_session,
            ("GET", "samplers/{sampler_id}"): self.get_sampler,
            ("POST", "cancel_future"): self.cancel_future,
            ("GET", "training_runs"): self.list_training_runs,
            ("GET", run): self.get_training_run,
            ("GET", run + "/checkpoints"): self.list_checkpoints,
            ("GET", "checkpoints"): self.list_all_checkpoints,
            ("DELETE", save): self.delete_checkpoint,
            ("PUT", save + "/ttl"): self.set_checkpoint_ttl,
            ("GET", save + "/external_weights_urls"): self.external_weights_urls,
            ("GET", save + "/files/{file}"): self.checkpoint_file,
        }
        return [
            Route(f"/api/v1/{path}", call, methods=[method])
            for (method, path), call in calls.items()
        ]

    # -- of the server

    async def healthz(self, _: HttpRequest) -> Response:
        return JSONResponse({"status": "ok"})

    async def get_server_capabilities(self, _: HttpRequest) -> Response:
        known = [
            {
                "model_name": base.name,
                "max_context_length": base.context,
                "trainable": True,
                "sampleable": True,
            }
            for base in self.models.bases.values()
        ]
        return JSONResponse({"supported_models": known})

    async def client_config(self, _: HttpRequest) -> Response:
        return JSONResponse({"sample_join_sampling_session": True})

    async def client_dynamic_config(self, _: HttpRequest) -> Response:
        return JSONResponse({"sample_cancel_enabled": True})

    async def telemetry(self, request: HttpRequest) -> Response:
        await read_bytes(request)  # nobody reads it
        return JSONResponse({"status": "accepted"})

    # -- sessions

    async def create_session(self, request: HttpRequest) -> Response:
        body = await read_body(request)
        if len(self.sessions) >= MOST_SESSIONS:
            raise UserError(f"{MOST_SESSIONS} sessions are open; finish some")
        id = f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        name, metadata = body.maybe_text("display_name"), body.metadata("user_metadata")
        self.sessions[id] = Session(id, name, metadata)
        told = {"type": "create_session", "session_id": id, "info_message": UNEMBEDDING}
        return JSONResponse(told)

    def session(self, id: str) -> Session:
        session = self.sessions.get(id)
        if session is None:
            raise NoSuchThing(f"there is no session {id!r}: it has ended, or the server restarted")
        session.heard = time.monotonic()
        return session

    async def session_heartbeat(self, request: HttpRequest) -> Response:
        id = (await read_body(request)).text("session_id")
        if id not in self.sessions:
            return JSONResponse({"detail": f"session {id!r} has finished"}, 410)
        self.session(id)
        return JSONResponse({"type": "session_heartbeat"})

    async def list_sessions(self, _: HttpRequest) -> Response:
        return JSONResponse({"sessions": list(self.sessions)})

    async def search_sessions(self, request: HttpRequest) -> Response:
        """Of the open sessions those that fit, the newest first; those that ended are not kept."""
        body = await read_body(request)
        last = body.part("cursor", {}).maybe_text("last_session_id")
        limit = body.integer("limit", 1, 200, 50)
        fitting = [session for session in self.sessions.values() if fits(session, body)]
        fitting.sort(key=lambda session: (session.began, session.id), reverse=True)
        ids = [session.id for session in fitting]
        first = ids.index(last) + 1 if last in ids else 0
        rows = [self.session_row(session) for session in fitting[first : first + limit]]
        more = rows and len(fitting) > first + limit
        keys = {"last_created_at": "created_at", "last_session_id": "session_id"}
        cursor = {key: rows[-1][name] for key, name in keys.items()} if more else None
        return JSONResponse({"sessions": rows, "next_cursor": cursor})

    def session_row(self, session: Session) -> dict:
        trained = [self.models.trained[i] for i in session.models if i in self.models.trained]
        return {
            "session_id": session.id,
            "created_at": as_time(session.began),
            "owner": "you",
            "project_id": "here",
            "status": {"type": "active"},
            "checkpoints_count": sum(len(one.saved()) for one in trained),
            "display_name": session.name,
            "user_metadata": session.metadata,
        }

    async def get_session(self, request: HttpRequest) -> Response:
        session = self.session(request.path_params["session_id"])
        return JSONResponse(
            {
                "training_run_ids": session.models,
                "sampler_ids": session.samplers,
                "user_metadata": session.metadata,
                "display_name": session.name,
            }
        )

    async def finish_session(self, request: HttpRequest) -> Response:
        await read_body(request)
        unsaved = await self.end(self.session(request.path_params["session_id"]))
        if unsaved:
            reasons = "; ".join(f"{model_id}: {why}" for model_id, why in unsaved.items())
            raise UserError(f"not saved yet, again when the server stops: {reasons}")
        return JSONResponse({})

    async def end(self, session: Session) -> dict[str, str]:
        """Frees what its client held, after saving what was learned and not yet saved. Returns the
        models that could not be saved, and why."""
        self.sessions.pop(session.id, None)
        self.promises.drop(session.id)
        for model_id in session.models:
            self.queues.pop(model_id, None)
            self.watch.forget(model_id)
        letting_go = self.worker.work(partial(self.let_go, session))
        await done(letting_go)
        return letting_go.result()

    def let_go(self, session: Session) -> dict[str, str]:
        unsaved = {}
        for model_id in session.models:
            try:
                trained = self.models.release(model_id)
            except Exception as error:  # whatever it is, the others are saved
                why = unsaved[model_id] = str(noted(error))
                log.error("%s is not saved yet, again when the server stops: %s", model_id, why)
                continue
            if trained:
                self.worker.forget(trained.policy)
        for sampler_id in session.samplers:
            sampler = self.models.samplers.pop(sampler_id, None)
            if sampler and sampler.policy and sampler.policy is not sampler.base.policy:
                self.worker.forget(sampler.policy)
        return unsaved

    async def tidy(self) -> None:
        """Now and then drops clients that are gone, results that nobody fetches, expired saves."""
        now = time.monotonic()
        for session in list(self.sessions.values()):
            if session.heard < now - SILENT:
                await self.end(session)
        for queue in self.queues.values():
            queue.tidy()
        self.promises.tidy()
        self.promises.tidy_unfetched()
        await done(self.worker.work(self.models.forget_expired))

    def save_all(self) -> None:
        """Called when the server ends, after the worker's thread has stopped."""
        self.unsaved.clear()
        for trained in self.models.trained.values():
            try:
                trained.save_on_leaving()
            except Exception as error:  # whatever it is, the others are saved
                self.unsaved[trained.id] = str(noted(error))

    # -- models that are trained

    async def create_model(self, request: HttpRequest) -> Response:
        body = await read_body(request)
        session, model_id = self.new_model_id(body)
        check_optimizer(body)
        base = self.models.base(body.text("base_model"))
        lora = lora_of(body.part("lora_config")) if body.has("lora_config") else Lora()
        metadata = body.metadata("user_metadata")

        def create() -> dict:
            self.models.create(model_id, base, lora, metadata)
            return {"type": "create_model", "model_id": model_id}

        return self.begun(session, model_id, create)

    def new_model_id(self, body: Body) -> tuple[Session, str]:
        session = self.session(body.text("session_id"))
        number = body.integer("model_seq_id", 0, 10**9 - 1)
        return session, f"{session.id}:train:{number}"

    def begun(self, session: Session, model_id: str, create: Callable[[], dict]) -> Response:
        """A model's first call creates it."""
        request_id = f"{model_id}:create"
        if model_id in session.models and model_id not in self.queues:
            raise UserError(f"{model_id} was unloaded: give a new model another model_seq_id")
        if model_id not in session.models:
            if len(self.queues) >= MOST_MODELS:
                raise UserError(f"{MOST_MODELS} models are being trained; unload some")
            session.models.append(model_id)
            self.queues[model_id] = Queue()
            self.promises.make(request_id, session.id, self.worker.work(create))
        return JSONResponse({"request_id": request_id, "model_id": model_id})

    def queue_of(self, model_id: str) -> Queue:
        self.session(model_id.partition(":")[0])
        if model_id not in self.queues:
            raise NoSuchThing(f"there is no model {model_id!r}: it was unloaded, or never created")
        return self.queues[model_id]

    async def read_call(self, request: HttpRequest) -> Body:
        """The body of a call that changes a model."""
        try:
            return await read_body(request)
        except BadValues as error:
            with suppress(UserError):  # if it does not say whose turn it was
                self.had_turn(numbered(Body(error.values)))
            raise

    @contextmanager
    def reading(self, call: Numbered) -> Iterator[None]:
        """What is wrong with a call is found before its turn; then it has had its turn. Else all
        later ones would wait for its number."""
        try:
            yield
        except Exception:
            self.had_turn(call)
            raise

    def had_turn(self, call: Numbered) -> None:
        queue = self.queues.get(call.model_id)
        if queue and call.seq_id is not None and queue.awaits(call.seq_id):
            queue.put(call.seq_id, Future(), lambda: None)

    def in_turn(self, call: Numbered, do: Callable[[Trained], object]) -> Response:
        """Calls `do` with the model when it is this call's turn. An error goes into the promise."""
        model_id, queue = call.model_id, self.queue_of(call.model_id)
        number = queue.next + len(queue.waiting) if call.seq_id is None else call.seq_id
        request_id = f"{model_id}:{number}"
        if number > queue.next + MOST_WAITING:
            raise UserError(f"call {number} of {model_id} came before call {queue.next}")
        if queue.awaits(number):  # else it has come twice
            future: Future = Future()
            self.promises.make(request_id, model_id.partition(":")[0], future)
            begin = partial(self.worker.work, lambda: do(self.one_trained(model_id)), future)
            queue.put(number, future, begin)
        return JSONResponse({"request_id": request_id, "model_id": model_id})

    def one_trained(self, model_id: str) -> Trained:
        trained = self.models.trained.get(model_id)
        if trained is None:
            raise UserError(f"there is no model {model_id}: creation failed, or it was unloaded")
        trained.touched = time.time()
        return trained

    async def get_info(self, request: HttpRequest) -> Response:
        model_id = (await read_body(request)).text("model_id")
        self.queue_of(model_id)
        trained = self.models.trained.get(model_id)
        if trained is None:
            raise NoSuchThing(f"model {model_id!r} has not been created yet")
        name, rank = trained.base.name, trained.lora.rank
        # A client on this machine can open the folder; to others the name is all there is to say.
        folder = trained.base.tokenizer_folder if is_from_here(request) else ""
        data = {"model_name": name, "arch": "qwen3", "tokenizer_id": folder or name}
        about = {"type": "get_info", "model_id": model_id, "model_name": name, "model_data": data}
        return JSONResponse(about | {"is_lora": rank > 0, "lora_rank": rank or None})

    async def unload_model(self, request: HttpRequest) -> Response:
        model_id = (await read_body(request)).text("model_id")
        self.queue_of(model_id)
        session = self.session(model_id.partition(":")[0])

        def unload() -> dict:
            trained = self.models.release(model_id)
            if trained:
                self.worker.forget(trained.policy)
            return {"type": "unload_model", "model_id": model_id}

        queue = self.queues.pop(model_id)
        self.watch.forget(model_id)
        request_id = f"{model_id}:unload"
        self.promises.make(request_id, session.id, self.worker.work(unload))
        for _, begin in queue.waiting.values():  # their turn never came: they find no model
            begin()
        return JSONResponse({"request_id": request_id, "model_id": model_id})

    # -- the verbs that change it

    async def forward_backward(self, request: HttpRequest) -> Response:
        if "protobuf" not in request.headers.get("content-type", ""):
            raise UserError(
                f"forward_backward must be sent as {PROTOBUF}: use tinker 0.38 or newer"
            )
        asked, message = LossRequest(), await read_bytes(request)
        context = max(base.context for base in self.models.bases.values())
        with self.reading(asked):
            await beside(len(message), partial(asked.read, message, context))
        return self.in_turn(asked, partial(self.passes, asked))

    def passes(self, asked: LossRequest, trained: Trained) -> bytes:
        """In the worker's thread: the loss of some data, and unless `forward_only` its gradient."""
        policy, base = trained.policy, trained.base
        name = asked.loss
        if name == "stable_reinforce" and self.stable_stands_in:
            name = STAND_IN
        loss = loss_of(name, asked.config)
        if not asked.data:
            raise UserError("the request has no data")
        parts = rollouts_of(asked.data, name, base.vocabulary, base.context)
        rollouts = [rollout for part in parts for rollout in part]
        before = len(policy.since_update)
        try:
            logprobs, total = self.scored(policy, rollouts, loss, asked.forward_only)
            outputs, rest = [], logprobs
            for datum, part in zip(asked.data, parts, strict=True):
                outputs.append(as_output(rest[: len(part)], datum))
                rest = rest[len(part) :]
        except Exception:
            if not asked.forward_only:  # no sum can be taken apart if a part of it is not finite
                policy.redo(policy.since_update[:before])
            raise
        if not asked.forward_only:
            losses = trained.losses
            losses["loss"] = losses.get("loss", 0.0) + total
            losses["data"] = losses.get("data", 0) + len(parts)
            self.watch.note(trained.id, Call(trained.steps, asked, parts, logprobs, total, loss))
        return loss_answer(outputs, {"loss:sum": total})

    def scored(
        self, policy: LocalPolicy, rollouts: list[Rollout], loss: Loss, forward_only: bool
    ) -> tuple[list[torch.Tensor], float]:
        """The log-probabilities of each rollout, and their loss."""
        logprobs: list[torch.Tensor] = [torch.empty(0)] * len(rollouts)
        if forward_only:
            logprobs = policy.logprobs(rollouts)
            total = loss_at(rollouts, logprobs, loss)
        else:
            sums = policy.forward_backward(rollouts, loss, 1.0, logprobs)
            total = sum(float(one["loss"]) for one in sums)
        if not np.isfinite(total):
            raise UserError("the loss is not a finite number: the call is ignored")
        return logprobs, total

    async def optim_step(self, request: HttpRequest) -> Response:
        body = await self.read_call(request)
        call = numbered(body)
        with self.reading(call):
            params = adam_params(body)

        def step(trained: Trained) -> dict:
            metrics = trained.optim_step(params)
            with record_may_fail(f"a page about {trained.id}"):
                self.watch.after_step(trained)
            return {"type": "optim_step", "metrics": metrics}

        return self.in_turn(call, step)

    # -- saves

    async def save_weights(self, request: HttpRequest) -> Response:
        body = await self.read_call(request)
        call = numbered(body)
        with self.reading(call):
            name, about, overwrite = save_name(body), about_save(body), body.yes("overwrite")

        def save(trained: Trained) -> dict:
            saved = trained.save(TRAINING, name, overwrite, **about)
            return {"type": "save_weights", "path": path_of(trained.id, saved)}

        return self.in_turn(call, save)

    async def save_weights_external(self, request: HttpRequest) -> Response:
        body = await self.read_call(request)
        call = numbered(body)
        with self.reading(call):
            name, about = save_name(body), about_save(body)
            if body.has("age_encryption_recipients"):
                raise UserError("saves are folders here: drop age_encryption_recipients")

        def save(trained: Trained) -> dict:
            saved = trained.save(EXTERNAL, name, **about)
            return {"type": "save_weights_external", "path": path_of(trained.id, saved)}

        return self.in_turn(call, save)

    async def save_weights_for_sampler(self, request: HttpRequest) -> Response:
        body = await self.read_call(request)
        call = numbered(body)
        with self.reading(call):
            kind = body.text("kind", "snapshot")
            if kind not in ("snapshot", "inflight"):  # a snapshot also does what inflight promises
                raise body.wrong("kind", "snapshot or inflight")
            named = (save_name(body), about_save(body)) if body.has("path") else None
            number = 0 if named else body.integer("sampling_session_seq_id", 0, 10**9)
            session = self.session(call.model_id.partition(":")[0])
        answer = {"type": "save_weights_for_sampler"}
        if named:
            name, about = named

            def save(trained: Trained) -> dict:
                # It may overwrite: a client may save every step under the same name.
                saved = trained.save(SAMPLING, name, True, **about)
                return answer | {"path": path_of(trained.id, saved)}

            return self.in_turn(call, save)
        sampler_id = f"{session.id}:sample:{number}"

        def snapshot(trained: Trained) -> dict:
            if sampler_id not in self.models.samplers:
                for gone in self.models.snapshot(sampler_id, number, trained):
                    self.worker.forget(gone)
                session.samplers.append(sampler_id)
            return answer | {"sampling_session_id": sampler_id}

        return self.in_turn(call, snapshot)

    async def load_weights(self, request: HttpRequest) -> Response:
        """Into an existing model, or as the first call of a new one."""
        body = await self.read_call(request)
        if body.has("session_id"):
            path, with_optimizer = self.load_of(body)
            check_optimizer(body)
            session, model_id = self.new_model_id(body)
            metadata = body.metadata("user_metadata")
            base, about = body.maybe_text("base_model"), self.models.place_of(path)[0]
            if base not in (None, about["base"]):
                raise UserError(f"{path} was trained from {about['base']}, not from {base}")

            def create() -> dict:
                self.models.create_from(model_id, path, with_optimizer, metadata)
                return {"type": "load_weights", "path": path, "model_id": model_id}

            return self.begun(session, model_id, create)
        call = numbered(body)
        with self.reading(call):
            path, with_optimizer = self.load_of(body)

        def load(trained: Trained) -> dict:
            about, place = self.models.place_of(path)
            if about["base"] != trained.base.name:
                raise UserError(f"{path} was trained from {about['base']}, another model")
            if (saved := Lora(**about["lora"])).shape != trained.lora.shape:
                raise UserError(f"{path} has {saved.shape}, but this model {trained.lora.shape}")
            trained.load(place, with_optimizer)
            return {"type": "load_weights", "path": path, "model_id": trained.id}

        return self.in_turn(call, load)

    def load_of(self, body: Body) -> tuple[str, bool]:
        """The path of the save, and whether its optimizer is wanted."""
        path = body.text("path")
        training_only(self.models.parsed(path)[1], path)
        return path, body.yes("optimizer")

    async def weights_info(self, request: HttpRequest) -> Response:
        path = (await read_body(request)).text("tinker_path")
        about, _ = self.models.place_of(path)
        lora = about["lora"]
        parts = {key: lora[key] if lora["rank"] else None for key in ("train_mlp", "train_attn")}
        rank = {"is_lora": lora["rank"] > 0, "lora_rank": lora["rank"] or None}
        return JSONResponse({"base_model": about["base"], **rank, **parts, "train_unembed": False})

    async def list_training_runs(self, request: HttpRequest) -> Response:
        ids, unreadable = self.models.known()
        offset, limit = offset_and_limit(request)
        rows = [self.run_row(model_id) for model_id in ids[::-1][offset : offset + limit]]
        cursor = {"offset": offset, "limit": limit, "total_count": len(ids)}
        return JSONResponse({"training_runs": rows, "cursor": cursor, "unreadable": unreadable})

    async def get_training_run(self, request: HttpRequest) -> Response:
        return JSONResponse(self.run_row(request.path_params["model_id"]))

    def run_row(self, model_id: str) -> dict:
        about = self.models.about(model_id)
        trained, rank = self.models.trained.get(model_id), about["lora"]["rank"]
        saves = sorted(self.models.saves_of(model_id), key=lambda saved: saved.time)
        last = {saved.kind: self.save_row(model_id, saved) for saved in saves}
        return {
            "training_run_id": model_id,
            "base_model": about["base"],
            "model_owner": "you",
            "is_lora": rank > 0,
            "lora_rank": rank or None,
            "last_request_time": as_time(trained.touched if trained else about["time"]),
            "last_checkpoint": last.get(TRAINING),
            "last_sampler_checkpoint": last.get(SAMPLING),
            "user_metadata": about["metadata"],
        }

    async def list_checkpoints(self, request: HttpRequest) -> Response:
        model_id = request.path_params["model_id"]
        rows = [self.save_row(model_id, saved) for saved in self.models.saves_of(model_id)]
        return JSONResponse({"checkpoints": rows})

    async def list_all_checkpoints(self, request: HttpRequest) -> Response:
        offset, limit = offset_and_limit(request)
        ids, unreadable = self.models.known()
        rows = [
            self.save_row(model_id, saved)
            for model_id in ids[::-1]
            for saved in self.models.saves_of(model_id)
        ]
        cursor = {"offset": offset, "limit": limit, "total_count": len(rows)}
        page = {"checkpoints": rows[offset : offset + limit], "cursor": cursor}
        return JSONResponse(page | {"unreadable": unreadable})

    def save_row(self, model_id: str, saved: Saved) -> dict:
        place = self.models.folder_of(model_id) / "checkpoints" / f"{saved.batch:06d}"
        return {
            "checkpoint_id": f"{saved.kind}/{saved.name}",
            "checkpoint_type": KINDS[saved.kind],
            "time": as_time(saved.time),
            "tinker_path": path_of(model_id, saved),
            "size_bytes": total_size(place),
            "user_metadata": saved.metadata,
            "expires_at": as_time(saved.expires) if saved.expires else None,
        }

    async def delete_checkpoint(self, request: HttpRequest) -> Response:
        path = "tinker://{model_id}/{kind}/{name}".format(**request.path_params)
        deleted = self.worker.work(partial(self.models.delete, path))
        await done(deleted)
        deleted.result()
        return JSONResponse({})

    async def set_checkpoint_ttl(self, request: HttpRequest) -> Response:
        body = await read_body(request)
        path = "tinker://{model_id}/{kind}/{name}".format(**request.path_params)
        changed = self.worker.work(partial(self.models.expire, path, expiry_of(body)))
        await done(changed)
        changed.result()
        return JSONResponse({})

    async def external_weights_urls(self, request: HttpRequest) -> Response:
        """Where `tinker checkpoint download` finds each file of a save."""
        path = "tinker://{model_id}/{kind}/{name}".format(**request.path_params)
        _, place = self.models.place_of(path)
        here = str(request.url).partition("?")[0].removesuffix("/external_weights_urls")
        # A download sends no headers: the key, which the server may want, goes into the address.
        key = urlencode({"key": request.headers.get("x-api-key", "")})
        urls = {name: f"{here}/files/{name}?{key}" for name in names_in(place)}
        return JSONResponse({"urls": urls, "expires": as_time(time.time() + HOUR)})

    async def checkpoint_file(self, request: HttpRequest) -> Response:
        path = "tinker://{model_id}/{kind}/{name}".format(**request.path_params)
        _, place = self.models.place_of(path)
        name = request.path_params["file"]
        if name not in names_in(place):
            raise NoSuchThing(f"{path} has no file {name!r}")
        return FileResponse(place / name)

    # -- sampling

    async def create_sampling_session(self, request: HttpRequest) -> Response:
        body = await read_body(request)
        session = self.session(body.text("session_id"))
        number = body.integer("sampling_session_seq_id", 0, 10**9)
        sampler_id = f"{session.id}:sample:{number}"
        if sampler_id not in self.models.samplers:
            base, path = body.maybe_text("base_model"), body.maybe_text("model_path")
            self.models.sampler_of(sampler_id, number, base, path)
            session.samplers.append(sampler_id)
        answer = {"type": "create_sampling_session", "sampling_session_id": sampler_id}
        return JSONResponse(answer)

    async def join_sampling_session(self, request: HttpRequest) -> Response:
        sampler = self.sampler((await read_body(request)).text("sampling_session_id"))
        session = self.session(sampler.id.partition(":")[0])
        session.copies += 1
        return JSONResponse({"client_counter": session.copies})

    async def get_sampler(self, request: HttpRequest) -> Response:
        sampler = self.sampler(request.path_params["sampler_id"])
        about = {"sampler_id": sampler.id, "base_model": sampler.base.name}
        return JSONResponse(about | {"model_path": sampler.path})

    def sampler(self, id: str) -> Sampler:
        if id not in self.models.samplers:
            raise NoSuchThing(f"there is no sampler {id!r}: its session has finished")
        self.session(id.partition(":")[0])
        return self.models.samplers[id]

    async def asample(self, request: HttpRequest) -> Response:
        body = await read_body(request)
        sampler = self.sampler(body.text("sampling_session_id"))
        seq_id, count = (
            body.integer("seq_id", 0, 2**63 - 1),
            body.integer("num_samples", 1, MOST_SAMPLES, 1),
        )
        request_id = f"{sampler.id}:{seq_id}"
        if request_id not in self.promises.by_id:
            policy = await self.policy_of(sampler)
            read = partial(self.sample_request, body, sampler, policy, seq_id, count)
            asked, wanted, last = await beside(body.size, read)
            if request_id not in self.promises.by_id:  # unless it has come again meanwhile
                self.sampled(request_id, asked, wanted, last)
        ids = [f"{request_id}:{number}" for number in range(count)]
        return JSONResponse({"request_id": request_id, "sample_sequence_ids": ids})

    async def policy_of(self, sampler: Sampler):
        if sampler.policy is not None:
            return sampler.policy
        loading = self.worker.work(partial(self.models.policy_of, sampler))
        await done(loading)
        return loading.result()

    def sample_request(
        self, body: Body, sampler: Sampler, policy, seq_id: int, count: int
    ) -> tuple[Request, Wanted, int | None]:
        """The requested answers, what the client wants to know about the prompt, and for how many
        of its last tokens it wants the log-probability (0: none, None: all)."""
        prompt = prompt_of(body, sampler)
        given = body.part("sampling_params", {})
        params = sampling_params(given, sampler.base.tokenizer)
        seed = given.maybe_integer("seed", 0, 2**64 - 1)
        streams = (self.seed, sampler.number, seq_id) if seed is None else (seed, 0, 0)
        keys = stream_key(*streams, torch.arange(count)).tolist()
        room = max(1, sampler.base.context - len(prompt))
        most = given.integer("max_tokens", 0, 2**31, room)
        likely = body.integer("topk_sample_logprobs", 0, 1000, 0)
        request = Request(policy, prompt, keys, most, **params, likely=likely)
        if body.yes("record_stability_info") and not self.stable_stands_in:
            raise UserError(NO_STABLE_REINFORCE)
        wanted = Wanted(
            body.integer("topk_prompt_logprobs", 0, 1000, 0),
            targets_of(body, len(prompt), sampler.base.vocabulary),
            body.integer("prompt_alt_tokens_k", 0, 1000, 0),
            request.temperature,
            keys[0],
        )
        width = max(wanted.likely, wanted.draws)
        if len(prompt) * width > MOST_NUMBERS:
            raise UserError(f"{len(prompt)} tokens times {width} are too many numbers")
        last: int | None = 0
        if body.yes("prompt_logprobs"):
            last = body.maybe_integer("prompt_logprobs_last_n", 1, len(prompt))
        return request, wanted, last

    def sampled(self, id: str, asked: Request, wanted: Wanted, last: int | None) -> None:
        """Begins to sample; the promise is kept when all results are there."""
        session = self.session(id.partition(":")[0])
        if len(session.sampling) >= MOST_WAITING:
            raise TooMany(f"{MOST_WAITING:,} requests of this session wait for answers already")
        prompt = asked.prompt
        futures: list[Future] = [self.worker.sample(asked)]
        scores = last != 0 and len(prompt) > 1
        if scores:
            futures.append(self.worker.score(asked.policy, [as_rollout(prompt)]))
        if wanted and len(prompt) > 1:
            futures.append(self.worker.work(partial(look_at, asked.policy, prompt, wanted)))

        def finish(rollouts: list[Rollout], *more) -> bytes:
            rest = list(more)
            logprobs = None
            if last != 0:
                known = rest.pop(0)[0].tolist() if scores else []
                logprobs = [np.nan, *known]
                if last:
                    logprobs = [np.nan] * (len(prompt) - last) + logprobs[-last:]
            facts: Known | None = rest.pop(0) if rest else None
            return bytes(
                SampleAnswer(
                    [sequence_of(rollout, asked.likely) for rollout in rollouts],
                    logprobs,
                    facts.likely if facts and wanted.likely else None,
                    facts.targets if facts else None,
                    facts.drawn if facts else None,
                )
            )

        def cancel() -> None:
            asked.cancelled = True

        answer = combined(futures, finish)
        session.sampling.add(id)
        answer.add_done_callback(lambda _: session.sampling.discard(id))
        self.promises.make(id, session.id, answer, cancel)

    # -- promises

    async def retrieve_future(self, request: HttpRequest) -> Response:
        id = (await read_body(request)).text("request_id")
        promise = self.promises.by_id.get(id)
        if promise is None:
            detail = f"request {id!r} is unknown: its result was fetched, or has expired"
            return JSONResponse({"detail": detail}, 410)
        if promise.session in self.sessions:
            self.session(promise.session)
        try:
            result = await self.promises.wait(promise)
        except asyncio.TimeoutError:
            again = {"type": "try_again", "request_id": id, "queue_state": "active"}
            return JSONResponse(again, 408)
        except UserError as error:
            return JSONResponse({"error": str(error), "category": "user"})
        except Exception as error:
            return JSONResponse({"error": f"{type(error).__name__}: {error}", "category": "server"})
        if isinstance(result, bytes):
            return Response(result, media_type=PROTOBUF)
        return JSONResponse(result)

    async def cancel_future(self, request: HttpRequest) -> Response:
        id = (await read_body(request)).text("request_id")
        promise = self.promises.by_id.get(id)
        if promise and not promise.future.done():
            promise.cancel()
        return JSONResponse({})


# --- reading


def fits(session: Session, body: Body) -> bool:
    """Whether a search means this session; with an id and a name, either is enough."""
    notes = body.metadata("user_metadata") or {}
    known = session.metadata or {}
    if any(known.get(key) != value for key, value in notes.items()):
        return False
    statuses = body.parts("statuses") if body.has("statuses") else []
    if statuses and "active" not in [status.text("type") for status in statuses]:
        return False
    id, name = body.maybe_text("session_id"), body.maybe_text("display_name")
    has_name = (session.name or "").lower()
    named = name and all(word in has_name for word in name.lower().split())
    return bool(session.id == id or named or (id is None and name is None))


def is_from_here(request: HttpRequest) -> bool:
    """Whether the client runs on this machine."""
    return request.client is not None and request.client.host in HERE


def check_optimizer(body: Body) -> None:
    kind = body.part("optimizer_config", {}).values.get("type", "adamw")
    if kind != "adamw":
        raise UserError(f"there is no optimizer {kind!r} here: use adamw")


def numbered(body: Body) -> Numbered:
    return Numbered(body.text("model_id"), body.maybe_integer("seq_id", 1, MOST_SEQ_ID))


def adam_params(body: Body) -> dict[str, float]:
    if body.has("optimizer_params"):
        kind = body.part("optimizer_params").values.get("type")
        raise UserError(f"there is no optimizer {kind!r} here: use AdamParams")
    adam = body.part("adam_params", {})
    for key, value in adam.values.items():
        if value is None:  # NaN, as clients send it
            raise adam.wrong(key, "a number")
    return {
        "learning_rate": adam.number("learning_rate", 0, 100, 1e-4),
        "beta1": adam.number("beta1", 0, 0.999999, 0.9),
        "beta2": adam.number("beta2", 0, 0.999999999, 0.95),
        "eps": adam.number("eps", 0, 1, 1e-12),
        "weight_decay": adam.number("weight_decay", 0, 1000, 0.0),
        "grad_clip_norm": adam.number("grad_clip_norm", -1, 1e9, 0.0),
    }


def save_name(body: Body) -> str:
    name = body.text("path", f"{time.time():.6f}")
    if not SAVE_NAME.fullmatch(name):
        raise UserError(f"a save's name may have letters, digits, . _ and -, but is {name!r}")
    return name


def about_save(body: Body) -> dict:
    return {"expires": expiry_of(body), "metadata": body.metadata("user_metadata")}


def expiry_of(body: Body) -> float | None:
    seconds = body.maybe_integer("ttl_seconds", HOUR, TEN_YEARS)
    return None if seconds is None else time.time() + seconds


def offset_and_limit(request: HttpRequest) -> tuple[int, int]:
    found = []
    for key, default in (("offset", "0"), ("limit", "20")):
        text = request.query_params.get(key, default)
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise UserError(f"{key}={text!r} is not a whole number")
        found.append(int(text))
    return found[0], found[1]


def prompt_of(body: Body, sampler: Sampler) -> list[int]:
    prompt: list[int] = []
    for chunk in body.part("prompt").parts("chunks"):
        if chunk.text("type", "encoded_text") != "encoded_text":
            raise UserError("images and audio are not supported here: send tokens")
        prompt += chunk.list_of("tokens", int)
    check_tokens(prompt, "the prompt", sampler.base.vocabulary, sampler.base.context)
    return prompt


def sampling_params(body: Body, tokenizer) -> dict:
    """Without `stop`, the model's own stop tokens; with it, only the given tokens or texts."""
    stop = body.values.get("stop")
    ids, texts = frozenset(model_stop_ids(tokenizer)), tuple[str, ...]()
    if stop is not None:
        several = stop if isinstance(stop, list) else [stop]
        kinds = {type(one) for one in several}
        if not kinds <= {int} and not kinds <= {str} or len(several) > 64 or "" in several:
            raise body.wrong("stop", "a text, or a list of at most 64 texts or tokens")
        if any(len(one) > LONGEST_STOP for one in several if isinstance(one, str)):
            raise UserError(f"a text in stop has more than {LONGEST_STOP} characters")
        ids = frozenset(one for one in several if isinstance(one, int))
        texts = tuple(one for one in several if isinstance(one, str))
    return {
        "temperature": body.temperature(),
        "top_p": body.number("top_p", 1e-9, 1, 1.0),
        "top_k": max(0, body.integer("top_k", -1, 2**31, -1)),
        "stops": Stops(ids, texts, tokenizer),
    }


def targets_of(body: Body, length: int, vocabulary: int) -> np.ndarray | None:
    """Tokens whose log-probabilities are wanted at each position of the prompt but the first."""
    if not body.has("target_prompt_logprobs"):
        return None
    tensor = body.part("target_prompt_logprobs")
    shape = tensor.list_of("shape", int)
    numbers = np.array(tensor.integers("data", -1, vocabulary - 1), np.int64)
    if len(shape) != 2 or shape[0] != length - 1 or not 0 < shape[0] * shape[1] <= MOST_NUMBERS:
        raise tensor.wrong("shape", f"[{length - 1}, K]")
    if tensor.has("sparse_crow_indices"):
        starts, columns = (
            np.array(tensor.integers(key, 0, MOST_NUMBERS), np.int64)
            for key in ("sparse_crow_indices", "sparse_col_indices")
        )
        targets = densified(numbers, starts, columns, shape, fill=-1)
    elif len(numbers) == shape[0] * shape[1]:
        targets = numbers.reshape(shape)
    else:
        raise tensor.wrong("data", f"{shape[0] * shape[1]} numbers")
    return targets


# --- writing


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def path_of(model_id: str, saved: Saved) -> str:
    return f"tinker://{model_id}/{saved.kind}/{saved.name}"


def as_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def sequence_of(rollout: Rollout, likely: int) -> tuple:
    found = rollout.likely if likely else None
    return rollout.finished, rollout.response_ids, rollout.logprobs, found


def combined(futures: Sequence[Future], finish: Callable) -> Future:
    """The future of what `finish` makes of several results."""
    result: Future = Future()
    missing = [len(futures)]

    def one_done(_: Future) -> None:
        missing[0] -= 1  # all of them are settled by the worker's thread
        if missing[0]:
            return
        try:
            settle(result, finish(*[future.result() for future in futures]))
        except BaseException as error:  # one of them failed, or was cancelled
            settle(result, error)

    for future in futures:
        future.add_done_callback(one_done)
    return result
