r"""A hundred tasks of reasoning-gym, each with rules of its own that judge an answer.

    gym:chain_sum                                  a task as it comes
    gym:letter_counting?min_words=3&max_words=5    with parameters of its configuration
    gym:chain_sum*2+spell_backward                 two problems of one for each of the other
    gym:chain_sum@held-out                         problems that are never trained on

Training and held-out problems come from other seeds, and a hash of its text says on which side a
problem may stand: no text is on both. A problem keeps only its task, parameters and number. Where
an answer is judged, on any rank or machine, the problem is made again from these.

What is read of an answer: its last \boxed{}; if it has none, what is in its last <answer> tags, as
reasoning-gym's own prompts ask; if it has neither, the text itself:

    the right answer is a number      the last number of its last line: "1 + 5 is 6." is 6
    it is a word                      the last word of its last line
    it is another line                all of the last line
    it has several lines,             all of the text
    or there is more than one

An empty answer is worth nothing.

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
from types import ModuleType
from typing import Any, NamedTuple

from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.grading import get_last_boxed
from reasoning_from_scratch.problems import Problem

PREFIX, HELD_OUT = "gym:", "@held-out"
SEEDS = {"train": 0, "held-out": 1_000_000_000}  # far apart: a task adds a problem's number to it
SIZES = {"train": 2_000, "held-out": 200}  # problems, where no limit is given
HELD_OUT_SHARE = 4  # the texts of one in four may be held out
LAST = 20_000  # a task is not asked for more problems than this
PATIENCE = 1_000  # nor for further ones when so many in a row were known already

# Some tasks judge with Python's eval, or sympy's: what the model wrote would run as a program.
# Where numbers or a list are expected, an answer that could be anything else is not passed on.
NUMBERS = re.compile(r"(?!.*\*\*)[\d\s+\-*/().]{1,200}", re.DOTALL)
LISTS = re.compile(r"[\w\s\[\],.'\"\-]{1,2000}")  # without brackets that call
HARMLESS = {
    "binary_matrix": LISTS,
    "countdown": NUMBERS,
    "n_queens": LISTS,
    "puzzle24": NUMBERS,
    "spiral_matrix": LISTS,
    "string_insertion": LISTS,
}
RUNS = "its rules would run what the model wrote as a program"
CHANGES = "its problems are others in each process, so a run could not be repeated or resumed"
REFUSED = {
    "composite": "several tasks are written with a plus, as in gym:chain_sum+gcd",
    "game_of_life_halting": "its rules pay any answer where the right one is True",
    "intermediate_integration": RUNS,
    "isomorphic_strings": CHANGES,
    "knight_swap": CHANGES,
    "list_functions": CHANGES,
    "polynomial_multiplication": RUNS,
    "ransom_note": CHANGES,
    "simple_integration": RUNS,
    "word_ladder": CHANGES,
}

_BETWEEN = re.compile(r"\+(?=[A-Za-z_])")  # a plus within a parameter is followed by a sign
_TASK = re.compile(r"([^*?]*)(?:\*([^?]*))?(?:\?(.*))?", re.DOTALL)
_NUMBER = re.compile(r"(?:(?<![\w.)])-)?\d+(?:,\d{3})*(?:\.\d+)?")  # 7-3 has no -3 in it
_WORD = re.compile(r"\w+(?:[-/]\w+)*")
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
KINDS |= {list: "a list, as in [1,2]", tuple: "a list, as in [1,2]"}


class Task(NamedTuple):
    """One task of a set, and how many problems it gives compared with the others."""

    name: str
    weight: float
    parameters: str  # checked, as a JSON object


# --- the two functions of a set that is made here ---


def problems(name: str, limit: int | None = None) -> list[Problem]:
    """The first problems of gym:TASK+TASK... A smaller limit gives the first of the same."""
    side = "held-out" if name.endswith(HELD_OUT) else "train"
    tasks = read_tasks(name.removesuffix(HELD_OUT))
    streams = {task: distinct_problems(task, side) for task in tasks}
    found: list[Problem] = []
    given = dict.fromkeys(tasks, 0)
    while streams and len(found) < (limit or SIZES[side]):
        # In turn: the one that would then be least ahead of its weight.
        task = min(streams, key=lambda task: (given[task] + 1) / task.weight)
        problem = next(streams[task], None)
        if problem:
            found.append(problem)
            given[task] += 1
        else:  # a small task that has no further problems
            del streams[task]
    if not found:
        raise UserError(f"{name} has no problems on this side; choose other parameters")
    return found


def score(text: str, problem: Problem) -> float:
    """What the task's own rules pay for an answer: from 0 to 1, where 1 is right."""
    facts = json.loads(problem.facts)
    task, index = facts["task"], facts["index"]
    dataset = dataset_of(task, facts["parameters"], facts["side"])
    entry = deepcopy(entry_of(task, facts["parameters"], facts["side"], index))
    if entry["question"].strip() != problem.problem:
        raise ValueError("this version of reasoning-gym makes another problem of that number")
    answer = read_answer(text, entry["answer"])
    if not answer or (task in HARMLESS and not HARMLESS[task].fullmatch(answer)):
        return 0.0
    return float(dataset.score_answer(answer, entry))


