"""The run folder: config.json, metrics.jsonl, metrics.csv, logs.log, code.diff, timing spans."""

import json
import logging
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from reasoning_from_scratch import DISTRIBUTION
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import disk_errors_as, write_atomically
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.text import (
    counted,
    expand_home,
    json_line,
    json_lines,
    read_json_object,
    scan_json_lines,
    visible,
)
from rfs.config import FORMER_FIELDS, PLACES, RunConfig, from_json, to_json
from rfs.files.saved_models import holds_model
from rfs.report.metrics import CSV_COLUMNS, as_csv, csv_row
from rfs.run.checkpoints import Checkpoints

log = logging.getLogger("reasoning_from_scratch")

CONFIG = "config.json"  # other programs, too, have a file of this name
# A folder with one of these has a run in it. They are deleted last, config.json after all others.
RUN_MARKERS = ("metrics.jsonl", "checkpoints.jsonl", CONFIG)
# What else a run writes: --overwrite deletes these files and no others.
RUN_FILES = (
    "metrics.csv",
    "logs.log",
    "code.diff",
    "timing_spans.jsonl",
    "probes.jsonl",
    "report.html",
    "train_iteration_*",
    "eval_*_iteration_*",
    "iteration_*",
    "checkpoints",
    "training_state",
    "curves.png",
    "ways.png",
    "nonfinite_step_*",
    "wandb_id",
    "trackio_name",
    "tensorboard",
    "adapter",
)
# Pages and rollouts of a step, and the folder in which they have a second name.
STEP_FILE = re.compile(
    r"(train|eval_.+)_iteration_(\d{6,})\D.*|(iteration|nonfinite_step)_(\d{6,})(\.jsonl)?"
)
EARLY_FILES = ("logs.log", "code.diff")  # of a run that ended before it had a config.json
# What to do about a folder that holds a run already, in the flags of `rfs train`.
USED_ADVICE = (
    "continue it with rfs train --resume {}, choose another --out, or delete that run with "
    "--overwrite"
)


LOCK_FILE, OWNER_FILE = ".run.lock", ".run.owner"


