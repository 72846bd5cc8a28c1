"""An answer's text as a message: thought, words and calls, whole and as it grows."""

import json
from types import SimpleNamespace

import pytest

from reasoning_from_scratch import Rollout
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.weights import CHAT_TEMPLATE
from reasoning_from_scratch.tokenizer import EXAMPLE_TOOL
from rfs.serve.answer_parts import (
    opens_thought,
    split_thought,
    start_of_call,
)
from rfs.serve.body import validate
from rfs.serve.choices import ChatChoice, as_message
from rfs.serve.openai_bodies import Chat
from rfs.serve.openai_call import Prompts, SamplingCall, required_functions
from rfs.serve.worker import Stops

OF_BYTES = SimpleNamespace(decode=lambda ids: bytes(ids).decode(errors="replace"))
TEXTS = [
    # text, whether the prompt opened a thought, thought, answer
    ("42", False, "", "42"),
    (" \n 42</think>", False, "", " \n 42</think>"),
    ("<think>\n6 * 7\n</think>\n\nIt is <b>42</b>.", False, "6 * 7", "It is <b>42</b>."),
    ("\n<think>\n\n</think>\n\n42", False, "", "42"),
    ("6 * 7 </thin\n</think>42", True, "6 * 7 </thin", "42"),
    ("<think>still at", False, "still at", ""),
    ("still at", True, "still at", ""),
    ("<thinner>", False, "", "<thinner>"),
    ("", False, "", ""),
]


def asked(stops=(), **more):
    base, stops = SimpleNamespace(tokenizer=OF_BYTES), Stops(frozenset(), stops)
    body = Chat(model="x", messages=[{"role": "user", "content": "1"}])
    return SamplingCall(body, base, None, Prompts([[1]], **more), [[1]], stops)


@pytest.mark.parametrize("text, inside, thought, answer", TEXTS)
def test_thought_and_answer(text, inside, thought, answer):
    assert split_thought(text, inside) == (thought, answer)


@pytest.mark.parametrize("stops", [(), ("never",)])
@pytest.mark.parametrize("text, inside, thought, answer", TEXTS)
def test_a_stream_says_the_same(text, inside, thought, answer, stops):
    message, ids = ChatChoice(asked(in_thought=inside, stops=stops)), list(text.encode())
    pieces = [message.add_token((byte, -1.0, ())) for byte in ids]
    (last, reason), *none = message.rest(Rollout(response_ids=ids, finished=True))
    deltas = [piece["delta"] for piece in [*pieces, last] if piece]
    said = ["".join(d.get(key, "") for d in deltas) for key in ("reasoning_content", "content")]
    assert said == [thought, answer] and reason == "stop" and not none
    assert len(deltas) > 5 or len(text) < 25  # it comes in pieces


def test_a_thought_that_the_template_has_opened():
    opened = "<|im_start|>assistant\n<think>\n"
    assert opens_thought(opened) and not opens_thought(opened + "</think>\n\n")


CALL = '<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>'


def test_a_message_that_calls():
    text = f"<think>hm</think>I look.{CALL}{CALL}"
    message, reason = as_message(asked(max_tool_calls=9), text, "stop")
    assert (message["content"], message["reasoning_content"]) == ("I look.", "hm")
    assert reason == "tool_calls" and len(message["tool_calls"]) == 2
    message, _ = as_message(asked(max_tool_calls=1), text, "stop")
    assert len(message["tool_calls"]) == 1
    message, reason = as_message(asked(), text, "stop")
    assert "tool_calls" not in message and CALL in message["content"] and reason == "stop"


FIND = {"name": "find", "parameters": {"type": "object", "properties": {"a": {}}}}
LOOK = EXAMPLE_TOOL["function"]  # it has no arguments


@pytest.mark.parametrize(
    "tools, rest, arguments",
    [
        ([LOOK], "}}\n</tool_call>", {}),
        ([FIND], 'a": 1}}\n</tool_call>', {"a": 1}),
        ([FIND], 'a": 1}}', {"a": 1}),  # the model forgot to end it
        ([LOOK, FIND], 'find", "arguments": {"a": 1}}\n</tool_call>', {"a": 1}),
    ],
)
@pytest.mark.parametrize("inside", [True, False])
def test_a_call_that_is_begun_is_one(tools, rest, arguments, inside):
    """The model goes on where the text ends; here with what a call still lacks."""
    begun = start_of_call(tools, inside)
    assert split_thought(begun, inside)[1].startswith("<tool_call>")
    how = dict(max_tool_calls=9, answer_start=begun, in_thought=inside)
    message, reason = as_message(asked(**how), begun + rest, "stop")
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == tools[-1]["name"] and reason == "tool_calls"
    assert json.loads(call["function"]["arguments"]) == arguments and message["content"] is None
    streamed, ids = ChatChoice(asked(**how)), list(rest.encode())
    assert not any(streamed.add_token((byte, -1.0, ())) for byte in ids)
    (piece, _), (_, reason) = streamed.rest(Rollout(response_ids=ids, finished=True))
    assert piece["delta"]["tool_calls"][0]["function"] == call["function"]
    assert reason == "tool_calls"


def test_a_call_that_is_begun_and_goes_astray_is_text():
    begun = start_of_call([FIND], False)
    message, reason = as_message(
        asked(max_tool_calls=9, answer_start=begun), begun + "oh", "length"
    )
    assert message["content"] == begun + "oh" and reason == "length"


def chosen(choice, tools=(EXAMPLE_TOOL,), template=CHAT_TEMPLATE + "<tool_call>"):
    base = SimpleNamespace(name="x", tokenizer=SimpleNamespace(chat_template=template))
    body = {"model": "x", "messages": [], "tools": list(tools), "tool_choice": choice}
    return required_functions(validate(Chat, body), base)


def test_which_tool_must_be_called():
    look = {"type": "function", "function": {"name": "look"}}
    assert [chosen(choice) for choice in (None, "auto", "none")] == [[], [], []]
    assert chosen("required") == chosen(look) == [LOOK]
    for wrong in ("any", {"type": "function", "function": {"name": "see"}}, {}, 5, ["required"]):
        with pytest.raises(UserError, match="tool_choice is .* but must be auto, none, required"):
            chosen(wrong)
    with pytest.raises(UserError, match="must be auto, none, required, or one of the functions"):
        chosen("required", [])
    with pytest.raises(UserError, match="for x use auto or none"):
        chosen("required", template=CHAT_TEMPLATE)
