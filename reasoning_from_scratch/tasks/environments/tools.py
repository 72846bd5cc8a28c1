"""Classes whose methods are tools, as TRL's `environment_factory` has them.

    class Shop:
        def reset(self, **row) -> str | None: ...       the task, in words; None: the row says all
        def price(self, item: str) -> str: ...          a tool: type hints and a docstring
        def get_reward(self) -> float: ...              optional; else the grader judges

The model calls a tool by <tool_call>{"name": "price", "arguments": {"item": "tea"}}</tool_call> and
reads the result between <tool_response> tags; a turn without a call is its answer. A call that is
wrong is answered with what is wrong about it, so that a model can learn from it.
"""

import asyncio
import inspect
import json
import re
import types
import typing
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import Problem, problem_prompt
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.tasks.foreign import (
    Unfit,
    as_number,
    called,
    error_in_words,
    in_words,
)
from reasoning_from_scratch.tasks.judge import verifier_of

CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
NO_TOOLS = ("reset", "get_reward")
LONGEST_RESULT = 2_000  # characters of a tool's result; the rest is cut
RESET_SECONDS = 5.0
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
JSON_TYPES |= {list: "array", dict: "object", type(None): "null"}


class ToolUser:
    """An Environment for an object of such a class: it finds the calls in a turn and answers."""

    def __init__(self, kind: type, problem: Problem) -> None:
        self.problem, self.last = problem, ""
        self.loop = asyncio.new_event_loop()  # its own: async clients keep to one loop
        weakref.finalize(self, self.loop.close)
        self.object = kind()
        self.tools = tool_names(kind)
        self.task = self.waited(self.object.reset(**fitting(self.object.reset, problem)))
        if self.task is not None and not isinstance(self.task, str):
            raise Unfit(f"reset returned no text and not None: {in_words(self.task)}")
        if problem.prompt and self.task and self.task not in problem.prompt:
            raise Unfit(
                "reset gave another task than in the prompt: let it depend on the row alone"
            )

    def waited(self, value: Any) -> Any:
        """What a method returned, or what its coroutine comes to."""
        return self.loop.run_until_complete(value) if inspect.iscoroutine(value) else value

    def reply(self, turn: str) -> str | None:
        self.last = turn.split("</think>")[-1]  # calls within a thought are not made
        results = [self.result(call) for call in CALL.findall(self.last)]
        said = [f"<tool_response>\n{result}\n</tool_response>" for result in results]
        return "\n".join(said) or None

    def result(self, call: str) -> str:
        """What the model reads after a call: the result, or what is wrong."""
        try:
            asked = json.loads(call)
        except (ValueError, RecursionError) as error:
            return f"error: the call is not JSON: {error}"
        if not isinstance(asked, dict) or not isinstance(asked.get("arguments", {}), dict):
            return 'error: a call is {"name": ..., "arguments": {...}}'
        name, arguments = asked.get("name"), asked.get("arguments", {})
        if name not in self.tools:
            return f"error: there is no tool {in_words(name)}; there is {', '.join(self.tools)}"
        tool = getattr(self.object, name)
        try:
            inspect.signature(tool).bind(**arguments)
        except TypeError as error:
            return f"error: {name}: {error}"
        try:
            return str(self.waited(tool(**arguments)))[:LONGEST_RESULT]
        except Exception as error:  # whatever a tool does, the model reads
            return f"error: {error_in_words(error)}"

    def rewards(self) -> dict[str, float]:
        """What the object pays; without `get_reward` the rules of the problem's set or the grader
        judge the last turn."""
        if hasattr(self.object, "get_reward"):
            return {"correct": as_number(self.waited(self.object.get_reward()))}
        verifier = verifier_of(self.problem)
        if verifier is None:
            return {"correct": correctness(self.last, self.problem.answer)}
        correct, failure = verifier(self.last, self.problem)
        if failure:
            raise Unfit(failure)
        return {"correct": correct}


@dataclass
class ToolUserOf:
    """What makes the Environment of a rollout from its problem, for a class with tools."""

    kind: Any

    def __call__(self, problem: Problem) -> ToolUser:
        return ToolUser(self.kind, problem)


def fitting(reset: Callable, problem: Problem) -> dict[str, str]:
    """The row of a problem, as far as `reset` has names for it."""
    names = ("id", "problem", "answer", "level", "type", "solution", "facts")
    row = {"prompt": problem.problem} | {name: getattr(problem, name) for name in names}
    asked = inspect.signature(reset).parameters
    if any(one.kind is one.VAR_KEYWORD for one in asked.values()):
        return row
    return {name: value for name, value in row.items() if name in asked}


