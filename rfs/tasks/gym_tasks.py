r"""A hundred tasks of reasoning-gym, each judged by rules of its own.

    gym:chain_sum                                  a task with its default parameters
    gym:letter_counting?min_words=3&max_words=5    a task with parameters that you choose
    gym:composite?datasets=[{"name":"gcd"},...]    reasoning-gym's own mixture of tasks
    gym:chain_sum@held-out                         problems that are never trained on

Training and held-out problems come from different seeds, and a hash of a problem's text decides
which side it belongs to, so no text is on both. A problem stores only its task, parameters and
number. Wherever an answer is judged, on any rank or machine, the problem is made again from these.

Which part of an answer is judged? Its last \boxed{}. If it has none, its last <answer> tags, which
reasoning-gym's own prompts ask for. If it has neither, it depends on the correct answer:

    a number                      the last number of the last line: "1 + 5 is 6." is 6
    a word                        the last word of the last line
    any other single line         the whole last line
    several lines, or not unique  the whole text

An empty answer gets 0.

reasoning-gym: Stojanovski et al. 2025, "Reasoning Gym: Reasoning Environments for Reinforcement
Learning with Verifiable Rewards".
"""

import dataclasses
import importlib.util
import json
import re
import sys
import warnings
import zlib
from collections.abc import Iterator
from copy import deepcopy
from functools import cache, lru_cache
from itertools import islice
from types import ModuleType
from typing import Any

from answer_grader import get_last_boxed
from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.problems import Problem
from rfs.tasks.source import HELD_OUT_SUFFIX, Source

PREFIX = "gym:"
SEEDS = {"train": 0, "held-out": 1_000_000_000}  # far apart: a task adds the problem's number
SIZES = {"train": 2_000, "held-out": 200}  # problems, if no limit is given
HELD_OUT_SHARE = 4  # one text in four belongs to the held-out side
MAX_INDEX = 20_000  # at most this many problems are made per task
MAX_REPEATS = 1_000  # stop after this many in a row without a new problem

# Some tasks judge with Python's or sympy's eval, which would run what the model wrote as code.
# Where numbers or a list are expected, an answer that could be anything else is not passed on.
ARITHMETIC_ANSWER = re.compile(r"(?!.*\*\*)[\d\s+\-*/().]{1,200}", re.DOTALL)
LIST_ANSWER = re.compile(r"[\w\s\[\],.'\"\-]{1,2000}")  # no parentheses, so it calls nothing
SAFE_ANSWERS = {
    "binary_matrix": LIST_ANSWER,
    "countdown": ARITHMETIC_ANSWER,
    "n_queens": LIST_ANSWER,
    "puzzle24": ARITHMETIC_ANSWER,
    "spiral_matrix": LIST_ANSWER,
    "string_insertion": LIST_ANSWER,
}
RUNS_ANSWERS = "its rules would run what the model wrote as a program"
NOT_REPRODUCIBLE = (
    "its problems differ between processes, so a run could not be repeated or resumed"
)
REFUSED_TASKS = {
    "game_of_life_halting": "its rules reward any answer where the correct one is True",
    "intermediate_integration": RUNS_ANSWERS,
    "isomorphic_strings": NOT_REPRODUCIBLE,
    "knight_swap": NOT_REPRODUCIBLE,
    "list_functions": NOT_REPRODUCIBLE,
    "polynomial_multiplication": RUNS_ANSWERS,
    "ransom_note": NOT_REPRODUCIBLE,
    "simple_integration": RUNS_ANSWERS,
    "word_ladder": NOT_REPRODUCIBLE,
}

COMPOSITE = "composite"
MIXTURE = f'gym:{COMPOSITE}?datasets=[{{"name":"gcd","weight":2,"config":{{}}}},...]'
_NUMBER = re.compile(r"(?:(?<![\w.)])-)?\d+(?:,\d{3})*(?:\.\d+)?")  # 7-3 has no -3 in it
_WORD = re.compile(r"\w+(?:[-/]\w+)*")
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
TYPE_NAMES |= {list: "a list, as in [1,2]", tuple: "a list, as in [1,2]"}


# --- the set, and its rules ---


