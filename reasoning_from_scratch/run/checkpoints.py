"""checkpoints.jsonl: what is saved, in which order it reaches the disk, and what is kept.

Every file of a save is written under a temporary name, then renamed, and only when all are on the
disk does checkpoints.jsonl get its line. So a line speaks of files that are whole; whatever a
kill leaves behind is in no line and is swept away by the next start.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import sync_folder, write_whole
from reasoning_from_scratch.files.saved_models import (
    OPTIMIZER_FILE,
    STATE_FILE,
    STATES,
    broken_file,
    file_of,
    files_of,
    fingerprints,
    place_of,
    read_index,
    state_of,
    weights_only,
)
from reasoning_from_scratch.files.tensor_files import load_state, save_state
from reasoning_from_scratch.run.folder import log
from reasoning_from_scratch.text import as_lines


class Checkpoints:
    """The saves of one run."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.index = run / "checkpoints.jsonl"
        self.folder = run / "checkpoints"
        self.states = run / STATES
        self.lines: list[dict] = []

    def read(self) -> "Checkpoints":
        """The saves that are there. A fresh run does not read: what lies in its folder was
        another run's, and is deleted."""
        self.lines = read_index(self.run)
        return self

    # -- saving

    def save(
        self,
        batch: int,
        save_weights: Callable[[Path], None],
        optimizer: dict[str, Tensor] | None,
        state: dict,
        **extras: object,
    ) -> None:
        """Save after `batch` steps. `save_weights(folder)` writes the weights in a published
        layout; the optimizer's state goes into another folder. Without it the save is for sampling.

        Extras (final=True, rolling=True, best=True, ...) become keys of the line. A second save
        at the same batch only adds to the first.
        """
        line = self.line_of(batch) or {"name": f"{batch:06d}", "batch": batch, "files": {}}
        if "state_path" in line:
            extras.pop("rolling", None)  # a save that was to be kept stays one
        target = self.place(line)
        beside = self.states / target.name
        try:
            target.mkdir(parents=True, exist_ok=True)
            if "sampler_path" not in line:
                save_weights(target)
                line["sampler_path"] = str(target)
            line |= extras | ({"name": "final"} if extras.get("final") else {})
            if optimizer is not None and "state_path" not in line:
                save_state(optimizer, beside / OPTIMIZER_FILE)
                write_whole(beside / STATE_FILE, json.dumps(state))
                line["state_path"] = str(beside)
            for folder in (target, beside, self.folder, self.states, self.run):
                sync_folder(folder)
            line["files"] = fingerprints(files_of(target))
            self.write_index([old for old in self.lines if old["batch"] != batch] + [line])
        except OSError as error:
            self.make_room(target, self.line_of(batch))
            raise UserError(self.failure(batch, error)) from error

    def make_room(self, target: Path, known: dict | None) -> None:
        """What a failed save has written so far is of no use, and the disk may be full."""
        for name, path in files_of(target).items():
            if known is None or name not in known["files"]:
                with suppress(OSError):
                    path.unlink()

    def place(self, line: dict) -> Path:
        return place_of(self.run, line)

    def write_index(self, lines: list[dict]) -> None:
        lines = sorted(lines, key=lambda line: line["batch"])
        ordered = [first_keys(line) for line in lines]
        write_whole(self.index, as_lines(ordered))
        self.lines = ordered

    def failure(self, batch: int, error: OSError) -> str:
        good = [line["name"] for line in self.lines if "state_path" in line]
        last = f"the last whole save, {good[-1]}, is intact" if good else "nothing was saved before"
        return (
            f"could not save after step {batch} in {self.folder}: {error.strerror or error}; "
            f"{last}: make room, then --resume {self.run}"
        )

    # -- choosing and forgetting

    def line_of(self, batch: int) -> dict | None:
        found = [line for line in self.lines if line["batch"] == batch]
        return dict(found[-1], files=dict(found[-1]["files"])) if found else None

    def best(self) -> dict | None:
        found = [line for line in self.lines if line.get("best")]
        return found[-1] if found else None

    def prune(self, keep_last: int) -> None:
        """Forget rolling saves but the newest save, old saves beyond `keep_last`, former bests.

        The final and the best weights stay, and those that the run began with (start). A file goes
        only after its line has gone.
        """
        saves = [line for line in self.lines if "state_path" in line]
        regular = [line for line in saves if not line.get("rolling") and not line["final"]]
        old = [line for line in saves[:-1] if line.get("rolling")]
        old += regular[:-keep_last] if keep_last else []
        best = self.best()
        for line in list(self.lines):
            kept = line == best or line.get("start")
            if line in old and kept:
                self.forget_state(line)
            elif line in old or ("state_path" not in line and not kept):
                self.forget(line)

    def forget_state(self, line: dict) -> None:
        """Keep the weights only."""
        self.replace(line, weights_only(line))
        for name in (OPTIMIZER_FILE, STATE_FILE):
            (self.place(line) / name).unlink(missing_ok=True)  # of an earlier version
        shutil.rmtree(self.states / self.place(line).name, ignore_errors=True)

    def replace(self, old: dict, new: dict | None) -> None:
        self.write_index([line for line in self.lines if line != old] + ([new] if new else []))

    def forget(self, line: dict) -> None:
        self.replace(line, None)
        for folder in (self.place(line), self.states / self.place(line).name):
            shutil.rmtree(folder, ignore_errors=True)

    # -- resuming

    def newest_whole(self) -> dict | None:
        """The last line with a state whose files are as written; None if nothing was ever saved."""
        self.read()
        saves = [line for line in self.lines if "state_path" in line]
        for line in reversed(saves):
            broken = broken_file(self.run, line)
            if broken is None:
                return line
            log.warning("skipping save %s: %s is missing or damaged", line["name"], broken)
        if saves:
            raise UserError(f"all saves in {self.run} are damaged; start again with --overwrite")
        return None

    def beginning(self) -> Path | None:
        """The weights after no step, if they were saved and are as written."""
        line = self.line_of(0)
        whole = line is not None and "sampler_path" in line and broken_file(self.run, line) is None
        return self.place(line) if whole else None

    def rewind(self, batch: int) -> None:
        """Forget saves of later steps, reopen a finished run, sweep up what dead runs left."""
        kept = [line for line in self.present() if line["batch"] <= batch]
        for line in kept:
            if line.pop("final", False):
                line["name"] = f"{line['batch']:06d}"
        self.write_index(kept)
        self.sweep_up()

    def settle(self, keep_last: int) -> None:
        """What a run that died right after its last save had still to do."""
        self.write_index(self.present())
        self.prune(keep_last)
        self.sweep_up()

    def present(self) -> list[dict]:
        """The lines whose files are there: people delete saves that they do not need."""
        lines = []
        for line in self.lines:
            place = self.place(line)
            missing = [name for name in line["files"] if not file_of(place, name).exists()]
            if missing:
                log.warning(
                    "save %s has lost %s, so checkpoints.jsonl no longer lists it",
                    line["name"],
                    ", ".join(missing),
                )
            else:
                lines.append(line)
        return lines

    def sweep_up(self) -> None:
        """Delete the saves that are in no line: half-written or half-deleted when a run died."""
        weights = {self.place(line) for line in self.lines}
        states = {state_of(self.place(line)) for line in self.lines if "state_path" in line}
        found = [*self.folder.glob("*"), *self.states.glob("*")]
        for folder in (path for path in found if path.name.isdecimal()):
            if folder not in weights | states:
                shutil.rmtree(folder, ignore_errors=True)
            for name in (OPTIMIZER_FILE, STATE_FILE) if folder not in states else ():
                (folder / name).unlink(missing_ok=True)


def check_holdings(run: Path) -> None:
    """Before it is said that a run is done: open what it holds."""
    saves = Checkpoints(run).read()
    lost = [name for name in ("metrics.csv", "report.html") if not (run / name).is_file()]
    final = [saves.place(line) for line in saves.present() if line.get("final")]
    if final:
        load_state(final[-1])  # a file that is cut off or damaged says so here
    else:
        lost.insert(0, "its last weights")
    if lost:
        raise UserError(
            f"{run} has run its steps, but {' and '.join(lost)} cannot be found: rfs "
            f"train --resume {run} makes what can be made again"
        )


def first_keys(line: dict) -> dict:
    """The documented keys first; `final` is always there, and true only on the last line."""
    head = {"name": line["name"], "batch": line["batch"], "final": bool(line.get("final"))}
    return head | {key: value for key, value in line.items() if key not in head}


def load_trainer_state(place: Path) -> tuple[dict[str, Tensor], dict]:
    """Of the save with its weights there: optimizer tensors, and what else training needs."""
    folder = state_of(place)
    state = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
    return load_file(folder / OPTIMIZER_FILE), state
