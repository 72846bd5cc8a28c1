"""Reads a run folder: whatever is there, even while the run is still writing to it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.text import read_evenly_spaced, read_json_object, read_lines
from rfs.files.saved_models import holds_model
from rfs.tasks.own_task import evaluator_name

from .evals import Evals, read_evals, read_rollouts
from .probes import PROBES_FILE

SHOWN_PROBES = 60  # positions of the slider; more would make the page heavy and show no more
_PAGE = re.compile(r"(train|eval_.+)_iteration_(\d{6,})\.html")
LISTED_FILES = (
    "metrics.jsonl",
    "metrics.csv",
    "config.json",
    "checkpoints.jsonl",
    "logs.log",
    "timing_spans.jsonl",
    "probes.jsonl",
    "code.diff",
)


@dataclass
class RunFiles:
    folder: Path
    configs: list[dict[str, Any]]  # the first one, and what each resumption changed
    metrics: list[dict]  # one per step, in order
    probes: list[dict]  # of the shown steps, in order
    checkpoints: list[dict]
    evals: dict[str, Evals]  # by the name of their problems
    pages: dict[int, list[str]]  # step -> page files
    files: list[str]

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def config(self) -> dict[str, Any]:
        return merge_changes(self.configs)

    @property
    def on_policy(self) -> bool:
        """Whether every rollout is trained on once, by the weights that sampled it."""
        values = {"epochs": 1, "num_substeps": 1, "max_steps_off_policy": 0}
        return all(self.config.get(name, value) == value for name, value in values.items())

    @property
    def train_files(self) -> list[Path]:
        """The summaries of what was sampled in training, a file for each step."""
        if self.supervised:
            return []
        return sorted(self.folder.glob("train_iteration_*_rollout_summaries.jsonl"))

    @property
    def supervised(self) -> bool:
        """Whether it learns worked solutions: nothing is sampled, nothing is rewarded."""
        return self.config.get("objective") == "cross_entropy"

    @property
    def unit(self) -> str:
        """What `ac_tokens_per_turn` is per: an answer, or one of the several turns that it has."""
        turns = [row.get("env/all/turns_per_episode") or 1 for row in self.metrics]
        return "answer" if all(count == 1 for count in turns) else "turn"

    @property
    def evaluators(self) -> list[str]:
        """The names of your own evaluators, including those added when the run was resumed."""
        names = [
            evaluator_name(name)
            for values in self.configs
            for name in values.get("evaluators") or []
        ]
        return list(dict.fromkeys(names))


def read_configs(folder: Path) -> list[dict[str, Any]]:
    """The configuration with which a run began, and the changes of each resumption."""
    first = read_json_object(folder / "config.json")
    return [first, *(entry["changed"] for entry in first.get("resumed", []))]


def merge_changes(configs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The current configuration: the first one with all changes since."""
    return {name: value for values in configs for name, value in values.items()}


def is_run_folder(folder: Path) -> bool:
    """A run may have no metrics yet."""
    if (folder / "metrics.jsonl").exists():
        return True
    return (folder / "config.json").exists() and not holds_model(folder)


def newest_run(folder: Path) -> Path:
    """The most recently active run. Rewriting an old run's report does not make it newer."""
    runs = [path.parent for path in folder.glob("*/config.json") if is_run_folder(path.parent)]
    if not runs:
        raise UserError(f"there is no run in {folder.resolve()}; give the folder of one")
    return max(runs, key=last_write_time)


def last_write_time(run: Path) -> float:
    files = (run / "config.json", run / "metrics.jsonl")
    return max(path.stat().st_mtime for path in files if path.exists())


def read_run(folder: str | Path) -> RunFiles:
    folder = Path(folder)
    if not is_run_folder(folder):
        raise UserError(f"no run in {folder}: it has no metrics.jsonl; give a run's log_path")
    return RunFiles(
        folder=folder,
        configs=read_configs(folder),
        metrics=latest_by_step(read_lines(folder / "metrics.jsonl")),
        probes=latest_by_step(read_evenly_spaced(folder / PROBES_FILE, SHOWN_PROBES)),
        checkpoints=read_lines(folder / "checkpoints.jsonl"),
        evals=read_evals(folder),
        pages=_find_pages(folder),
        files=[name for name in LISTED_FILES if (folder / name).exists()],
    )


def latest_by_step(rows: Iterable[dict]) -> list[dict]:
    """If a step was run again, its later line counts."""
    latest = {row["step"]: row for row in rows if isinstance(row.get("step"), int)}
    return [latest[step] for step in sorted(latest)]


def is_number(value: object) -> bool:
    """A finite number, and not so large that sums or pictures of it overflow."""
    return isinstance(value, (int, float)) and abs(value) < 1e100


def metric_values(rows: list[dict], name: str) -> list[float]:
    """The values of a metric, in the steps that measured it."""
    return [float(row[name]) for row in rows if is_number(row.get(name))]


def first_and_last_means(values: list[float]) -> tuple[float, float]:
    """Means of the first few and of the last few values: a single step is noisy. Of two or more
    values, none is in both."""
    few = max(1, min(5, len(values) // 2))
    return fmean(values[:few]), fmean(values[-few:])


def _find_pages(folder: Path) -> dict[int, list[str]]:
    pages: dict[int, list[str]] = {}
    for path in sorted(folder.glob("*_iteration_*.html"), reverse=True):  # train before eval
        match = _PAGE.fullmatch(path.name)
        if match:
            pages.setdefault(int(match[2]), []).append(path.name)
    return dict(sorted(pages.items()))


def read_all_rollouts(paths: Iterable[Path]) -> list[dict]:
    """All rollouts of these files, such as those of the last few steps."""
    return [row for path in paths for row in read_rollouts(path)]
