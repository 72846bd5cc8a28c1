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
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
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
from rfs.serve import tinker_bodies as bodies
from rfs.serve.body import (
    BadValues,
    C,
    NotFound,
    TooLarge,
    TooManyRequests,
    in_thread_if_long,
    quoted,
    read_body,
    read_bytes,
    validate,
)
from rfs.serve.data import (
    NO_STABLE_REINFORCE,
    STAND_IN_LOSS,
    check_tokens,
    logprobs_as_sent,
    loss_of,
    rollouts_of,
)
from rfs.serve.messages import LossRequest, SampleAnswer, dense_matrix, loss_answer
from rfs.serve.models import (
    EXTERNAL,
    KINDS,
    SAMPLING,
    TRAINING,
    Models,
    Sampler,
    SaveRecord,
    TrainedModel,
    folder_size,
    log_disk_errors,
)
from rfs.serve.options import LOCAL_HOSTS
from rfs.serve.promises import Promises, result_of, wait_for
from rfs.serve.prompt_scores import MAX_NUMBERS, PromptQuery, PromptScores, as_rollout, score_prompt
from rfs.serve.recent_calls import RecentCalls, RecordedCall, loss_from_logprobs
from rfs.serve.worker import Request, Stops, Worker, log_failure, settle

log = logging.getLogger("reasoning_from_scratch")

PROTOBUF = "application/x-protobuf"
SESSION_TIMEOUT = 300.0  # seconds without a sign of life after which a client counts as gone
MAX_MODELS, MAX_SESSIONS = 64, 1000
MAX_WAITING = 4096  # calls of a model, or of a session's samplers
# Seconds that calls of a model wait for one before them that never came.
MISSING_CALL_TIMEOUT = 120.0
TRAINED_PARTS = ("train_mlp", "train_attn")
UNEMBED_NOTE = "here LoRA goes only on attention and MLP: train_unembed has no effect"


@dataclass
class Session:
    """A client's program."""

    id: str
    name: str | None = None
    metadata: dict | None = None
    created_at: float = field(default_factory=time.time)
    last_seen: float = field(default_factory=time.monotonic)
    models: list[str] = field(default_factory=list)
    samplers: list[str] = field(default_factory=list)
    copies: int = 0  # of its samplers, in other processes
    sampling: set[str] = field(default_factory=set)  # its requests that are not answered yet


@dataclass
class Queue:
    """The calls that wait for a model; they start in the order of seq_id, without gaps."""

    next: int = 1
    waiting: dict[int, tuple[Future, Callable]] = field(default_factory=dict)
    missing_since: float = 0.0  # when the next one was first missing

    def accepts(self, seq_id: int) -> bool:
        """Whether the call is new, and not too far ahead."""
        new = self.next <= seq_id and seq_id not in self.waiting
        return new and seq_id - self.next <= MAX_WAITING

    def put(self, seq_id: int, future: Future, start: Callable) -> None:
        if not self.waiting:
            self.missing_since = time.monotonic()
        self.waiting[seq_id] = future, start
        while self.next in self.waiting:
            _, start = self.waiting.pop(self.next)
            start()
            self.next += 1
            self.missing_since = time.monotonic()

    def tidy(self) -> None:
        """Ends calls that have waited too long for one before them, which the server never got or
        could not read: without it, they would mean something else."""
        if not self.waiting or time.monotonic() - self.missing_since < MISSING_CALL_TIMEOUT:
            return
        missing, waiting = self.next, self.waiting
        self.next, self.waiting = max(waiting) + 1, {}
        for seq_id, (future, _) in waiting.items():
            why = f"call {missing} of this model never arrived, so call {seq_id} had no turn"
            settle(future, UserError(f"{why}: send both again"))


