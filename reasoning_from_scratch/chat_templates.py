"""Chat templates: a conversation as the one text that a model was trained on.

A model's folder contains its template, a small program in jinja2's language. It comes from a
stranger, so it runs in jinja2's sandbox: it can put strings together and do nothing else. A
template may call what transformers' `apply_chat_template` lets it call.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from reasoning_from_scratch.errors import UserError

# What `render_conversation` gives to a template, and its own parameters: names that no setting
# may have.
RESERVED_NAMES = {
    "template", "messages", "named_tokens", "answer_follows", "tools", "documents",
    "add_generation_prompt", "bos_token", "eos_token", "unk_token", "pad_token",
}  # fmt: skip


class Generation(Extension):
    """{% generation %} marks what an assistant says, for training; the text stays as it is."""

    tags = {"generation"}

    def parse(self, parser) -> nodes.Node:
        line = next(parser.stream).lineno
        inside = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(inside, lineno=line)


def as_json(value: object, ensure_ascii: bool = False, **options) -> str:
    """As JSON. jinja2's own filter would escape characters that HTML reserves."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def refuse(message: str) -> NoReturn:
    """A template calls this for a conversation that it cannot render."""
    raise TemplateError(message)


def format_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


@lru_cache(maxsize=8)
def compile_template(template: str):
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = as_json
    environment.globals |= {"raise_exception": refuse, "strftime_now": format_now}
    return environment.from_string(template)


def render_conversation(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    named_tokens: Mapping[str, str],
    answer_follows: bool = True,
    tools: Sequence[Mapping] | None = None,
    **settings: object,
) -> str:
    """The text of a conversation; with `answer_follows` it ends where an answer begins.

    `messages` are objects with role and content; `named_tokens` has bos_token, eos_token, ...;
    `tools` are what the model may call, and `settings` whatever else a template reads.
    """
    try:
        return compile_template(template).render(
            **settings,
            messages=messages,
            tools=tools,
            documents=None,
            add_generation_prompt=answer_follows,
            **named_tokens,
        )
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        why = " ".join(str(error).split())[:200]
        raise UserError(
            f"the model's chat template cannot be used ({why}); use a prompt without it, "
            "--prompt book or plain"
        ) from None
