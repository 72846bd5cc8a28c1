"""Which weights a run folder stands for: `runs/mine` is a model, and so is `runs/mine@000150`.

A run saves its weights many times. Without an @, its name means the save with the best held-out
accuracy, the latest of equal ones; if the run was never evaluated, its last save.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.text import (
    evenly_spaced,
    expand_home,
    percent,
    read_json_object,
    read_lines,
)

SAVES_LIST = "checkpoints.jsonl"
OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "trainer_state.json"
# Beside the folder of the saved weights: engines read every .safetensors of that one.
STATES_FOLDER = "training_state"
CARD_FILE = "README.md"
BEFORE_PREFIX = "before/"


@dataclass(frozen=True)
class Save:
    """A line of checkpoints.jsonl: what was saved after `batch` steps."""

    name: str
    batch: int  # also the index of the next step to run
    final: bool = False  # the last of a run that has all its steps
    sampler_path: str | None = None  # the weights
    state_path: str | None = None  # what resuming needs beside them; a save for sampling has none
    start: bool = False  # the weights that the run began with
    rolling: bool = False  # deleted after the next save
    best: bool = False  # its accuracy is the highest so far
    eval_acc: float | None = None
    saved_as: list[dict] = field(default_factory=list)  # what clients of `rfs serve` call it

    def line(self) -> dict:
        """As JSON. Name, step and whether it is the last are always there, the rest only if it is
        set; an accuracy of 0.0 is."""
        values = asdict(self)
        required = {key: values.pop(key) for key in ("name", "batch", "final")}
        return required | {
            key: value for key, value in values.items() if value or isinstance(value, float)
        }


def save_from_line(line: dict) -> Save:
    """The save in a line, which may be from another version and have other keys."""
    known = [item.name for item in fields(Save)]
    return Save(**{key: value for key, value in line.items() if key in known})


def print_to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def which_weights(name: str | Path, say: Callable[[str], None] = print_to_stderr) -> str:
    """The folder of the save that a run, or RUN@SAVE, means; any other name is returned unchanged.

    `say` gets a line about the save that was chosen for a run.
    """
    run, save = run_and_save(name)
    if run is None:
        return str(name)
    saves = read_index(run)
    if not saves:
        raise UserError(f"{run} is a run that has saved nothing yet; there are no weights in it")
    if save is not None:
        return str(weights_folder(run, save_by_name(run, save, saves)))
    accuracy = accuracy_by_step(run)
    best = max(saves, key=lambda save: (accuracy.get(save.batch, -1), save.batch))
    say(f"{run}: taking {run}@{best.name}, {why_chosen(best, saves, accuracy)}")
    return str(weights_folder(run, best))


def run_and_save(name: str | Path) -> tuple[Path | None, str | None]:
    """Run folder and save of a name; None, None if it names no run."""
    path = expand_home(name)
    if path.exists():
        return (path, None) if is_run(path) else (None, None)
    run, at, save = str(path).rpartition("@")
    return (Path(run), save) if at and is_run(Path(run)) else (None, None)


def is_run(path: Path) -> bool:
    return any((path / name).is_file() for name in (SAVES_LIST, "metrics.jsonl"))


def holds_model(folder: Path) -> bool:
    """Whether its config.json is that of a model, in transformers' format. A run has one, too."""
    return "model_type" in read_json_object(folder / "config.json")


def save_by_name(run: Path, name: str, saves: list[Save]) -> Save:
    """The save with this name, or after this number of steps."""
    for save in saves:
        if name == save.name or (name.isdecimal() and int(name) == save.batch):
            return save
    known = ", ".join(save.name for save in evenly_spaced(saves, 12))
    raise UserError(f"{run} has no save {name}; it has {known}")


def why_chosen(save: Save, saves: list[Save], accuracy: dict[int, float]) -> str:
    if save.batch not in accuracy:
        return "its last weights; no save of it has been evaluated"
    count = sum(other.batch in accuracy for other in saves)
    rank = f"the best of {count} saves that were evaluated" if count > 1 else "the one evaluated"
    return f"after {save.batch} steps: {percent(accuracy[save.batch])} held-out accuracy, {rank}"


