"""Classes whose methods are tools, as TRL's `environment_factory` has them.

    class Shop:
        def reset(self, **row) -> str | None: ...       starts over; a text follows the question
        def price(self, item: str) -> str: ...          a tool: type hints and a docstring
        def get_reward(self) -> float: ...              if it is missing, the grader judges

    model           <tool_call>{"name": "price", "arguments": {"item": "tea"}}</tool_call>
    environment     <tool_response>3</tool_response>
    model           It costs \\boxed{3}.                no call: it is over

Such a class needs nothing from this package. An invalid call is answered with an error message,
which the model reads, and the rollout goes on.
"""

import asyncio
import inspect
import json
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache
from typing import Any

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import Problem, problem_prompt
from rfs.tasks.environments.tool_schema import argument_error, describe_tool, tool_schema
from rfs.tasks.foreign import (
    InvalidResult,
    as_number,
    call_guarded,
    describe_error,
    short_repr,
)
from rfs.tasks.judge import reward_by_rules

CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
CALL_FORM = '<tool_call>{"name": ..., "arguments": {...}}</tool_call>'
NOT_TOOLS = ("reset", "get_reward")
LONGEST_RESULT = 8_000  # characters
CUT_NOTE = "\n... (cut off)"
TOOL_SECONDS = 300.0  # for `reset`, and for the calls of a turn: a machine may have to start


class InvalidCall(Exception):
    """The message is for the model: it says what is wrong with the call."""


class ToolResults(list[tuple[str, str]]):
    """The name of each tool that was called, in order, and what it returned."""


class ToolEnvironmentFactory:
    """Makes the Environment of each rollout from its problem. An object is reused when its rollout
    is over, since connecting takes time: `reset` starts over."""

    def __init__(self, make_object: Callable[[], Any]) -> None:
        self.make_object = make_object
        self.name = getattr(make_object, "__name__", repr(make_object))
        first, failure = call_guarded(lambda made: made, TOOL_SECONDS, make_object)
        if failure:
            raise UserError(f"{self.name}(), which is to make an environment, {failure}")
        kind = type(first)
        methods = [name for name, _ in inspect.getmembers(kind, inspect.isfunction)]
        if "reset" not in methods:
            raise UserError(
                f"{self.name} is no environment: it has neither reply and rewards, nor reset and "
                "methods that are tools"
            )
        names = [name for name in methods if not name.startswith("_") and name not in NOT_TOOLS]
        if not names:
            raise UserError(f"{self.name} has reset, but no other public method, to be a tool")
        self.tools = {n: tool_schema(getattr(first, n), f"{kind.__name__}.{n}") for n in names}
        self.gives_reward = "get_reward" in methods
        self.idle_objects = [first]

    def __call__(self, problem: Problem) -> "ToolEnvironment":
        return ToolEnvironment(self, problem)

    def take_object(self) -> Any:
        try:
            return self.idle_objects.pop()
        except IndexError:
            return self.make_object()


# Once for each class: its objects outlive a step.
tool_environment_factory = lru_cache(maxsize=16)(ToolEnvironmentFactory)


def makes_tool_objects(member: Callable) -> bool:
    """Whether a class or function from a file takes no problem: then it makes objects whose methods
    are tools, or else it is no environment at all."""
    if inspect.isclass(member):
        has_no_tools = hasattr(member, "rewards") or not hasattr(member, "reset")
        return not (has_no_tools and hasattr(member, "reply"))
    parameters = inspect.signature(member).parameters.values()
    return not any(p.default is p.empty and p.kind is not p.VAR_KEYWORD for p in parameters)


