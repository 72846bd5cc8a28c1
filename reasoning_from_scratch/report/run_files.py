"""A run folder, read: whatever is there, also while the run still writes to it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.grading import get_last_boxed
from reasoning_from_scratch.json_files import read_lines, read_values
from reasoning_from_scratch.safe_text import shorten

from .probes import PROBES_FILE

_EVAL_FILE = re.compile(r"eval_(.+)_iteration_(\d{6,})_rollout_summaries\.jsonl")
_PAGE = re.compile(r"(train|eval_.+)_iteration_(\d{6,})\.html")
LISTED_FILES = (
    "metrics.jsonl", "metrics.csv", "config.json", "checkpoints.jsonl", "logs.log",
    "timing_spans.jsonl", "probes.jsonl", "code.diff",
)  # fmt: skip


@dataclass(frozen=True)
class EvalAnswer:
    """One answer to one problem at one evaluation."""

    problem_id: str
    problem: str
    truth: str
    right: bool
    boxed: str  # what stands in its last box; empty where there is none
    text: str
    length: int
    finished: bool


@dataclass
class RunFiles:
    folder: Path
    config: dict[str, Any]
    metrics: list[dict]  # one per step, in order
    probes: list[dict]  # one per reported step, in order
    checkpoints: list[dict]
    evals: dict[str, dict[int, list[EvalAnswer]]]  # name -> step -> answers
    pages: dict[int, list[str]]  # step -> page files
    files: list[str]

    @property
    def name(self) -> str:
        return self.folder.resolve().name


def read_run(folder: str | Path) -> RunFiles:
    folder = Path(folder)
    if not (folder / "metrics.jsonl").exists() and not (folder / "config.json").exists():
        raise UserError(f"no run in {folder}: it has no metrics.jsonl; give a run's log_path")
    return RunFiles(
        folder=folder,
        config=read_values(folder / "config.json"),
        metrics=_by_step(read_lines(folder / "metrics.jsonl")),
        probes=_by_step(read_lines(folder / PROBES_FILE)),
        checkpoints=read_lines(folder / "checkpoints.jsonl"),
        evals=_read_evals(folder),
        pages=_find_pages(folder),
        files=[name for name in LISTED_FILES if (folder / name).exists()],
    )


def _by_step(rows: list[dict]) -> list[dict]:
    """Of a step that was run again, the later line counts."""
    latest = {row["step"]: row for row in rows if isinstance(row.get("step"), int)}
    return [latest[step] for step in sorted(latest)]


def _read_evals(folder: Path) -> dict[str, dict[int, list[EvalAnswer]]]:
    evals: dict[str, dict[int, list[EvalAnswer]]] = {}
    for path in sorted(folder.glob("eval_*_rollout_summaries.jsonl")):
        match = _EVAL_FILE.fullmatch(path.name)
        if match:
            answers = [_answer(row) for row in _read_rollouts(path)]
            evals.setdefault(match[1], {})[int(match[2])] = answers
    return {name: dict(sorted(steps.items())) for name, steps in sorted(evals.items())}


def _read_rollouts(path: Path) -> list[dict]:
    """Without those of other programs, which have the same keys but no text to show."""
    return [row for row in read_lines(path) if "text" in row and "problem_id" in row]


def _answer(row: dict) -> EvalAnswer:
    step, text = row["steps"][0], row["text"]
    return EvalAnswer(
        problem_id=row["problem_id"],
        problem=step["logs"]["problem"],
        truth=step["logs"]["answer"],
        right=(step["metrics"].get("correct") or 0.0) >= 0.5,
        boxed=shorten((get_last_boxed(text) or "").strip(), 60),
        text=text,
        length=step["ac_len"],
        finished=row["stop_reason"] == "stop",
    )


def _find_pages(folder: Path) -> dict[int, list[str]]:
    pages: dict[int, list[str]] = {}
    for path in sorted(folder.glob("*_iteration_*.html"), reverse=True):  # train before eval
        match = _PAGE.fullmatch(path.name)
        if match:
            pages.setdefault(int(match[2]), []).append(path.name)
    return dict(sorted(pages.items()))


def last_train_rollouts(run: RunFiles, steps: int) -> list[dict]:
    """The summaries of the last few training steps."""
    paths = sorted(run.folder.glob("train_iteration_*_rollout_summaries.jsonl"))[-steps:]
    return [row for path in paths for row in _read_rollouts(path)]


def evenly(items: list, limit: int) -> list:
    """At most limit items: the first, the last, and what lies evenly between."""
    if len(items) <= limit:
        return items
    return [items[round(i * (len(items) - 1) / (limit - 1))] for i in range(limit)]