def accuracy_by_step(run: Path) -> dict[int, float]:
    """Held-out accuracy by the number of steps that the evaluated weights had seen."""
    saves = read_index(run)
    accuracy = {save.batch: save.eval_acc for save in saves if save.eval_acc is not None}
    for evaluation in comparable_evaluations(read_lines(run / "metrics.jsonl")):
        if evaluation["eval_acc"] is not None:
            accuracy[evaluated_at(evaluation)] = evaluation["eval_acc"]
    return accuracy


def comparable_evaluations(rows: Sequence[dict]) -> list[dict]:
    """The evaluations in lines of metrics.jsonl that measured the same as the last one. A run may
    be resumed with other problems to evaluate on, or with more or fewer of them."""
    evaluations = [evaluation for row in rows for evaluation in evaluations_in(row)]
    last = evaluation_basis(evaluations[-1]) if evaluations else None
    return [evaluation for evaluation in evaluations if evaluation_basis(evaluation) == last]


def evaluation_basis(evaluation: dict) -> tuple[str, int | None, int]:
    """What an evaluation's accuracy was measured on: the first set's metric, the number of
    problems, and, up to 16, of answers to each."""
    names = [name for name in evaluation if not name.startswith(BEFORE_PREFIX)]
    accuracy_name = next((name for name in names if name.endswith("/env/all/correct")), "")
    pass_prefix = accuracy_name.replace("env/all/correct", "pass@")
    answers = sum(name.startswith(pass_prefix) for name in names if accuracy_name)
    return accuracy_name, evaluation.get("eval_problems"), answers


def evaluations_in(row: dict) -> list[dict]:
    """The evaluations in a line of metrics.jsonl, in order. The last line may have two: the one
    before its step is under before/, and that of the final weights has the usual names."""
    prefix = BEFORE_PREFIX
    before = {k.removeprefix(prefix): v for k, v in row.items() if k.startswith(prefix)}
    return [
        evaluation | {"step": row["step"]}
        for evaluation in (before, row)
        if "eval_acc" in evaluation
    ]


def with_final_evaluation(row: dict, final: dict, evaluators: Sequence[str] = ()) -> dict:
    """The last line, with the evaluation of the final weights. `evaluators`: the names of your own,
    whose earlier numbers are moved even if they have failed now."""
    if row.get("eval_step") in (None, final["eval_step"]):
        return row | final
    own_prefixes = tuple(f"{name}/" for name in evaluators)
    earlier = {name: row[name] for name in row if name in final or name.startswith(own_prefixes)}
    rest = {name: value for name, value in row.items() if name not in earlier}
    return rest | {BEFORE_PREFIX + name: value for name, value in earlier.items()} | final


def evaluated_at(row: dict) -> int:
    """The number of steps before the evaluation whose accuracy is in a line of metrics.jsonl.

    Evaluations come before a step, and after the last one. If there is no eval_step, the last line
    is recognized by its share of the steps, 1.
    """
    return row.get("eval_step", row["step"] + (row.get("progress/done_frac") == 1))


# ---- the saves of a run


def read_index(run: Path) -> list[Save]:
    """The complete saves of a run by step: lines of checkpoints.jsonl, with paths to where the run
    is now, since it may have been moved or copied.

    A save is complete if the file that is written last is there. If it has no line, the run was
    killed before it was written; trainer_state.json has what the line would have said.
    """
    rows = read_lines(run / SAVES_LIST)
    lines = {row["batch"]: row for row in rows if isinstance(row.get("batch"), int)}
    saves = []
    for folder in (run / "checkpoints").glob("*"):
        if folder.name.isdecimal() and (folder / "config.json").exists():
            batch, state = int(folder.name), state_folder(folder)
            line: dict = {"name": folder.name, "batch": batch, "start": batch == 0}
            paths = {"sampler_path": str(folder), "state_path": None}
            if (state / STATE_FILE).exists():
                paths["state_path"] = str(state)
                line |= read_json_object(state / STATE_FILE).get("line", {})
            saves.append(save_from_line(line | lines.get(batch, {}) | paths))
    return sorted(saves, key=lambda save: save.batch)


def weights_folder(run: Path, save: Save) -> Path:
    return run / "checkpoints" / f"{save.batch:06d}"


def state_folder(weights: Path) -> Path:
    """The folder with the optimizer's state for the weights in a folder. Earlier versions wrote it
    beside them."""
    if (weights / STATE_FILE).exists():
        return weights
    return weights.parents[1] / STATES_FOLDER / weights.name
