"""The table of gsm8k.py: each arm against the best prompt and against grpo.

mean and range   of the seeds: would another run end elsewhere? Seed 3, which chose the settings,
                 has a line of its own.
+/-              standard error of a difference, paired over the problems: each problem counts
                 with the mean of its seeds. Would other problems of this kind agree?
"""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from gsm8k_measurements import HELD_OUT, LAST_NUMBER

from rfs.evaluation.paired import paired

HEADER = (
    "model", "arm", "seeds", "greedy", "minus best prompt", "minus grpo", "at temperature 1",
    "pass@16", "box", "tokens", "MATH-500", "gym", "perplexity", "processor-hours",
)  # fmt: skip
UNTRAINED = "base, "
CHOOSING_SEED = "3"  # the seed with which settings are chosen
Rows = Sequence[dict[str, str]]


def arms_table(rows: Rows, problems: Rows) -> str:
    """The arms in Markdown. Models that did not answer the test set show their results on the
    held-out problems, marked with *."""
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        arms = group_by_arm([row for row in rows if row["model"] == model])
        for arm, arm_rows in arms.items():
            gains = differences(problems, model, arms, arm)
            lines.append([model, *table_cells(arm, arm_rows, gains)])
    return in_markdown(HEADER, lines)


PROMPT_PERCENTAGES = "greedy last_number majority sampled pass@8 mixed box".split()
PROMPT_HEADER = (
    "model", "prompt", "greedy", "last number read", "majority of eight", "at temperature 1",
    "pass@8", "groups with both", "box", "tokens", "cut off",
)  # fmt: skip


def prompt_table(rows: Rows) -> str:
    """The untrained model on the held-out problems, by which the prompt is chosen."""
    lines = [
        [
            row["model"],
            row["arm"].removeprefix(UNTRAINED),
            *(percentage([row], name) for name in PROMPT_PERCENTAGES),
            mean_number([row], "tokens", ".0f"),
            percentage([row], "cut_off"),
        ]
        for row in rows
        if row["arm"].startswith(UNTRAINED)
    ]
    return in_markdown(PROMPT_HEADER, lines)


def in_markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    all_lines = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in all_lines)


class Arm(NamedTuple):
    name: str
    lr: str = ""
    chose_settings: bool = False  # whether it ran with CHOOSING_SEED


def arm_of(row: dict[str, str]) -> Arm:
    return Arm(row["arm"], row["lr"], row["seed"] == CHOOSING_SEED)


def group_by_arm(rows: Rows) -> dict[Arm, list[dict[str, str]]]:
    """The rows of each arm and learning rate, one a seed; those of CHOOSING_SEED come last."""
    arms: dict[Arm, list[dict[str, str]]] = {}
    for row in sorted(rows, key=lambda row: row["seed"] == CHOOSING_SEED):
        arms.setdefault(arm_of(row), []).append(row)
    return arms


def differences(problems: Rows, model: str, arms: Iterable[Arm], arm: Arm) -> list[str]:
    """An arm minus the best prompt, and minus grpo. The held-out problems favor the seed whose
    settings they chose, so there, that seed is compared only with its own kind."""
    ours, mark = accuracy_by_problem(problems, model, arm, "greedy"), ""
    answer_sets: tuple[str, ...] = ("greedy", LAST_NUMBER)
    rivals = [other for other in arms if other.name == "grpo"]
    if not ours:
        ours, mark = accuracy_by_problem(problems, model, arm, HELD_OUT), "*"
        answer_sets = (HELD_OUT,)
        rivals = [other for other in rivals if other.chose_settings == arm.chose_settings]
    grpo = accuracy_by_problem(problems, model, rivals[0], answer_sets[0]) if rivals else {}
    best = best_prompt(problems, model, arms, answer_sets)
    texts = [difference(ours, theirs) for theirs in (best, grpo)]
    return [text and text + mark for text in texts]


def best_prompt(
    problems: Rows, model: str, arms: Iterable[Arm], answer_sets: Sequence[str]
) -> dict[int, float]:
    """The line to beat: the problems that the untrained model solves with its best prompt, read
    from the box or as the last number. Both are chosen on the same problems, in its favor."""
    candidates = [
        accuracy_by_problem(problems, model, arm, answer_set)
        for arm in arms
        if arm.name.startswith(UNTRAINED)
        for answer_set in answer_sets
    ]
    return max(candidates, key=lambda accuracies: sum(accuracies.values()), default={})


def accuracy_by_problem(problems: Rows, model: str, arm: Arm, answer_set: str) -> dict[int, float]:
    """For each problem of a set, the share of the seeds that solve it with greedy decoding."""
    wanted = {"model": model, "set": answer_set}
    matching = [row for row in problems if wanted.items() <= row.items() and arm_of(row) == arm]
    digits_by_seed = [row["correct"] for row in matching]
    by_problem = zip(*digits_by_seed, strict=True)
    return {index: fmean(map(float, digits)) for index, digits in enumerate(by_problem)}


def difference(ours: dict[int, float], theirs: dict[int, float]) -> str:
    """The difference in points with its error; "" between a row and itself."""
    effect = paired(ours, theirs)
    if not effect.seeds or ours == theirs:
        return ""
    return f"{100 * effect.mean:+.1f} +/- {100 * effect.error:.1f}"


def table_cells(arm: Arm, rows: Rows, differences: Sequence[str]) -> list[str]:
    name, lr, _ = arm
    seeds = [row["seed"] for row in rows if row["seed"]]
    headline = percentage(rows, "test_greedy") or f"{percentage(rows, 'greedy')}*"
    return [
        name + (f" (lr {lr})" if lr else ""),
        " ".join(seeds),
        headline,
        *differences,
        percentage(rows, "test_sampled"),
        percentage(rows, "test_pass@16"),
        percentage(rows, "test_box") or f"{percentage(rows, 'box')}*",
        mean_number(rows, "test_tokens", ".0f") or f"{mean_number(rows, 'tokens', '.0f')}*",
        percentage(rows, "math500"),
        percentage(rows, "gym"),
        mean_number(rows, "perplexity", ".1f"),
        mean_number(rows, "seconds", ".2f", 1 / 3600),
    ]


def percentage(rows: Rows, column: str) -> str:
    """A percentage: the mean of the seeds and, for several, their range."""
    numbers = values(rows, column)
    if not numbers:
        return ""
    text = f"{100 * fmean(numbers):.1f}"
    if len(numbers) > 1:
        text += f" ({100 * min(numbers):.1f} to {100 * max(numbers):.1f})"
    return text


def mean_number(rows: Rows, column: str, format_spec: str, unit: float = 1.0) -> str:
    numbers = values(rows, column)
    return format(unit * fmean(numbers), format_spec) if numbers else ""


def values(rows: Rows, column: str) -> list[float]:
    return [float(row[column]) for row in rows if row.get(column)]