class RunFolder:
    """The files that a run writes, except for its reports. `checkpoints` are its saves."""

    def __init__(self, path: str | Path) -> None:
        self.path = expand_home(path)
        self.rows: list[dict] = []  # the metrics lines so far
        self.total_steps = 0
        self.lock = FolderLock(self.path)
        self.checkpoints = Checkpoints(self.path)

    # -- start

    def refuse_used(self, overwrite: bool = False, advice: str = USED_ADVICE) -> None:
        """Raise an error if the folder has a run in it, unless the run may be deleted."""
        with disk_errors_explained(self.path):
            used = self.used()
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is not a folder; choose another --out")
        if holds_model(self.path):
            raise UserError(f"{self.path} holds a model; choose another --out")
        if used and not overwrite:
            raise UserError(f"{self.path} already holds a run; {advice.format(self.quoted_path)}")
        foreign = [] if used else [p for p in self.run_files() if p.name not in EARLY_FILES]
        if foreign:  # a run would write over them, and --overwrite would delete them
            raise UserError(
                f"{self.path} holds no run, but a {foreign[0].name} that a run would write over; "
                "choose another --out"
            )

    @property
    def quoted_path(self) -> str:
        """Its path, quoted for a shell."""
        return shlex.quote(str(self.path))

    def reserve(self) -> None:
        """Keep other processes out while the run is loaded. Loading changes none of its files."""
        close_logs()
        log.addHandler(EarlyLog())
        log.setLevel(logging.INFO)
        if self.path.is_dir():
            with disk_errors_explained(self.path):
                self.lock.acquire()

    def used(self) -> bool:
        if describes_run(read_json_object(self.path / CONFIG)):
            return True
        return any(self.has(name) for name in RUN_MARKERS if name != CONFIG)

    def run_files(self) -> list[Path]:
        """What is in the folder under the names of a run's files."""
        return [path for name in (*RUN_FILES, *RUN_MARKERS) for path in self.path.glob(name)]

    def delete_temporary_files(self) -> None:
        """Delete what dead processes were writing, .NAME.PID.tmp and .NAME.PID.partial: here and in
        the folders of this run. A folder of another run may be here, too, and its process alive."""
        folders = [path.rglob for path in self.run_files() if path.is_dir()]
        for glob in (self.path.glob, *folders):
            for path in [*glob(".*.tmp"), *glob(".*.partial")]:
                with suppress(OSError):
                    path.unlink()

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    def create(self, config: RunConfig, start: dict | None = None) -> None:
        """Create the files of a fresh run. `start`: the record of its first weights."""
        with disk_errors_explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self.lock.acquire()
            self.refuse_used(config.overwrite)
            if self.used():
                self.delete_run()
            self.delete_temporary_files()
            self.open_log()
            write_atomically(self.path / "code.diff", code_diff())
            notes = {"set_by": config.set_by, "start": start or {}, "versions": versions()}
            self.write_config(to_json(config) | notes)
            self.rewind(0, config.steps)

    def reopen(self) -> None:
        """Continue a run here: keep others out, and delete half-written files of a dead process."""
        self.lock.acquire()
        self.delete_temporary_files()
        self.open_log()

    def close(self) -> None:
        close_logs()
        self.lock.release()

    def delete_run(self) -> None:
        """Delete what a run writes, and nothing else that may be in the folder."""
        for path in self.run_files():
            delete(path)

    def open_log(self) -> None:
        """Also send the log to logs.log, which begins with the command and the messages from
        loading."""
        early = [
            record
            for handler in log.handlers
            if isinstance(handler, EarlyLog)
            for record in handler.records
        ]
        close_logs()
        handler = LogFile(self.path / "logs.log", encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
        record = logging.LogRecord(log.name, logging.INFO, "", 0, command, None, None)
        for message in [record, *early]:
            handler.handle(message)

    # -- the configuration

    def write_config(self, values: dict) -> None:
        write_atomically(self.path / "config.json", json.dumps(values, indent=2) + "\n")

    def read_config(self) -> RunConfig:
        """The configuration as last resumed: the first one with all later changes applied."""
        return from_json(self.config_values(), self.path / "config.json")

    def read_configs(self) -> list[RunConfig]:
        """The first configuration, then that of each resumption."""
        values, configs = self.first_config_values(), []
        for change in [{}, *(entry["changed"] for entry in values.get("resumed", []))]:
            values |= change
            configs.append(from_json(values, self.path / "config.json"))
        return configs

    def config_values(self) -> dict:
        values = self.first_config_values()
        for change in values.get("resumed", []):
            values |= change["changed"]
        return values

    def first_config_values(self) -> dict:
        path = self.path / "config.json"
        values = read_json_object(path)
        if holds_model(self.path):
            raise UserError(
                f"{self.path} holds a model, not a run; to train it: --model {self.quoted_path} "
                "--out FOLDER"
            )
        if not values:
            raise UserError(
                f"{path} is damaged: it is not JSON"
                if path.is_file()
                else f"{self.path} has no config.json, so there is no run to resume in it"
            )
        if not describes_run(values):
            raise UserError(f"{path} is not that of a run, so there is no run to resume in it")
        return values

    def note_resume(self, config: RunConfig, step: int) -> None:
        """Keep the first configuration; append what this resumption changes."""
        after, changed = to_json(config), self.changes(config)
        values = self.first_config_values()
        notes = {"set_by", "start", "versions", "resumed"}
        unknown = sorted(set(values) - set(after) - FORMER_FIELDS - notes)
        if unknown:
            log.warning("config.json: ignoring %s, unknown to this version", ", ".join(unknown))
        before = to_json(self.read_config())
        differences = [
            f"{k} {before[k]} -> {v}" for k, v in changed.items() if k not in (*PLACES, "steps")
        ]
        if differences:
            log.info("from here on: %s", ", ".join(differences))
        values.setdefault("resumed", []).append(
            {
                "step": step,
                "changed": changed | {"set_by": config.set_by},
                "versions": versions(),
            }
        )
        self.write_config(values)

    def changes(self, config: RunConfig) -> dict:
        """The fields of `config` that differ from the run's last configuration."""
        before, after = to_json(self.read_config()), to_json(config)
        return {key: after[key] for key in after if after[key] != before[key]}

    def first_weights_record(self) -> dict:
        """What config.json says about the weights that the run began with."""
        return read_json_object(self.path / "config.json").get("start", {})

    # -- metrics

    def rewind(self, step: int, total_steps: int) -> None:
        """Drop lines and pages of `step` and later, which will be run again, and torn lines."""
        self.total_steps = total_steps
        rows = steps_before(self.path / "metrics.jsonl", step)
        self.rows = [row | {"progress/done_frac": (row["step"] + 1) / total_steps} for row in rows]
        if lost := step - len(rows):
            log.warning("metrics.jsonl: %s lost, the saved weights are not", counted(lost, "line"))
        # When the run continues, the weights after `step` steps answer the probe problems again.
        probes_end = step + 1 if step == total_steps else step
        for name, end in (("timing_spans.jsonl", step), ("probes.jsonl", probes_end)):
            self.replace(name, json_lines(steps_before(self.path / name, end)))
        self.write_rows()
        self.delete_pages(step)

    def write_rows(self) -> None:
        """Write metrics.jsonl and metrics.csv anew, from the lines so far."""
        table = [list(CSV_COLUMNS), *(csv_row(row, self.total_steps) for row in self.rows)]
        self.replace("metrics.jsonl", json_lines(self.rows))
        self.replace("metrics.csv", as_csv(table))

    def replace(self, name: str, text: str) -> None:
        """Write a file, unless it has this text already."""
        path = self.path / name
        if not path.is_file() or path.read_bytes() != text.encode():
            write_atomically(path, text)

    def delete_pages(self, step: int) -> None:
        """Delete the pages of `step` and later, which will be run again. An evaluation comes before
        its step, so that of the weights from which the run continues stays."""
        for path in [*self.path.glob("*_*"), *self.path.glob(f"iteration_{step:06d}/train*")]:
            match = STEP_FILE.fullmatch(path.name)
            number = int(match[2] or match[4]) if match else -1
            is_before_step = match and match[0].startswith(("eval_", "iteration_"))
            first_deleted = step + 1 if is_before_step else step
            if path.parent != self.path or (match and number >= first_deleted):
                delete(path)

    def sync(self) -> None:
        """Make the lines so far durable: a save must not outlive the metrics of its steps."""
        for name in ("metrics.jsonl", "metrics.csv", "timing_spans.jsonl"):
            with open(self.path / name, "rb+") as file:  # Windows flushes what may be written
                os.fsync(file.fileno())

    def write_nonfinite_rollouts(self, step: int, groups: Sequence[Group]) -> Path:
        """Write the rollouts whose loss or gradient was not finite, so that it can be reproduced.
        Returns the file."""
        path = self.path / f"nonfinite_step_{step:06d}.jsonl"
        names = ("prompt_ids", "response_ids", "forced", "logprobs", "advantage", "reward", "text")
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        lines = [json_line({n: getattr(r, n) for n in names}) for r in rollouts]  # NaN as null
        path.write_text("".join(line + "\n" for line in lines))
        return path


def describes_run(values: dict) -> bool:
    """Whether a config.json describes a run."""
    return {"recipe", "steps"} <= set(values)


def delete(path: Path) -> None:
    """A file, a folder with all that is in it, or a link, but not what it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def steps_before(path: Path, step: int) -> list[dict]:
    """One line per step, in order; of a step that was written twice, the later one."""
    rows, bad = scan_json_lines(path)
    if bad:
        log.warning("%s: %s skipped", path.name, counted(len(bad), "torn or damaged line"))
    latest = {row["step"]: row for row in rows if row.get("step", step) < step}
    return [latest[number] for number in sorted(latest)]


class EarlyLog(logging.Handler):
    """Keeps messages until there is a run folder for them; dropped if there never is one."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class LogFile(logging.FileHandler):
    """A message that cannot be written, on a full disk, is lost without a traceback.

    A message may quote what a model or a data set says: `cat logs.log` must show it, not obey it.
    """

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))

    def handleError(self, record: logging.LogRecord) -> None:
        pass

    def close(self) -> None:
        with suppress(OSError):  # closing writes what is still buffered
            super().close()


