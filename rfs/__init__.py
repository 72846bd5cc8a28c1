"""The program around the book: commands, runs, tasks, evaluation, reports, ranks and Ray, a server.

It hands the loop of `reasoning_from_scratch` a policy, problems and an observer, as any reader
could. What notebooks and scripts need most is here by name.
"""

from importlib import import_module

from reasoning_from_scratch import __version__

__all__ = ["__version__"]

# Imported only on first use: `rfs --help` must not wait for torch.
_LIVES_IN = {
    "train": "run.start",
    "RunConfig": "config",
    "configure": "run.options",
    "Policy": "own_policy",
    "load_model_and_tokenizer": "files.models",
    "evaluate": "evaluation.evaluate",
    "load_problems": "tasks.problem_sets",
}


def __getattr__(name: str) -> object:
    if name not in _LIVES_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LIVES_IN[name]}"), name)
