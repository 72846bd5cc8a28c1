"""The evaluations of a run, read from its files: a row for each, and the answers of a few."""

import re
from dataclasses import dataclass
from pathlib import Path

from answer_grader import get_last_boxed
from reasoning_from_scratch.scores import wilson_interval
from reasoning_from_scratch.text import evenly_spaced, read_lines, shorten

SHOWN_STEPS = 6  # evaluations whose answers are kept, to be shown
_EVAL_FILE = re.compile(r"eval_(.+)_iteration_(\d{6,})_rollout_summaries\.jsonl")


@dataclass(frozen=True)
class EvalAnswer:
    """One answer to one problem at one evaluation."""

    problem_index: int  # of the problem in its set; several may have the same id
    problem_id: str
    problem: str
    truth: str
    correct: bool
    boxed: str  # the content of its last box; empty if there is none
    text: str
    length: int
    finished: bool


@dataclass
class EvalRow:
    name: str
    step: int
    problems: int
    samples: int  # answers per problem
    accuracy: float
    solved: float  # share of problems with at least one correct answer: pass@samples
    low: float
    high: float
    length: float
    cut_off: float


@dataclass
class Evals:
    """The evaluations on one set of problems, in order."""

    rows: list[EvalRow]
    shown_answers: dict[int, list[EvalAnswer]]  # step -> answers


def read_evals(folder: Path) -> dict[str, Evals]:
    """The evaluations by name. A long run has many: only answers to be shown stay in memory."""
    files: dict[str, list[tuple[int, Path]]] = {}
    for path in sorted(folder.glob("eval_*_rollout_summaries.jsonl")):
        match = _EVAL_FILE.fullmatch(path.name)
        if match:
            files.setdefault(match[1], []).append((int(match[2]), path))
    return {name: _read_set(name, sorted(files[name])) for name in sorted(files)}


def _read_set(name: str, files: list[tuple[int, Path]]) -> Evals:
    shown_steps = {step for step, _ in evenly_spaced(files, SHOWN_STEPS)}
    evals = Evals([], {})
    for step, path in files:
        answers = [_answer(row) for row in read_rollouts(path)]
        if answers:
            evals.rows.append(_eval_row(name, step, answers))
        if answers and step in shown_steps:
            evals.shown_answers[step] = answers
    return evals


def read_rollouts(path: Path) -> list[dict]:
    """A file's rollouts, except those of other programs, which have no text."""
    return [row for row in read_lines(path) if "text" in row and row["steps"]]


def _answer(row: dict) -> EvalAnswer:
    step, text = row["steps"][0], row["text"]
    return EvalAnswer(
        problem_index=row["group_idx"],
        problem_id=row["problem_id"],
        problem=step["logs"]["problem"],
        truth=step["logs"]["answer"],
        correct=(step["metrics"].get("correct") or 0.0) >= 1,
        boxed=shorten((get_last_boxed(text) or "").strip(), 60),
        text=text,
        length=step["ac_len"],
        finished=row["stop_reason"] == "stop",
    )


def _eval_row(name: str, step: int, answers: list[EvalAnswer]) -> EvalRow:
    count = len(answers)
    problems = len({answer.problem_index for answer in answers})
    solved = len({answer.problem_index for answer in answers if answer.correct})
    accuracy = sum(answer.correct for answer in answers) / count
    low, high = wilson_interval(accuracy * problems, problems)
    return EvalRow(
        name=name,
        step=step,
        problems=problems,
        samples=count // problems,
        accuracy=accuracy,
        solved=solved / problems,
        low=low,
        high=high,
        length=sum(answer.length for answer in answers) / count,
        cut_off=sum(not answer.finished for answer in answers) / count,
    )
