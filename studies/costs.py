"""Runs and their cost in processor-seconds, without the evaluations and saves on the way."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gsm8k_measurements import load_or_compute

from rfs.files.saved_models import STATES_FOLDER
from rfs.run.checkpoints import Checkpoints
from rfs.run.options import configure, resumed_config
from rfs.run.start import train
from rfs.run.study import refuse_other_settings, run_to_end


def train_to_end(settings: dict[str, Any], folder: Path) -> dict[str, float]:
    """Trains from the start, or from the last save, to the end; returns the cost."""
    config = configure(**settings, log_path=str(folder))
    refuse_other_settings(config, "--folder")
    rows = run_to_end(config, quiet=False).require_finished().rows
    delete_best_weights(folder)
    return {"seconds": processor_seconds(rows), "steps": float(len(rows))}


def train_for_seconds(seconds: float, settings: dict[str, Any], folder: Path) -> dict[str, float]:
    """Trains as many steps as fit into these processor-seconds, at least one."""
    settings = settings | {"steps": 1}

    def plan() -> dict[str, float]:
        each = seconds_per_step(settings, folder.with_name("pace"))
        return {"steps": max(1, int(seconds / each))}

    steps = int(load_or_compute(folder.with_name(f"{folder.name}_plan.json"), plan)["steps"])
    return train_to_end(settings | {"steps": steps}, folder)


def seconds_per_step(settings: dict[str, Any], folder: Path) -> float:
    """Processor-seconds: the mean of the last two of three trial steps, which are then deleted."""
    unevaluated = {name: value for name, value in settings.items() if not name.startswith("eval_")}
    trial_steps = {"steps": 3, "overwrite": True}  # a killed call leaves its steps
    config = configure(**unevaluated | trial_steps, log_path=str(folder))
    rows = train(config, quiet=False).require_finished().rows
    shutil.rmtree(folder)
    return processor_seconds(rows[1:]) / 2


def delete_best_weights(folder: Path) -> None:
    """Deletes the weights of the best evaluation (1.3 GB), unless they are the final ones. We
    measure where a run ends: choosing by the measurement itself would flatter the run."""
    checkpoints = Checkpoints(folder).read()
    for save in list(checkpoints.saves):
        if save.best and not save.final:
            checkpoints.delete(save)


def delete_weights(folder: Path) -> None:
    """Deletes the weights of a run that is not measured."""
    for name in ("checkpoints", STATES_FOLDER):
        shutil.rmtree(folder / name, ignore_errors=True)


def processor_seconds(rows: Sequence[dict]) -> float:
    """The cost of sampling, judging and training, without evaluations and saves. Where a step has
    no processor time, as in early runs, its wall-clock time counts."""
    total = 0.0
    for row in rows:
        work = sum(row.get(f"time/{stage}") or 0.0 for stage in ("sampling", "reward", "train"))
        total += work * row.get("time/processor", row["time/total"]) / row["time/total"]
    return total


def final_model(folder: Path) -> str:
    """The model at the end of an arm's last run, as --model takes it."""
    steps = resumed_config(folder / "run").steps
    return f"{folder / 'run'}@{steps:06d}"
