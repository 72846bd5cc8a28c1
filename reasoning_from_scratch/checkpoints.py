"""checkpoints.jsonl: what is saved, in which order it reaches the disk, and what is kept.

Every file of a save is written under a temporary name, then renamed, and only when all are on the
disk does checkpoints.jsonl get its line. So a line speaks of files that are whole; whatever a
kill leaves behind is in no line and is swept away by the next start.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from reasoning_from_scratch.disk import fingerprint, sync_folder, write_whole
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.run_folder import as_lines, log, read_lines
from reasoning_from_scratch.tensor_files import save_state

OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "trainer_state.json"


class Checkpoints:
    """The saves of one run. `save_weights(folder)` writes the weights in a published layout."""

    def __init__(self, run: Path, save_weights: Callable[[Path], None]) -> None:
        self.run = run
        self.index = run / "checkpoints.jsonl"
        self.folder = run / "checkpoints"
        self.save_weights = save_weights
        self.lines = read_lines(self.index)

    # -- saving

    def save(
        self, batch: int, optimizer: dict[str, Tensor] | None, state: dict, **extras: object
    ) -> None:
        """Save after `batch` steps. Without optimizer state it is weights only: for sampling.

        Extras (final=True, rolling=True, best=True, ...) become keys of the line. A second save
        at the same batch only adds to the first.
        """
        line = self.line_of(batch) or {"name": f"{batch:06d}", "batch": batch, "files": {}}
        target = self.place(line)
        try:
            target.mkdir(parents=True, exist_ok=True)
            if "sampler_path" not in line:
                self.save_weights(target)
                line["sampler_path"] = str(target)
            if optimizer is not None and "state_path" not in line:
                save_state(optimizer, target / OPTIMIZER_FILE)
                write_whole(target / STATE_FILE, json.dumps(state))
                line["state_path"] = str(target)
            sync_folder(target)
            line["files"] = {path.name: fingerprint(path) for path in sorted(target.iterdir())}
            line |= extras | ({"name": "final"} if extras.get("final") else {})
            self.write_index([old for old in self.lines if old["batch"] != batch] + [line])
        except OSError as error:
            raise UserError(self.failure(batch, error)) from error

    def place(self, line: dict) -> Path:
        return self.folder / f"{line['batch']:06d}"

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

        The final and the best weights stay. A file goes only after its line has gone.
        """
        saves = [line for line in self.lines if "state_path" in line]
        regular = [line for line in saves if not line.get("rolling") and not line["final"]]
        old = [line for line in saves[:-1] if line.get("rolling")]
        old += regular[:-keep_last] if keep_last else []
        best = self.best()
        for line in list(self.lines):
            if line in old and line == best:
                self.forget_state(line)
            elif line in old or ("state_path" not in line and line != best):
                self.forget(line)

    def forget_state(self, line: dict) -> None:
        """Keep the weights only."""
        weights_only = dict(line, files=without_state(line["files"]))
        del weights_only["state_path"]
        self.replace(line, weights_only)
        for name in (OPTIMIZER_FILE, STATE_FILE):
            (self.place(line) / name).unlink(missing_ok=True)

    def replace(self, old: dict, new: dict | None) -> None:
        self.write_index([line for line in self.lines if line != old] + ([new] if new else []))

    def forget(self, line: dict) -> None:
        self.replace(line, None)
        shutil.rmtree(self.place(line), ignore_errors=True)

    # -- resuming

    def newest_whole(self) -> dict | None:
        """The last line with a state whose files are as written; None if nothing was ever saved."""
        saves = [line for line in self.lines if "state_path" in line]
        for line in reversed(saves):
            broken = self.broken_file(line)
            if broken is None:
                return line
            log.warning("skipping save %s: %s is missing or damaged", line["name"], broken)
        if saves:
            raise UserError(f"all saves in {self.run} are damaged; start again with --overwrite")
        return None

    def broken_file(self, line: dict) -> str | None:
        for name, mark in line["files"].items():
            path = self.place(line) / name
            if not path.is_file() or fingerprint(path) != mark:
                return name
        return None

    def rewind(self, batch: int) -> None:
        """Forget saves of later steps, sweep up what dead runs left, reopen a finished run."""
        kept = [line for line in self.lines if line["batch"] <= batch]
        for line in kept:
            if line.pop("final", False):
                line["name"] = f"{line['batch']:06d}"
        self.write_index(kept)
        files = {self.place(line) / name for line in kept for name in line["files"]}
        for path in self.folder.glob("*/*"):
            if path not in files:
                path.unlink()
        for folder in self.folder.glob("*"):
            if not any(folder.iterdir()):
                folder.rmdir()


def first_keys(line: dict) -> dict:
    """The documented keys first; `final` is always there, and true only on the last line."""
    head = {"name": line["name"], "batch": line["batch"], "final": bool(line.get("final"))}
    return head | {key: value for key, value in line.items() if key not in head}


def without_state(files: dict) -> dict:
    return {name: mark for name, mark in files.items() if name not in (OPTIMIZER_FILE, STATE_FILE)}


def load_trainer_state(folder: Path) -> tuple[dict[str, Tensor], dict]:
    """Optimizer tensors by name, and what else training needs to go on."""
    state = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
    return load_file(folder / OPTIMIZER_FILE), state
