"""OpenAI's API: completions of a text, answers in a conversation; and tokens in, tokens out.

A call is read into an `Asked`: some prompts, each with n answers. The worker samples them; for a
stream, each answer's `Choice` turns its tokens into text, piece by piece, as they come.
"""

import asyncio
import json
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import torch
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from reasoning_from_scratch.chat_templates import GIVEN_TO_TEMPLATES, rendered
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.weights import CHAT_TEMPLATE, TOKENIZER_CONFIG
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import asked_by, render_prompt
from reasoning_from_scratch.sampling import Rollout, stream_key
from reasoning_from_scratch.tokenizer import model_stop_ids
from rfs.report.tokens import TokenTexts
from rfs.serve.allowed import (
    CHAT,
    COMPLETION,
    SAMPLING,
    STREAM_OPTIONS,
    TALK,
    check_options,
)
from rfs.serve.body import Body, NoSuchThing, beside, read_body
from rfs.serve.data import check_tokens, encoded
from rfs.serve.messages import Likely
from rfs.serve.models import Base, Models
from rfs.serve.promises import done
from rfs.serve.prompts import Wanted, look_at
from rfs.serve.said import (
    CALL_BEGINS,
    Growing,
    call_begun,
    thinks_already,
    thought_and_answer,
    tool_calls,
    with_call_ended,
)
from rfs.serve.worker import Request, Stops, Worker

MOST_ANSWERS = 4096  # of a call
LOOKS_EVERY = 1.0  # seconds between two checks that the client is still there
# Calls of OpenAI's that have no counterpart here, and what to use.
ELSEWHERE = {
    "/v1/embeddings": "these models write text and give no embeddings",
    "/v1/responses": "use /v1/chat/completions, which every client of OpenAI's has, too",
}


SHOWN_CALLS = 20  # on the page at /


@dataclass
class Asked:
    """What a call requests."""

    base: Base
    policy: LocalPolicy
    model: str  # as the client calls it
    prompts: list[list[int]]
    n: int
    max_tokens: int
    params: dict  # temperature, top_p, top_k, stops
    keys: list[list[int]]  # a random stream for each answer to each prompt
    likely: int | None = None  # None: no log-probabilities; else how many of the most likely
    echo: bool = False
    tools: list | None = None
    one_call: bool = False  # at most one tool is called
    begun: str = ""  # the answer's first words, if they were given: the model goes on from them
    thinking: bool = False  # the prompt has opened a thought
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def requests(self, on_token: Callable | None = None) -> list[Request]:
        """One for each prompt; `on_token` gets (number of the answer among all, its rollout)."""
        found = []
        for place, (prompt, keys) in enumerate(zip(self.prompts, self.keys, strict=True)):
            request = Request(
                self.policy, prompt, keys, self.max_tokens, **self.params, likely=self.likely or 0
            )
            if on_token:
                request.on_token = partial(numbered, on_token, place * self.n)
            found.append(request)
        return found


def numbered(on_token: Callable, first: int, number: int, rollout: Rollout) -> None:
    on_token(first + number, rollout)


