"""checkpoints.jsonl: what is saved, in which order it reaches the disk, and what is kept.

Every file of a save is written under a temporary name, flushed, then renamed. The last one of the
weights is config.json, the last one of the training state trainer_state.json: where it is, all are
there. The newest complete save counts; what a kill left incomplete the next start sweeps away.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import sync_folder, write_whole
from reasoning_from_scratch.files.saved_models import (
    OPTIMIZER_FILE,
    STATE_FILE,
    STATES,
    place_of,
    read_index,
    state_of,
)
from reasoning_from_scratch.files.tensor_files import load_state, save_state
from reasoning_from_scratch.text import as_lines, read_lines


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
        known = self.line_of(batch) or {}
        if "state_path" in known:
            extras.pop("rolling", None)  # a save that was to be kept stays one
        if extras.get("final"):
            extras["name"] = "final"
        line = {"name": f"{batch:06d}", "batch": batch} | known | extras
        target = self.place(line)
        beside = self.states / target.name
        try:
            target.mkdir(parents=True, exist_ok=True)
            if "sampler_path" not in line:
                save_weights(target)
                line["sampler_path"] = str(target)
            if optimizer is not None and "state_path" not in line:
                save_state(optimizer, beside / OPTIMIZER_FILE)
                write_whole(beside / STATE_FILE, json.dumps(state | {"line": extras}))
                line["state_path"] = str(beside)
            for folder in (target, beside, self.folder, self.states, self.run):
                sync_folder(folder)
            self.write_index([old for old in self.lines if old["batch"] != batch] + [line])
        except OSError as error:
            for key, folder in (("sampler_path", target), ("state_path", beside)):
                if key not in known:  # of no use, and the disk may be full
                    remove(folder)
            raise UserError(self.failure(batch, error)) from error

    def place(self, line: dict) -> Path:
        return place_of(self.run, line)

    def write_index(self, lines: list[dict]) -> None:
        lines = sorted(lines, key=lambda line: line["batch"])
        ordered = [first_keys(line) for line in lines]
        write_whole(self.index, as_lines(ordered))
        self.lines = ordered

    def failure(self, batch: int, error: OSError) -> str:
        good = [line["name"] for line in self.lines if "state_path" in line]
        last = f"the last save, {good[-1]}, is intact" if good else "nothing was saved before"
        return (
            f"could not save after step {batch} in {self.folder}: {error.strerror or error}; "
            f"{last}: make room, then --resume {self.run}"
        )

    # -- choosing and forgetting

    def line_of(self, batch: int) -> dict | None:
        found = [line for line in self.lines if line["batch"] == batch]
        return dict(found[-1]) if found else None

    def best(self) -> dict | None:
        found = [line for line in self.lines if line.get("best")]
        return found[-1] if found else None

    def prune(self, keep_last: int) -> None:
        """Forget rolling saves but the newest save, old saves beyond `keep_last`, former bests.

        The final and the best weights stay, and those that the run began with (start).
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
            elif line in old or ("state_path" not in line and line.get("best") and not kept):
                self.forget(line)

    def forget_state(self, line: dict) -> None:
        """Keep the weights only."""
        place = self.place(line)
        for name in (STATE_FILE, OPTIMIZER_FILE):
            (place / name).unlink(missing_ok=True)  # of an earlier version
        remove(self.states / place.name)
        self.replace(line, {key: value for key, value in line.items() if key != "state_path"})

    def replace(self, old: dict, new: dict | None) -> None:
        self.write_index([line for line in self.lines if line != old] + ([new] if new else []))

    def forget(self, line: dict) -> None:
        """Weights first: a state alone is no save, and the next start sweeps it away."""
        remove(self.place(line))
        remove(self.states / self.place(line).name)
        self.replace(line, None)

    # -- resuming

    def newest_complete(self) -> dict | None:
        """The newest complete save with a state; None if nothing was ever saved."""
        self.read()
        saves = [line for line in self.lines if "state_path" in line]
        if not saves and any("state_path" in row for row in read_lines(self.index)):
            raise UserError(
                f"no save in {self.run} is complete, so training cannot go on: begin again with "
                f"--overwrite, or from weights, --load-checkpoint-path {self.run} --log-path FOLDER"
            )
        return saves[-1] if saves else None

    def beginning(self) -> Path | None:
        """The weights after no step, if they were saved."""
        line = self.line_of(0)
        return self.place(line) if line else None

    def rewind(self, batch: int) -> None:
        """Forget saves of later steps, reopen a finished run, sweep up what dead runs left."""
        kept = [line for line in self.lines if line["batch"] <= batch]
        for line in kept:
            if line.pop("final", False):
                line["name"] = f"{line['batch']:06d}"
        self.write_index(kept)
        self.sweep_up()

    def settle(self, keep_last: int) -> None:
        """What a run that died right after its last save had still to do."""
        self.write_index(self.lines)
        self.prune(keep_last)
        self.sweep_up()

    def sweep_up(self) -> None:
        """Delete the saves that are in no line: half-written or half-deleted when a run died."""
        weights = {self.place(line) for line in self.lines}
        states = {state_of(self.place(line)) for line in self.lines if "state_path" in line}
        found = [*self.folder.glob("*"), *self.states.glob("*")]
        for folder in (path for path in found if path.name.isdecimal()):
            if folder not in weights | states:
                remove(folder)
            for name in (OPTIMIZER_FILE, STATE_FILE) if folder not in states else ():
                (folder / name).unlink(missing_ok=True)


def remove(folder: Path) -> None:
    """First what makes it complete: killed in the middle, this leaves no save behind."""
    for name in ("config.json", STATE_FILE):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def check_holdings(run: Path) -> None:
    """Before it is said that a run is done: open what it holds."""
    saves = Checkpoints(run).read()
    lost = [name for name in ("metrics.csv", "report.html") if not (run / name).is_file()]
    final = [saves.place(line) for line in saves.lines if line.get("final")]
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
    try:
        state = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        return load_file(folder / OPTIMIZER_FILE), state
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(
            f"the save in {folder} is damaged ({error}): delete that folder, and training goes on "
            "from the save before"
        ) from None