def read_answer(text: str, truth: object) -> str:
    """The part of a text that is judged (see above)."""
    boxed = get_last_boxed(text)
    if boxed is not None:
        return boxed.strip()
    if tagged := _TAGGED.findall(text):
        return tagged[-1].strip()
    text, truth = text.strip(), None if truth is None else str(truth).strip()
    if truth is None or "\n" in truth:
        return text
    line = text.rpartition("\n")[2].strip()
    for kind in (_NUMBER, _WORD):
        if kind.fullmatch(truth):
            return (kind.findall(line) or [""])[-1]
    return line


# --- from a name to tasks ---


def read_tasks(name: str) -> list[Task]:
    """gym:TASK*WEIGHT?PARAMETER=VALUE&PARAMETER=VALUE+TASK..., checked."""
    words = name.removeprefix(PREFIX)
    if words == name or not words:
        raise UserError(f"{name!r} names no task: write one behind gym:, as in gym:chain_sum")
    tasks = [read_task(part) for part in _BETWEEN.split(words)]
    if twice := [task.name for task in tasks if tasks.count(task) > 1]:
        raise UserError(f"{name} has {twice[0]} twice: give it a weight, as in {twice[0]}*2")
    return tasks


def read_task(part: str) -> Task:
    task, weight, parameters = _TASK.fullmatch(part).groups()
    known = task_table()
    if task not in known:
        raise unknown_name("task of reasoning-gym", task, sorted(known.keys() - REFUSED))
    if reason := refusal(task):
        raise UserError(f"gym:{task} cannot be used here: {reason}")
    return Task(task, read_weight(task, weight), read_parameters(task, parameters))


def refusal(task: str) -> str:
    """Why a task cannot be used; "" if it can."""
    if task == "zebra_puzzles" and not has_pycosat():
        return "it needs pycosat (uv run --with pycosat rfs ..., which needs a C compiler)"
    return REFUSED.get(task, "")


def read_weight(task: str, weight: str | None) -> float:
    if weight is None:
        return 1.0
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", weight) or float(weight) == 0:
        raise UserError(
            f"gym:{task}*{weight}: the weight must be a number above 0, right behind the task, as "
            f"in gym:{task}*2?NAME=VALUE"
        )
    return float(weight)


