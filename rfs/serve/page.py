"""The page at `/`: sessions, models, and what each forward_backward did to each token."""

import time
from functools import partial
from urllib.parse import quote

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from rfs.serve.body import NoSuchThing
from rfs.serve.data import STANDS_IN
from rfs.serve.models import Trained
from rfs.serve.openai import OpenAI
from rfs.serve.promises import result_of
from rfs.serve.tinker import Tinker, path_of
from rfs.serve.watch import at, call_values, page_of


class Page:
    """Web pages that show what is served."""

    def __init__(self, tinker: Tinker, words: OpenAI) -> None:
        self.tinker, self.words = tinker, words

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
                "since": at(session.began),
                "heard": round(now - session.heard),
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
        stands_in = STANDS_IN if tinker.stable_stands_in else ""
        shown = {"tiles": tiles, "sessions": sessions, "models": list(models.bases)}
        shown |= {"stands_in": stands_in, "calls": self.words.latest}
        return self.shown("home.html", request, here=str(request.base_url).rstrip("/"), **shown)

    def row(self, trained: Trained) -> dict:
        calls = self.tinker.watch.calls.get(trained.id)
        return {
            "id": trained.id,
            "trains": trained.lora.shape,
            "steps": trained.steps,
            "loss": f"{calls[-1][1].loss_value:.4g}" if calls else "",
            "saves": len(trained.saved()),
        }

    def trained(self, request: Request) -> Trained:
        trained = self.tinker.models.trained.get(request.path_params["model_id"])
        if trained is None:
            raise NoSuchThing(f"no model {request.path_params['model_id']!r} is in training")
        return trained

    async def model(self, request: Request) -> Response:
        trained = self.trained(request)
        calls = list(self.tinker.watch.calls.get(trained.id, ()))  # the worker adds to them
        rows = [
            {
                "number": number,
                "step": call.step + 1,
                "loss": call.loss_name,
                "value": f"{call.loss_value:.5g}",
                "data": len(call.asked.data),
                "tokens": f"{call.tokens:,}",
            }
            for number, call in reversed(calls)
        ]
        return self.shown(
            "model.html",
            request,
            id=trained.id,
            base=trained.base.name,
            trains=trained.lora.shape,
            steps=trained.steps,
            folder=str(trained.folder),
            calls=rows,
            saves=[(path_of(trained.id, saved), at(saved.time)) for saved in trained.saved()],
        )

    async def call(self, request: Request) -> Response:
        trained, number = self.trained(request), request.path_params["number"]
        known = number.isascii() and number.isdecimal() and len(number) < 10
        call = self.tinker.watch.find(trained.id, int(number)) if known else None
        if call is None:
            raise NoSuchThing(f"call {number} of {trained.id} is not kept, or never was")
        asking = partial(trained.policy.logprobs, call.rollouts)
        now = await result_of(self.tinker.worker.work(asking))
        return self.shown(
            "call.html",
            request,
            linked=True,
            **call_values(trained, int(number), call, now),
        )

    def shown(self, template: str, request: Request, **values) -> Response:
        given = request.query_params.get("key")
        key = Markup("?key={}").format(quote(given, safe="")) if given else ""
        return HTMLResponse(page_of(template, key=key, **values))
