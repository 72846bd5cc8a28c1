"""The table of gsm8k.py: each arm against the best prompt and against grpo.

mean and range   of the seeds: does another run end elsewhere? Seed 3, with which the settings were
                 chosen, has a line of its own.
+/-              standard error of a difference, paired over the problems: each problem counts
                 with the mean of its seeds. Would other problems of this kind say the same?
"""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from measuring import HELD_OUT, LAST_NUMBER

from rfs.evaluation.paired import paired

HEADER = (
    "model", "arm", "seeds", "greedy", "minus best prompt", "minus grpo", "at temperature 1",
    "pass@16", "box", "tokens", "MATH-500", "gym", "perplexity", "processor-hours",
)  # fmt: skip
UNTRAINED = "base, "
CHOOSING = "3"  # the seed with which settings are chosen
Rows = Sequence[dict[str, str]]


def table(rows: Rows, problems: Rows) -> str:
    """In Markdown: what the CSV files hold. Models that were not asked the test set show what they
    do on the problems that were held out, marked with *."""
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        arms = grouped([row for row in rows if row["model"] == model])
        for arm, some in arms.items():
            lines.append([model, *figures(arm, some, compared(problems, model, arms, arm))])
    return in_markdown(HEADER, lines)


PROMPTS = (
    "model", "prompt", "greedy", "last number read", "majority of eight", "at temperature 1",
    "pass@8", "groups with both", "box", "tokens", "cut off",
)  # fmt: skip


def prompt_table(rows: Rows) -> str:
    """The untrained model on the problems that were held out: by this the prompt is chosen."""
    lines = [
        [
            row["model"],
            row["arm"].removeprefix(UNTRAINED),
            *(share([row], name) for name in "greedy last_number majority sampled pass@8".split()),
            share([row], "mixed"),
            share([row], "box"),
            number([row], "tokens", ".0f"),
            share([row], "cut_off"),
        ]
        for row in rows
        if row["arm"].startswith(UNTRAINED)
    ]
    return in_markdown(PROMPTS, lines)


def in_markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    whole = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in whole)


class Arm(NamedTuple):
    name: str
    lr: str = ""
    chose: bool = False  # whether it ran with the seed that chooses


def arm_of(row: dict[str, str]) -> Arm:
    return Arm(row["arm"], row["lr"], row["seed"] == CHOOSING)


def grouped(rows: Rows) -> dict[Arm, list[dict[str, str]]]:
    """The rows of each arm and learning rate, one a seed; the seed that chooses comes last."""
    arms: dict[Arm, list[dict[str, str]]] = {}
    for row in sorted(rows, key=lambda row: row["seed"] == CHOOSING):
        arms.setdefault(arm_of(row), []).append(row)
    return arms


def compared(problems: Rows, model: str, arms: Iterable[Arm], arm: Arm) -> list[str]:
    """An arm minus the best prompt, and minus grpo. On the held-out problems, whose figures depend
    on what they chose, grpo is that of the same kind of seeds."""
    ours, mark, reads = answers(problems, model, arm, "greedy"), "", ("greedy", LAST_NUMBER)
    rivals = [other for other in arms if other.name == "grpo"]
    if not ours:
        ours, mark, reads = answers(problems, model, arm, HELD_OUT), "*", (HELD_OUT,)
        rivals = [other for other in rivals if other.chose == arm.chose]
    grpo = answers(problems, model, rivals[0], reads[0]) if rivals else {}
    found = [difference(ours, other) for other in (best_prompt(problems, model, arms, reads), grpo)]
    return [text and text + mark for text in found]


def best_prompt(
    problems: Rows, model: str, arms: Iterable[Arm], reads: Sequence[str]
) -> dict[int, float]:
    """The line to beat: the problems that the untrained model solves with the best of its prompts,
    read in the best of these ways. Both are chosen on the same problems, in its favor."""
    tried = [
        answers(problems, model, arm, read)
        for arm in arms
        if arm.name.startswith(UNTRAINED)
        for read in reads
    ]
    return max(tried, key=lambda some: sum(some.values()), default={})


def answers(problems: Rows, model: str, arm: Arm, read: str) -> dict[int, float]:
    """For each problem of a set, in how many of the seeds greedy decoding solves it."""
    this = {"model": model, "set": read}
    found = [row for row in problems if this.items() <= row.items() and arm_of(row) == arm]
    seeds = [row["correct"] for row in found]
    return {place: fmean(map(float, some)) for place, some in enumerate(zip(*seeds, strict=True))}


def difference(ours: dict[int, float], theirs: dict[int, float]) -> str:
    """Nothing between a row and itself."""
    found = paired(ours, theirs)
    if not found.seeds or ours == theirs:
        return ""
    return f"{100 * found.mean:+.1f} +/- {100 * found.error:.1f}"


def figures(arm: Arm, rows: Rows, compared: Sequence[str]) -> list[str]:
    name, lr, _ = arm
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
