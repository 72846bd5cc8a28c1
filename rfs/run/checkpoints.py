"""checkpoints.jsonl: what is saved, in which order it reaches the disk, and what is kept.

Every file of a save is written under a temporary name, flushed, then renamed. config.json comes
last among the weights, trainer_state.json last in the training state: if that file exists, all
others do. A run resumes from its newest complete save, and deletes what a kill left incomplete.
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
    STATES_FOLDER,
    Save,
    read_index,
    state_folder,
    weights_folder,
)


class Checkpoints:
    """The saves of one run. `advice`: what to do if the disk is full."""

    def __init__(self, run: Path, advice: str = "") -> None:
        self.run = run
        self.advice = advice or f"make room, then --resume {shlex.quote(str(run))}"
        self.index = run / "checkpoints.jsonl"
        self.folder = run / "checkpoints"
        self.states_folder = run / STATES_FOLDER
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
        earlier = self.save_after(batch) or Save(f"{batch:06d}", batch)
        if earlier.state_path:
            extras.pop("rolling", None)  # a save that is to be kept stays so
        if extras.get("final"):
            extras["name"] = "final"
        weights = self.weights_folder(earlier)
        states = self.states_folder / weights.name
        save = replace(earlier, sampler_path=str(weights), **extras)
        try:
            weights.mkdir(parents=True, exist_ok=True)
            if not earlier.sampler_path:
                save_weights(weights)
            if optimizer is not None and not earlier.state_path:
                save_state(optimizer, states / OPTIMIZER_FILE)
                write_atomically(states / STATE_FILE, json_line(state | {"line": extras}))
                save = replace(save, state_path=str(states))
            for folder in (weights, states, self.folder, self.states_folder, self.run):
                sync_folder(folder)
            self.write_index([other for other in self.saves if other.batch != batch] + [save])
        except OSError as error:
            for saved, folder in ((earlier.sampler_path, weights), (earlier.state_path, states)):
                if not saved:  # half a save is useless, and the disk may be full
                    with suppress(OSError):
                        delete_folder(folder)
            raise UserError(self.failure_message(batch, error)) from error

    def weights_folder(self, save: Save) -> Path:
        return weights_folder(self.run, save)

    def write_index(self, saves: list[Save]) -> None:
        saves = sorted(saves, key=lambda save: save.batch)
        write_atomically(self.index, "".join(json_line(save.line()) + "\n" for save in saves))
        self.saves = saves

    def failure_message(self, batch: int, error: OSError) -> str:
        intact = [save.name for save in self.saves if save.state_path]
        last = f"the last save, {intact[-1]}, is intact" if intact else "nothing was saved before"
        return (
            f"could not save after step {batch} in {self.folder}: {error.strerror or error}; "
            f"{last}: {self.advice}"
        )

    # -- choosing and deleting

    def save_after(self, batch: int) -> Save | None:
        """The save after `batch` steps."""
        return next((save for save in self.saves if save.batch == batch), None)

    def best(self) -> Save | None:
        best = [save for save in self.saves if save.best]
        return best[-1] if best else None

    def prune(self, keep_last: int) -> None:
        """Delete rolling saves except the newest save, regular saves beyond the last `keep_last`,
        and former bests.

        The final and the best weights stay, and those that the run began with (start).
        """
        resumable = [save for save in self.saves if save.state_path]
        regular = [save for save in resumable if not save.rolling and not save.final]
        old = [save for save in resumable[:-1] if save.rolling]
        old += regular[:-keep_last] if keep_last else []
        best = self.best()
        for save in list(self.saves):
            kept = save == best or save.start
            if save in old and kept:
                self.delete_state(save)
            elif save in old or (save.best and not save.state_path and not kept):
                self.delete(save)

    def clear_scores(self) -> None:
        """From here on evaluations measure something else: no earlier accuracy compares."""
        self.write_index([replace(save, best=False, eval_acc=None) for save in self.saves])

    def delete_state(self, save: Save) -> None:
        """Delete the state of a save and keep its weights."""
        weights = self.weights_folder(save)
        for name in (STATE_FILE, OPTIMIZER_FILE):
            (weights / name).unlink(missing_ok=True)  # where an earlier version put them
        delete_folder(self.states_folder / weights.name)
        others = [other for other in self.saves if other != save]
        self.write_index([*others, replace(save, state_path=None)])

    def delete(self, save: Save) -> None:
        """Delete a save, weights first: a state alone is no save, and the next start deletes it."""
        weights = self.weights_folder(save)
        delete_folder(weights)
        delete_folder(self.states_folder / weights.name)
        self.write_index([other for other in self.saves if other != save])

    # -- resuming

    def newest_complete(self) -> Save | None:
        """The newest complete save with a state; None if nothing was ever saved."""
        self.read()
        resumable = [save for save in self.saves if save.state_path]
        if not resumable and any("state_path" in row for row in read_lines(self.index)):
            raise UserError(
                f"no save in {self.run} is complete, so training cannot continue: start over with "
                f"--overwrite, or from its weights: --load-checkpoint-path {self.run} --out "
                "FOLDER"
            )
        return resumable[-1] if resumable else None

    def first_weights(self) -> Path | None:
        """The weights before the first step, if they were saved."""
        save = self.save_after(0)
        return self.weights_folder(save) if save else None

    def rewind(self, batch: int) -> None:
        """Drop saves of later steps, reopen a finished run, delete what dead runs left."""
        kept = [save for save in self.saves if save.batch <= batch]
        self.write_index([replace(save, name=f"{save.batch:06d}", final=False) for save in kept])
        self.delete_unlisted()

    def finish_pruning(self, keep_last: int) -> None:
        """Prune for a run that died right after its last save, before it could."""
        self.write_index(self.saves)
        self.prune(keep_last)
        self.delete_unlisted()

    def delete_unlisted(self) -> None:
        """Delete saves that no line lists: half-written or half-deleted when a run died."""
        weights = {self.weights_folder(save) for save in self.saves}
        states = {state_folder(self.weights_folder(save)) for save in self.saves if save.state_path}
        paths = [*self.folder.glob("*"), *self.states_folder.glob("*")]
        for folder in (path for path in paths if path.name.isdecimal()):
            if folder not in weights | states:
                delete_folder(folder)
            for name in (OPTIMIZER_FILE, STATE_FILE) if folder not in states else ():
                (folder / name).unlink(missing_ok=True)


def delete_folder(folder: Path) -> None:
    """Delete a save, first the files that mark it complete: a kill midway then leaves no save."""
    for name in ("config.json", STATE_FILE):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def load_trainer_state(weights: Path) -> tuple[dict[str, Tensor], dict]:
    """Optimizer tensors, and what else training needs, of the save with these weights."""
    folder = state_folder(weights)
    try:
        state = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        return load_file(folder / OPTIMIZER_FILE), state
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(
            f"the save in {folder} is damaged ({error}): delete that folder, and training resumes "
            "from the save before"
        ) from None
