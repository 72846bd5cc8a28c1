"""The table of gsm8k.py: each arm against the best prompt and against grpo.

mean and range   of the seeds: does another run end elsewhere?
+/-              standard error of a difference, paired over the problems: each problem counts
                 with the mean of its seeds. Would other problems of this kind say the same?
"""

from collections.abc import Sequence
from statistics import fmean

from reasoning_from_scratch.evaluation.paired import paired

HEADER = (
    "model", "arm", "seeds", "greedy", "minus best prompt", "minus grpo", "at temperature 1",
    "pass@16", "box", "tokens", "MATH-500", "gym", "perplexity", "processor-hours",
)  # fmt: skip
UNTRAINED = "base, "
Rows = Sequence[dict[str, str]]


def table(rows: Rows, problems: Rows) -> str:
    """In Markdown: what the CSV files hold. Models that were not asked the test set show what they
    do on the problems that were held back, marked with *."""
    lines = [HEADER, ["---"] * len(HEADER)]
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model]
        arms = grouped(mine)
        every = {arm: answers(problems, model, arm) for arm in arms}
        line = best_prompt(arms)
        grpo = next((arm for arm in arms if arm[0] == "grpo" and every[arm]), None)
        for arm, some in arms.items():
            compared = [difference(every, arm, other) for other in (line, grpo)]
            lines.append([model, *figures(arm, some, compared)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


Arm = tuple[str, str]  # its name and learning rate


def grouped(rows: Rows) -> dict[Arm, list[dict[str, str]]]:
    """The rows of each arm and learning rate: one for each seed."""
    arms: dict[Arm, list[dict[str, str]]] = {}
    for row in rows:
        arms.setdefault((row["arm"], row["lr"]), []).append(row)
    return arms


def best_prompt(arms: dict[Arm, list[dict[str, str]]]) -> Arm | None:
    """The untrained model's prompt with the most correct answers to the test set: the line to
    beat."""
    asked = [
        arm
        for arm, rows in arms.items()
        if arm[0].startswith(UNTRAINED) and rows[0].get("test_greedy")
    ]
    return max(asked, key=lambda arm: float(arms[arm][0]["test_greedy"]), default=None)


def answers(problems: Rows, model: str, arm: Arm) -> dict[int, float]:
    """For each test problem, in how many of the seeds greedy decoding solves it."""
    this = {"model": model, "arm": arm[0], "lr": arm[1], "set": "greedy"}
    seeds = [row["correct"] for row in problems if this.items() <= row.items()]
    return {place: fmean(map(float, some)) for place, some in enumerate(zip(*seeds, strict=True))}


def difference(every: dict[Arm, dict[int, float]], arm: Arm, other: Arm | None) -> str:
    if other is None or arm == other or not every[arm]:
        return ""
    found = paired(every[arm], every[other])
    return f"{100 * found.mean:+.1f} +/- {100 * found.error:.1f}"


def figures(arm: Arm, rows: Rows, compared: Sequence[str]) -> list[str]:
    name, lr = arm
    seeds = [row["seed"] for row in rows if row["seed"]]
    headline = share(rows, "test_greedy") or f"{share(rows, 'greedy')}*"
    return [
        name + (f" (lr {lr})" if lr else ""),
        " ".join(seeds),
        headline,
        *compared,
        share(rows, "test_sampled"),
        share(rows, "test_pass@16"),
        share(rows, "test_box") or f"{share(rows, 'box')}*",
        number(rows, "test_tokens", ".0f") or f"{number(rows, 'tokens', '.0f')}*",
        share(rows, "math500"),
        share(rows, "gym"),
        number(rows, "perplexity", ".1f"),
        number(rows, "seconds", ".2f", 1 / 3600),
    ]


def share(rows: Rows, column: str) -> str:
    """A percentage: the mean of the seeds and, for several, their range."""
    found = values(rows, column)
    if not found:
        return ""
    ends = f" ({100 * min(found):.1f} to {100 * max(found):.1f})" if len(found) > 1 else ""
    return f"{100 * fmean(found):.1f}{ends}"


def number(rows: Rows, column: str, shown: str, unit: float = 1.0) -> str:
    found = values(rows, column)
    return format(unit * fmean(found), shown) if found else ""


def values(rows: Rows, column: str) -> list[float]:
    return [float(row[column]) for row in rows if row.get(column)]