# --- which classes are of this kind ---


def has_tools(kind: Any) -> bool:
    """Whether a class from a file is of this kind, and not one with `reply` and `rewards`. One
    that is neither is refused."""
    if not inspect.isclass(kind) or hasattr(kind, "reply") or hasattr(kind, "rewards"):
        return False
    if not hasattr(kind, "reset"):
        raise UserError(
            f"{kind.__name__} is no environment: it has neither reply and rewards, "
            "nor reset and methods that are tools"
        )
    if not tool_names(kind):
        raise UserError(f"{kind.__name__} has reset but no public method that would be a tool")
    return True


def tool_names(kind: type) -> list[str]:
    """Its public methods but `reset` and `get_reward`, in alphabetical order."""
    found = inspect.getmembers(kind, inspect.isroutine)
    return [name for name, _ in found if not name.startswith("_") and name not in NO_TOOLS]


# --- how the model is told ---


def with_tools(
    problems: Sequence[Problem], kind: type, tokenizer, render: Callable[[str], str]
) -> list[Problem]:
    """Problems whose prompts have the task of `reset` in them. The tokenizer shows the tools in
    the chat template from here on; where that has no place for tools, they stand in the prompt."""
    tools = [schema(kind, name) for name in tool_names(kind)]
    shown = tokenizer.offer_tools(tools)
    told = "" if shown else in_plain_words(tools)
    return [with_task(problem, kind, told, problem_prompt(problem, render)) for problem in problems]


def with_task(problem: Problem, kind: type, told: str, prompt: str) -> Problem:
    task, failure = called(
        lambda user: user.task, RESET_SECONDS, lambda: ToolUser(kind, replace(problem, prompt=""))
    )
    if failure:
        raise UserError(f"{kind.__name__} on {problem.where}: {failure}")
    if task:  # after the question, which is in the middle of some prompts
        before, question, after = prompt.rpartition(problem.problem or prompt)
        prompt = f"{before}{question}\n{task}{after}" if question else f"{prompt}\n{task}"
    return replace(problem, prompt=told + prompt)


def in_plain_words(tools: Sequence[dict]) -> str:
    """For models that have no form of their own: a line for each tool, and how one is called."""
    lines = []
    for tool in (one["function"] for one in tools):
        names = ", ".join(tool["parameters"]["properties"])
        lines.append(f"{tool['name']}({names}): {tool['description']}\n")
    form = '<tool_call>{"name": ..., "arguments": {...}}</tool_call>'
    return f"Tools, called by {form}:\n{''.join(lines)}\n"


def schema(kind: type, name: str) -> dict:
    """A tool as chat templates want it: JSON schema, from type hints and docstring."""
    method, where = getattr(kind, name), f"{kind.__name__}.{name}"
    words, _, rest = (inspect.getdoc(method) or "").partition("Args:")
    if not words.strip():
        raise UserError(f"{where} is a tool without a docstring: say there what it does")
    hints = typing.get_type_hints(method)
    properties, required = {}, []
    static = isinstance(inspect.getattr_static(kind, name), staticmethod | classmethod)
    for one in list(inspect.signature(method).parameters.values())[0 if static else 1 :]:
        if one.name not in hints:
            raise UserError(f"{where} has no type hint for {one.name}: a tool's arguments need one")
        properties[one.name] = json_type(hints[one.name]) | described(one.name, rest)
        required += [one.name] if one.default is one.empty else []
    parameters = {"type": "object", "properties": properties, "required": required}
    tool = {"name": name, "description": " ".join(words.split()), "parameters": parameters}
    return {"type": "function", "function": tool}


def json_type(hint: Any) -> dict:
    """The JSON schema of a type hint; of one that JSON has no type for, none."""
    origin, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin is typing.Literal:
        return {"enum": list(inner)}
    if origin in (typing.Union, types.UnionType):
        some = [json_type(one) for one in inner if one is not type(None)]
        return some[0] if len(some) == 1 else {"anyOf": some}
    found = {"type": JSON_TYPES[origin]} if origin in JSON_TYPES else {}
    return found | ({"items": json_type(inner[0])} if origin is list and inner else {})


def described(name: str, arguments: str) -> dict:
    """What a Google-style docstring says of an argument."""
    found = re.search(rf"^\s*{name}(?: \([^)]*\))?:\s*(.+)$", arguments, re.MULTILINE)
    return {"description": found[1].strip()} if found else {}
