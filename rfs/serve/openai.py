"""OpenAI's API: completions of a text, answers in a conversation; and tokens in, tokens out.

The three calls take one path: a call becomes a `SamplingCall`, some prompts with n answers each;
the worker samples them; a `TextChoice` writes each answer, whole or, for a stream, piece by piece.
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
from rfs.serve.body import NotFound, in_thread_if_long, read_body
from rfs.serve.choices import ChatChoice, TextChoice, Token, TokensChoice, newest, text_of, usage
from rfs.serve.data import check_tokens
from rfs.serve.models import Base, Models
from rfs.serve.openai_bodies import (
    Call,
    Chat,
    Completion,
    Detokenize,
    Generate,
    StreamedCall,
    Tokenize,
)
from rfs.serve.openai_call import (
    MAX_ANSWERS,
    SamplingCall,
    conversation_prompt,
    prompts_of_chat,
    prompts_of_completion,
    prompts_of_generate,
    stops_of,
    tokens_of,
)
from rfs.serve.promises import result_of, wait_for
from rfs.serve.prompt_scores import PromptQuery, score_prompt
from rfs.serve.recent_calls import local_time
from rfs.serve.worker import Worker

DISCONNECT_CHECK_INTERVAL = 1.0  # seconds between two checks that the client is still there
# Calls of OpenAI's that have no counterpart here, and what to use.
UNSUPPORTED_CALLS = {
    "/v1/embeddings": "these models write text and give no embeddings",
    "/v1/responses": "use /v1/chat/completions, which every client of OpenAI's has, too",
}
SHOWN_CALLS = 20  # on the page at /


class CallType(NamedTuple):
    """What is particular to a call that samples."""

    body: type[Call]
    prompts: Callable  # (body, base) -> Prompts
    choice_class: type[TextChoice]


SAMPLING_CALLS = {
    "/v1/completions": CallType(Completion, prompts_of_completion, TextChoice),
    "/v1/chat/completions": CallType(Chat, prompts_of_chat, ChatChoice),
    "/inference/v1/generate": CallType(Generate, prompts_of_generate, TokensChoice),
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
    def of(cls, call: SamplingCall, rollouts: list[Rollout]) -> "ShownCall":
        tokens = usage(call, rollouts)
        return cls(
            local_time(call.created),
            call.body.model,
            len(rollouts),
            tokens["prompt_tokens"],
            tokens["completion_tokens"],
            one_line(text_of(call, rollouts[0])[0], 80),
        )


class OpenAI:
    """The calls of OpenAI's client."""

    def __init__(self, models: Models, worker: Worker, seed: int = 0) -> None:
        self.models, self.worker, self.seed = models, worker, seed
        self.calls = count()  # without a seed, each call has its own random streams
        self.started_at = int(time.time())
        self.latest_calls: deque[ShownCall] = deque(maxlen=SHOWN_CALLS)

    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", self.list_models),
            Route("/v1/models/{name:path}", self.get_model),
            *[
                Route(path, partial(self.sample, call_type), methods=["POST"])
                for path, call_type in SAMPLING_CALLS.items()
            ],
            *[Route(path, refuse_unsupported, methods=["POST"]) for path in UNSUPPORTED_CALLS],
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
        row = {"id": base.name, "object": "model", "created": self.started_at, "owned_by": "you"}
        return row | {"max_model_len": base.context}

    async def base_and_policy(self, name: str) -> tuple[Base, LocalPolicy]:
        """A base by its name, or a save by its path."""
        if not name.startswith("tinker://"):
            base = self.models.base(name)
            return base, base.policy
        record, weights_folder = self.models.locate_save(name)
        policy = await result_of(
            self.worker.submit(partial(self.models.load_policy, weights_folder))
        )
        return self.models.base(record.base), policy

    # -- calls that sample

    async def sample(self, call_type: CallType, request: HttpRequest) -> Response:
        body = await read_body(request, call_type.body)
        base, policy = await self.base_and_policy(body.model)
        call = await in_thread_if_long(
            request, partial(self.prepare, call_type, body, base, policy)
        )
        if isinstance(body, StreamedCall) and body.stream:
            stream = self.stream(call, call_type.choice_class, body.stream_options.include_usage)
            return StreamingResponse(stream, media_type="text/event-stream")
        return await self.wait_for_answers(request, call, call_type.choice_class)

    def prepare(
        self, call_type: CallType, body: Call, base: Base, policy: LocalPolicy
    ) -> SamplingCall:
        prompts, sampling = call_type.prompts(body, base), body.sampling
        if sampling.n * len(prompts.ids) > MAX_ANSWERS:
            raise UserError(f"{sampling.n * len(prompts.ids)} answers are too many for one call")
        if sampling.token_limit != 0:  # else the call only scores its prompts
            for prompt in prompts.ids:  # here, because a stream that has begun has no status 400
                room_for_answer(policy.model, len(prompt), 1)
        call_number, keys = next(self.calls), []
        for number in range(len(prompts.ids)):
            # Without a seed: streams that no Tinker client uses.
            seeded = sampling.seed is not None
            stream_ids = (
                (sampling.seed, 0, number) if seeded else (self.seed, -1 - call_number, number)
            )
            keys.append(stream_key(*stream_ids, torch.arange(sampling.n)).tolist())
        return SamplingCall(body, base, policy, prompts, keys, stops_of(sampling, base.tokenizer))

    async def wait_for_answers(
        self, http_request: HttpRequest, call: SamplingCall, choice_class: type[TextChoice]
    ) -> Response:
        """Waits for all answers, as long as the client does."""
        requests = call.requests()
        for request in requests:
            self.worker.sample(request)
        rollouts: list[Rollout] = []
        try:
            for request in requests:
                while not request.future.done():
                    try:
                        await wait_for(request.future, DISCONNECT_CHECK_INTERVAL)
                    except asyncio.TimeoutError:
                        if await http_request.is_disconnected():
                            return Response(status_code=499)
                rollouts += request.future.result()
        finally:
            for request in requests:
                request.cancelled = True
        self.latest_calls.appendleft(ShownCall.of(call, rollouts))
        choices: list[dict] = []
        scores_prompt = call.prompts.echoed and call.body.num_likely is not None
        for request in requests:
            scores = await self.prompt_scores(call, request.prompt) if scores_prompt else None
            for rollout in request.future.result():
                choices.append(choice_class(call).whole(rollout, scores) | {"index": len(choices)})
        answer = choice_class.head(call, choice_class.whole_name) | {"choices": choices}
        return JSONResponse(answer | {"usage": usage(call, rollouts)})

    async def prompt_scores(self, call: SamplingCall, prompt: list[int]) -> tuple[list, list]:
        """How likely the prompt's tokens are, and what was most likely in their places."""
        targets = [[token] for token in prompt[1:]]
        if not targets:
            return [None], [[]]
        query = PromptQuery(max(1, call.body.num_likely or 0), np.array(targets))
        score = partial(score_prompt, call.policy, prompt, query)
        scores = await result_of(self.worker.submit(score))
        return [None, *scores.targets[:, 0].tolist()], list(scores.likely)

    async def stream(
        self, call: SamplingCall, choice_class: type[TextChoice], with_usage: bool
    ) -> AsyncIterator[str]:
        """The answers as they are drawn: a line for each piece of text."""
        loop, tokens = asyncio.get_running_loop(), asyncio.Queue[tuple[int, Token] | None]()

        def from_worker(item: tuple[int, Token] | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(tokens.put_nowait, item)

        requests = call.requests(lambda number, rollout: from_worker((number, newest(rollout))))
        choices = [choice_class(call) for request in requests for _ in request.keys]
        head = choice_class.head(call, choice_class.piece_name)

        def line(number: int, piece: dict, reason: str | None = None) -> str:
            about = {"index": number, "finish_reason": reason}
            return event(head | {"choices": [piece | about]})

        try:
            for request in requests:
                request.future.add_done_callback(lambda _: from_worker(None))
                self.worker.sample(request)
            for number, choice in enumerate(choices):
                if choice.opening:
                    yield line(number, choice.opening)
            running = len(requests)
            while running:
                item = await tokens.get()
                if item is None:
                    running -= 1
                elif piece := choices[item[0]].add_token(item[1]):
                    yield line(item[0], piece)
            rollouts = [rollout for request in requests for rollout in request.future.result()]
            self.latest_calls.appendleft(ShownCall.of(call, rollouts))
            for number, rollout in enumerate(rollouts):
                for piece, reason in choices[number].rest(rollout):
                    yield line(number, piece, reason)
            if with_usage:
                yield event(head | {"choices": [], "usage": usage(call, rollouts)})
        except UserError as error:
            yield event({"error": {"message": str(error), "type": "invalid_request_error"}})
        finally:
            for request in requests:
                request.cancelled = True
        yield "data: [DONE]\n\n"

    # -- others

    async def tokenize(self, request: HttpRequest) -> Response:
        """A text's or a conversation's tokens, in vLLM's words."""
        body = await read_body(request, Tokenize)
        base = self.models.base(body.model)

        def tokens() -> list[int]:
            if body.prompt is None:
                return tokens_of(conversation_prompt(body, base), "the conversation", base)
            return tokens_of(body.prompt, "the prompt", base, body.add_special_tokens)

        ids = await in_thread_if_long(request, tokens)
        return JSONResponse({"count": len(ids), "max_model_len": base.context, "tokens": ids})

    async def detokenize(self, request: HttpRequest) -> Response:
        body = await read_body(request, Detokenize)
        base = self.models.base(body.model)
        check_tokens(body.tokens, "tokens", base.vocabulary, len(body.tokens))
        return JSONResponse({"prompt": base.tokenizer.decode(body.tokens)})


async def refuse_unsupported(request: HttpRequest) -> Response:
    raise NotFound(f"rfs serve has no {request.url.path}: {UNSUPPORTED_CALLS[request.url.path]}")


def event(values: dict) -> str:
    return f"data: {json.dumps(values)}\n\n"