def read_parameters(task: str, text: str | None) -> str:
    """PARAMETER=VALUE&..., each checked with the task's configuration."""
    if not text:
        return "{}"
    _, config = task_table()[task]
    defaults = {field.name: default_of(field) for field in dataclasses.fields(config)}
    for given in ("seed", "size"):  # chosen here, so that held-out problems stay apart
        defaults.pop(given, None)
    values: dict[str, Any] = {}
    for pair in text.split("&"):
        name, equals, value = pair.partition("=")
        if not equals:
            raise UserError(f"gym:{task}?{text}: write NAME=VALUE between the signs &")
        if name not in defaults:
            raise unknown_name(f"parameter of gym:{task}", name, sorted(defaults))
        values[name] = read_value(f"gym:{task}: {name}", value, defaults[name])
    parameters = json.dumps(values, sort_keys=True)
    dataset_of(task, parameters, "train")  # the task looks at them too
    return parameters


def default_of(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def read_value(what: str, text: str, default: Any) -> Any:
    """A value of the default's kind."""
    if isinstance(default, str):  # an enumeration of words, too
        return text
    try:
        value = json.loads(text.lower() if isinstance(default, bool) else text)
    except ValueError:
        value = text
    kind = type(default)
    wanted: Any = {float: (int, float), tuple: list}.get(kind, kind)
    right = isinstance(value, wanted) and isinstance(value, bool) == (kind is bool)
    if default is not None and not right:
        raise UserError(f"{what} is {text!r}, which is not {KINDS.get(kind, kind.__name__)}")
    return value


# --- reasoning-gym itself ---


@cache
def task_table() -> dict[str, tuple[type, type]]:
    """Task -> its class and that of its configuration. Imported late: it takes seconds."""
    if not has_pycosat():
        # It is imported with everything else, and only zebra_puzzles (see `refusal`) uses it.
        sys.modules["pycosat"] = ModuleType("pycosat")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the syntax of a package that it needs
            from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise UserError(
            f"tasks of gym: the extra `gym` is needed: uv run --extra gym rfs ... ({error})"
        ) from None
    return DATASETS


@cache
def has_pycosat() -> bool:
    """Asked before anything stands in for it."""
    return importlib.util.find_spec("pycosat") is not None


@lru_cache(maxsize=64)
def dataset_of(task: str, parameters: str, side: str):
    """The task as an endless row of problems, each a function of its number."""
    kind, config = task_table()[task]
    values = json.loads(parameters)
    for field in dataclasses.fields(config):
        if isinstance(values.get(field.name), list) and isinstance(default_of(field), tuple):
            values[field.name] = tuple(values[field.name])
    try:
        return kind(config(**values, seed=SEEDS[side], size=LAST))
    except Exception as error:  # of the task's own checks, which may raise anything
        kind_of_error = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
        shown = "&".join(f"{name}={value}" for name, value in values.items())
        raise UserError(f"gym:{task}?{shown}: {kind_of_error}{error}") from error


@lru_cache(maxsize=4096)
def entry_of(task: str, parameters: str, side: str, index: int) -> dict[str, Any]:
    return dataset_of(task, parameters, side)[index]


def distinct_problems(task: Task, side: str) -> Iterator[Problem]:
    """The problems of one side, none twice, as long as the task makes new ones."""
    known: set[str] = set()
    found = 0  # the number of the last that was new
    for index in range(LAST):
        if index - found > PATIENCE:
            return
        try:
            entry = entry_of(task.name, task.parameters, side, index)
        except Exception as error:  # of the task, which may raise anything
            why = f"{type(error).__name__}: {error}"
            raise UserError(f"gym:{task.name} cannot make problem {index}: {why}") from error
        text = entry["question"].strip()
        held_out = zlib.crc32(text.encode()) % HELD_OUT_SHARE == 0
        if held_out != (side == "held-out") or text in known:
            continue
        known.add(text)
        found = index
        truth = entry["answer"]
        facts = {"task": task.name, "parameters": task.parameters, "side": side, "index": index}
        yield Problem(
            id=f"gym/{task.name}/{side}/{index}",
            problem=text,
            answer="" if truth is None else str(truth),
            type=task.name,
            judge="gym",
            facts=json.dumps(facts),
        )