def score(text: str, problem: Problem) -> float:
    """The reward by the task's own rules: from 0 to 1, where 1 is correct."""
    facts = json.loads(problem.facts)
    task, index = facts["task"], facts["index"]
    dataset = dataset_of(task, facts["parameters"], facts["side"])
    entry = deepcopy(entry_of(task, facts["parameters"], facts["side"], index))
    if entry["question"].strip() != problem.problem:
        raise ValueError("this version of reasoning-gym makes a different problem for this number")
    answer = judged_text(text, entry["answer"])
    allowed = SAFE_ANSWERS.get(source_task(task, entry))
    if not answer or (allowed and not allowed.fullmatch(answer)):
        return 0.0
    return float(dataset.score_answer(answer, entry))


class GymTask(Source):
    """gym:TASK. Its two sides are drawn separately, so nothing is left to keep aside."""

    NAME_PATTERN = re.compile(r"gym([:@].*)?", re.DOTALL)
    LISTED_NAMES = ("gym:TASK",)
    rules = "gym"
    score = staticmethod(score)

    def problems(self, limit: int | None = None) -> list[Problem]:
        """The first problems. A smaller limit gives the start of the same list."""
        side = "held-out" if self.name.endswith(HELD_OUT_SUFFIX) else "train"
        task, parameters = read_task(self.name.removesuffix(HELD_OUT_SUFFIX))
        problems = list(islice(distinct_problems(task, parameters, side), limit or SIZES[side]))
        if not problems:
            raise UserError(f"{self.name} has no problems in this split; choose other parameters")
        return problems

    def contains_held_out(self) -> bool:
        return False


def judged_text(text: str, truth: object) -> str:
    """The part of an answer that is judged (see above)."""
    boxed = get_last_boxed(text)
    if boxed is not None:
        return boxed.strip()
    if tagged := _TAGGED.findall(text):
        return tagged[-1].strip()
    text, truth = text.strip(), None if truth is None else str(truth).strip()
    if truth is None or "\n" in truth:
        return text
    last_line = text.rpartition("\n")[2].strip()
    for pattern in (_NUMBER, _WORD):
        if pattern.fullmatch(truth):
            return (pattern.findall(last_line) or [""])[-1]
    return last_line


# --- from a name to a task ---


def read_task(name: str) -> tuple[str, str]:
    """gym:TASK?PARAMETER=VALUE&...: the task, and its parameters as a JSON object, checked."""
    task, _, text = name.removeprefix(PREFIX).partition("?")
    if not name.startswith(PREFIX) or not task:
        raise UserError(f"{name!r} names no task: write one after gym:, as in gym:chain_sum")
    check_task(task)
    defaults = parameters_of(task)
    values: dict[str, Any] = {}
    for assignment in text.split("&") if text else ():
        parameter, equals, value = assignment.partition("=")
        if not equals:
            raise UserError(f"gym:{task}?{text}: write NAME=VALUE, separated by &")
        if parameter not in defaults:
            raise unknown_name(f"parameter of gym:{task}", parameter, sorted(defaults))
        values[parameter] = read_value(f"gym:{task}: {parameter}", value, defaults[parameter])
    if task == COMPOSITE:
        parts = values.get("datasets")
        if not isinstance(parts, list) or not all(isinstance(p, dict) for p in parts):
            raise UserError(f"several tasks are written as {MIXTURE}")
        for part in parts:
            check_task(str(part.get("name")))
    parameters = json.dumps(values, sort_keys=True)
    dataset_of(task, parameters, "train")  # the task checks them, too
    return task, parameters


def check_task(task: str) -> None:
    if "+" in task or "*" in task:
        raise UserError(f"gym:{task}: several tasks are written as {MIXTURE}")
    if task not in task_table():
        raise unknown_name(
            "task of reasoning-gym", task, sorted(task_table().keys() - REFUSED_TASKS)
        )
    if reason := refusal_reason(task):
        raise UserError(f"gym:{task} cannot be used here: {reason}")


def refusal_reason(task: str) -> str:
    """Why a task cannot be used; "" if it can."""
    if task == "zebra_puzzles" and not has_pycosat():
        return "it needs pycosat (uv run --with pycosat rfs ..., which needs a C compiler)"
    return REFUSED_TASKS.get(task, "")


def parameters_of(task: str) -> dict[str, Any]:
    """Parameter -> its default. Only we set seed and size, so held-out problems stay apart."""
    fields = dataclasses.fields(task_table()[task][1])
    return {f.name: default_of(f) for f in fields if f.name not in ("seed", "size")}


