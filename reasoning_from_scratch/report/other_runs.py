"""The other runs in a run's folder: what each reached, and how it differs from this one."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from reasoning_from_scratch.files.saved_models import evaluations_in
from reasoning_from_scratch.text import read_lines

from .run_files import RunFiles, by_step, configs_in, current, ends, last_written, numbers
from .settings import DEFAULTS, differing, in_words

SHOWN = 8  # the most recently active ones
SHOWN_SETTINGS = 6


@dataclass
class OtherRun:
    name: str
    page: str  # where its report is, relative to this one; empty if it has none
    metrics: list[dict]
    config: dict[str, Any]

    def differences(self, run: RunFiles) -> str:
        """Its settings that differ from those of `run`."""
        names = list(differing(run.config, self.config))
        settings = DEFAULTS | self.config
        words = [f"{name} {in_words(settings[name])}" for name in names[:SHOWN_SETTINGS]]
        more = [f"and {len(names) - SHOWN_SETTINGS} more"] if len(names) > SHOWN_SETTINGS else []
        return "; ".join(words + more)

    def is_evaluated_as(self, run: RunFiles) -> bool:
        names = ("eval_problems", "eval_limit", "eval_samples")
        return not set(names) & set(differing(run.config, self.config))


@dataclass
class Reached:
    """What a run has reached: its last evaluation, and the means of its last steps."""

    steps: int
    reward: float | None
    accuracy: float | None
    length: float | None


def reached(metrics: list[dict]) -> Reached:
    rewards, lengths = (
        numbers(metrics, name) for name in ("env/all/reward/total", "env/all/ac_tokens_per_turn")
    )
    accuracies = numbers([found for row in metrics for found in evaluations_in(row)], "eval_acc")
    return Reached(
        len(metrics),
        ends(rewards)[1] if rewards else None,
        accuracies[-1] if accuracies else None,
        ends(lengths)[1] if lengths else None,
    )


def other_runs(run: RunFiles) -> tuple[list[OtherRun], int]:
    """The most recently active ones, and how many more there are. Unreadable runs are skipped."""
    here = Path(os.path.abspath(run.folder))
    found = []
    for config in here.parent.glob("*/config.json"):
        try:
            if not config.parent.samefile(here) and (config.parent / "metrics.jsonl").is_file():
                found.append((last_written(config.parent), config.parent))
        except OSError:  # just deleted, or somebody else's
            continue
    newest = [folder for _, folder in sorted(found, reverse=True)]
    others = [other for other in map(_read, newest[:SHOWN]) if other]
    return others, len(newest) - len(newest[:SHOWN])


def _read(folder: Path) -> OtherRun | None:
    try:
        metrics = by_step(read_lines(folder / "metrics.jsonl"))
    except OSError:
        return None
    there = (folder / "report.html").is_file()
    page = f"../{quote(os.fsencode(folder.name))}/report.html" if there else ""
    return OtherRun(folder.name, page, metrics, current(configs_in(folder))) if metrics else None
