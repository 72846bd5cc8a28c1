"""Which weights a run folder stands for: `runs/mine` is a model, and so is `runs/mine@000150`.

A run saves its weights many times. Without a save after an @ it is the one with the best held-out
accuracy, of equal ones the latest; of a run that was never evaluated, the last.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.text import evenly, read_lines, read_values

SAVES_LIST = "checkpoints.jsonl"
OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "trainer_state.json"
PATHS = ("sampler_path", "state_path")
# Beside the folder of the saved weights: engines read every .safetensors of that one.
STATES = "training_state"
CARD_FILE = "README.md"
BEFORE = "before/"


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
    best = max(saves, key=lambda line: (accuracy.get(line["batch"], -1), line["batch"]))
    say(f"{run}: taking {run}@{best['name']}, {reason(best, saves, accuracy)}")
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


def save_by_name(run: Path, save: str, saves: list[dict]) -> dict:
    """By its name or by the number of its steps."""
    for line in saves:
        if save == line["name"] or (save.isdecimal() and int(save) == line["batch"]):
            return line
    known = ", ".join(line["name"] for line in evenly(saves, 12))
    raise UserError(f"{run} has no save {save}; it has {known}")


def reason(line: dict, saves: list[dict], accuracy: dict[int, float]) -> str:
    """Why this save, in words."""
    if line["batch"] not in accuracy:
        return "its last weights; no save of it has been evaluated"
    count = sum(other["batch"] in accuracy for other in saves)
    rank = f"the best of {count} saves that were evaluated" if count > 1 else "the one evaluated"
    return f"after {line['batch']} steps: {accuracy[line['batch']]:.1%} held-out accuracy, {rank}"


def evaluations(run: Path) -> dict[int, float]:
    """Held-out accuracy by the number of steps that the evaluated weights had seen."""
    found = {line["batch"]: line["eval_acc"] for line in read_index(run) if "eval_acc" in line}
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


def read_index(run: Path) -> list[dict]:
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
            line: dict = {"name": place.name, "batch": batch, "final": False}
            paths = {"sampler_path": str(place)}
            if batch == 0:
                line["start"] = True
            if (state / STATE_FILE).exists():
                paths["state_path"] = str(state)
                line |= read_values(state / STATE_FILE).get("line", {})
            line |= told.get(batch, {})
            found.append({k: v for k, v in line.items() if k not in (*PATHS, "files")} | paths)
    return sorted(found, key=lambda line: line["batch"])


def place_of(run: Path, line: dict) -> Path:
    """The folder of a save."""
    return run / "checkpoints" / f"{line['batch']:06d}"


def state_of(place: Path) -> Path:
    """Where the optimizer's state is that belongs to these weights. Earlier versions had it in the
    same folder."""
    return place if (place / STATE_FILE).exists() else place.parents[1] / STATES / place.name
