"""Reinforcement learning with verifiable rewards, from scratch, in plain PyTorch."""

from importlib import import_module

__version__ = "0.2.0"

# `reasoning-from-scratch` is the package of the book's author. It is imported by the same name, and
# has no such line: the notebooks tell the two apart by it.
DISTRIBUTION = "rlvr-from-scratch"

# What a script needs most, from where it lives. Looked up late: `rfs --help` must not wait for
# torch.
_LIVES_IN = {
    "train": "run.start",
    "TrainConfig": "config",
    "configure": "run.options",
    "Policy": "run.own_policy",
    "Problem": "problems",
    "Sampling": "config",
    "generate": "fast.engine",
    "evaluate": "evaluation.evaluate",
    "grade_answer": "grading",
    "load_model_and_tokenizer": "files.weights",
    "load_problems": "tasks.problem_sets",
    "resolve_device": "fast.device",
}


def __getattr__(name: str) -> object:
    if name not in _LIVES_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LIVES_IN[name]}"), name)
