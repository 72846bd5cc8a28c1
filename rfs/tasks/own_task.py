"""Your own task: problems and a verifier from a Python file, and what keeps a run safe from it.

    rfs train --problems my_task.py:problems --reward my_task.py:reward
    rfs train --eval-every 10 --evaluators my_evals.py:politeness
    rfs train --recipe my_recipe.py:recipe

A verifier that raises, returns something other than a number or takes too long gives that answer
0, and the run goes on: the step says how often that happened, with one example. If it fails
on all answers for some steps, the run stops. An evaluator that fails has no numbers for that step.
The file itself is not restricted: it can do whatever a Python program can do.
"""

import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from answer_grader.gsm8k import gsm8k_reward
from reasoning_from_scratch.errors import UserError, did_you_mean
from reasoning_from_scratch.problems import is_file_function, refuse_bare_file
from reasoning_from_scratch.recipes import Recipe
from rfs.tasks.foreign import (
    InvalidResult,
    as_number,
    call_guarded,
    describe_error,
    finite_numbers,
    short_repr,
)

if TYPE_CHECKING:
    from torch import Tensor

REWARD_SECONDS = 5.0  # time limit for one call of a verifier
BUILT_IN_VERIFIERS = {"gsm8k": gsm8k_reward}  # for answers that end as GSM8K's solutions do


@lru_cache(maxsize=16)
def function_from_file(name: str) -> Callable:
    """The function that FILE.py:FUNCTION names, or a built-in verifier."""
    if name in BUILT_IN_VERIFIERS:
        return BUILT_IN_VERIFIERS[name]
    path, _, function = name.rpartition(":")
    if not is_file_function(name) or not function:
        raise UserError(f"{name!r} is not FILE.py:FUNCTION, as in my_task.py:reward")
    if not Path(path).is_file():
        raise UserError(f"there is no file {path}; give its path, as in ch07/my_task.py:{function}")
    members = vars(run_file(path))
    member = members.get(function)
    if not callable(member):
        suggestion = did_you_mean(function, filter(lambda name: callable(members[name]), members))
        raise UserError(f"{path} defines no function {function!r}{suggestion}")
    return member


def check_functions(*names: str | None) -> None:
    """Looks for the functions that are named, before a model is loaded."""
    for name in filter(None, names):
        refuse_bare_file(name, "function")
        function_from_file(name)


def file_defines(name: str) -> bool:
    """Whether FILE.py exists and defines FUNCTION."""
    path, _, function = name.rpartition(":")
    return Path(path).is_file() and callable(getattr(run_file(path), function, None))


class FunctionFromFile(str):
    """A reader's advantage or objective in a configuration: stored as its name, FILE.py:FUNCTION,
    and called like the function. The function gets the tensors that its parameters name, and
    returns one with the shape of the first tensor offered."""

    def __call__(self, **offered: "Tensor") -> "Tensor":
        from torch import Tensor  # late: options are read without torch

        function, example = function_from_file(self), next(iter(offered.values()))
        parameters = inspect.signature(function).parameters
        if unknown := [name for name in parameters if name not in offered]:
            raise UserError(f"{self} asks for {unknown[0]!r}; there is {', '.join(offered)}")
        try:
            result = function(**{name: offered[name] for name in parameters})
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise UserError(f"{self} raised {describe_error(error)}") from error
        if not isinstance(result, Tensor) or result.shape != example.shape:
            returned = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
            raise UserError(
                f"{self} returned {returned}, not a tensor of shape {tuple(example.shape)}"
            )
        if example.requires_grad and not result.requires_grad:
            raise UserError(f"{self} returned values with no gradient: compute them from logprobs")
        return result


def recipe_from_file(name: str) -> Recipe:
    """The recipe that FILE.py:NAME holds: a Recipe, or a dictionary of the fields that it changes.
    Its advantage or objective may be a function in that file."""
    path, _, member = name.rpartition(":")
    if not Path(path).is_file():
        raise UserError(f"there is no file {path}; give its path, as in ch07/my_recipe.py:{member}")
    recipe = getattr(run_file(path), member, None)
    if isinstance(recipe, dict):
        recipe = Recipe(recipe, f"your own, from {Path(path).name}", "")
    if not isinstance(recipe, Recipe):
        raise UserError(f"{path} has no recipe {member!r}; define one as a dictionary of changes")
    if "recipe" in recipe.changes:
        raise UserError(
            f"{name} names another recipe, {recipe.changes['recipe']!r}, which would have no "
            "effect: write out what that one changes, as `rfs recipes` shows it"
        )
    changes = {
        field: FunctionFromFile(f"{path}:{value.__name__}") if inspect.isfunction(value) else value
        for field, value in recipe.changes.items()
    }
    return replace(recipe, changes=changes)


FILE_CONTENTS: dict[str, bytes] = {}  # path of a file that was run -> what it contained then


def forget_changed_files() -> None:
    """Called before a run begins: in a notebook, a file may have been edited since the last one. A
    run itself keeps the functions that it began with."""
    for path, content in FILE_CONTENTS.items():
        file = Path(path)
        if not file.is_file() or file.read_bytes() != content:
            function_from_file.cache_clear()
            run_file.cache_clear()
            FILE_CONTENTS.clear()
            return


@lru_cache(maxsize=16)
def run_file(path: str):
    """Runs a file as a module; it may import its neighbors. If it fails, one line says why."""
    FILE_CONTENTS[path] = Path(path).read_bytes()
    folder = str(Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(f"own_{Path(path).stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks there for the names in its annotations
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a script that calls sys.exit, too
        raise UserError(f"{path} does not run: {describe_error(error)}") from error
    return module


class Verifier:
    """The reader's reward(text, problem), called so that nothing it does ends the run."""

    def __init__(
        self, function: Callable, seconds: float = REWARD_SECONDS, source: str = ""
    ) -> None:
        self.function, self.seconds = function, seconds
        self.source = source  # FILE.py:FUNCTION, if it is from a file
        self.name = full_name(function)

    def __call__(self, text: str, problem) -> tuple[float, str]:
        """(reward, failure): if the verifier fails, the reward is 0; if not, `failure` is ""."""
        value, failure = call_guarded(as_number, self.seconds, self.function, text, problem)
        return value or 0.0, failure

    def value(self, text: str, problem) -> float:
        """The reward alone."""
        return self(text, problem)[0]


class Evaluator:
    """The reader's function(model, tokenizer), called so that nothing it does ends the run."""

    def __init__(self, name: str) -> None:
        self.name, self.function = evaluator_name(name), function_from_file(name)

    def __call__(self, model, tokenizer) -> tuple[dict[str, float], str]:
        """(numbers by <evaluator>/<name>, failure): `failure` is "" if there was none."""
        numbers, failure = call_guarded(as_numbers, None, self.function, model, tokenizer)
        return {f"{self.name}/{name}": value for name, value in (numbers or {}).items()}, failure


def as_numbers(value: Any) -> dict[str, float]:
    numbers = finite_numbers(value)
    if numbers is None:
        raise InvalidResult(f"returned no dict of finite numbers: {short_repr(value)}")
    return numbers


def full_name(function: Any) -> str:
    """The full name of a function, or of a callable object's class."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def evaluator_name(name: str) -> str:
    """What an evaluator is called in metrics and pages: its function's name."""
    return name.rpartition(":")[2]
