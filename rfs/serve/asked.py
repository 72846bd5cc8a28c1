"""What a call of OpenAI's requests: its prompts, as tokens, and how they are to be answered.

A prompt is a text, tokens, or a conversation in the model's chat template.
"""

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from reasoning_from_scratch.chat_templates import RESERVED_NAMES, render_conversation
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.weights import CHAT_TEMPLATE, TOKENIZER_CONFIG
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import prompt_format_of, render_prompt
from reasoning_from_scratch.sampling import Rollout
from reasoning_from_scratch.tokenizer import model_stop_ids
from rfs.report.tokens import TokenTexts
from rfs.serve.body import quoted
from rfs.serve.data import check_tokens, encoded
from rfs.serve.models import Base
from rfs.serve.openai_bodies import Call, Chat, Completion, Generate, Sampled, Talk
from rfs.serve.said import CALL_BEGINS, call_begun, thinks_already
from rfs.serve.worker import Request, Stops

MOST_ANSWERS = 4096  # of a call
MANY_CALLS = 1000  # of tools in an answer: as many as it makes


@dataclass
class Prompts:
    """What the model reads, and what follows from it for the answer."""

    ids: list[list[int]]
    echoed: bool = False  # the answer begins with the prompt
    begun: str = ""  # the answer's first words, if they were given: the model goes on from them
    thinking: bool = False  # the prompt has opened a thought
    most_calls: int = 0  # of tools


@dataclass
class Asked:
    """A call that was read."""

    body: Call
    base: Base
    policy: LocalPolicy
    prompts: Prompts
    keys: list[list[int]]  # a random stream for each answer to each prompt
    stops: Stops
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.texts = TokenTexts(self.base.tokenizer)

    def requests(self, on_token: Callable | None = None) -> list[Request]:
        """One for each prompt; `on_token` gets (number of the answer among all, its rollout)."""
        drawn, requests = self.body.drawn, list[Request]()
        for place, (prompt, keys) in enumerate(zip(self.prompts.ids, self.keys, strict=True)):
            room = max(1, self.base.context - len(prompt))
            request = Request(
                self.policy,
                prompt,
                keys,
                room if drawn.most is None else drawn.most,
                drawn.temperature,
                drawn.top_p,
                drawn.top_k,
                self.stops,
                self.body.likely or 0,
            )
            if on_token:
                request.on_token = partial(numbered, on_token, place * drawn.n)
            requests.append(request)
        return requests


def numbered(on_token: Callable, first: int, number: int, rollout: Rollout) -> None:
    on_token(first + number, rollout)


# --- the prompts of the three calls


def prompts_of_completion(body: Completion, base: Base) -> Prompts:
    if len(body.prompt) > MOST_ANSWERS:
        raise UserError(f"{len(body.prompt):,} prompts are too many for one call")
    ids = []
    for number, one in enumerate(body.prompt):
        name = f"prompt {number}"
        if isinstance(one, str):
            ids.append(tokens_of(one, name, base, begins=True))
        else:
            check_tokens(one, name, base.vocabulary, base.context)
            ids.append(one)
    return Prompts(ids, body.echo)


def prompts_of_chat(body: Chat, base: Base) -> Prompts:
    text = conversation(body, base)
    thinking, chosen = thinks_already(text), called_by_choice(body, base)
    begun = call_begun(chosen, thinking) if chosen else ""
    ids = tokens_of(text + begun, "the conversation", base)
    most_calls = (MANY_CALLS if body.parallel_tool_calls else 1) if body.offered else 0
    return Prompts([ids], begun=begun, thinking=thinking, most_calls=most_calls)


def prompts_of_generate(body: Generate, base: Base) -> Prompts:
    check_tokens(body.token_ids, "token_ids", base.vocabulary, base.context)
    return Prompts([body.token_ids])


def stops_of(drawn: Sampled, tokenizer) -> Stops:
    """The model's own stop tokens, and further texts or tokens."""
    asked = prompt_format_of(tokenizer)
    texts = drawn.stop or ([asked.stop] if asked and asked.stop else [])
    ids = {*model_stop_ids(tokenizer), *drawn.stop_token_ids}
    return Stops(frozenset(ids), tuple(texts), tokenizer)


def tokens_of(text: str, name: str, base: Base, begins: bool = False) -> list[int]:
    prompt = encoded(text, name, base.tokenizer, base.context, begins)
    check_tokens(prompt, name, base.vocabulary, base.context)
    return prompt


# --- conversations


def called_by_choice(chat: Chat, base: Base) -> list[dict]:
    """The functions one of which the answer must call; none if that is left to the model."""
    choice = chat.tool_choice
    if choice in ("auto", "none"):
        return []
    try:
        chosen = [tool["function"] for tool in chat.tools]
        names = {function["name"] for function in chosen}
        if choice != "required":
            chosen = [one for one in chosen if one["name"] == choice["function"]["name"]]
    except (KeyError, TypeError):
        chosen, names = [], set()
    if not (chosen and all(isinstance(name, str) for name in names)):
        expected = "auto, none, required, or one of the functions in tools"
        raise UserError(f"tool_choice is {quoted(choice)}, but must be {expected}")
    if CALL_BEGINS.strip() not in template_of(base.tokenizer):
        raise UserError(
            f"tool_choice {json.dumps(choice)} needs a model that writes its calls as "
            f"{CALL_BEGINS.strip()}, as Qwen3 does: for {base.name} use auto or none"
        )
    return chosen


def conversation(talk: Talk, base: Base) -> str:
    """The messages in the model's chat template. A single question to a model that was not trained
    on one: in the book's prompt, as in `rfs chat`."""
    if not talk.messages:
        raise UserError("messages is [], but must be a list with a message in it")
    messages, tools = list(talk.messages), talk.offered
    for number, message in enumerate(messages):
        if not isinstance(message.get("role"), str):
            raise UserError(f"messages[{number}] has no role")
        messages[number] = message | {"content": content_of(message, number)} | called_by(message)
        if message["role"] == "developer":  # OpenAI's new name for it, which few templates know
            messages[number]["role"] = "system"
    template, tokenizer = template_of(base.tokenizer), base.tokenizer
    asked = prompt_format_of(tokenizer)
    if [message["role"] for message in messages] == ["user"] and not tools:
        if asked:
            return asked.render(tokenizer, messages[0]["content"])  # as it was trained
        if not (tokenizer.chat_template or tokenizer.apply_chat_template):
            return render_prompt(messages[0]["content"])
    if not template:
        raise UserError(
            f"{base.name} has no chat template: send one user message, without tools, or use "
            "/v1/completions"
        )
    settings = talk.chat_template_kwargs
    if own := sorted(set(settings) & RESERVED_NAMES):
        raise UserError(f"chat_template_kwargs has {own[0]}, which the call itself decides")
    put = partial(render_conversation, template, messages, tokenizer.named_tokens, True, **settings)
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