class OpenAI:
    """The calls of OpenAI's client."""

    def __init__(self, models: Models, worker: Worker, seed: int = 0) -> None:
        self.models, self.worker, self.seed = models, worker, seed
        self.calls = count()  # without a seed, each call has its own random streams
        self.began = int(time.time())
        self.latest: deque[tuple[Asked, list[Rollout]]] = deque(maxlen=SHOWN_CALLS)

    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", self.list_models),
            Route("/v1/models/{name:path}", self.get_model),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat_completions, methods=["POST"]),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
            Route("/health", self.health),
            *[Route(path, elsewhere, methods=["POST"]) for path in ELSEWHERE],
            Route("/inference/v1/generate", self.generate, methods=["POST"]),
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

    async def found(self, name: str) -> tuple[Base, LocalPolicy]:
        """A base by its name, or a save by its path."""
        if not name.startswith("tinker://"):
            base = self.models.base(name)
            return base, base.policy
        about, place = self.models.place_of(name)
        loading = self.worker.work(partial(self.models.policy_at, place))
        await done(loading)
        return self.models.base(about["base"]), loading.result()

    # -- calls

    async def completions(self, request: HttpRequest) -> Response:
        body = await read_body(request)
        check_options(body, COMPLETION)
        model = body.text("model")
        base, policy = await self.found(model)
        prompts = await beside(body.size, partial(prompts_of, body, base))
        asked = self.read(model, body, base, policy, prompts, default=16)
        asked.likely = body.maybe_integer("logprobs", 0, 20)
        asked.echo = body.yes("echo")
        if body.integer("best_of", 1, 128, asked.n) != asked.n:
            raise UserError("best_of is not supported: use n, and choose yourself")
        if body.yes("stream"):
            if asked.echo:
                raise UserError("a stream has no echo here: set stream to false")
            return self.streamed(body, asked, "text_completion", Choice)
        return await self.answered(request, asked, partial(self.completion, asked))

    async def completion(self, asked: Asked, rollouts: list[Rollout]) -> dict:
        choices = []
        texts = TokenTexts(asked.base.tokenizer)
        for number, rollout in enumerate(rollouts):
            text, _ = text_of(asked, rollout)
            logprobs = None
            ids, found, likely = rollout.response_ids, rollout.logprobs, rollout.likely
            if asked.max_tokens == 0:
                text, ids, found, likely = "", [], [], []
            if asked.echo:
                prompt = rollout.prompt_ids
                text = asked.base.tokenizer.decode(prompt) + text
                if asked.likely is not None:
                    scores, best = await self.scored(asked, prompt)
                    ids, found, likely = prompt + ids, [*scores, *found], [*best, *likely]
            if asked.likely is not None:
                logprobs = completion_logprobs(texts, ids, found, likely, asked.likely)
            reason = "length" if asked.max_tokens == 0 else rollout.stop_reason
            choices.append(
                {"index": number, "text": text, "logprobs": logprobs, "finish_reason": reason}
            )
        return head(asked, "text_completion") | {
            "choices": choices,
            "usage": usage(asked, rollouts),
        }

    async def scored(self, asked: Asked, prompt: list[int]) -> tuple[list, list]:
        """How likely the prompt's tokens are, and what was most likely in their places."""
        targets = [[token] for token in prompt[1:]]
        if not targets:
            return [None], [[]]
        wanted = Wanted(max(1, asked.likely or 0), np.array(targets))
        looking = self.worker.work(partial(look_at, asked.policy, prompt, wanted))
        await done(looking)
        known = looking.result()
        return [None, *known.targets[:, 0].tolist()], list(known.likely)

    async def chat_completions(self, request: HttpRequest) -> Response:
        body = await read_body(request)
        check_options(body, CHAT)
        model = body.text("model")
        base, policy = await self.found(model)
        tools = tools_of(body)
        reading = partial(read_conversation, body, base, tools)
        prompt, begun, thinking = await beside(body.size, reading)
        room = max(1, base.context - len(prompt))
        asked = self.read(model, body, base, policy, [prompt], default=room)
        asked.tools, asked.one_call = tools, not body.yes("parallel_tool_calls", True)
        asked.begun, asked.thinking = begun, thinking
        if body.yes("logprobs"):
            asked.likely = body.integer("top_logprobs", 0, 20, 0)
        elif body.has("top_logprobs"):
            raise UserError("top_logprobs needs logprobs: true")
        if body.yes("stream"):
            return self.streamed(body, asked, "chat.completion.chunk", Message)
        return await self.answered(request, asked, partial(self.chat_completion, asked))

    async def chat_completion(self, asked: Asked, rollouts: list[Rollout]) -> dict:
        choices = []
        texts = TokenTexts(asked.base.tokenizer)
        for number, rollout in enumerate(rollouts):
            text, reason = text_of(asked, rollout)
            message, reason = as_message(asked, text, reason)
            logprobs = None
            if asked.likely is not None:
                found = rollout.response_ids, rollout.logprobs, rollout.likely
                logprobs = chat_logprobs(texts, *found)
            choices.append(
                {"index": number, "message": message, "logprobs": logprobs, "finish_reason": reason}
            )
        return head(asked, "chat.completion") | {
            "choices": choices,
            "usage": usage(asked, rollouts),
        }

    async def generate(self, request: HttpRequest) -> Response:
        """Tokens in, tokens out, as the training client of verifiers expects."""
        body = await read_body(request)
        check_options(body, {"model", "token_ids", "sampling_params", "stream"})
        model = body.text("model")
        base, policy = await self.found(model)
        prompt = body.list_of("token_ids", int)
        check_tokens(prompt, "token_ids", base.vocabulary, base.context)
        given = body.part("sampling_params", {})
        check_options(given, SAMPLING)
        room = max(1, base.context - len(prompt))
        asked = self.read(model, given, base, policy, [prompt], default=room)
        asked.likely = given.maybe_integer("logprobs", 0, 20)
        if body.yes("stream"):
            raise UserError("/inference/v1/generate has no stream")

        async def as_tokens(rollouts: list[Rollout]) -> dict:
            choices = [
                {
                    "index": number,
                    "token_ids": rollout.response_ids,
                    "logprobs": {"content": token_logprobs(rollout)},
                    "finish_reason": rollout.stop_reason,
                }
                for number, rollout in enumerate(rollouts)
            ]
            about = {"request_id": asked.id, "model": asked.model, "prompt_logprobs": None}
            return about | {"choices": choices, "usage": usage(asked, rollouts)}

        return await self.answered(request, asked, as_tokens)

    async def tokenize(self, request: HttpRequest) -> Response:
        """A text's or a conversation's tokens, in vLLM's words."""
        body = await read_body(request)
        check_options(body, TALK | {"model", "prompt", "add_special_tokens"})
        base = self.models.base(body.text("model"))

        def tokens() -> list[int]:
            if body.has("messages"):
                return tokens_of(conversation(body, base, tools_of(body)), "the conversation", base)
            begins = body.yes("add_special_tokens", True)
            return tokens_of(body.text("prompt"), "the prompt", base, begins)

        ids = await beside(body.size, tokens)
        return JSONResponse({"count": len(ids), "max_model_len": base.context, "tokens": ids})

    async def detokenize(self, request: HttpRequest) -> Response:
        body = await read_body(request)
        check_options(body, {"model", "tokens"})
        base = self.models.base(body.text("model"))
        ids = body.list_of("tokens", int)
        check_tokens(ids, "tokens", base.vocabulary, len(ids))
        return JSONResponse({"prompt": base.tokenizer.decode(ids)})

    # -- what they have in common

    def read(
        self,
        model: str,
        body: Body,
        base: Base,
        policy: LocalPolicy,
        prompts: list[list[int]],
        default: int,
    ) -> Asked:
        n = body.integer("n", 1, 128, 1)
        if n * len(prompts) > MOST_ANSWERS:
            raise UserError(f"{n * len(prompts)} answers are too many for one call")
        name = "max_completion_tokens" if body.has("max_completion_tokens") else "max_tokens"
        most = body.integer(name, 0, 2**31, default)
        if most == 0 and not body.yes("echo"):
            raise body.wrong(name, "at least 1")
        seed = body.maybe_integer("seed", -(2**63), 2**64 - 1)
        call = next(self.calls)
        keys = []
        for place in range(len(prompts)):
            # Without a seed: streams that no Tinker client uses.
            stream = (self.seed, -1 - call, place) if seed is None else (seed, 0, place)
            keys.append(stream_key(*stream, torch.arange(n)).tolist())
        params = {
            "temperature": body.temperature(),
            "top_p": body.number("top_p", 1e-9, 1, 1.0),
            "top_k": max(0, body.integer("top_k", -1, 2**31, 0)),
            "stops": stops_of(body, base.tokenizer),
        }
        return Asked(base, policy, model, prompts, n, most, params, keys)

    async def answered(self, request: HttpRequest, asked: Asked, as_answer: Callable) -> Response:
        """Waits for all answers, as long as the client does."""
        requests = asked.requests()
        for one in requests:
            self.worker.sample(one)
        rollouts = []
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
        self.latest.appendleft((asked, rollouts))
        return JSONResponse(await as_answer(rollouts))

    def streamed(self, body: Body, asked: Asked, kind: str, written: "type[Choice]") -> Response:
        """The answers as they are drawn: a line for each piece of text."""
        options = body.part("stream_options", {})
        check_options(options, STREAM_OPTIONS)
        pieces = self.pieces(asked, kind, written, options.yes("include_usage"))
        return StreamingResponse(pieces, media_type="text/event-stream")

    async def pieces(
        self, asked: Asked, kind: str, written: "type[Choice]", with_usage: bool
    ) -> AsyncIterator[str]:
        loop, drawn = asyncio.get_running_loop(), asyncio.Queue[tuple[int, Token] | None]()

        def from_worker(item: tuple[int, Token] | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(drawn.put_nowait, item)

        requests = asked.requests(lambda number, rollout: from_worker((number, newest(rollout))))
        choices = [written(asked) for one in requests for _ in one.keys]
        started = head(asked, kind)

        def line(number: int, piece: dict, reason: str | None = None) -> str:
            about = {"index": number, "finish_reason": reason}
            return event(started | {"choices": [piece | about]})

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
            self.latest.appendleft((asked, rollouts))
            for number, rollout in enumerate(rollouts):
                for piece, reason in choices[number].rest(rollout):
                    yield line(number, piece, reason)
            if with_usage:
                yield event(started | {"choices": [], "usage": usage(asked, rollouts)})
        except UserError as error:
            yield event({"error": {"message": str(error), "type": "invalid_request_error"}})
        finally:
            for one in requests:
                one.cancelled = True
        yield "data: [DONE]\n\n"


# A token, its log-probability, and the most likely tokens in its place.
Token = tuple[int, float, Sequence[tuple[int, float]]]


def newest(rollout: Rollout) -> Token:
    likely = rollout.likely[-1] if rollout.likely else ()
    return rollout.response_ids[-1], rollout.logprobs[-1], likely


class Choice:
    """A completion, as it grows. A character may take several tokens, and text that might begin a
    stop text is held back. Log-probabilities go with the next piece of text."""

    opening: dict | None = None  # the first piece, before anything is drawn

    def __init__(self, asked: Asked) -> None:
        self.asked, self.tokenizer = asked, asked.base.tokenizer
        self.texts = TokenTexts(self.tokenizer)
        stops = asked.params["stops"]
        self.stops = stops
        self.waits = max([len(text) - 1 for text in stops.texts], default=0)
        self.ids: list[int] = []
        self.start = self.known = 0  # of the tokens: from `start` on they are decoded together
        self.text, self.sent = "", 0
        self.unsent: list[Token] = []  # whose log-probabilities have not been sent
        self.length = 0  # characters of the tokens whose log-probabilities have been sent

    def hear(self, token: Token) -> dict | None:
        """The next piece, if the newest token completes one."""
        self.unsent.append(token)
        text = self.read(token[0])
        return self.piece(text) if text else None

    def read(self, token: int) -> str:
        if token in self.stops.ids:
            return ""
        self.ids.append(token)
        before = self.tokenizer.decode(self.ids[self.start : self.known])
        whole = self.tokenizer.decode(self.ids[self.start :])
        if not whole.endswith("\ufffd"):
            self.text += whole[len(before) :]
            self.start, self.known = self.known, len(self.ids)
        return self.up_to(min(len(self.text) - self.waits, end_of(self.text, self.stops)))

    def up_to(self, end: int) -> str:
        """The text up to `end` that has not been sent."""
        before, self.sent = self.sent, max(self.sent, end)
        return self.text[before : self.sent]

    def rest(self, rollout: Rollout) -> list[tuple[dict, str | None]]:
        """What has not been sent, and why the answer ended."""
        whole, reason = text_of(self.asked, rollout)
        return [(self.piece(whole[self.sent :]), reason)]

    def piece(self, text: str) -> dict:
        return {"text": text, "logprobs": self.logprobs()}

    def logprobs(self) -> dict | None:
        """Of the tokens since the last piece."""
        if self.asked.likely is None:
            return None
        unsent, self.unsent = self.unsent, []
        return self.as_logprobs(
            [token for token, _, _ in unsent],
            [logprob for _, logprob, _ in unsent],
            [likely for _, _, likely in unsent],
        )

    def as_logprobs(self, ids: list[int], logprobs: list[float], likely: list) -> dict:
        first = self.length
        self.length += sum(map(len, self.texts.each(ids)))
        return completion_logprobs(self.texts, ids, logprobs, likely, self.asked.likely or 0, first)


class Message(Choice):
    """A message, as it grows: its thought, and what it says."""

    opening = {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked)
        self.said = Growing(asked.thinking)

    def read(self, token: int) -> str:
        text = super().read(token)
        return "" if self.asked.tools else text  # only its end shows whether it is a call

    def piece(self, text: str, whole: bool = False) -> dict | None:
        delta = self.said.add(text, whole)
        return {"delta": delta, "logprobs": self.logprobs()} if delta or whole else None

    def rest(self, rollout: Rollout) -> list[tuple[dict, str | None]]:
        whole, reason = text_of(self.asked, rollout)
        if not self.asked.tools:
            return [(self.piece(whole[self.sent :], whole=True), reason)]
        message, reason = as_message(self.asked, whole, reason)
        calls = [call | {"index": i} for i, call in enumerate(message.get("tool_calls", []))]
        delta = {"content": message["content"]} | ({"tool_calls": calls} if calls else {})
        if "reasoning_content" in message:
            delta["reasoning_content"] = message["reasoning_content"]
        last: dict = {"delta": {}, "logprobs": None}
        return [({"delta": delta, "logprobs": self.logprobs()}, None), (last, reason)]

    def as_logprobs(self, ids: list[int], logprobs: list[float], likely: list) -> dict:
        return chat_logprobs(self.texts, ids, logprobs, likely)


# --- reading


async def elsewhere(request: HttpRequest) -> Response:
    raise NoSuchThing(f"rfs serve has no {request.url.path}: {ELSEWHERE[request.url.path]}")


def prompts_of(body: Body, base: Base) -> list[list[int]]:
    """A text, a list of texts, of tokens, or of lists of tokens."""
    given = body.values.get("prompt")
    several = given if isinstance(given, list) and given else [given]
    if all(type(one) is int for one in several):
        several = [several]
    if len(several) > MOST_ANSWERS:
        raise UserError(f"{len(several):,} prompts are too many for one call")
    prompts = []
    for number, one in enumerate(several):
        tokens = isinstance(one, list) and all(type(token) is int for token in one)
        if not (tokens or isinstance(one, str)):
            raise body.wrong("prompt", "a text, tokens, or a list of these")
        name, how = f"prompt {number}", (base.tokenizer, base.context)
        ids = one if tokens else encoded(one, name, *how, begins=True)
        check_tokens(ids, name, base.vocabulary, base.context)
        prompts.append(ids)
    return prompts


def stops_of(body: Body, tokenizer) -> Stops:
    """The model's own stop tokens, and further texts or tokens."""
    asked = asked_by(tokenizer)
    given = body.values.get("stop") or (asked.stop if asked else None) or []
    texts = given if isinstance(given, list) else [given]
    if not all(isinstance(text, str) and 0 < len(text) <= 500 for text in texts) or len(texts) > 64:
        raise body.wrong("stop", "a text, or a list of texts")
    ids = body.list_of("stop_token_ids", int, 1000) if body.has("stop_token_ids") else []
    return Stops(frozenset(model_stop_ids(tokenizer)) | set(ids), tuple(texts), tokenizer)


def tools_of(body: Body) -> list[dict] | None:
    """What the model may call."""
    tools = [tool.values for tool in body.parts("tools", 128)] if body.has("tools") else []
    return None if body.values.get("tool_choice") == "none" else tools or None


def called_by_choice(body: Body, base: Base, tools: list[dict] | None) -> list[dict]:
    """The functions one of which the answer must call; none if that is left to the model."""
    choice = body.values.get("tool_choice")
    if choice in (None, "auto", "none"):
        return []
    try:
        chosen = [tool["function"] for tool in tools or []]
        names = {function["name"] for function in chosen}
        if choice != "required":
            chosen = [one for one in chosen if one["name"] == choice["function"]["name"]]
    except (KeyError, TypeError):
        chosen, names = [], set()
    if not (chosen and all(isinstance(name, str) for name in names)):
        raise body.wrong("tool_choice", "auto, none, required, or one of the functions in tools")
    if CALL_BEGINS.strip() not in template_of(base.tokenizer):
        raise UserError(
            f"tool_choice {json.dumps(choice)} needs a model that writes its calls as "
            f"{CALL_BEGINS.strip()}, as Qwen3 does: for {base.name} use auto or none"
        )
    return chosen


def read_conversation(
    body: Body, base: Base, tools: list[dict] | None
) -> tuple[list[int], str, bool]:
    """A call's prompt; how its answer begins, if the call decides that; and whether the prompt has
    opened a thought."""
    text = conversation(body, base, tools)
    thinking, chosen = thinks_already(text), called_by_choice(body, base, tools)
    begun = call_begun(chosen, thinking) if chosen else ""
    return tokens_of(text + begun, "the conversation", base), begun, thinking


def tokens_of(text: str, name: str, base: Base, begins: bool = False) -> list[int]:
    prompt = encoded(text, name, base.tokenizer, base.context, begins)
    check_tokens(prompt, name, base.vocabulary, base.context)
    return prompt


def conversation(body: Body, base: Base, tools: list[dict] | None) -> str:
    """The messages in the model's chat template. A single question to a model that was not trained
    on one: in the book's prompt, as in `rfs chat`."""
    messages = [message.values for message in body.parts("messages", 10_000)]
    if not messages:
        raise body.wrong("messages", "a list with a message in it")
    for number, message in enumerate(messages):
        if not isinstance(message.get("role"), str):
            raise UserError(f"messages[{number}] has no role")
        messages[number] = message | {"content": content_of(message, number)} | called_by(message)
        if message["role"] == "developer":  # OpenAI's new name for it, which few templates know
            messages[number]["role"] = "system"
    template, tokenizer = template_of(base.tokenizer), base.tokenizer
    asked = asked_by(tokenizer)
    if [message["role"] for message in messages] == ["user"] and not tools:
        if asked:
            return asked.read_by(tokenizer, messages[0]["content"])  # as it was trained
        if not (tokenizer.chat_template or tokenizer.apply_chat_template):
            return render_prompt(messages[0]["content"])
    if not template:
        raise UserError(
            f"{base.name} has no chat template: send one user message, without tools, or use "
            "/v1/completions"
        )
    settings = body.part("chat_template_kwargs", {}).values
    if own := sorted(set(settings) & GIVEN_TO_TEMPLATES):
        raise UserError(f"chat_template_kwargs has {own[0]}, which the call itself decides")
    put = partial(rendered, template, messages, tokenizer.named_tokens, True, **settings)
    text = put(tools=tools)
    if tools and text == put(tools=[]):
        raise UserError(
            f"{base.name}'s chat template has no place for tools: leave them out, or serve a model "
            "that was trained to call tools"
        )
    return text


def content_of(message: dict, number: int) -> str:
    """The text of a message, even if it comes in parts."""
    content = message.get("content")
    if content is None:
        return ""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    if len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
        raise UserError(f"messages[{number}] has a content that is not text")
    return "".join(texts)


def called_by(message: dict) -> dict:
    """The tool calls of a message, if it has any. OpenAI's client sends a call's arguments as JSON
    in a text; many templates write them as JSON themselves, and expect an object."""
    calls = message.get("tool_calls")
    return {"tool_calls": [as_called(call) for call in calls]} if isinstance(calls, list) else {}


def as_called(call: Any) -> Any:
    try:
        arguments = json.loads(call["function"]["arguments"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return call  # the template refuses it, or takes it as it is
    if not isinstance(arguments, dict):
        return call
    return call | {"function": call["function"] | {"arguments": arguments}}


def template_of(tokenizer) -> str:
    """The chat template in the model's folder; else Qwen3's, if the model was trained on it."""
    if tokenizer.chat_template:
        return tokenizer.chat_template
    jinja = tokenizer.files.get("chat_template.jinja")
    if jinja:
        return jinja.decode(errors="replace")
    settings = json.loads(tokenizer.files.get(TOKENIZER_CONFIG, b"{}"))
    template = settings.get("chat_template")
    if isinstance(template, str):
        return template
    return CHAT_TEMPLATE if tokenizer.apply_chat_template else ""


# --- writing


def head(asked: Asked, kind: str) -> dict:
    prefix = "chatcmpl" if kind.startswith("chat") else "cmpl"
    about = {"id": f"{prefix}-{asked.id}", "object": kind, "created": asked.created}
    return about | {"model": asked.model}


def event(values: dict) -> str:
    return f"data: {json.dumps(values)}\n\n"


def usage(asked: Asked, rollouts: Sequence[Rollout]) -> dict:
    read = sum(map(len, asked.prompts))
    written = sum(len(r.response_ids) for r in rollouts) if asked.max_tokens else 0
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def end_of(text: str, stops: Stops) -> int:
    """Where the first stop text begins, else the end of the text."""
    places = [text.find(stop) for stop in stops.texts]
    return min([place for place in places if place >= 0], default=len(text))


def text_of(asked: Asked, rollout: Rollout) -> tuple[str, str]:
    """The answer without what ended it, and why it ended."""
    stops, ids = asked.params["stops"], rollout.response_ids
    if ids and ids[-1] in stops.ids:
        ids = ids[:-1]
    text = asked.base.tokenizer.decode(ids)
    return asked.begun + text[: end_of(text, stops)], rollout.stop_reason


def as_message(asked: Asked, text: str, reason: str) -> tuple[dict, str]:
    """What the assistant thinks and says, and which tools it calls."""
    thought, answer = thought_and_answer(text, asked.thinking)
    message: dict = {"role": "assistant", "content": answer, "refusal": None}
    if thought:
        message["reasoning_content"] = thought
    calls: list[dict] = []
    rest = answer
    if asked.tools:
        calls, rest = tool_calls(with_call_ended(answer) if asked.begun else answer)
        rest = rest if calls else answer
    if calls:
        message["content"] = rest.strip() or None
        message["tool_calls"] = calls[:1] if asked.one_call else calls
        reason = "tool_calls"
    return message, reason


def completion_logprobs(
    texts: TokenTexts, ids: list[int], logprobs: list, likely: Likely, count: int, first: int = 0
) -> dict:
    """`first`: how many characters come before these tokens."""
    tokens = texts.each(ids)
    offsets = [first]
    for token in tokens[:-1]:
        offsets.append(offsets[-1] + len(token))
    best = [
        {texts.one(token): value for token, value in place[:count]} if place else None
        for place in likely or [[]] * len(ids)
    ]
    return {
        "tokens": tokens,
        "token_logprobs": logprobs,
        "top_logprobs": best if count else None,
        "text_offset": offsets[: len(ids)],
    }


def chat_logprobs(
    texts: TokenTexts, ids: Sequence[int], logprobs: Sequence[float], likely: Likely
) -> dict:
    def one(token: int, logprob: float) -> dict:
        text = texts.one(token)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode(errors="replace"))}

    content = [
        one(token, logprob) | {"top_logprobs": [one(*other) for other in others]}
        for token, logprob, others in zip(ids, logprobs, likely or [[]] * len(ids), strict=True)
    ]
    return {"content": content, "refusal": None}


def token_logprobs(rollout: Rollout) -> list[dict]:
    return [
        {"token": f"token_id:{token}", "logprob": logprob, "bytes": None, "top_logprobs": []}
        for token, logprob in zip(rollout.response_ids, rollout.logprobs, strict=True)
    ]