def new_folder(name: str) -> str:
    """Folder for a run that was given none: runs/NAME-TIME, with -2 for two in the same second."""
    first = path = f"runs/{name}-{datetime.now():%Y-%m-%d-%H%M%S}"
    number = 1
    while Path(path).exists():
        number += 1
        path = f"{first}-{number}"
    return path


def disk_errors_explained(path: Path) -> AbstractContextManager[None]:
    """Turns an error of the disk within this context into one line with advice."""
    return disk_errors_as(f"cannot write to {path}", "make room, or choose another --out")


def close_logs() -> None:
    """Detach the log file of the run before: a process may write several runs in turn."""
    for handler in list(log.handlers):
        if isinstance(handler, logging.FileHandler | EarlyLog):
            handler.close()
            log.removeHandler(handler)


# --- where a run comes from: versions, machine, and the code that was not committed ---


def torchrun_job() -> str | None:
    """Identifies the torchrun that started this process: also in ranks that it restarts."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    return f"{platform.node()} {os.getppid()} {os.environ['TORCHELASTIC_RUN_ID']}"


def versions() -> dict[str, str | None]:
    return {
        "job": torchrun_job(),
        "reasoning_from_scratch": installed_version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "git": git("rev-parse", "HEAD"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    }


def installed_version() -> str | None:
    """None if the package runs from its folder and was never installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return None


def code_diff() -> str:
    """`git diff HEAD` of the user's repository."""
    diff = git("diff", "HEAD")
    return "(not started inside a git repository with a commit)\n" if diff is None else diff


def git(*words: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", *words], capture_output=True, text=True, timeout=20, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None


# --- one process at a time writes a run folder; .run.owner says which ---


class FolderLock:
    """Held by the process that writes a run, until it closes the run or dies.

    The operating system frees the lock of a process that was killed. A network drive without locks
    cannot: there filelock only looks whether the file .run.lock exists, and after a kill the user
    has to delete it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # One lock per folder and process: a notebook may start a run again although the first one,
        # whose cell was interrupted, was never closed.
        self.lock = FileLock(folder.resolve() / LOCK_FILE, thread_local=False, is_singleton=True)

    def acquire(self) -> None:
        owner = self.folder / OWNER_FILE
        try:
            self.lock.acquire(timeout=0)
        except Timeout:
            holder = owner.read_text(encoding="utf-8") if owner.exists() else "another process"
            raise UserError(
                f"{self.folder} is being written by {holder}; wait for it, end it, or choose "
                "another --out"
            ) from None
        now = datetime.now().isoformat(sep=" ", timespec="seconds")
        owner.write_text(f"process {os.getpid()} on {platform.node()} (since {now})", "utf-8")

    def release(self) -> None:
        if self.lock.is_locked:
            with suppress(OSError):
                (self.folder / OWNER_FILE).unlink()
                (self.folder / LOCK_FILE).unlink()
            self.lock.release(force=True)