class Tinker:
    """The calls of Tinker's client."""

    def __init__(
        self, models: Models, worker: Worker, seed: int = 0, replace_stable_reinforce: bool = False
    ) -> None:
        self.models, self.worker, self.seed = models, worker, seed
        self.replace_stable_reinforce = replace_stable_reinforce  # by data.STAND_IN_LOSS
        self.promises, self.recent_calls = Promises(), RecentCalls()
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
        supported = [
            {
                "model_name": base.name,
                "max_context_length": base.context,
                "trainable": True,
                "sampleable": True,
            }
            for base in self.models.bases.values()
        ]
        return JSONResponse({"supported_models": supported})

    async def client_config(self, _: HttpRequest) -> Response:
        return JSONResponse({"sample_join_sampling_session": True})

    async def client_dynamic_config(self, _: HttpRequest) -> Response:
        return JSONResponse({"sample_cancel_enabled": True})

    async def telemetry(self, request: HttpRequest) -> Response:
        await read_bytes(request)  # nobody reads it
        return JSONResponse({"status": "accepted"})

    # -- sessions

    async def create_session(self, request: HttpRequest) -> Response:
        body = await read_body(request, bodies.CreateSession)
        if len(self.sessions) >= MAX_SESSIONS:
            raise UserError(f"{MAX_SESSIONS} sessions are open; finish some")
        id = f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        self.sessions[id] = Session(id, body.display_name, body.user_metadata)
        reply = {"type": "create_session", "session_id": id, "info_message": UNEMBED_NOTE}
        return JSONResponse(reply)

    def session(self, id: str) -> Session:
        session = self.sessions.get(id)
        if session is None:
            raise NotFound(f"there is no session {id!r}: it has ended, or the server restarted")
        session.last_seen = time.monotonic()
        return session

    async def session_heartbeat(self, request: HttpRequest) -> Response:
        id = (await read_body(request, bodies.OneSession)).session_id
        if id not in self.sessions:
            return JSONResponse({"detail": f"session {id!r} has finished"}, 410)
        self.session(id)
        return JSONResponse({"type": "session_heartbeat"})

    async def list_sessions(self, _: HttpRequest) -> Response:
        return JSONResponse({"sessions": list(self.sessions)})

    async def search_sessions(self, request: HttpRequest) -> Response:
        """The open sessions that match, the newest first; ended ones are not kept."""
        body = await read_body(request, bodies.SearchSessions)
        last, limit = body.cursor.last_session_id, body.limit
        fitting = [session for session in self.sessions.values() if matches_search(session, body)]
        fitting.sort(key=lambda session: (session.created_at, session.id), reverse=True)
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
            "created_at": iso_time(session.created_at),
            "owner": "you",
            "project_id": "here",
            "status": {"type": "active"},
            "checkpoints_count": sum(len(model.save_records()) for model in trained),
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
        await read_bytes(request)  # it says nothing
        unsaved = await self.end_session(self.session(request.path_params["session_id"]))
        if unsaved:
            reasons = "; ".join(f"{model_id}: {why}" for model_id, why in unsaved.items())
            raise UserError(f"not saved yet, again when the server stops: {reasons}")
        return JSONResponse({})

    async def end_session(self, session: Session) -> dict[str, str]:
        """Frees what the session's client held, after saving unsaved weights. Returns the models
        that could not be saved, and why."""
        self.sessions.pop(session.id, None)
        self.promises.drop_session(session.id)
        for model_id in session.models:
            self.queues.pop(model_id, None)
        return await result_of(self.worker.submit(partial(self.release_session, session)))

    def release_session(self, session: Session) -> dict[str, str]:
        unsaved = {}
        for model_id in session.models:
            self.recent_calls.forget(model_id)  # here, after the calls that were still running
            try:
                trained = self.models.release(model_id)
            except Exception as error:  # whatever it is, the others are saved
                why = unsaved[model_id] = str(log_failure(error))
                log.error("%s is not saved yet, again when the server stops: %s", model_id, why)
                continue
            if trained:
                self.worker.forget(trained.policy)
        for sampler in self.models.samplers_of(session.id):
            del self.models.samplers[sampler.id]
            if sampler.policy and sampler.policy is not sampler.base.policy:
                self.worker.forget(sampler.policy)
        return unsaved

    async def tidy(self) -> None:
        """Now and then drops clients that are gone, results that nobody fetches, expired saves."""
        now = time.monotonic()
        for session in list(self.sessions.values()):
            if session.last_seen < now - SESSION_TIMEOUT:
                await self.end_session(session)
        for queue in self.queues.values():
            queue.tidy()
        self.promises.tidy()
        self.promises.forget_unfetched()
        await wait_for(self.worker.submit(self.models.delete_expired))

    def save_all(self) -> None:
        """Called when the server ends, after the worker's thread has stopped."""
        self.unsaved.clear()
        for trained in self.models.trained.values():
            try:
                trained.save_if_unsaved()
            except Exception as error:  # whatever it is, the others are saved
                self.unsaved[trained.id] = str(log_failure(error))

    # -- models that are trained

    async def create_model(self, request: HttpRequest) -> Response:
        body = await read_body(request, bodies.CreateModel)
        base = self.models.base(body.base_model)

        def create(model_id: str) -> dict:
            self.models.create(model_id, base, body.lora_config, body.user_metadata)
            return {"type": "create_model", "model_id": model_id}

        return self.enqueue_creation(body, create)

    def enqueue_creation(self, body: bodies.NewModel, create: Callable[[str], dict]) -> Response:
        """A model's first call creates it."""
        session = self.session(body.session_id)
        model_id = f"{session.id}:train:{body.model_seq_id}"
        request_id = f"{model_id}:create"
        if model_id in session.models and model_id not in self.queues:
            raise UserError(f"{model_id} was unloaded: give a new model another model_seq_id")
        if model_id not in session.models:
            if len(self.queues) >= MAX_MODELS:
                raise UserError(f"{MAX_MODELS} models are being trained; unload some")
            session.models.append(model_id)
            self.queues[model_id] = Queue()
            created = self.worker.submit(partial(create, model_id))
            self.promises.make(request_id, session.id, created)
        return JSONResponse({"request_id": request_id, "model_id": model_id})

    def queue_of(self, model_id: str) -> Queue:
        self.session(model_id.partition(":")[0])
        if model_id not in self.queues:
            raise NotFound(f"there is no model {model_id!r}: it was unloaded, or never created")
        return self.queues[model_id]

    async def read_model_call(self, request: HttpRequest, kind: type[C]) -> C:
        """The body of a call that changes a model. An invalid one is refused before its turn, and
        its turn is skipped: otherwise all later calls would wait for its number."""
        try:
            return await read_body(request, kind)
        except (BadValues, TooLarge) as error:
            with suppress(UserError):  # if it does not say whose turn it was
                self.skip_turn(validate(bodies.Numbered, error.values))
            raise

    def skip_turn(self, call: bodies.Numbered | LossRequest) -> None:
        queue = self.queues.get(call.model_id)
        if queue and call.seq_id is not None and queue.accepts(call.seq_id):
            queue.put(call.seq_id, Future(), lambda: None)

    def run_in_turn(
        self, call: bodies.Numbered | LossRequest, run: Callable[[TrainedModel], object]
    ) -> Response:
        """Calls `run` with the model when the call's turn comes. An error goes into the promise."""
        model_id, queue = call.model_id, self.queue_of(call.model_id)
        number = queue.next + len(queue.waiting) if call.seq_id is None else call.seq_id
        request_id = f"{model_id}:{number}"
        if number > queue.next + MAX_WAITING:
            raise UserError(f"call {number} of {model_id} came before call {queue.next}")
        if queue.accepts(number):  # else it has come twice
            future: Future = Future()
            self.promises.make(request_id, model_id.partition(":")[0], future)
            start = partial(self.worker.submit, lambda: run(self.trained_model(model_id)), future)
            queue.put(number, future, start)
        return JSONResponse({"request_id": request_id, "model_id": model_id})

    def trained_model(self, model_id: str) -> TrainedModel:
        trained = self.models.trained.get(model_id)
        if trained is None:
            raise UserError(f"there is no model {model_id}: creation failed, or it was unloaded")
        trained.last_used = time.time()
        return trained

    async def get_info(self, request: HttpRequest) -> Response:
        model_id = (await read_body(request, bodies.OneModel)).model_id
        self.queue_of(model_id)
        trained = self.models.trained.get(model_id)
        if trained is None:
            raise NotFound(f"model {model_id!r} has not been created yet")
        name, rank = trained.base.name, trained.lora.rank
        # A client on this machine can open the folder; to others the name is all there is to say.
        folder = trained.base.tokenizer_folder if is_from_here(request) else ""
        data = {"model_name": name, "arch": "qwen3", "tokenizer_id": folder or name}
        reply = {"type": "get_info", "model_id": model_id, "model_name": name, "model_data": data}
        return JSONResponse(reply | {"is_lora": rank > 0, "lora_rank": rank or None})

    async def unload_model(self, request: HttpRequest) -> Response:
        model_id = (await read_body(request, bodies.OneModel)).model_id
        self.queue_of(model_id)
        session = self.session(model_id.partition(":")[0])

        def unload() -> dict:
            self.recent_calls.forget(model_id)  # here, after the calls that were still waiting
            trained = self.models.release(model_id)
            if trained:
                self.worker.forget(trained.policy)
            return {"type": "unload_model", "model_id": model_id}

        queue = self.queues.pop(model_id)
        request_id = f"{model_id}:unload"
        self.promises.make(request_id, session.id, self.worker.submit(unload))
        for _, start in queue.waiting.values():  # their turn never came: they find no model
            start()
        return JSONResponse({"request_id": request_id, "model_id": model_id})

    # -- the verbs that change it

    async def forward_backward(self, request: HttpRequest) -> Response:
        if "protobuf" not in request.headers.get("content-type", ""):
            raise UserError(
                f"forward_backward must be sent as {PROTOBUF}: use tinker 0.38 or newer"
            )
        call = LossRequest()
        context = max(base.context for base in self.models.bases.values())
        try:
            message = await read_bytes(request)
            await in_thread_if_long(request, partial(call.read, message, context))
        except TooLarge as error:
            with suppress(UserError):  # what follows model and number is cut off
                call.read(error.body_start, context)
            self.skip_turn(call)
            raise
        except Exception:
            self.skip_turn(call)
            raise
        return self.run_in_turn(call, partial(self.run_loss, call))

    def run_loss(self, call: LossRequest, trained: TrainedModel) -> bytes:
        """In the worker's thread: the loss of some data, and unless `forward_only` its gradient."""
        policy, base = trained.policy, trained.base
        name = call.loss
        if name == "stable_reinforce" and self.replace_stable_reinforce:
            name = STAND_IN_LOSS
        loss = loss_of(name, call.config)
        if not call.data:
            raise UserError("the request has no data")
        datum_rollouts = rollouts_of(call.data, name, base.vocabulary, base.context)
        rollouts = [rollout for part in datum_rollouts for rollout in part]
        earlier_calls = len(policy.calls_since_update)
        try:
            logprobs, total = self.compute_loss(policy, rollouts, loss, call.forward_only)
            outputs, remaining = [], logprobs
            for datum, part in zip(call.data, datum_rollouts, strict=True):
                outputs.append(logprobs_as_sent(remaining[: len(part)], datum))
                remaining = remaining[len(part) :]
        except Exception:
            if len(policy.calls_since_update) > earlier_calls:  # added before its loss was checked
                policy.recompute_gradient(policy.calls_since_update[:earlier_calls])
            raise
        if not call.forward_only:
            losses = trained.losses
            losses["loss"] = losses.get("loss", 0.0) + total
            losses["data"] = losses.get("data", 0) + len(datum_rollouts)
            self.recent_calls.add(
                trained.id, RecordedCall(trained.steps, call, datum_rollouts, logprobs, total, loss)
            )
        return loss_answer(outputs, {"loss:sum": total})

    def compute_loss(
        self, policy: LocalPolicy, rollouts: list[Rollout], loss: Loss, forward_only: bool
    ) -> tuple[list[torch.Tensor], float]:
        """The log-probabilities of each rollout, and their loss."""
        logprobs: list[torch.Tensor] = [torch.empty(0)] * len(rollouts)
        if forward_only:
            logprobs = policy.logprobs(rollouts)
            total = loss_from_logprobs(rollouts, logprobs, loss)
        else:
            sums = policy.forward_backward(rollouts, loss, 1.0, logprobs)
            total = sum(float(part["loss"]) for part in sums)
        if not np.isfinite(total):
            raise UserError("the loss is not a finite number: the call is ignored")
        return logprobs, total

    async def optim_step(self, request: HttpRequest) -> Response:
        body = await self.read_model_call(request, bodies.OptimStep)

        def step(trained: TrainedModel) -> dict:
            metrics = trained.optim_step(body.adam_params)
            with log_disk_errors(f"a page about {trained.id}"):
                self.recent_calls.write_step_page(trained)
            return {"type": "optim_step", "metrics": metrics}

        return self.run_in_turn(body, step)

    # -- saves

    async def save_weights(self, request: HttpRequest) -> Response:
        body = await self.read_model_call(request, bodies.SaveForTraining)
        return self.save(body, "save_weights", TRAINING, body.overwrite)

    async def save_weights_external(self, request: HttpRequest) -> Response:
        body = await self.read_model_call(request, bodies.SaveExternal)
        return self.save(body, "save_weights_external", EXTERNAL)

    async def save_weights_for_sampler(self, request: HttpRequest) -> Response:
        body = await self.read_model_call(request, bodies.SaveForSampler)
        if body.path:  # it may overwrite: a client may save every step under the same name
            return self.save(body, "save_weights_for_sampler", SAMPLING, overwrite=True)
        session, number = self.session(body.session_id), body.sampling_session_seq_id
        sampler_id = f"{session.id}:sample:{number}"

        def snapshot(trained: TrainedModel) -> dict:
            if sampler_id not in self.models.samplers:
                for gone in self.models.snapshot(sampler_id, number, trained):
                    self.worker.forget(gone)
                session.samplers.append(sampler_id)
            return {"type": "save_weights_for_sampler", "sampling_session_id": sampler_id}

        return self.run_in_turn(body, snapshot)

    def save(self, body: bodies.Save, call: str, kind: str, overwrite: bool = False) -> Response:
        def save(trained: TrainedModel) -> dict:
            saved = trained.save(kind, body.path, overwrite, **body.details)
            return {"type": call, "path": tinker_path(trained.id, saved)}

        return self.run_in_turn(body, save)

    async def load_weights(self, request: HttpRequest) -> Response:
        """Into an existing model, or as the first call of a new one."""
        body = await self.read_model_call(request, bodies.LoadWeights)
        path, base = body.path, body.base_model
        if body.session_id is not None:
            new, record = (
                validate(bodies.NewModel, body.model_dump()),
                self.models.locate_save(path)[0],
            )
            if base not in (None, record.base):
                raise UserError(f"{path} was trained from {record.base}, not from {base}")

            def create(model_id: str) -> dict:
                self.models.create_from(model_id, path, body.optimizer, new.user_metadata)
                return {"type": "load_weights", "path": path, "model_id": model_id}

            return self.enqueue_creation(new, create)

        def load(trained: TrainedModel) -> dict:
            record, weights_folder = self.models.locate_save(path)
            if record.base != trained.base.name:
                raise UserError(f"{path} was trained from {record.base}, another model")
            if (save_lora := record.lora).shape != trained.lora.shape:
                raise UserError(
                    f"{path} has {save_lora.shape}, but this model {trained.lora.shape}"
                )
            trained.load(weights_folder, body.optimizer)
            return {"type": "load_weights", "path": path, "model_id": trained.id}

        return self.run_in_turn(validate(bodies.Numbered, body.model_dump()), load)

    async def weights_info(self, request: HttpRequest) -> Response:
        record, _ = self.models.locate_save(
            (await read_body(request, bodies.WeightsInfo)).tinker_path
        )
        lora = record.lora
        trained_parts = {key: getattr(lora, key) if lora.rank else None for key in TRAINED_PARTS}
        rank = {"is_lora": lora.rank > 0, "lora_rank": lora.rank or None}
        return JSONResponse(
            {"base_model": record.base, **rank, **trained_parts, "train_unembed": False}
        )

    async def list_training_runs(self, request: HttpRequest) -> Response:
        ids, unreadable = self.models.list_models()
        offset, limit = offset_and_limit(request)
        rows = [self.run_row(model_id) for model_id in ids[::-1][offset : offset + limit]]
        cursor = {"offset": offset, "limit": limit, "total_count": len(ids)}
        return JSONResponse({"training_runs": rows, "cursor": cursor, "unreadable": unreadable})

    async def get_training_run(self, request: HttpRequest) -> Response:
        return JSONResponse(self.run_row(request.path_params["model_id"]))

    def run_row(self, model_id: str) -> dict:
        record = self.models.record_of(model_id)
        trained, rank = self.models.trained.get(model_id), record.lora.rank
        saves = sorted(self.models.saves_of(model_id), key=lambda saved: saved.time)
        last = {saved.kind: self.save_row(model_id, saved) for saved in saves}
        return {
            "training_run_id": model_id,
            "base_model": record.base,
            "model_owner": "you",
            "is_lora": rank > 0,
            "lora_rank": rank or None,
            "last_request_time": iso_time(trained.last_used if trained else record.time),
            "last_checkpoint": last.get(TRAINING),
            "last_sampler_checkpoint": last.get(SAMPLING),
            "user_metadata": record.metadata,
        }

    async def list_checkpoints(self, request: HttpRequest) -> Response:
        model_id = request.path_params["model_id"]
        rows = [self.save_row(model_id, saved) for saved in self.models.saves_of(model_id)]
        return JSONResponse({"checkpoints": rows})

    async def list_all_checkpoints(self, request: HttpRequest) -> Response:
        offset, limit = offset_and_limit(request)
        ids, unreadable = self.models.list_models()
        rows = [
            self.save_row(model_id, saved)
            for model_id in ids[::-1]
            for saved in self.models.saves_of(model_id)
        ]
        cursor = {"offset": offset, "limit": limit, "total_count": len(rows)}
        page = {"checkpoints": rows[offset : offset + limit], "cursor": cursor}
        return JSONResponse(page | {"unreadable": unreadable})

    def save_row(self, model_id: str, saved: SaveRecord) -> dict:
        weights_folder = self.models.folder_of(model_id) / "checkpoints" / f"{saved.batch:06d}"
        return {
            "checkpoint_id": f"{saved.kind}/{saved.name}",
            "checkpoint_type": KINDS[saved.kind],
            "time": iso_time(saved.time),
            "tinker_path": tinker_path(model_id, saved),
            "size_bytes": folder_size(weights_folder),
            "user_metadata": saved.metadata,
            "expires_at": iso_time(saved.expires) if saved.expires else None,
        }

    async def delete_checkpoint(self, request: HttpRequest) -> Response:
        path = "tinker://{model_id}/{kind}/{name}".format(**request.path_params)
        await result_of(self.worker.submit(partial(self.models.delete, path)))
        return JSONResponse({})

    async def set_checkpoint_ttl(self, request: HttpRequest) -> Response:
        body = await read_body(request, bodies.TimeToLive)
        path = "tinker://{model_id}/{kind}/{name}".format(**request.path_params)
        await result_of(self.worker.submit(partial(self.models.expire, path, body.expires)))
        return JSONResponse({})

    async def external_weights_urls(self, request: HttpRequest) -> Response:
        """Where `tinker checkpoint download` finds each file of a save."""
        path = "tinker://{model_id}/{kind}/{name}".format(**request.path_params)
        _, weights_folder = self.models.locate_save(path)
        base_url = str(request.url).partition("?")[0].removesuffix("/external_weights_urls")
        # A download sends no headers: the key, which the server may want, goes into the address.
        key = urlencode({"key": request.headers.get("x-api-key", "")})
        urls = {name: f"{base_url}/files/{name}?{key}" for name in file_names(weights_folder)}
        return JSONResponse({"urls": urls, "expires": iso_time(time.time() + bodies.HOUR)})

    async def checkpoint_file(self, request: HttpRequest) -> Response:
        path = "tinker://{model_id}/{kind}/{name}".format(**request.path_params)
        _, weights_folder = self.models.locate_save(path)
        name = request.path_params["file"]
        if name not in file_names(weights_folder):
            raise NotFound(f"{path} has no file {name!r}")
        return FileResponse(weights_folder / name)

    # -- sampling

    async def create_sampling_session(self, request: HttpRequest) -> Response:
        body = await read_body(request, bodies.CreateSampler)
        session, number = self.session(body.session_id), body.sampling_session_seq_id
        sampler_id = f"{session.id}:sample:{number}"
        if sampler_id not in self.models.samplers:
            self.models.add_sampler(sampler_id, number, body.base_model, body.model_path)
            session.samplers.append(sampler_id)
        answer = {"type": "create_sampling_session", "sampling_session_id": sampler_id}
        return JSONResponse(answer)

    async def join_sampling_session(self, request: HttpRequest) -> Response:
        sampler = self.sampler((await read_body(request, bodies.OneSampler)).sampling_session_id)
        session = self.session(sampler.id.partition(":")[0])
        session.copies += 1
        return JSONResponse({"client_counter": session.copies})

    async def get_sampler(self, request: HttpRequest) -> Response:
        sampler = self.sampler(request.path_params["sampler_id"])
        reply = {"sampler_id": sampler.id, "base_model": sampler.base.name}
        return JSONResponse(reply | {"model_path": sampler.path})

    def sampler(self, id: str) -> Sampler:
        if id not in self.models.samplers:
            raise NotFound(f"there is no sampler {id!r}: its session has finished")
        self.session(id.partition(":")[0])
        return self.models.samplers[id]

    async def asample(self, request: HttpRequest) -> Response:
        body = await read_body(request, bodies.Sample)
        sampler = self.sampler(body.sampling_session_id)
        request_id = f"{sampler.id}:{body.seq_id}"
        if request_id not in self.promises.by_id:
            policy = await self.policy_of(sampler)
            read = partial(self.sample_request, body, sampler, policy)
            sampling_request, query, last_n = await in_thread_if_long(request, read)
            if request_id not in self.promises.by_id:  # unless it has come again meanwhile
                self.start_sampling(request_id, sampling_request, query, last_n)
        ids = [f"{request_id}:{number}" for number in range(body.num_samples)]
        return JSONResponse({"request_id": request_id, "sample_sequence_ids": ids})

    async def policy_of(self, sampler: Sampler) -> LocalPolicy:
        policy = sampler.policy  # read once: the worker's thread may release it
        if policy is not None:
            return policy
        return await result_of(self.worker.submit(partial(self.models.policy_of, sampler)))

    def sample_request(
        self, body: bodies.Sample, sampler: Sampler, policy: LocalPolicy
    ) -> tuple[Request, PromptQuery, int | None]:
        """The requested answers, what the client wants to know about the prompt, and for how many
        of its last tokens it wants the log-probability (0: none, None: all)."""
        prompt, base, params = body.prompt.tokens, sampler.base, body.sampling_params
        check_tokens(prompt, "the prompt", base.vocabulary, base.context)
        seeded = params.seed is not None
        streams = (params.seed, 0, 0) if seeded else (self.seed, sampler.number, body.seq_id)
        keys = stream_key(*streams, torch.arange(body.num_samples)).tolist()
        room = max(1, base.context - len(prompt))
        request = Request(
            policy,
            prompt,
            keys,
            room if params.max_tokens is None else params.max_tokens,
            params.temperature,
            params.top_p,
            params.top_k,
            stops_of(params, base.tokenizer),
            body.topk_sample_logprobs,
        )
        if body.record_stability_info and not self.replace_stable_reinforce:
            raise UserError(NO_STABLE_REINFORCE)
        query = PromptQuery(
            body.topk_prompt_logprobs,
            prompt_targets(body.target_prompt_logprobs, len(prompt), base.vocabulary),
            body.prompt_alt_tokens_k,
            request.temperature,
            keys[0],
        )
        width = max(query.num_likely, query.num_draws)
        if len(prompt) * width > MAX_NUMBERS:
            raise UserError(f"{len(prompt)} tokens times {width} are too many numbers")
        if (body.prompt_logprobs_last_n or 0) > len(prompt):
            raise UserError(
                f"prompt_logprobs_last_n is {body.prompt_logprobs_last_n}, but must be at most "
                f"{len(prompt)}, the length of the prompt"
            )
        return request, query, body.prompt_logprobs_last_n if body.prompt_logprobs else 0

    def start_sampling(
        self, id: str, request: Request, query: PromptQuery, last_n: int | None
    ) -> None:
        """Starts sampling; the promise is settled once all results are there."""
        session = self.session(id.partition(":")[0])
        if len(session.sampling) >= MAX_WAITING:
            raise TooManyRequests(
                f"{MAX_WAITING:,} requests of this session wait for answers already"
            )
        prompt = request.prompt
        futures: list[Future] = [self.worker.sample(request)]
        with_logprobs = last_n != 0 and len(prompt) > 1
        if with_logprobs:
            futures.append(self.worker.score(request.policy, [as_rollout(prompt)]))
        if query and len(prompt) > 1:
            futures.append(self.worker.submit(partial(score_prompt, request.policy, prompt, query)))

        def finish(rollouts: list[Rollout], *others) -> bytes:
            remaining = list(others)
            logprobs = None
            if last_n != 0:
                prompt_logprobs = remaining.pop(0)[0].tolist() if with_logprobs else []
                logprobs = [np.nan, *prompt_logprobs]
                if last_n:
                    logprobs = [np.nan] * (len(prompt) - last_n) + logprobs[-last_n:]
            scores: PromptScores | None = remaining.pop(0) if remaining else None
            return bytes(
                SampleAnswer(
                    [sampled_sequence(rollout, request.num_likely) for rollout in rollouts],
                    logprobs,
                    scores.likely if scores and query.num_likely else None,
                    scores.targets if scores else None,
                    scores.drawn if scores else None,
                )
            )

        def cancel() -> None:
            request.cancelled = True

        answer = combine_futures(futures, finish)
        session.sampling.add(id)
        answer.add_done_callback(lambda _: session.sampling.discard(id))
        self.promises.make(id, session.id, answer, cancel)

    # -- promises

    async def retrieve_future(self, request: HttpRequest) -> Response:
        id = (await read_body(request, bodies.OneRequest)).request_id
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
        id = (await read_body(request, bodies.OneRequest)).request_id
        promise = self.promises.by_id.get(id)
        if promise and not promise.future.done():
            promise.cancel()
        return JSONResponse({})


