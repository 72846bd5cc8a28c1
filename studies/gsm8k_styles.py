"""How a run's answers are written, in plain text or in LaTeX, and what each way earns.

Two runs that differ in nothing but the seed may end with another way of writing. LaTeX takes more
tokens for the same step, so more of these answers reach the limit before they are done.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from reasoning_from_scratch.text import read_lines

LATEX = ("\\(", "\\[", "\\times", "\\frac", "\\cdot", "\\text")
WAYS = ("latex", "plain")
FIGURES = ("reward", "tokens", "cut_off")
COMPARED = ("rivals", "advantage", "push")
STYLES = ("latex", *(f"{way}_{name}" for way in WAYS for name in FIGURES), *COMPARED)


def in_latex(text: str) -> bool:
    """Whether the steps before the box are written in LaTeX; the box itself always is."""
    steps = text.split("\\boxed")[0].rstrip().removesuffix("\\(").removesuffix("\\[")
    return any(mark in steps for mark in LATEX)


def styles(run: Path, step: int) -> dict[str, float]:
    """Of a step's answers: the share in LaTeX, the figures of each way of writing that there is,
    and how the two compare."""
    rows = read_lines(run / f"train_iteration_{step:06d}_rollout_summaries.jsonl")
    ways: dict[str, list[dict]] = {way: [] for way in WAYS}
    for row in rows:
        ways[way_of(row)].append(row)
    found = {"latex": len(ways["latex"]) / len(rows)}
    for way, some in ways.items():
        found |= {f"{way}_{name}": value for name, value in figures(some).items()}
    return found | compared(rows)


def way_of(row: dict) -> str:
    return "latex" if in_latex(row["text"]) else "plain"


def compared(rows: Sequence[dict]) -> dict[str, float]:
    """Where one problem has answers in both ways, GRPO compares them. `rivals` counts the LaTeX
    answers to such problems, and `advantage` is the mean of their advantages.

    The loss also divides each answer's advantage by its length, so that a long incorrect answer
    costs less per token than a short one. `push` is what this makes of the advantage: how much more
    a token of a LaTeX answer is raised than the average token of its group, where all answers would
    have the step's mean length. Where they do have it, push and advantage are the same."""
    groups: dict[int, list[dict]] = {}
    for row in rows:
        groups.setdefault(row["group_idx"], []).append(row)
    usual = fmean(map(tokens, rows))
    advantages, pushes = [], []
    for group in groups.values():
        ways = [way_of(row) for row in group]
        if len(set(ways)) < len(WAYS):
            continue
        weights = [row["advantage"] * usual / max(1, tokens(row)) for row in group]
        latex = [place for place, way in enumerate(ways) if way == "latex"]
        advantages += [group[place]["advantage"] for place in latex]
        pushes += [weights[place] - fmean(weights) for place in latex]
    if not advantages:
        return {"rivals": 0}
    values = (len(advantages), fmean(advantages), fmean(pushes))
    return dict(zip(COMPARED, values, strict=True))


def tokens(row: dict) -> int:
    return row["steps"][0]["ac_len"]


def figures(rows: Sequence[dict]) -> dict[str, float]:
    if not rows:
        return {}
    values = (
        fmean(row["total_reward"] for row in rows),
        fmean(map(tokens, rows)),
        fmean(row["stop_reason"] != "stop" for row in rows),
    )
    return dict(zip(FIGURES, values, strict=True))