def default_of(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def read_value(where: str, text: str, default: Any) -> Any:
    """The text as a value of the default's type."""
    if isinstance(default, str):  # an enum of strings is a str, too
        return text
    try:
        value = json.loads(text.lower() if isinstance(default, bool) else text)
    except ValueError:
        value = text
    expected = type(default)
    accepted: Any = {float: (int, float), tuple: list}.get(expected, expected)
    has_type = isinstance(value, accepted) and isinstance(value, bool) == (expected is bool)
    if default is not None and not has_type:
        raise UserError(
            f"{where} is {text!r}, which is not {TYPE_NAMES.get(expected, expected.__name__)}"
        )
    return value


# --- reasoning-gym itself ---


@cache
def task_table() -> dict[str, tuple[type, type]]:
    """Task -> its class and its config's class. Imported late, because it takes seconds."""
    if not has_pycosat():
        # reasoning-gym always imports it, but only zebra_puzzles (see `refusal`) uses it.
        sys.modules["pycosat"] = ModuleType("pycosat")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SyntaxWarnings from one of its packages
            from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise UserError(
            f"tasks of gym: the extra `gym` is needed: uv run --extra gym rfs ... ({error})"
        ) from None
    return DATASETS


@cache
def has_pycosat() -> bool:
    """Cached, because after the first call a stub may take its place."""
    return importlib.util.find_spec("pycosat") is not None


@lru_cache(maxsize=64)
def dataset_of(task: str, parameters: str, side: str):
    """The task as a sequence of problems, each a function of its number."""
    dataset_class, config_class = task_table()[task]
    values = json.loads(parameters)
    try:
        if task == COMPOSITE:
            values["datasets"] = [mixture_part(**part) for part in values["datasets"]]
        return dataset_class(
            config_class(**with_tuples(task, values), seed=SEEDS[side], size=MAX_INDEX)
        )
    except Exception as error:  # the task's own checks may raise anything
        error_class = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
        query = "&".join(f"{name}={value}" for name, value in json.loads(parameters).items())
        raise UserError(f"gym:{task}?{query}: {error_class}{error}") from error


def mixture_part(name: str, weight: float = 1, config: dict | None = None):
    """One part of a mixture, in reasoning-gym's own class."""
    from reasoning_gym.composite import DatasetSpec  # late, as in task_table

    return DatasetSpec(name, weight, with_tuples(name, config or {}))


def with_tuples(task: str, values: dict[str, Any]) -> dict[str, Any]:
    """Lists as tuples where the task expects tuples: JSON has only lists."""
    defaults = parameters_of(task)
    return {
        name: tuple(value) if isinstance(defaults.get(name), tuple) else value
        for name, value in values.items()
    }


def source_task(task: str, entry: dict[str, Any]) -> str:
    """The task that a problem comes from; a mixture records it."""
    return entry["metadata"]["source_dataset"] if task == COMPOSITE else task


@lru_cache(maxsize=4096)
def entry_of(task: str, parameters: str, side: str, index: int) -> dict[str, Any]:
    return dataset_of(task, parameters, side)[index]


def distinct_problems(task: str, parameters: str, side: str) -> Iterator[Problem]:
    """The problems of one side without repeats, as long as the task makes new ones."""
    seen_texts: set[str] = set()
    last_new_index = 0  # the index of the latest new problem
    for index in range(MAX_INDEX):
        if index - last_new_index > MAX_REPEATS:
            return
        try:
            entry = entry_of(task, parameters, side, index)
        except Exception as error:  # the task may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise UserError(f"gym:{task} cannot make problem {index}: {reason}") from error
        text = entry["question"].strip()
        held_out = zlib.crc32(text.encode()) % HELD_OUT_SHARE == 0
        if held_out != (side == "held-out") or text in seen_texts:
            continue
        seen_texts.add(text)
        last_new_index = index
        truth = entry["answer"]
        facts = {"task": task, "parameters": parameters, "side": side, "index": index}
        source = source_task(task, entry)
        yield Problem(
            id=f"gym/{source}/{side}/{index}",
            problem=text,
            answer="" if truth is None else str(truth),
            type=source,
            rules="gym",
            facts=json.dumps(facts),
        )
