"""The styles in which problems of the tiny world are answered: how often each, and how well.

Everything is counted from the answers in a run's files, so training need not know about styles.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.text import evenly_spaced, percent
from reasoning_from_scratch.tiny.ways import WAYS, way_of
from reasoning_from_scratch.tiny.world import tiny_problem

from .evals import read_rollouts
from .run_files import RunFiles

MAX_STEPS_READ = 300  # evenly spaced, in a longer run: the picture could not show more
MAX_POINTS = 30  # of the picture of all problems; the others have half as many
_ID = re.compile(r"tiny/([a-z-]+)/(\d{1,9})")
_LEVEL = re.compile(r"Level (\d+)")


@dataclass(frozen=True)
class Answered:
    steps: int  # that the problem takes
    way: str
    right: bool
    tokens: int
    iteration: int = 0  # the step of training, from 1


@dataclass(frozen=True)
class WayFigures:
    """How often one style occurs among some answers, and how well it does."""

    count: int
    share: float
    right: float  # share correct in this style; 0 if count is 0, as is tokens
    tokens: float


@dataclass
class WaysOverTime:
    """The share of each style over training, for problems of similar difficulty."""

    title: str
    at: list[float]  # steps of training
    shares: dict[str, list[float]]


def by_way(answers: Sequence[Answered]) -> dict[str, WayFigures]:
    """The figures of each style, including those that no answer uses."""
    figures = {}
    for way in WAYS:
        answers_of_way = [answer for answer in answers if answer.way == way]
        count = max(len(answers_of_way), 1)
        figures[way] = WayFigures(
            len(answers_of_way),
            len(answers_of_way) / max(len(answers), 1),
            sum(answer.right for answer in answers_of_way) / count,
            sum(answer.tokens for answer in answers_of_way) / count,
        )
    return figures


# --- answers of an evaluation ---


def evaluated_answers(problems: Sequence[Problem], rows: Sequence[dict]) -> list[Answered]:
    """An evaluation's answers to the problems whose level says how many steps they take."""
    answers = []
    for row in rows:
        level = _LEVEL.fullmatch(problems[row["index"] - 1].level)
        if level:
            steps, text = int(level[1]), row["generated_text"]
            answers.append(Answered(steps, way_of(text, steps), row["correct"], row["tokens"]))
    return answers


def ways_before_and_after(
    problems: Sequence[Problem], before: Sequence[dict], after: Sequence[dict]
) -> str:
    """A small table for the terminal, from the rows of two evaluations; empty if no problem's level
    says how many steps it takes."""
    by_way_before = by_way(evaluated_answers(problems, before))
    by_way_after = by_way(evaluated_answers(problems, after))
    if not any(figures.count for figures in by_way_before.values()):
        return ""
    lines = [f"{'':<25}{'before':>19}{'after':>19}"]
    lines += [f"{'style of answer':<25}" + f"{'share':>10}{'correct':>9}" * 2]
    for way in WAYS:
        pair = by_way_before[way], by_way_after[way]
        cells = (f"{percent(figures.share):>10}{_or_dash(figures):>9}" for figures in pair)
        lines.append(f"{way:<25}" + "".join(cells))
    return "\n".join(lines)


def _or_dash(figures: WayFigures) -> str:
    return percent(figures.right) if figures.count else "-"


# --- answers of a run ---


def train_answers(run: RunFiles) -> list[Answered]:
    """The training answers of a run on the tiny world, in order; for any other run, none."""
    answers = []
    for path in evenly_spaced(run.train_files, MAX_STEPS_READ):
        answers += [answer for row in read_rollouts(path) if (answer := _train_answer(row))]
        if not answers:
            return []  # other problems: the rest of the files need not be read
    return answers


def _train_answer(row: dict) -> Answered | None:
    text, steps = _tiny_problem(row["problem_id"])
    only_step = row["steps"][0]
    # A run on an earlier edition of the tiny world has other problems under the same names.
    if text is None or text != only_step["logs"]["problem"]:
        return None
    correct = (only_step["metrics"].get("correct") or 0.0) >= 1
    way, tokens = way_of(row["text"], steps), only_step["ac_len"]
    return Answered(steps, way, correct, tokens, row["iteration"] + 1)


@lru_cache(maxsize=20_000)
def _tiny_problem(problem_id: str) -> tuple[str | None, int]:
    """The text of a problem of the tiny world, and how many steps it takes."""
    match = _ID.fullmatch(problem_id)
    if not match:
        return None, 0
    try:
        row = tiny_problem(match[1], int(match[2]))
    except (ValueError, IndexError):  # no such split, or fewer problems in it
        return None, 0
    return row["problem"], int(_LEVEL.fullmatch(row["level"])[1])


def ways_over_time(answers: Sequence[Answered]) -> list[WaysOverTime]:
    """For all problems, then for those of 1 and 2 steps, of 3 and 4, and so on."""
    iterations = sorted({answer.iteration for answer in answers})
    step_pairs = sorted({(answer.steps + 1) // 2 for answer in answers})
    pictures = [_over_time("all problems", answers, _windows(iterations, MAX_POINTS))]
    for pair in step_pairs if len(step_pairs) > 1 else ():
        title = f"problems of {2 * pair - 1} or {2 * pair} steps"
        of_pair = [answer for answer in answers if (answer.steps + 1) // 2 == pair]
        pictures.append(_over_time(title, of_pair, _windows(iterations, MAX_POINTS // 2)))
    return pictures


def _windows(iterations: list[int], most: int) -> list[list[int]]:
    """The training steps, grouped into at most `most` windows."""
    width = -(-len(iterations) // most)
    return [iterations[start : start + width] for start in range(0, len(iterations), width)]


def _over_time(title: str, answers: Sequence[Answered], windows: list[list[int]]) -> WaysOverTime:
    """Shares of the styles in each window; a window without such problems has no point."""
    window_of = {step: window[0] for window in windows for step in window}
    window_middles = {window[0]: (window[0] + window[-1]) / 2 for window in windows}
    # The picture begins with the run and ends with it.
    window_middles |= {windows[-1][0]: windows[-1][-1], windows[0][0]: windows[0][0]}
    answers_by_window: dict[int, list[Answered]] = {}
    for answer in answers:
        answers_by_window.setdefault(window_of[answer.iteration], []).append(answer)
    figures = [by_way(answers_by_window[start]) for start in sorted(answers_by_window)]
    return WaysOverTime(
        title,
        [window_middles[start] for start in sorted(answers_by_window)],
        {way: [by_way_here[way].share for by_way_here in figures] for way in WAYS},
    )


def first_and_last(answers: Sequence[Answered]) -> list[tuple[str, dict[str, WayFigures]]]:
    """The styles in the first and in the last tenth of a run's steps, each end with a name."""
    iterations = sorted({answer.iteration for answer in answers})
    count = max(1, len(iterations) // 10)
    ends = []
    for steps in dict.fromkeys((tuple(iterations[:count]), tuple(iterations[-count:]))):
        name = f"step {steps[0]}" if count == 1 else f"steps {steps[0]} to {steps[-1]}"
        ends.append((name, by_way([answer for answer in answers if answer.iteration in steps])))
    return ends
