"""checkpoints.jsonl: what is saved, in which order it reaches the disk, and what is kept.

Every file of a save is written under a temporary name, flushed, then renamed. config.json comes
last among the weights, trainer_state.json last in the training state: if it is there, all files
are. The newest complete save counts; the next start deletes what a kill left incomplete.
"""

import json
import shlex
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import sync_folder, write_atomically
from reasoning_from_scratch.files.tensor_files import save_state
from reasoning_from_scratch.text import json_line, read_lines
from rfs.files.saved_models import (
    OPTIMIZER_FILE,
    STATE_FILE,
    STATES,
    Save,
    place_of,
    read_index,
    state_of,
)


class Checkpoints:
    """The saves of one run. `advice`: what its user can do if the disk is full."""

    def __init__(self, run: Path, advice: str = "") -> None:
        self.run = run
        self.advice = advice or f"make room, then --resume {shlex.quote(str(run))}"
        self.index = run / "checkpoints.jsonl"
        self.folder = run / "checkpoints"
        self.states = run / STATES
        self.saves: list[Save] = []

    def read(self) -> "Checkpoints":
        """Read the saves on disk. A fresh run does not: what is in its folder belonged to another
        run, and is deleted."""
        self.saves = read_index(self.run)
        return self

    # -- saving

    def save(
        self,
        batch: int,
        save_weights: Callable[[Path], None],
        optimizer: dict[str, Tensor] | None,
        state: dict,
        **extras: Any,
    ) -> None:
        """Save after `batch` steps. `save_weights(folder)` writes the weights in a published
        layout; the optimizer's state goes into another folder. Without it a save cannot be resumed.

        Extras (final=True, rolling=True, best=True, ...) are fields of the line. A second save
        at the same batch only adds to the first.
        """
        known = self.after(batch) or Save(f"{batch:06d}", batch)
        if known.state_path:
            extras.pop("rolling", None)  # a save that is to be kept stays so
        if extras.get("final"):
            extras["name"] = "final"
        target = self.place(known)
        beside = self.states / target.name
        new = replace(known, sampler_path=str(target), **extras)
        try:
            target.mkdir(parents=True, exist_ok=True)
            if not known.sampler_path:
                save_weights(target)
            if optimizer is not None and not known.state_path:
                save_state(optimizer, beside / OPTIMIZER_FILE)
                write_atomically(beside / STATE_FILE, json_line(state | {"line": extras}))
                new = replace(new, state_path=str(beside))
            for folder in (target, beside, self.folder, self.states, self.run):
                sync_folder(folder)
            self.write_index([old for old in self.saves if old.batch != batch] + [new])
        except OSError as error:
            for before, folder in ((known.sampler_path, target), (known.state_path, beside)):
                if not before:  # half a save is useless, and the disk may be full
                    with suppress(OSError):
                        remove(folder)
            raise UserError(self.failure(batch, error)) from error

    def place(self, save: Save) -> Path:
        return place_of(self.run, save)

    def write_index(self, saves: list[Save]) -> None:
        saves = sorted(saves, key=lambda save: save.batch)
        write_atomically(self.index, "".join(json_line(save.line()) + "\n" for save in saves))
        self.saves = saves

    def failure(self, batch: int, error: OSError) -> str:
        good = [save.name for save in self.saves if save.state_path]
        last = f"the last save, {good[-1]}, is intact" if good else "nothing was saved before"
        return (
            f"could not save after step {batch} in {self.folder}: {error.strerror or error}; "
            f"{last}: {self.advice}"
        )

    # -- choosing and forgetting

    def after(self, batch: int) -> Save | None:
        """The save after `batch` steps."""
        return next((save for save in self.saves if save.batch == batch), None)

    def best(self) -> Save | None:
        found = [save for save in self.saves if save.best]
        return found[-1] if found else None

    def prune(self, keep_last: int) -> None:
        """Forget rolling saves except the newest save, regular saves beyond the last `keep_last`,
        and former bests.

        The final and the best weights stay, and those that the run began with (start).
        """
        saves = [save for save in self.saves if save.state_path]
        regular = [save for save in saves if not save.rolling and not save.final]
        old = [save for save in saves[:-1] if save.rolling]
        old += regular[:-keep_last] if keep_last else []
        best = self.best()
        for save in list(self.saves):
            kept = save == best or save.start
            if save in old and kept:
                self.forget_state(save)
            elif save in old or (save.best and not save.state_path and not kept):
                self.forget(save)

    def forget_scores(self) -> None:
        """What is evaluated from here on cannot be compared with what was until now."""
        self.write_index([replace(save, best=False, eval_acc=None) for save in self.saves])

    def forget_state(self, save: Save) -> None:
        """Delete the state of a save and keep its weights."""
        place = self.place(save)
        for name in (STATE_FILE, OPTIMIZER_FILE):
            (place / name).unlink(missing_ok=True)  # where an earlier version put them
        remove(self.states / place.name)
        others = [other for other in self.saves if other != save]
        self.write_index([*others, replace(save, state_path=None)])

    def forget(self, save: Save) -> None:
        """Delete a save, weights first: a state alone is no save, and the next start deletes it."""
        remove(self.place(save))
        remove(self.states / self.place(save).name)
        self.write_index([other for other in self.saves if other != save])

    # -- resuming

    def newest_complete(self) -> Save | None:
        """The newest complete save with a state; None if nothing was ever saved."""
        self.read()
        saves = [save for save in self.saves if save.state_path]
        if not saves and any("state_path" in row for row in read_lines(self.index)):
            raise UserError(
                f"no save in {self.run} is complete, so training cannot continue: start over with "
                f"--overwrite, or from its weights: --load-checkpoint-path {self.run} --out "
                "FOLDER"
            )
        return saves[-1] if saves else None

    def beginning(self) -> Path | None:
        """The weights before the first step, if they were saved."""
        save = self.after(0)
        return self.place(save) if save else None

    def rewind(self, batch: int) -> None:
        """Forget saves of later steps, reopen a finished run, sweep up what dead runs left."""
        kept = [save for save in self.saves if save.batch <= batch]
        self.write_index([replace(save, name=f"{save.batch:06d}", final=False) for save in kept])
        self.sweep_up()

    def settle(self, keep_last: int) -> None:
        """Finish what a run that died right after its last save still had to do."""
        self.write_index(self.saves)
        self.prune(keep_last)
        self.sweep_up()

    def sweep_up(self) -> None:
        """Delete saves that no line lists: half-written or half-deleted when a run died."""
        weights = {self.place(save) for save in self.saves}
        states = {state_of(self.place(save)) for save in self.saves if save.state_path}
        found = [*self.folder.glob("*"), *self.states.glob("*")]
        for folder in (path for path in found if path.name.isdecimal()):
            if folder not in weights | states:
                remove(folder)
            for name in (OPTIMIZER_FILE, STATE_FILE) if folder not in states else ():
                (folder / name).unlink(missing_ok=True)


def remove(folder: Path) -> None:
    """Delete a save, first the files that mark it complete: a kill midway then leaves no save."""
    for name in ("config.json", STATE_FILE):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def load_trainer_state(place: Path) -> tuple[dict[str, Tensor], dict]:
    """Optimizer tensors, and what else training needs, of the save with its weights in `place`."""
    folder = state_of(place)
    try:
        state = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        return load_file(folder / OPTIMIZER_FILE), state
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(
            f"the save in {folder} is damaged ({error}): delete that folder, and training resumes "
            "from the save before"
        ) from None
