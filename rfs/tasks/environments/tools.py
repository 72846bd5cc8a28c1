"""Classes whose methods are tools, as TRL's `environment_factory` has them.

    class Shop:
        def reset(self, **row) -> str | None: ...       begins anew; a text follows the question
        def price(self, item: str) -> str: ...          a tool: type hints and a docstring
        def get_reward(self) -> float: ...              if it is missing, the grader judges

    model           <tool_call>{"name": "price", "arguments": {"item": "tea"}}</tool_call>
    environment     <tool_response>3</tool_response>
    model           It costs \\boxed{3}.                no call: it is over

Such a class knows nothing of us. A call that is wrong is answered with what is wrong about it: the
model reads that, and the rollout goes on.
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
from rfs.tasks.environments.tool_words import in_plain_words, misfit, schema
from rfs.tasks.foreign import (
    InvalidResult,
    as_number,
    call_guarded,
    describe_error,
    short_repr,
)
from rfs.tasks.judge import reward_by_rules

CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
FORM = '<tool_call>{"name": ..., "arguments": {...}}</tool_call>'
NO_TOOLS = ("reset", "get_reward")
LONGEST_RESULT = 8_000  # characters
CUT = "\n... (cut off)"
TOOL_SECONDS = 300.0  # for `reset`, and for the calls of a turn: a machine may have to start


class WrongCall(Exception):
    """The text says what is wrong with it, to the model."""


class Results(list[tuple[str, str]]):
    """Which tools were called, one after the other, and what they have returned."""


class ToolUsers:
    """What makes the Environment of each rollout from its problem. An object is used again when its
    rollout is over: to connect to something takes time, and `reset` begins anew."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        self.factory = factory
        self.name = getattr(factory, "__name__", repr(factory))
        first, failure = call_guarded(lambda made: made, TOOL_SECONDS, factory)
        if failure:
            raise UserError(f"{self.name}(), which is to make an environment, {failure}")
        kind = type(first)
        methods = [name for name, _ in inspect.getmembers(kind, inspect.isfunction)]
        if "reset" not in methods:
            raise UserError(
                f"{self.name} is no environment: it has neither reply and rewards, nor reset and "
                "methods that are tools"
            )
        names = [name for name in methods if not name.startswith("_") and name not in NO_TOOLS]
        if not names:
            raise UserError(f"{self.name} has reset, but no other public method, to be a tool")
        self.tools = {n: schema(getattr(first, n), f"{kind.__name__}.{n}") for n in names}
        self.pays = "get_reward" in methods
        self.free = [first]

    def __call__(self, problem: Problem) -> "ToolUser":
        return ToolUser(self, problem)

    def an_object(self) -> Any:
        try:
            return self.free.pop()
        except IndexError:
            return self.factory()


# Once for each class: its objects outlive a step.
tool_users = lru_cache(maxsize=16)(ToolUsers)


def makes_tool_users(found: Callable) -> bool:
    """Whether a class or function from a file takes no problem: then what it makes is a user of
    tools, or else it is no environment at all."""
    if inspect.isclass(found):
        is_ours = hasattr(found, "rewards") or not hasattr(found, "reset")
        return not (is_ours and hasattr(found, "reply"))
    asked = inspect.signature(found).parameters.values()
    return not any(one.default is one.empty and one.kind is not one.VAR_KEYWORD for one in asked)