# --- reading


def matches_search(session: Session, body: bodies.SearchSessions) -> bool:
    """Whether a search finds this session; with an id and a name, either is enough."""
    metadata = session.metadata or {}
    if any(metadata.get(key) != value for key, value in (body.user_metadata or {}).items()):
        return False
    if body.statuses and "active" not in [status.type for status in body.statuses]:
        return False
    id, name = body.session_id, body.display_name
    session_name = (session.name or "").lower()
    name_matches = name and all(word in session_name for word in name.lower().split())
    return bool(session.id == id or name_matches or (id is None and name is None))


def is_from_here(request: HttpRequest) -> bool:
    """Whether the client runs on this machine."""
    return request.client is not None and request.client.host in LOCAL_HOSTS


def offset_and_limit(request: HttpRequest) -> tuple[int, int]:
    values = []
    for key, default in (("offset", "0"), ("limit", "20")):
        text = request.query_params.get(key, default)
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise UserError(f"{key}={text!r} is not a whole number")
        values.append(int(text))
    return values[0], values[1]


def stops_of(params: bodies.SamplingParams, tokenizer) -> Stops:
    if params.stop is None:
        return Stops(frozenset(model_stop_ids(tokenizer)), (), tokenizer)
    ids = frozenset(stop for stop in params.stop if isinstance(stop, int))
    return Stops(ids, tuple(stop for stop in params.stop if isinstance(stop, str)), tokenizer)


