"""Reinforcement learning with verifiable rewards, from scratch, in plain PyTorch."""

import os
from importlib import import_module

# In bfloat16 on a CPU torch and oneDNN each keep what they have prepared for the last 1,024 shapes
# of matrix products. Training has new shapes all the time, so this grows to many gigabytes. 64 are
# as fast.
os.environ.setdefault("LRU_CACHE_CAPACITY", "64")
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")

# Linux hands out memory in pages of 4 kB. Large tensors ask for pages of 2 MB: to sample a token
# means to walk through all weights, and each page that is new to the processor costs it a pause.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

__version__ = "0.2.0"

# The book author's package, `reasoning-from-scratch`, has the same import name but no such line:
# the notebooks tell the two packages apart by it.
DISTRIBUTION = "rlvr-from-scratch"

# What notebooks and scripts need most, and the module that has it. Imported only on first use:
# `rfs --help` must not wait for torch.
_LIVES_IN = {
    "TrainConfig": "config",
    "Policy": "own_policy",
    "Problem": "problems",
    "Rollout": "sampling",
    "Sampling": "config",
    "generate": "fast.engine",
    "evaluate": "accuracy",
    "grade_answer": "rewards",
    "grader": "rollouts",
    "greedy": "sampling",
    "load_model_and_tokenizer": "files.weights",
    "load_problems": "problem_sets",
    "resolve_device": "fast.device",
    "set_advantages": "trainer",
}


# The book's readers import these from qwen3.py, which knows nothing of files and downloads.
_BOOK_HAS_IN_QWEN3 = {
    "Qwen3Tokenizer": "tokenizer",
    "load_hf_weights_into_qwen": "files.weights",
    "download_qwen3_small": "files.downloads",
    "download_qwen3_grpo_checkpoints": "files.downloads",
    "download_qwen3_distill_checkpoints": "files.downloads",
}


def __getattr__(name: str) -> object:
    if name in ("train", "configure"):
        raise AttributeError(f"runs have moved to the package rfs: from rfs import {name}")
    return _import_attribute(name, _LIVES_IN, __name__)


def forward_book_name(name: str) -> object:
    """For qwen3.py: a name that is imported from there, found in the module that has it."""
    return _import_attribute(name, _BOOK_HAS_IN_QWEN3, f"{__name__}.qwen3")


def _import_attribute(name: str, lives_in: dict[str, str], importing_module: str) -> object:
    if name not in lives_in:
        raise AttributeError(f"module {importing_module!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{lives_in[name]}"), name)