class ToolUser:
    """An Environment: it finds the calls in a turn of the model, and answers with their results."""

    def __init__(self, users: ToolUsers, problem: Problem) -> None:
        self.users, self.problem, self.last = users, problem, ""
        self.object = users.an_object()
        self.task = waited(self.object.reset(**row_for(self.object.reset, problem)))
        if self.task is not None and not isinstance(self.task, str):
            raise InvalidResult(
                f"returned neither a text nor None from reset: {short_repr(self.task)}"
            )

    def prompt_ids(self, tokenizer) -> list[int]:
        """The prompt, with the tools, and behind the question what `reset` has said."""
        prompt = problem_prompt(self.problem)
        question = self.problem.problem
        if not question or question not in prompt:
            question = prompt
        before, _, after = prompt.rpartition(question)
        task = question + (self.task or "") + after
        if tools_in_template(tokenizer):
            talk = tokenizer.wrap_chat(before + task, tools=[*self.users.tools.values()])
            return tokenizer.encode(talk, chat_wrapped=False)
        words = "\n".join(map(in_plain_words, self.users.tools.values()))
        return tokenizer.encode(f"{before}Tools, called as {FORM}:\n{words}\n\n{task}")

    def reply(self, turn: str) -> Results | None:
        self.last = without_thought(turn)
        return Results(self.result(call) for call in CALL.findall(self.last)) or None

    def result(self, call: str) -> tuple[str, str]:
        """The tool of a call, and what the model reads after it."""
        name = "unknown"
        try:
            name, arguments = read_call(call)
            self.check(name, arguments)
            said = str(waited(getattr(self.object, name)(**arguments)))
        except WrongCall as wrong:
            said = f"error: {wrong}"
        except Exception as error:  # whatever a tool raises
            said = f"error: {describe_error(error)}"
        text = said.encode(errors="replace").decode()  # halves of surrogate pairs are no text
        return name, text if len(text) <= LONGEST_RESULT else text[:LONGEST_RESULT] + CUT

    def check(self, name: str, arguments: dict) -> None:
        if name not in self.users.tools:
            raise WrongCall(f"there is no tool {name!r}; there is {', '.join(self.users.tools)}")
        if wrong := misfit(arguments, self.users.tools[name]):
            raise WrongCall(f"{name}: {wrong}")

    def rewards(self) -> dict[str, float]:
        """The object's reward, after which the object may be used again; or the verdict on the last
        turn, by the rules of the problem's set, if it has some, or by the grader."""
        if self.users.pays:
            correct = as_number(waited(self.object.get_reward()))
        else:
            correct = reward_by_rules(self.last, self.problem)
        self.users.free.append(self.object)
        return {"correct": correct}


def row_for(reset: Callable, problem: Problem) -> dict[str, Any]:
    """The columns of a problem's row as its file has them, as far as `reset` has names for them;
    and under our names what we have read there."""
    names = ("id", "problem", "answer", "level", "type", "solution", "facts")
    row = {"prompt": [{"role": "user", "content": problem.problem}]}
    row |= {name: getattr(problem, name) for name in names} | problem.row
    asked = inspect.signature(reset).parameters
    if any(one.kind is one.VAR_KEYWORD for one in asked.values()):
        return row
    return {name: value for name, value in row.items() if name in asked}


# --- calls ---


def without_thought(turn: str) -> str:
    """Calls and answers within a thought do not count, and neither do those of one without end."""
    return turn.rpartition("</think>")[2].partition("<think>")[0]


def read_call(text: str) -> tuple[str, dict]:
    """A tool's name, and the arguments."""
    try:
        call = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WrongCall(f"the call is not JSON: {error}") from None
    call = call if isinstance(call, dict) else {}
    name, arguments = call.get("name"), call.get("arguments", {})
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise WrongCall(f"a call is written as {FORM}")
    return name, arguments


def tools_in_template(tokenizer) -> bool:
    """Whether the chat template has a place for tools. If it has one, its calls must be ones that
    can be read here."""
    if not tokenizer.has_tools():
        return False
    example = ("look", {"at": 1})
    if example not in readable_calls(tokenizer.written_call(*example)):
        raise UserError(
            "this model's chat template writes calls of tools in a form that is not read here; "
            f"what is read is {FORM}, as of Qwen2.5, Qwen3 and Hermes. Take --prompt plain, "
            "and the model is told of that form"
        )
    return True


def readable_calls(text: str) -> Iterator[tuple[str, dict]]:
    for call in CALL.findall(text):
        try:
            yield read_call(call)
        except WrongCall:
            continue


# --- methods that are `async` ---


def waited(value: Any) -> Any:
    """What a method returned, or what that comes to if it has to be awaited."""
    if not inspect.isawaitable(value):
        return value
    future = asyncio.run_coroutine_threadsafe(awaited(value), event_loop())
    try:
        return future.result()
    finally:
        future.cancel()  # where the time limit came first


async def awaited(value: Awaitable) -> Any:
    return await value


@lru_cache(maxsize=1)
def event_loop() -> asyncio.AbstractEventLoop:
    """One for all objects. It runs in a thread, also while the model learns: connections are kept
    alive."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="tools", daemon=True).start()
    return loop
