"""Runs and what they cost: processor-seconds, without what is measured and saved on the way."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measuring import kept

from rfs.files.saved_models import STATES_FOLDER
from rfs.run.checkpoints import Checkpoints
from rfs.run.options import configure, resumed_config
from rfs.run.start import train
from rfs.run.study import refuse_other_settings, run_to_end


def run(settings: dict[str, Any], folder: Path) -> dict[str, float]:
    """A run from its start, or from its last save, to its end; and what it cost."""
    config = configure(**settings, log_path=str(folder))
    refuse_other_settings(config, "--folder")
    rows = run_to_end(config, quiet=False).require_finished().rows
    forget_best(folder)
    return {"seconds": cost(rows), "steps": float(len(rows))}


def run_for(seconds: float, settings: dict[str, Any], folder: Path) -> dict[str, float]:
    """A run of as many steps as fit into these processor-seconds, at least one."""
    settings = settings | {"steps": 1}

    def plan() -> dict[str, float]:
        return {"steps": max(1, int(seconds / pace(settings, folder.with_name("pace"))))}

    steps = int(kept(folder.with_name(f"{folder.name}_plan.json"), plan)["steps"])
    return run(settings | {"steps": steps}, folder)


def pace(settings: dict[str, Any], folder: Path) -> float:
    """Processor-seconds per step: the mean of the last two of three trial steps, which are then
    thrown away."""
    unmeasured = {name: value for name, value in settings.items() if not name.startswith("eval_")}
    trial = {"steps": 3, "overwrite": True}  # a call may have been killed here
    config = configure(**unmeasured | trial, log_path=str(folder))
    rows = train(config, quiet=False).require_finished().rows
    shutil.rmtree(folder)
    return cost(rows[1:]) / 2


def forget_best(folder: Path) -> None:
    """Delete the weights of the best evaluation (1.3 GB), unless they are the final ones: what is
    measured is where a run ends, and to choose by what one measures would flatter it."""
    saves = Checkpoints(folder).read()
    for save in list(saves.saves):
        if save.best and not save.final:
            saves.delete(save)


def forget_weights(folder: Path) -> None:
    """Delete the weights of a run that nothing is measured of."""
    for name in ("checkpoints", STATES_FOLDER):
        shutil.rmtree(folder / name, ignore_errors=True)


def cost(rows: Sequence[dict]) -> float:
    """Processor-seconds of sampling, judging and training, without what a run measures and saves.
    Steps made before runs counted the processor's time are taken by the clock."""
    total = 0.0
    for row in rows:
        work = sum(row.get(f"time/{stage}") or 0.0 for stage in ("sampling", "reward", "train"))
        total += work * row.get("time/processor", row["time/total"]) / row["time/total"]
    return total


def saved(folder: Path) -> str:
    """The model at the end of an arm's last run, as --model takes it."""
    steps = resumed_config(folder / "run").steps
    return f"{folder / 'run'}@{steps:06d}"
