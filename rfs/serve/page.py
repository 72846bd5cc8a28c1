"""The page at `/`: sessions, models, and what each forward_backward did to each token."""

import time
from functools import partial
from urllib.parse import quote

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from rfs.serve.body import NotFound
from rfs.serve.data import STAND_IN_NOTE
from rfs.serve.models import TrainedModel
from rfs.serve.openai import OpenAI
from rfs.serve.promises import result_of
from rfs.serve.recent_calls import call_page_values, local_time, render_page
from rfs.serve.tinker import Tinker, tinker_path


class Pages:
    """Web pages that show what is served."""

    def __init__(self, tinker: Tinker, openai: OpenAI) -> None:
        self.tinker, self.openai = tinker, openai

    def routes(self) -> list[Route]:
        return [
            Route("/", self.home),
            Route("/models/{model_id}", self.model),
            Route("/models/{model_id}/calls/{number}", self.call),
        ]

    async def home(self, request: Request) -> Response:
        tinker, models = self.tinker, self.tinker.models
        now = time.monotonic()
        sessions = [
            {
                "id": session.id,
                "name": session.name,
                "since": local_time(session.created_at),
                "heard": round(now - session.last_seen),
                "samplers": len(session.samplers),
                "rows": [
                    self.row(models.trained[i]) for i in session.models if i in models.trained
                ],
            }
            for session in tinker.sessions.values()
        ]
        tiles = [
            ("sessions", len(sessions)),
            ("models in training", len(models.trained)),
            ("answers being sampled", tinker.worker.in_progress),
        ]
        stands_in = STAND_IN_NOTE if tinker.replace_stable_reinforce else ""
        values = {"tiles": tiles, "sessions": sessions, "models": list(models.bases)}
        values |= {"stands_in": stands_in, "calls": self.openai.latest_calls}
        return self.render("home.html", request, here=str(request.base_url).rstrip("/"), **values)

    def row(self, trained: TrainedModel) -> dict:
        calls = self.tinker.recent_calls.calls.get(trained.id)
        return {
            "id": trained.id,
            "trains": trained.lora.shape,
            "steps": trained.steps,
            "loss": f"{calls[-1][1].loss_value:.4g}" if calls else "",
            "saves": len(trained.save_records()),
        }

    def trained(self, request: Request) -> TrainedModel:
        trained = self.tinker.models.trained.get(request.path_params["model_id"])
        if trained is None:
            raise NotFound(f"no model {request.path_params['model_id']!r} is in training")
        return trained

    async def model(self, request: Request) -> Response:
        trained = self.trained(request)
        calls = list(self.tinker.recent_calls.calls.get(trained.id, ()))  # the worker adds to them
        rows = [
            {
                "number": number,
                "step": call.step + 1,
                "loss": call.loss_name,
                "value": f"{call.loss_value:.5g}",
                "data": len(call.request.data),
                "tokens": f"{call.tokens:,}",
            }
            for number, call in reversed(calls)
        ]
        return self.render(
            "model.html",
            request,
            id=trained.id,
            base=trained.base.name,
            trains=trained.lora.shape,
            steps=trained.steps,
            folder=str(trained.folder),
            calls=rows,
            saves=[
                (tinker_path(trained.id, saved), local_time(saved.time))
                for saved in trained.save_records()
            ],
        )

    async def call(self, request: Request) -> Response:
        trained, number = self.trained(request), request.path_params["number"]
        is_number = number.isascii() and number.isdecimal() and len(number) < 10
        call = self.tinker.recent_calls.find(trained.id, int(number)) if is_number else None
        if call is None:
            raise NotFound(f"call {number} of {trained.id} is not kept, or never was")
        score = partial(trained.policy.logprobs, call.rollouts)
        now = await result_of(self.tinker.worker.submit(score))
        return self.render(
            "call.html",
            request,
            linked=True,
            **call_page_values(trained, int(number), call, now),
        )

    def render(self, template: str, request: Request, **values) -> Response:
        key_sent = request.query_params.get("key")
        key = Markup("?key={}").format(quote(key_sent, safe="")) if key_sent else ""
        return HTMLResponse(render_page(template, key=key, **values))
