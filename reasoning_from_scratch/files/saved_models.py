"""Which weights a run folder stands for: `runs/mine` is a model, and so is `runs/mine@000150`.

A run saves its weights many times. Without a save after an @ it is the one with the best held-out
accuracy, of equal ones the latest; of a run that was never evaluated, the last.
"""

import logging
import sys
from collections.abc import Callable
from pathlib import Path

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import fingerprint
from reasoning_from_scratch.text import evenly, read_lines, scan_lines

log = logging.getLogger("reasoning_from_scratch")

INDEX = "checkpoints.jsonl"
OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "trainer_state.json"
PATHS = ("sampler_path", "state_path")
# Beside the folder of the saved weights: engines read every .safetensors of that one.
STATES = "training_state"
CARD_FILE = "README.md"  # people write into it, so no save is damaged by another one
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
        return str(place_of(run, asked_save(run, save, saves)))
    accuracy = evaluations(run)
    best = sorted(saves, key=lambda line: (accuracy.get(line["batch"], -1), line["batch"]))
    for line in reversed(best):
        broken = broken_file(run, weights_only(line))
        if broken is None:
            say(f"{run}: taking {run}@{line['name']}, {reason(line, saves, accuracy)}")
            return str(place_of(run, line))
        log.warning("skipping save %s: %s is missing or damaged", line["name"], broken)
    raise UserError(f"all saves in {run} are damaged; there are no weights in it")


def run_and_save(name: str | Path) -> tuple[Path | None, str | None]:
    """Run folder and save of a name; None, None for a name of something else."""
    path = Path(name).expanduser()
    if path.exists():
        return (path, None) if is_run(path) else (None, None)
    run, at, save = str(path).rpartition("@")
    return (Path(run), save) if at and is_run(Path(run)) else (None, None)


def is_run(path: Path) -> bool:
    return any((path / name).is_file() for name in (INDEX, "metrics.jsonl"))


def asked_save(run: Path, save: str, saves: list[dict]) -> dict:
    """By its name or by the number of its steps; it must be whole."""
    for line in saves:
        if save == line["name"] or (save.isdecimal() and int(save) == line["batch"]):
            broken = broken_file(run, weights_only(line))
            if broken is None:
                return line
            raise UserError(f"{run}@{save}: {broken} is missing or damaged; take another save")
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


# ---- reading checkpoints.jsonl


def read_index(run: Path) -> list[dict]:
    """The lines of checkpoints.jsonl by step. Where some of them were lost, what lies in
    checkpoints/ counts."""
    rows, bad = scan_lines(run / INDEX)
    lines = {row["batch"]: row for row in rows if is_line(row)}
    if bad or len(lines) < len(rows) or not (run / INDEX).exists():
        for folder in sorted((run / "checkpoints").glob("*")):
            line = line_of_folder(folder)
            if line is not None and line["batch"] not in lines:
                log.warning("save %s has no line in checkpoints.jsonl; it counts", line["name"])
                lines[line["batch"]] = line
    return [placed(run, lines[batch]) for batch in sorted(lines)]


def line_of_folder(folder: Path) -> dict | None:
    """A line for a save that has lost its own, None if the save is not complete.

    The last file of the weights is config.json, the last of all is trainer_state.json.
    """
    files = fingerprints(files_of(folder)) if folder.name.isdecimal() else {}
    if "config.json" not in files:
        return None
    line = {"name": folder.name, "batch": int(folder.name), "final": False, "files": files}
    if any(Path(name).name == STATE_FILE for name in files):
        return line | dict.fromkeys(PATHS)
    # Weights alone are those of the beginning or the best: as `start` they are never deleted.
    return line | {"sampler_path": None, "start": True}


def files_of(place: Path) -> dict[str, Path]:
    """The files of a save whose weights are there, by their names in checkpoints.jsonl."""
    found = {path.name: path for path in sorted(place.glob("*")) if path.name != CARD_FILE}
    beside = file_of(place, f"{STATES}/")
    found |= {f"{STATES}/{path.name}": path for path in sorted(beside.glob("*"))}
    return {name: path for name, path in found.items() if path.is_file()}


def file_of(place: Path, name: str) -> Path:
    """Where a file is that has this name in checkpoints.jsonl."""
    folder, _, file = name.rpartition("/")
    return place.parents[1] / STATES / place.name / file if folder == STATES else place / name


def fingerprints(files: dict[str, Path]) -> dict[str, list[int]]:
    return {name: fingerprint(path) for name, path in files.items()}


def placed(run: Path, line: dict) -> dict:
    """The line with the paths of where the run is now: it may have been moved or copied."""
    place = place_of(run, line)
    places = {"sampler_path": str(place), "state_path": str(state_of(place))}
    return line | {key: places[key] for key in PATHS if key in line}


def state_of(place: Path) -> Path:
    """Where the optimizer's state is that belongs to these weights. Earlier versions had it in the
    same folder."""
    return place if (place / STATE_FILE).exists() else file_of(place, f"{STATES}/")


def is_line(row: dict) -> bool:
    """Has it what every line has? Else it was damaged."""
    kinds = {"name": str, "batch": int, "files": dict}
    return all(isinstance(row.get(key), kind) for key, kind in kinds.items())


def place_of(run: Path, line: dict) -> Path:
    """The folder of a save."""
    return run / "checkpoints" / f"{line['batch']:06d}"


def broken_file(run: Path, line: dict) -> str | None:
    """The first file of a save that is not as it was written."""
    for name, mark in line["files"].items():
        try:
            if fingerprint(file_of(place_of(run, line), name)) != mark:
                return name
        except OSError:  # missing, or a disk that cannot read it any more
            return name
    return None


def weights_only(line: dict) -> dict:
    """The line of a save without what only training needs."""
    only_training = (OPTIMIZER_FILE, STATE_FILE)
    files = {k: v for k, v in line["files"].items() if Path(k).name not in only_training}
    return {key: value for key, value in line.items() if key != "state_path"} | {"files": files}