class ToolEnvironment:
    """An Environment: it finds the calls in a turn of the model, and answers with their results."""

    def __init__(self, factory: ToolEnvironmentFactory, problem: Problem) -> None:
        self.factory, self.problem, self.last_turn = factory, problem, ""
        self.tools_object = factory.take_object()
        reset = self.tools_object.reset
        self.reset_text = wait_for(reset(**reset_arguments(reset, problem)))
        if self.reset_text is not None and not isinstance(self.reset_text, str):
            raise InvalidResult(
                f"returned neither a text nor None from reset: {short_repr(self.reset_text)}"
            )

    def prompt_ids(self, tokenizer) -> list[int]:
        """The prompt, with the tools, and the text from `reset` after the question."""
        prompt = problem_prompt(self.problem)
        question = self.problem.problem
        if not question or question not in prompt:
            question = prompt
        before, _, after = prompt.rpartition(question)
        request = question + (self.reset_text or "") + after
        if template_has_tools(tokenizer):
            chat = tokenizer.wrap_chat(before + request, tools=[*self.factory.tools.values()])
            return tokenizer.encode(chat, chat_wrapped=False)
        descriptions = "\n".join(map(describe_tool, self.factory.tools.values()))
        tools = f"Tools, called as {CALL_FORM}:\n{descriptions}"
        return tokenizer.encode(f"{before}{tools}\n\n{request}")

    def reply(self, turn: str) -> ToolResults | None:
        self.last_turn = strip_thinking(turn)
        return ToolResults(self.run_call(call) for call in CALL.findall(self.last_turn)) or None

    def run_call(self, call: str) -> tuple[str, str]:
        """The name of the tool that a call names, and its result as the model reads it."""
        name = "unknown"
        try:
            name, arguments = read_call(call)
            self.check_call(name, arguments)
            returned = str(wait_for(getattr(self.tools_object, name)(**arguments)))
        except InvalidCall as invalid:
            returned = f"error: {invalid}"
        except Exception as error:  # whatever a tool raises
            returned = f"error: {describe_error(error)}"
        text = returned.encode(errors="replace").decode()  # halves of surrogate pairs are no text
        return name, text if len(text) <= LONGEST_RESULT else text[:LONGEST_RESULT] + CUT_NOTE

    def check_call(self, name: str, arguments: dict) -> None:
        tools = self.factory.tools
        if name not in tools:
            raise InvalidCall(f"there is no tool {name!r}; there is {', '.join(tools)}")
        if error := argument_error(arguments, tools[name]):
            raise InvalidCall(f"{name}: {error}")

    def rewards(self) -> dict[str, float]:
        """The object's reward, after which the object may be used again; or the verdict on the last
        turn, by the rules of the problem's set, if it has some, or by the grader."""
        if self.factory.gives_reward:
            correct = as_number(wait_for(self.tools_object.get_reward()))
        else:
            correct = reward_by_rules(self.last_turn, self.problem)
        self.factory.idle_objects.append(self.tools_object)
        return {"correct": correct}


def reset_arguments(reset: Callable, problem: Problem) -> dict[str, Any]:
    """The columns of a problem's row as its file has them, and the fields of the Problem; only
    those that `reset` has parameters for."""
    names = ("id", "problem", "answer", "level", "type", "solution", "facts")
    row = {"prompt": [{"role": "user", "content": problem.problem}]}
    row |= {name: getattr(problem, name) for name in names} | problem.row
    parameters = inspect.signature(reset).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return row
    return {name: value for name, value in row.items() if name in parameters}


# --- calls ---


def strip_thinking(turn: str) -> str:
    """A turn without its thinking, finished or not: calls and answers in it do not count."""
    return turn.rpartition("</think>")[2].partition("<think>")[0]


def read_call(text: str) -> tuple[str, dict]:
    """A tool's name, and the arguments."""
    try:
        call = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidCall(f"the call is not JSON: {error}") from None
    call = call if isinstance(call, dict) else {}
    name, arguments = call.get("name"), call.get("arguments", {})
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise InvalidCall(f"a call is written as {CALL_FORM}")
    return name, arguments


def template_has_tools(tokenizer) -> bool:
    """Whether the chat template has a place for tools. If it has one, its calls must be ones that
    can be read here."""
    if not tokenizer.has_tools():
        return False
    example = ("look", {"at": 1})
    if example not in readable_calls(tokenizer.render_tool_call(*example)):
        raise UserError(
            "this model's chat template writes calls of tools in a form that is not read here; "
            f"what is read is {CALL_FORM}, as of Qwen2.5, Qwen3 and Hermes. Take --prompt plain, "
            "and the model is told of that form"
        )
    return True


def readable_calls(text: str) -> Iterator[tuple[str, dict]]:
    for call in CALL.findall(text):
        try:
            yield read_call(call)
        except InvalidCall:
            continue


# --- methods that are `async` ---


def wait_for(value: Any) -> Any:
    """What a method returned, awaited if it has to be."""
    if not inspect.isawaitable(value):
        return value
    future = asyncio.run_coroutine_threadsafe(await_value(value), event_loop())
    try:
        return future.result()
    finally:
        future.cancel()  # where the time limit came first


async def await_value(value: Awaitable) -> Any:
    return await value


@lru_cache(maxsize=1)
def event_loop() -> asyncio.AbstractEventLoop:
    """One for all objects. It runs in a thread, even while the model learns, so that connections
    stay alive."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="tools", daemon=True).start()
    return loop
