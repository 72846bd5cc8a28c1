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
STYLES = ("latex", *(f"{way}_{name}" for way in WAYS for name in FIGURES), "rivals", "advantage")


def in_latex(text: str) -> bool:
    """Whether the steps before the box are written in LaTeX; the box itself always is."""
    steps = text.split("\\boxed")[0].rstrip().removesuffix("\\(").removesuffix("\\[")
    return any(mark in steps for mark in LATEX)


def styles(run: Path, step: int) -> dict[str, float]:
    """Of a step's answers: the share in LaTeX, and the figures of each way of writing that there
    is. Where a problem has answers of both kinds, GRPO compares them: `rivals` counts the LaTeX
    answers to such problems, and `advantage` is the mean of their advantages."""
    rows = read_lines(run / f"train_iteration_{step:06d}_rollout_summaries.jsonl")
    ways: dict[str, list[dict]] = {way: [] for way in WAYS}
    groups: dict[int, dict[str, list[dict]]] = {}
    for row in rows:
        way = "latex" if in_latex(row["text"]) else "plain"
        ways[way].append(row)
        groups.setdefault(row["group_idx"], {}).setdefault(way, []).append(row)
    found = {"latex": len(ways["latex"]) / len(rows)}
    for way, some in ways.items():
        found |= {f"{way}_{name}": value for name, value in figures(some).items()}
    rivals = [row for group in groups.values() if len(group) == len(WAYS) for row in group["latex"]]
    found["rivals"] = len(rivals)
    if rivals:
        found["advantage"] = fmean(row["advantage"] for row in rivals)
    return found


def figures(rows: Sequence[dict]) -> dict[str, float]:
    if not rows:
        return {}
    values = (
        fmean(row["total_reward"] for row in rows),
        fmean(row["steps"][0]["ac_len"] for row in rows),
        fmean(row["stop_reason"] != "stop" for row in rows),
    )
    return dict(zip(FIGURES, values, strict=True))
