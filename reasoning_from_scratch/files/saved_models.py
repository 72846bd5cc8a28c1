"""Which weights a run folder stands for: `runs/mine` is a model, and so is `runs/mine@000150`.

A run saves its weights many times. Without a save after an @ it is the one with the best held-out
accuracy, of equal ones the latest; of a run that was never evaluated, the last.
"""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.text import evenly, read_lines, read_values

SAVES_LIST = "checkpoints.jsonl"
OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "trainer_state.json"
# Beside the folder of the saved weights: engines read every .safetensors of that one.
STATES = "training_state"
CARD_FILE = "README.md"
BEFORE = "before/"


@dataclass(frozen=True)
class Save:
    """A line of checkpoints.jsonl: what was saved after `batch` steps."""

    name: str
    batch: int  # also the index of the next step to run
    final: bool = False  # the last of a run that has all its steps
    sampler_path: str | None = None  # the weights
    state_path: str | None = None  # what resuming needs beside them; a save for sampling has none
    start: bool = False  # the weights that the run began with
    rolling: bool = False  # given up for the next save
    best: bool = False  # no evaluation so far was better
    eval_acc: float | None = None
    saved_as: list[dict] = field(default_factory=list)  # what clients of `rfs serve` call it

    def line(self) -> dict:
        """Name, step and whether it is the last are always there, the rest where it says
        something."""
        values = asdict(self)
        head = {key: values.pop(key) for key in ("name", "batch", "final")}
        return head | {
            key: value for key, value in values.items() if value not in (None, False, [])
        }


def save_of(line: dict) -> Save:
    """From a line that may be of another version, and have other keys."""
    known = [item.name for item in fields(Save)]
    return Save(**{key: value for key, value in line.items() if key in known})


def on_stderr(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def which_weights(name: str | Path, say: Callable[[str], None] = on_stderr) -> str:
    """The folder of the save that a run, or RUN@SAVE, stands for; any other name as it is.

    Which save a run stands for is said through `say`.
    """
    run, save = run_and_save(name)
    if run is None:
        return str(name)
    saves = read_index(run)
    if not saves:
        raise UserError(f"{run} is a run that has saved nothing yet; there are no weights in it")
    if save is not None:
        return str(place_of(run, save_by_name(run, save, saves)))
    accuracy = evaluations(run)
    best = max(saves, key=lambda save: (accuracy.get(save.batch, -1), save.batch))
    say(f"{run}: taking {run}@{best.name}, {reason(best, saves, accuracy)}")
    return str(place_of(run, best))


def run_and_save(name: str | Path) -> tuple[Path | None, str | None]:
    """Run folder and save of a name; None, None for a name of something else."""
    path = Path(name).expanduser()
    if path.exists():
        return (path, None) if is_run(path) else (None, None)
    run, at, save = str(path).rpartition("@")
    return (Path(run), save) if at and is_run(Path(run)) else (None, None)


def is_run(path: Path) -> bool:
    return any((path / name).is_file() for name in (SAVES_LIST, "metrics.jsonl"))


def save_by_name(run: Path, name: str, saves: list[Save]) -> Save:
    """By its name or by the number of its steps."""
    for save in saves:
        if name == save.name or (name.isdecimal() and int(name) == save.batch):
            return save
    known = ", ".join(save.name for save in evenly(saves, 12))
    raise UserError(f"{run} has no save {name}; it has {known}")


def reason(save: Save, saves: list[Save], accuracy: dict[int, float]) -> str:
    """Why this save, in words."""
    if save.batch not in accuracy:
        return "its last weights; no save of it has been evaluated"
    count = sum(other.batch in accuracy for other in saves)
    rank = f"the best of {count} saves that were evaluated" if count > 1 else "the one evaluated"
    return f"after {save.batch} steps: {accuracy[save.batch]:.1%} held-out accuracy, {rank}"


def evaluations(run: Path) -> dict[int, float]:
    """Held-out accuracy by the number of steps that the evaluated weights had seen."""
    saves = read_index(run)
    found = {save.batch: save.eval_acc for save in saves if save.eval_acc is not None}
    for row in read_lines(run / "metrics.jsonl"):
        for measured in evaluations_in(row):
            if measured["eval_acc"] is not None:
                found[evaluated_at(measured)] = measured["eval_acc"]
    return found


def evaluations_in(row: dict) -> list[dict]:
    """What was evaluated in a line of metrics.jsonl, in order. The last line may have two: the
    one before its step is there under before/, that of the final weights has the usual names."""
    before = {k.removeprefix(BEFORE): v for k, v in row.items() if k.startswith(BEFORE)}
    return [found | {"step": row["step"]} for found in (before, row) if "eval_acc" in found]


def with_final(row: dict, final: dict) -> dict:
    """The last line, with the evaluation of the final weights."""
    if row.get("eval_step") in (None, final["eval_step"]):
        return row | final
    return row | {BEFORE + name: row[name] for name in final if name in row} | final


def evaluated_at(row: dict) -> int:
    """The number of steps that the weights had seen whose accuracy is in a line of metrics.jsonl.

    It is evaluated before a step, and after the last one: without eval_step that line is known by
    its share of the steps.
    """
    return row.get("eval_step", row["step"] + (row.get("progress/done_frac") == 1))


# ---- the saves of a run


def read_index(run: Path) -> list[Save]:
    """The complete saves of a run by step: lines of checkpoints.jsonl, with the paths of where the
    run is now, as it may have been moved or copied.

    A save is complete when the file is there that is written last. One without a line is that of a
    run that was killed in between; what its line would have said is in trainer_state.json.
    """
    told = {row["batch"]: row for row in read_lines(run / SAVES_LIST) if "batch" in row}
    found = []
    for place in (run / "checkpoints").glob("*"):
        if place.name.isdecimal() and (place / "config.json").exists():
            batch, state = int(place.name), state_of(place)
            line: dict = {"name": place.name, "batch": batch, "start": batch == 0}
            paths = {"sampler_path": str(place), "state_path": None}
            if (state / STATE_FILE).exists():
                paths["state_path"] = str(state)
                line |= read_values(state / STATE_FILE).get("line", {})
            found.append(save_of(line | told.get(batch, {}) | paths))
    return sorted(found, key=lambda save: save.batch)


def place_of(run: Path, save: Save) -> Path:
    """The folder of a save."""
    return run / "checkpoints" / f"{save.batch:06d}"


def state_of(place: Path) -> Path:
    """Where the optimizer's state is that belongs to these weights. Earlier versions had it in the
    same folder."""
    return place if (place / STATE_FILE).exists() else place.parents[1] / STATES / place.name
