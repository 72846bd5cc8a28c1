"""The page at `/`: sessions, models, and what each forward_backward did to each token."""

import functools
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from torch import Tensor

from reasoning_from_scratch.report.tokens import TokenTexts
from reasoning_from_scratch.sampling import Rollout
from reasoning_from_scratch.serve.body import NoSuchThing
from reasoning_from_scratch.serve.models import Trained
from reasoning_from_scratch.serve.promises import done
from reasoning_from_scratch.serve.tinker import Tinker, loss_at, path_of
from reasoning_from_scratch.serve.watch import Call
from reasoning_from_scratch.text import visible

SHOWN_DATA = 64
SHOWN_TOKENS = 4000  # of a datum


class Page:
    """What is served, for people."""

    def __init__(self, tinker: Tinker) -> None:
        self.tinker = tinker

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
            ("answers being drawn", tinker.engine.in_progress),
        ]
        shown = {"tiles": tiles, "sessions": sessions, "models": list(models.bases)}
        return self.shown("home.html", request, here=str(request.base_url).rstrip("/"), **shown)

    def row(self, trained: Trained) -> dict:
        calls = self.tinker.watch.calls.get(trained.id)
        return {
            "id": trained.id,
            "trains": trains(trained),
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
        rows = [
            {
                "number": number,
                "step": call.step + 1,
                "loss": call.asked.loss,
                "value": f"{call.loss_value:.5g}",
                "data": len(call.asked.data),
                "tokens": f"{call.tokens:,}",
            }
            for number, call in reversed(self.tinker.watch.calls.get(trained.id, ()))
        ]
        return self.shown(
            "model.html",
            request,
            id=trained.id,
            base=trained.base.name,
            trains=trains(trained),
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
        asking = self.tinker.engine.work(partial(trained.policy.logprobs, call.rollouts))
        await done(asking)
        return self.shown(
            "call.html",
            request,
            linked=True,
            **call_values(trained, int(number), call, asking.result()),
        )

    def shown(self, template: str, request: Request, **values) -> Response:
        given = request.query_params.get("key")
        key = Markup("?key={}").format(given) if given else ""
        return HTMLResponse(environment().get_template(template).render(key=key, **values))


@functools.cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("reasoning_from_scratch.serve"),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = files("reasoning_from_scratch.report") / "templates" / "style.css"
    made.globals["style"] = Markup(style.read_text("utf-8"))
    return made


def trains(trained: Trained) -> str:
    return f"LoRA of rank {trained.lora.rank}" if trained.lora.rank else "all weights"


def at(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"


def call_values(
    trained: Trained, number: int, call: Call, now: Sequence[Tensor] | None = None
) -> dict:
    """What the page of a call shows. `now`: the log-probabilities of the weights as they are."""
    texts = TokenTexts(trained.base.tokenizer)
    weighed = "weight" if call.asked.loss == "cross_entropy" else "advantage"
    largest = max(float(one.token_advantages.abs().max()) for one in call.rollouts) or 1.0
    tiles = [
        ("data", len(call.asked.data)),
        ("tokens", f"{call.tokens:,}"),
        ("loss then", f"{call.loss_value:.5g}"),
    ]
    if now is not None:
        steps = trained.steps - call.step
        name = f"loss now, {steps} step{'' if steps == 1 else 's'} later"
        tiles.append((name, f"{loss_at(call.rollouts, now, call.loss):.5g}"))
    shown = call.rollouts[:SHOWN_DATA]
    data = [
        datum_values(i, rollout, call.logprobs[i], now[i] if now else None, texts, weighed, largest)
        for i, rollout in enumerate(shown)
    ]
    return {
        "id": trained.id,
        "number": number,
        "step": call.step,
        "loss": call.asked.loss,
        "tiles": tiles,
        "weighed": weighed,
        "data": data,
        "more": len(call.rollouts) - len(shown),
    }


def datum_values(
    number: int,
    rollout: Rollout,
    then: Tensor,
    now: Tensor | None,
    texts: TokenTexts,
    weighed: str,
    largest: float,
) -> dict:
    weights = rollout.token_advantages
    counted = weights != 0
    sampler = sum(rollout.logprobs[i] for i in counted.nonzero()[:, 0].tolist())
    return {
        "number": number,
        "tokens": len(rollout),
        "counted": int(counted.sum()),
        "weight": f"{float(weights.sum()):+.4g}",
        "sampler": f"{sampler:.3f}" if any(rollout.logprobs) else "",
        "then": f"{float(then[counted].sum()):.3f}",
        "now": f"{float(now[counted].sum()):.3f}" if now is not None else "",
        "html": marked(rollout, then, now, texts, weighed, largest),
    }


def marked(
    rollout: Rollout,
    then: Tensor,
    now: Tensor | None,
    texts: TokenTexts,
    weighed: str,
    largest: float,
) -> Markup:
    """The datum's text, each token with its numbers."""
    ids = [*rollout.prompt_ids, *rollout.response_ids][:SHOWN_TOKENS]
    first, *others = texts.each(ids)
    parts = [f"<i class=q>{escape(visible(first))}</i>"]
    for i, text in enumerate(others):
        weight = float(rollout.token_advantages[i])
        if not weight:
            parts.append(f"<i class=q>{escape(visible(text))}</i>")
            continue
        about = f"{weighed} {weight:+.4g}"
        if rollout.logprobs[i]:
            about += f"; log-probability of the sampler {rollout.logprobs[i]:.3f}"
        about += f"; then {float(then[i]):.3f}"
        if now is not None:
            about += f"; now {float(now[i]):.3f}"
        target = int(rollout.targets[i])
        if target != ids[i + 1]:
            about += f"; target {texts.one(target)!r}"
        size = min(4, 1 + int(3.999 * abs(weight) / largest))
        kind = f"{'p' if weight > 0 else 'n'}{size}"
        title = escape(visible(about))
        parts.append(f'<i class={kind} title="{title}">{escape(visible(text))}</i>')
    if len(rollout) > SHOWN_TOKENS:
        parts.append(f"<b class=gap>{len(rollout) - SHOWN_TOKENS:,} further tokens</b>")
    return Markup("".join(parts))
