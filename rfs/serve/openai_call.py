"""A call of OpenAI's: its prompts, as tokens, and how they are to be answered.

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
from rfs.serve.answer_parts import CALL_START, opens_thought, start_of_call
from rfs.serve.body import quoted
from rfs.serve.data import check_tokens, encode_text
from rfs.serve.models import Base
from rfs.serve.openai_bodies import Call, Chat, Completion, Conversation, Generate, SamplingOptions
from rfs.serve.worker import Request, Stops

MAX_ANSWERS = 4096  # of a call
MAX_TOOL_CALLS = 1000  # of tools in an answer: as many as it makes


@dataclass
class Prompts:
    """What the model reads, and what the prompt implies for the answer."""

    ids: list[list[int]]
    echoed: bool = False  # the answer begins with the prompt
    answer_start: str = ""  # the answer's first words, if the model is to go on from them
    in_thought: bool = False  # the prompt has opened a thought
    max_tool_calls: int = 0  # of tools


@dataclass
class SamplingCall:
    """A call that samples, with its model and its prompts as tokens."""

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
        sampling, requests = self.body.sampling, list[Request]()
        for number, (prompt, keys) in enumerate(zip(self.prompts.ids, self.keys, strict=True)):
            context_left = max(1, self.base.context - len(prompt))
            request = Request(
                self.policy,
                prompt,
                keys,
                context_left if sampling.token_limit is None else sampling.token_limit,
                sampling.temperature,
                sampling.top_p,
                sampling.top_k,
                self.stops,
                self.body.num_likely or 0,
            )
            if on_token:
                request.on_token = partial(call_with_number, on_token, number * sampling.n)
            requests.append(request)
        return requests


def call_with_number(on_token: Callable, first: int, number: int, rollout: Rollout) -> None:
    on_token(first + number, rollout)


# --- the prompts of the three calls


def prompts_of_completion(body: Completion, base: Base) -> Prompts:
    if len(body.prompt) > MAX_ANSWERS:
        raise UserError(f"{len(body.prompt):,} prompts are too many for one call")
    ids = []
    for number, prompt in enumerate(body.prompt):
        name = f"prompt {number}"
        if isinstance(prompt, str):
            ids.append(tokens_of(prompt, name, base, begins=True))
        else:
            check_tokens(prompt, name, base.vocabulary, base.context)
            ids.append(prompt)
    return Prompts(ids, body.echo)


def prompts_of_chat(body: Chat, base: Base) -> Prompts:
    text = conversation_prompt(body, base)
    in_thought, functions = opens_thought(text), required_functions(body, base)
    answer_start = start_of_call(functions, in_thought) if functions else ""
    ids = tokens_of(text + answer_start, "the conversation", base)
    max_tool_calls = (
        (MAX_TOOL_CALLS if body.parallel_tool_calls else 1) if body.offered_tools else 0
    )
    return Prompts(
        [ids], answer_start=answer_start, in_thought=in_thought, max_tool_calls=max_tool_calls
    )


def prompts_of_generate(body: Generate, base: Base) -> Prompts:
    check_tokens(body.token_ids, "token_ids", base.vocabulary, base.context)
    return Prompts([body.token_ids])


def stops_of(sampling: SamplingOptions, tokenizer) -> Stops:
    """The model's own stop tokens, and further texts or tokens."""
    prompt_format = prompt_format_of(tokenizer)
    texts = sampling.stop or ([prompt_format.stop] if prompt_format and prompt_format.stop else [])
    ids = {*model_stop_ids(tokenizer), *sampling.stop_token_ids}
    return Stops(frozenset(ids), tuple(texts), tokenizer)


def tokens_of(text: str, name: str, base: Base, begins: bool = False) -> list[int]:
    prompt = encode_text(text, name, base.tokenizer, base.context, begins)
    check_tokens(prompt, name, base.vocabulary, base.context)
    return prompt


# --- conversations


def required_functions(chat: Chat, base: Base) -> list[dict]:
    """The functions of which the answer must call one; none if the model may decide."""
    choice = chat.tool_choice
    if choice in ("auto", "none"):
        return []
    try:
        chosen = [tool["function"] for tool in chat.tools]
        names = {function["name"] for function in chosen}
        if choice != "required":
            chosen = [
                function for function in chosen if function["name"] == choice["function"]["name"]
            ]
    except (KeyError, TypeError):
        chosen, names = [], set()
    if not (chosen and all(isinstance(name, str) for name in names)):
        expected = "auto, none, required, or one of the functions in tools"
        raise UserError(f"tool_choice is {quoted(choice)}, but must be {expected}")
    if CALL_START.strip() not in chat_template(base.tokenizer):
        raise UserError(
            f"tool_choice {json.dumps(choice)} needs a model that writes its calls as "
            f"{CALL_START.strip()}, as Qwen3 does: for {base.name} use auto or none"
        )
    return chosen


def conversation_prompt(conversation: Conversation, base: Base) -> str:
    """The messages in the model's chat template. A single question to a model that was not trained
    on one: in the book's prompt, as in `rfs chat`."""
    if not conversation.messages:
        raise UserError("messages is [], but must be a list with a message in it")
    messages, tools = list(conversation.messages), conversation.offered_tools
    for number, message in enumerate(messages):
        if not isinstance(message.get("role"), str):
            raise UserError(f"messages[{number}] has no role")
        messages[number] = (
            message | {"content": message_text(message, number)} | tool_calls_of(message)
        )
        if message["role"] == "developer":  # OpenAI's new name for it, which few templates know
            messages[number]["role"] = "system"
    template, tokenizer = chat_template(base.tokenizer), base.tokenizer
    prompt_format = prompt_format_of(tokenizer)
    if [message["role"] for message in messages] == ["user"] and not tools:
        if prompt_format:
            return prompt_format.render(tokenizer, messages[0]["content"])  # as it was trained
        if not (tokenizer.chat_template or tokenizer.apply_chat_template):
            return render_prompt(messages[0]["content"])
    if not template:
        raise UserError(
            f"{base.name} has no chat template: send one user message, without tools, or use "
            "/v1/completions"
        )
    settings = conversation.chat_template_kwargs
    if reserved := sorted(set(settings) & RESERVED_NAMES):
        raise UserError(f"chat_template_kwargs has {reserved[0]}, which the call itself decides")
    render = partial(
        render_conversation, template, messages, tokenizer.named_tokens, True, **settings
    )
    text = render(tools=tools)
    if tools and text == render(tools=[]):
        raise UserError(
            f"{base.name}'s chat template has no place for tools: leave them out, or serve a model "
            "that was trained to call tools"
        )
    return text


def message_text(message: dict, number: int) -> str:
    """The text of a message, even if it comes in parts."""
    content = message.get("content")
    if content is None:
        return ""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    if len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
        raise UserError(f"messages[{number}] has a content that is not text")
    return "".join(texts)


def tool_calls_of(message: dict) -> dict:
    """The tool calls of a message, if it has any. OpenAI's client sends a call's arguments as JSON
    in a text; many templates write them as JSON themselves, and expect an object."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return {}
    return {"tool_calls": [with_parsed_arguments(call) for call in calls]}


def with_parsed_arguments(call: Any) -> Any:
    try:
        arguments = json.loads(call["function"]["arguments"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return call  # the template refuses it, or takes it as it is
    if not isinstance(arguments, dict):
        return call
    return call | {"function": call["function"] | {"arguments": arguments}}


def chat_template(tokenizer) -> str:
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
