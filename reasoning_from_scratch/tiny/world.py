"""The tiny world: a problem generator in MATH's schema, and the size of the tiny model.

`tiny_problem(split, index)` is a pure function. Which split a problem may appear in is decided by a
hash of its content with the names and things blanked out, so a test problem cannot occur in the
training split, not even with another name in it.
"""

import random
import re
import zlib
from functools import cache

import torch

from reasoning_from_scratch.tiny.families import (
    NAMES,
    THINGS,
    averages,
    comparisons,
    equations,
    fractions,
    measures,
    order_of_operations,
    percents,
    products,
    remainders,
    sequences,
    shopping,
    stories,
)

TINY_CONFIG = {
    "vocab_size": 1024,
    "context_length": 512,
    "emb_dim": 256,
    "n_heads": 4,
    "n_layers": 4,
    "hidden_dim": 384,
    "head_dim": 64,
    "qk_norm": True,
    "n_kv_groups": 2,
    "rope_base": 10_000.0,
    "dtype": torch.float32,
    "tie_embeddings": True,
}

# type -> (function, {steps: how often among this family's problems}).
FAMILIES = {
    "stories": (stories, {2: 3, 3: 4, 4: 3, 5: 2, 6: 2}),
    "shopping": (shopping, {2: 4, 3: 4, 4: 3, 5: 2, 6: 1}),
    "comparisons": (comparisons, {2: 4, 3: 3, 4: 3}),
    "products": (products, {1: 3, 2: 3, 3: 4}),
    "remainders": (remainders, {2: 4, 3: 4, 4: 2}),
    "equations": (equations, {2: 4, 3: 4, 4: 2}),
    "order of operations": (order_of_operations, {2: 4, 3: 4, 4: 3, 5: 2, 6: 1}),
    "fractions": (fractions, {2: 3, 3: 4, 4: 3}),
    "percents": (percents, {2: 4, 3: 4, 4: 2}),
    "sequences": (sequences, {2: 5, 3: 4, 4: 1}),
    "measures": (measures, {2: 4, 3: 4, 4: 2}),
    "averages": (averages, {2: 4, 3: 4, 4: 3, 5: 2, 6: 1}),
}
# Families that can be made one step longer than any working in the training split.
LONGER_FAMILIES = ("stories", "shopping", "order of operations", "averages")
LONGER_STEPS = 7

SPLIT_SIZES = {"train": None, "test": 500, "longer": 500}
WORKED_START = "Let's see.\n"  # every worked solution begins so; ".\n" is one token
_BLANKED = re.compile(r"\b(" + "|".join(NAMES + THINGS) + r")\b")


def content_key(problem: str) -> str:
    """The problem with its names and things blanked out: what the splits are told apart by."""
    return _BLANKED.sub("_", problem)


def is_held_out(problem: str) -> bool:
    """True for the tenth of all contents that only the test and longer splits may use."""
    return zlib.crc32(content_key(problem).encode()) % 10 == 0


def tiny_problem(split: str, index: int) -> dict[str, str]:
    """Problem number `index` of a split: "train" (unbounded), "test" or "longer" (500 each)."""
    if split not in SPLIT_SIZES:
        raise ValueError(f"split is one of {', '.join(SPLIT_SIZES)}, not {split!r}")
    if index < 0 or index >= (SPLIT_SIZES[split] or index + 1):
        raise IndexError(f"split {split!r} has no problem {index}")
    if split != "train":
        return dict(_fixed_split(split)[index])
    rng = random.Random(f"train {index}")
    while True:
        row = _draw(rng, split, index)
        if not is_held_out(row["problem"]):
            return row


@cache
def _fixed_split(split: str) -> tuple[dict[str, str], ...]:
    """All problems of a held-out split; no two have the same content."""
    rng, rows = random.Random(split), {}
    while len(rows) < SPLIT_SIZES[split]:
        row = _draw(rng, split, len(rows))
        if is_held_out(row["problem"]):
            rows.setdefault(content_key(row["problem"]), row)
    return tuple(rows.values())


def _draw(rng: random.Random, split: str, index: int) -> dict[str, str]:
    family, steps = _choose(rng, split)
    text, lines, answer = FAMILIES[family][0](rng, steps)
    solution = WORKED_START + "\n".join([*lines, f"\\boxed{{{answer}}}"])
    return {
        "problem": text,
        "solution": solution,
        "answer": str(answer),
        "level": f"Level {min(steps, 5)}",
        "type": family,
        "unique_id": f"tiny/{split}/{index}",
    }


def _choose(rng: random.Random, split: str) -> tuple[str, int]:
    """A family, all equally often, and how many steps the problem takes."""
    if split == "longer":
        return rng.choice(LONGER_FAMILIES), LONGER_STEPS
    family = rng.choice(tuple(FAMILIES))
    steps = [s for s, weight in FAMILIES[family][1].items() for _ in range(weight)]
    return family, rng.choice(steps)
