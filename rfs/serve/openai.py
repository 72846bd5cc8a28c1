"""OpenAI's API: completions of a text, answers in a conversation; and tokens in, tokens out.

The three calls take one path: a call is read into an `Asked`, some prompts, each with n answers;
the worker samples them; a `Choice` writes each answer, whole or, for a stream, piece by piece.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.qwen3 import room_for_answer
from reasoning_from_scratch.sampling import Rollout, stream_key
from reasoning_from_scratch.text import one_line
from rfs.serve.asked import (
    MOST_ANSWERS,
    Asked,
    conversation,
    prompts_of_chat,
    prompts_of_completion,
    prompts_of_generate,
    stops_of,
    tokens_of,
)
from rfs.serve.body import NoSuchThing, beside, read_body
from rfs.serve.choices import Choice, Message, Token, Tokens, newest, text_of, usage
from rfs.serve.data import check_tokens
from rfs.serve.models import Base, Models
from rfs.serve.openai_bodies import Call, Chat, Completion, Detokenize, Generate, Streamed, Tokenize
from rfs.serve.promises import done, result_of
from rfs.serve.prompts import Wanted, look_at
from rfs.serve.watch import at
from rfs.serve.worker import Worker

LOOKS_EVERY = 1.0  # seconds between two checks that the client is still there
# Calls of OpenAI's that have no counterpart here, and what to use.
ELSEWHERE = {
    "/v1/embeddings": "these models write text and give no embeddings",
    "/v1/responses": "use /v1/chat/completions, which every client of OpenAI's has, too",
}
SHOWN_CALLS = 20  # on the page at /


class Kind(NamedTuple):
    """What is particular to a call that samples."""

    body: type[Call]
    prompts: Callable  # (body, base) -> Prompts
    written: type[Choice]


SAMPLING_CALLS = {
    "/v1/completions": Kind(Completion, prompts_of_completion, Choice),
    "/v1/chat/completions": Kind(Chat, prompts_of_chat, Message),
    "/inference/v1/generate": Kind(Generate, prompts_of_generate, Tokens),
}


class ShownCall(NamedTuple):
    """A row of the page at /. The call itself would keep its model and all rollouts in memory."""

    time: str
    model: str
    answers: int
    read: int  # tokens
    drawn: int
    text: str  # how the first answer begins

    @classmethod
    def of(cls, asked: Asked, rollouts: list[Rollout]) -> "ShownCall":
        tokens = usage(asked, rollouts)
        return cls(
            at(asked.created),
            asked.body.model,
            len(rollouts),
            tokens["prompt_tokens"],
            tokens["completion_tokens"],
            one_line(text_of(asked, rollouts[0])[0], 80),
        )


class OpenAI:
    """The calls of OpenAI's client."""

    def __init__(self, models: Models, worker: Worker, seed: int = 0) -> None:
        self.models, self.worker, self.seed = models, worker, seed
        self.calls = count()  # without a seed, each call has its own random streams
        self.began = int(time.time())
        self.latest: deque[ShownCall] = deque(maxlen=SHOWN_CALLS)

    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", self.list_models),
            Route("/v1/models/{name:path}", self.get_model),
            *[
                Route(path, partial(self.sample, kind), methods=["POST"])
                for path, kind in SAMPLING_CALLS.items()
            ],
            *[Route(path, elsewhere, methods=["POST"]) for path in ELSEWHERE],
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
            Route("/health", self.health),
        ]

    # -- models

    async def health(self, _: HttpRequest) -> Response:
        return JSONResponse({"status": "ok"})

    async def list_models(self, _: HttpRequest) -> Response:
        rows = [self.model_row(base) for base in self.models.bases.values()]
        return JSONResponse({"object": "list", "data": rows})

    async def get_model(self, request: HttpRequest) -> Response:
        return JSONResponse(self.model_row(self.models.base(request.path_params["name"])))

    def model_row(self, base: Base) -> dict:
        about = {"id": base.name, "object": "model", "created": self.began, "owned_by": "you"}
        return about | {"max_model_len": base.context}

    async def base_and_policy(self, name: str) -> tuple[Base, LocalPolicy]:
        """A base by its name, or a save by its path."""
        if not name.startswith("tinker://"):
            base = self.models.base(name)
            return base, base.policy
        about, place = self.models.place_of(name)
        policy = await result_of(self.worker.work(partial(self.models.policy_at, place)))
        return self.models.base(about.base), policy

    # -- calls that sample

    async def sample(self, kind: Kind, request: HttpRequest) -> Response:
        body = await read_body(request, kind.body)
        base, policy = await self.base_and_policy(body.model)
        asked = await beside(request, partial(self.asked, kind, body, base, policy))
        if isinstance(body, Streamed) and body.stream:
            pieces = self.pieces(asked, kind.written, body.stream_options.include_usage)
            return StreamingResponse(pieces, media_type="text/event-stream")
        return await self.answered(request, asked, kind.written)

    def asked(self, kind: Kind, body: Call, base: Base, policy: LocalPolicy) -> Asked:
        prompts, drawn = kind.prompts(body, base), body.drawn
        if drawn.n * len(prompts.ids) > MOST_ANSWERS:
            raise UserError(f"{drawn.n * len(prompts.ids)} answers are too many for one call")
        if drawn.most != 0:  # else the call only scores its prompts
            for prompt in prompts.ids:  # here, because a stream that has begun has no status 400
                room_for_answer(policy.model, len(prompt), 1)
        call, keys = next(self.calls), []
        for place in range(len(prompts.ids)):
            # Without a seed: streams that no Tinker client uses.
            seeded = drawn.seed is not None
            stream = (drawn.seed, 0, place) if seeded else (self.seed, -1 - call, place)
            keys.append(stream_key(*stream, torch.arange(drawn.n)).tolist())
        return Asked(body, base, policy, prompts, keys, stops_of(drawn, base.tokenizer))

    async def answered(self, request: HttpRequest, asked: Asked, written: type[Choice]) -> Response:
        """Waits for all answers, as long as the client does."""
        requests = asked.requests()
        for one in requests:
            self.worker.sample(one)
        rollouts: list[Rollout] = []
        try:
            for one in requests:
                while not one.future.done():
                    try:
                        await done(one.future, LOOKS_EVERY)
                    except asyncio.TimeoutError:
                        if await request.is_disconnected():
                            return Response(status_code=499)
                rollouts += one.future.result()
        finally:
            for one in requests:
                one.cancelled = True
        self.latest.appendleft(ShownCall.of(asked, rollouts))
        choices: list[dict] = []
        scored = asked.prompts.echoed and asked.body.likely is not None
        for one in requests:
            scores = await self.scored(asked, one.prompt) if scored else None
            for rollout in one.future.result():
                choices.append(written(asked).whole(rollout, scores) | {"index": len(choices)})
        answer = written.head(asked, written.whole_name) | {"choices": choices}
        return JSONResponse(answer | {"usage": usage(asked, rollouts)})

    async def scored(self, asked: Asked, prompt: list[int]) -> tuple[list, list]:
        """How likely the prompt's tokens are, and what was most likely in their places."""
        targets = [[token] for token in prompt[1:]]
        if not targets:
            return [None], [[]]
        wanted = Wanted(max(1, asked.body.likely or 0), np.array(targets))
        looking = partial(look_at, asked.policy, prompt, wanted)
        known = await result_of(self.worker.work(looking))
        return [None, *known.targets[:, 0].tolist()], list(known.likely)

    async def pieces(
        self, asked: Asked, written: type[Choice], with_usage: bool
    ) -> AsyncIterator[str]:
        """The answers as they are drawn: a line for each piece of text."""
        loop, drawn = asyncio.get_running_loop(), asyncio.Queue[tuple[int, Token] | None]()

        def from_worker(item: tuple[int, Token] | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(drawn.put_nowait, item)

        requests = asked.requests(lambda number, rollout: from_worker((number, newest(rollout))))
        choices = [written(asked) for one in requests for _ in one.keys]
        head = written.head(asked, written.piece_name)

        def line(number: int, piece: dict, reason: str | None = None) -> str:
            about = {"index": number, "finish_reason": reason}
            return event(head | {"choices": [piece | about]})

        try:
            for one in requests:
                one.future.add_done_callback(lambda _: from_worker(None))
                self.worker.sample(one)
            for number, choice in enumerate(choices):
                if choice.opening:
                    yield line(number, choice.opening)
            running = len(requests)
            while running:
                item = await drawn.get()
                if item is None:
                    running -= 1
                elif piece := choices[item[0]].hear(item[1]):
                    yield line(item[0], piece)
            rollouts = [rollout for one in requests for rollout in one.future.result()]
            self.latest.appendleft(ShownCall.of(asked, rollouts))
            for number, rollout in enumerate(rollouts):
                for piece, reason in choices[number].rest(rollout):
                    yield line(number, piece, reason)
            if with_usage:
                yield event(head | {"choices": [], "usage": usage(asked, rollouts)})
        except UserError as error:
            yield event({"error": {"message": str(error), "type": "invalid_request_error"}})
        finally:
            for one in requests:
                one.cancelled = True
        yield "data: [DONE]\n\n"

    # -- others

    async def tokenize(self, request: HttpRequest) -> Response:
        """A text's or a conversation's tokens, in vLLM's words."""
        body = await read_body(request, Tokenize)
        base = self.models.base(body.model)

        def tokens() -> list[int]:
            if body.prompt is None:
                return tokens_of(conversation(body, base), "the conversation", base)
            return tokens_of(body.prompt, "the prompt", base, body.add_special_tokens)

        ids = await beside(request, tokens)
        return JSONResponse({"count": len(ids), "max_model_len": base.context, "tokens": ids})

    async def detokenize(self, request: HttpRequest) -> Response:
        body = await read_body(request, Detokenize)
        base = self.models.base(body.model)
        check_tokens(body.tokens, "tokens", base.vocabulary, len(body.tokens))
        return JSONResponse({"prompt": base.tokenizer.decode(body.tokens)})


async def elsewhere(request: HttpRequest) -> Response:
    raise NoSuchThing(f"rfs serve has no {request.url.path}: {ELSEWHERE[request.url.path]}")


def event(values: dict) -> str:
    return f"data: {json.dumps(values)}\n\n"
