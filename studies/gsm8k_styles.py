"""The style of a run's answers, plain text or LaTeX, and the reward of each style.

Two runs that differ only in their seed may end with different styles. LaTeX takes more tokens for
the same step, so more of these answers are cut off at the limit.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from reasoning_from_scratch.text import read_lines

LATEX = ("\\(", "\\[", "\\times", "\\frac", "\\cdot", "\\text")
STYLES = ("latex", "plain")
STYLE_METRICS = ("reward", "tokens", "cut_off")
COMPARISON_METRICS = ("rivals", "advantage", "push")
STYLE_COLUMNS = (
    "latex",
    *(f"{style}_{name}" for style in STYLES for name in STYLE_METRICS),
    *COMPARISON_METRICS,
)


def in_latex(text: str) -> bool:
    """Whether the steps before the box are written in LaTeX; the box itself always is."""
    steps = text.split("\\boxed")[0].rstrip().removesuffix("\\(").removesuffix("\\[")
    return any(mark in steps for mark in LATEX)


def measure_styles(run: Path, step: int) -> dict[str, float]:
    """Of a step's answers: the share in LaTeX, the metrics of each style that occurs, and how the
    two compare."""
    rows = read_lines(run / f"train_iteration_{step:06d}_rollout_summaries.jsonl")
    rows_by_style: dict[str, list[dict]] = {style: [] for style in STYLES}
    for row in rows:
        rows_by_style[style_of(row)].append(row)
    metrics = {"latex": len(rows_by_style["latex"]) / len(rows)}
    for style, style_rows in rows_by_style.items():
        metrics |= {f"{style}_{name}": value for name, value in mean_metrics(style_rows).items()}
    return metrics | compare_styles(rows)


def style_of(row: dict) -> str:
    return "latex" if in_latex(row["text"]) else "plain"


def compare_styles(rows: Sequence[dict]) -> dict[str, float]:
    """Where one problem has answers in both styles, GRPO compares them. `rivals` counts the LaTeX
    answers to such problems, and `advantage` is the mean of their advantages.

    The loss also divides each answer's advantage by its length, so that a long incorrect answer
    costs less per token than a short one. `push` is what this makes of the advantage: how much more
    a token of a LaTeX answer is raised than the average token of its group, where all answers would
    have the step's mean length. Where they do have it, push and advantage are the same."""
    groups: dict[int, list[dict]] = {}
    for row in rows:
        groups.setdefault(row["group_idx"], []).append(row)
    mean_tokens = fmean(map(answer_tokens, rows))
    advantages, pushes = [], []
    for group in groups.values():
        styles = [style_of(row) for row in group]
        if len(set(styles)) < len(STYLES):
            continue
        weights = [row["advantage"] * mean_tokens / max(1, answer_tokens(row)) for row in group]
        latex_indices = [i for i, style in enumerate(styles) if style == "latex"]
        advantages += [group[i]["advantage"] for i in latex_indices]
        pushes += [weights[i] - fmean(weights) for i in latex_indices]
    if not advantages:
        return {"rivals": 0}
    values = (len(advantages), fmean(advantages), fmean(pushes))
    return dict(zip(COMPARISON_METRICS, values, strict=True))


def answer_tokens(row: dict) -> int:
    return row["steps"][0]["ac_len"]


def mean_metrics(rows: Sequence[dict]) -> dict[str, float]:
    if not rows:
        return {}
    values = (
        fmean(row["total_reward"] for row in rows),
        fmean(map(answer_tokens, rows)),
        fmean(row["stop_reason"] != "stop" for row in rows),
    )
    return dict(zip(STYLE_METRICS, values, strict=True))
