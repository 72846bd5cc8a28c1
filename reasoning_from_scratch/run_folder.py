"""The run folder: config.json, metrics.jsonl, metrics.csv, logs.log, code.diff, timing spans."""

import csv
import io
import json
import logging
import math
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import torch

from reasoning_from_scratch.config import TrainConfig, from_json, to_json
from reasoning_from_scratch.disk import write_whole
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.metrics import CSV_COLUMNS, csv_row
from reasoning_from_scratch.rollouts import Group

log = logging.getLogger("reasoning_from_scratch")

# A folder with one of these has a run in it.
TRACES = ("config.json", "metrics.jsonl", "checkpoints.jsonl")
# What else a run writes: --overwrite deletes this and nothing more.
WRITTEN = (
    "metrics.csv", "logs.log", "code.diff", "timing_spans.jsonl", "probes.jsonl", "report.html",
    "train_iteration_*", "eval_*_iteration_*", "iteration_*", "checkpoints", "curves.png",
    "nonfinite_step_*", "wandb_id", "adapter",
)  # fmt: skip


class RunFolder:
    """The files that a run writes, except its checkpoints and reports."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.rows: list[dict] = []  # the metrics lines so far
        self.total_steps = 0

    # -- start

    def refuse_used(self, overwrite: bool) -> None:
        """A folder that has a run in it is an error, unless the run may be deleted."""
        if self.used() and not overwrite:
            raise UserError(
                f"{self.path} already holds a run; continue it with --resume {self.path}, "
                "choose another --log-path, or delete that run with --overwrite"
            )

    def used(self) -> bool:
        return any((self.path / name).exists() for name in TRACES)

    def create(self, config: TrainConfig) -> None:
        """The files of a fresh run."""
        self.refuse_used(config.overwrite)
        try:
            if self.used():
                self.clear()
            self.path.mkdir(parents=True, exist_ok=True)
            self.open_log()
            (self.path / "code.diff").write_text(code_diff(), encoding="utf-8")
            self.write_config(to_json(config) | {"versions": versions()})
            self.rewind(0, config.steps)
        except OSError as error:
            raise UserError(f"cannot write to {self.path}: {error.strerror}") from None

    def clear(self) -> None:
        """Delete what a run writes, and nothing else that may lie in the folder."""
        for pattern in (*TRACES, *WRITTEN):
            for path in self.path.glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def open_log(self) -> None:
        """Send what is logged to logs.log too, beginning with the command."""
        close_logs()
        handler = logging.FileHandler(self.path / "logs.log", encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
        record = logging.LogRecord(log.name, logging.INFO, "", 0, command, None, None)
        handler.handle(record)

    # -- the configuration

    def write_config(self, values: dict) -> None:
        write_whole(self.path / "config.json", json.dumps(values, indent=2) + "\n")

    def read_config(self) -> TrainConfig:
        """The configuration as last resumed: the first one with all later changes applied."""
        if not (self.path / "config.json").is_file():
            raise UserError(f"{self.path} has no config.json, so there is no run to resume in it")
        try:
            values = json.loads((self.path / "config.json").read_text(encoding="utf-8"))
        except ValueError:
            raise UserError(f"{self.path / 'config.json'} is damaged: it is not JSON") from None
        for change in values.get("resumed", []):
            values |= change["changed"]
        return from_json(values)

    def note_resume(self, config: TrainConfig, step: int) -> None:
        """Keep the first configuration; append what this resumption changes."""
        before, after = to_json(self.read_config()), to_json(config)
        changed = {key: after[key] for key in after if after[key] != before[key]}
        values = json.loads((self.path / "config.json").read_text(encoding="utf-8"))
        values.setdefault("resumed", []).append(
            {"step": step, "changed": changed, "versions": versions()}
        )
        self.write_config(values)

    # -- metrics

    def read_metrics(self, total_steps: int, before: float = math.inf) -> None:
        self.total_steps = total_steps
        rows = read_lines(self.path / "metrics.jsonl")
        self.rows = [row for row in rows if row["step"] < before]

    def rewind(self, step: int, total_steps: int) -> None:
        """Drop the lines of `step` and later, which will be run again, and torn lines."""
        self.read_metrics(total_steps, step)
        write_whole(self.path / "metrics.jsonl", as_lines(self.rows))
        for name in ("timing_spans.jsonl", "probes.jsonl"):
            kept = [row for row in read_lines(self.path / name) if row["step"] < step]
            write_whole(self.path / name, as_lines(kept))
        table = [list(CSV_COLUMNS), *(csv_row(row, total_steps) for row in self.rows)]
        write_whole(self.path / "metrics.csv", as_csv(table))

    def sync(self) -> None:
        """Make the lines so far durable: a save must not outlive the metrics of its steps."""
        for name in ("metrics.jsonl", "metrics.csv", "timing_spans.jsonl"):
            with open(self.path / name, "rb") as file:
                os.fsync(file.fileno())

    def write_metrics(self, row: dict, spans: list[dict]) -> None:
        """Append one step to metrics.jsonl, metrics.csv and timing_spans.jsonl."""
        clean, bad = finite(row)
        if bad:
            log.info("step %s: not finite, written as null: %s", row["step"], ", ".join(bad))
        self.rows.append(clean)
        append(self.path / "metrics.jsonl", as_lines([clean]))
        append(self.path / "metrics.csv", as_csv([csv_row(clean, self.total_steps)]))
        timing = {"step": row["step"], "spans": spans}
        append(self.path / "timing_spans.jsonl", as_lines([timing]))


    def write_for_repro(self, step: int, groups: Sequence[Group]) -> Path:
        """The rollouts whose loss or gradient was not finite, to look at and to run again."""
        path = self.path / f"nonfinite_step_{step:06d}.jsonl"
        names = ("prompt_ids", "response_ids", "logprobs", "advantage", "reward", "text")
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        path.write_text(as_lines([{n: getattr(r, n) for n in names} for r in rollouts]))
        return path


def finite(row: dict) -> tuple[dict, list[str]]:
    """The row with null for what is not finite, and the names of those. JSON has no NaN."""
    bad = [k for k, v in row.items() if isinstance(v, float) and not math.isfinite(v)]
    return {key: None if key in bad else value for key, value in row.items()}, bad


def as_lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def as_csv(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def append(path: Path, text: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


def read_lines(path: Path) -> list[dict]:
    """The whole lines of a JSONL file. A line torn by a crash ends the file."""
    rows: list[dict] = []
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
    return rows


def close_logs() -> None:
    """A process may write several runs one after another; each has a log of its own."""
    for handler in list(log.handlers):
        if isinstance(handler, logging.FileHandler):
            handler.close()
            log.removeHandler(handler)


def versions() -> dict[str, str | None]:
    return {
        "reasoning_from_scratch": version("reasoning-from-scratch"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "git": git("rev-parse", "HEAD"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    }


def code_diff() -> str:
    """`git diff HEAD` of the user's repository."""
    diff = git("diff", "HEAD")
    return "(not started inside a git repository with a commit)\n" if diff is None else diff


def git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, timeout=20, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