def prompt_targets(tensor: bodies.Tensor | None, length: int, vocabulary: int) -> np.ndarray | None:
    """Tokens whose log-probabilities are wanted at each position of the prompt but the first."""
    if tensor is None:
        return None
    data, shape = tensor.data, tensor.shape
    if data and not -1 <= min(data) <= max(data) < vocabulary:
        what = f"whole numbers from -1 to {vocabulary - 1}"
        raise UserError(f"target_prompt_logprobs.data is {quoted(data)}, but must be {what}")
    numbers = np.array(data, np.int64)
    if len(shape) != 2 or shape[0] != length - 1 or not 0 < shape[0] * shape[1] <= MAX_NUMBERS:
        raise UserError(
            f"target_prompt_logprobs.shape is {quoted(shape)}, but must be [{length - 1}, K]"
        )
    if tensor.sparse_crow_indices:
        rows = np.array(tensor.sparse_crow_indices), np.array(tensor.sparse_col_indices, np.int64)
        return dense_matrix(numbers, *rows, shape, fill=-1)
    if len(numbers) != shape[0] * shape[1]:
        raise UserError(
            f"target_prompt_logprobs.data has {len(numbers)} numbers, which do not fill its shape"
        )
    return numbers.reshape(shape)


# --- writing


def file_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def tinker_path(model_id: str, saved: SaveRecord) -> str:
    return f"tinker://{model_id}/{saved.kind}/{saved.name}"


def iso_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def sampled_sequence(rollout: Rollout, likely: int) -> tuple:
    top_tokens = rollout.likely if likely else None
    return rollout.finished, rollout.response_ids, rollout.logprobs, top_tokens


def combine_futures(futures: Sequence[Future], finish: Callable) -> Future:
    """The future of what `finish` makes of several results."""
    result: Future = Future()
    unfinished = [len(futures)]

    def note_done(_: Future) -> None:
        unfinished[0] -= 1  # all of them are settled by the worker's thread
        if unfinished[0]:
            return
        try:
            settle(result, finish(*[future.result() for future in futures]))
        except BaseException as error:  # one of them failed, or was cancelled
            settle(result, error)

    for future in futures:
        future.add_done_callback(note_done)
    return result
