"""Weights & Biases, Trackio and TensorBoard, if they are requested. Our own files are always
written."""

import shutil
import uuid
from pathlib import Path

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.text import one_line
from rfs.config import RunConfig, to_json

ID_FILE = "wandb_id"
NAME_FILE = "trackio_name"  # Trackio finds a run again by its name


class Tracker:
    """Sends the metrics lines to a tracker's run, which a resumed training continues."""

    def __init__(self) -> None:
        self.run = None
        self.trackio = None
        self.tensorboard = None

    def start(self, config: RunConfig, folder: Path) -> None:
        """Called before the run begins in its folder: refused without a login or a network."""
        if config.trackio:
            self.trackio = start_trackio(config, folder)
        if not config.wandb:
            return
        wandb, id_file = import_wandb(), folder / ID_FILE
        is_new_folder = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)  # for the files that wandb keeps
        try:
            self.run = wandb.init(
                project=config.wandb,
                id=id_file.read_text() if config.resume and id_file.exists() else None,
                resume="allow",
                name=folder.name,
                dir=folder,
                config=to_json(config),
            )
        except Exception as error:  # wandb has its own kinds of errors
            if is_new_folder:
                shutil.rmtree(folder)
            reason = one_line(str(error), 200)
            raise UserError(
                f"--wandb {config.wandb}: Weights & Biases started no run ({reason}): try `wandb "
                "login`, set WANDB_MODE=offline, or drop --wandb"
            ) from error

    def continue_run(self, config: RunConfig, folder: Path, step: int) -> None:
        """Called once the folder exists. A resumed training continues the same run, from `step`."""
        if self.run is not None:
            (folder / ID_FILE).write_text(self.run.id)
        if self.trackio is not None:
            (folder / NAME_FILE).write_text(self.trackio.name)
        if config.tensorboard:
            self.tensorboard = import_tensorboard()(folder / "tensorboard", purge_step=step)

    def log(self, row: dict) -> None:
        measured_values = {name: value for name, value in row.items() if value is not None}
        if self.run is not None:
            self.run.log(measured_values, step=row["step"])
        if self.trackio is not None:  # it has a column of its own for the step
            values = {name: value for name, value in measured_values.items() if name != "step"}
            self.trackio.log(values, step=row["step"])
        if self.tensorboard is not None:
            for name, value in measured_values.items():
                self.tensorboard.add_scalar(name, value, row["step"])
            self.tensorboard.flush()

    def finish(self) -> None:
        if self.run is not None:
            self.run.finish()
        if self.trackio is not None:
            self.trackio.finish()
        if self.tensorboard is not None:
            self.tensorboard.close()


def start_trackio(config: RunConfig, folder: Path):
    """A run of Trackio, which keeps it on this machine unless TRACKIO_SPACE_ID says otherwise."""
    trackio, name_file = import_trackio(), folder / NAME_FILE
    name = f"{folder.name}-{uuid.uuid4().hex[:6]}"  # two folders may have one name
    try:
        return trackio.init(
            project=config.trackio,
            name=name_file.read_text() if config.resume and name_file.exists() else name,
            resume="allow",
            config=to_json(config),
            embed=False,
        )
    except Exception as error:  # Trackio has its own, too
        reason = one_line(str(error), 200)
        raise UserError(
            f"--trackio {config.trackio}: Trackio started no run ({reason}): try another name, or "
            "drop --trackio"
        ) from error


def import_tensorboard() -> type:
    """PyTorch's writer for TensorBoard, which needs the package tensorboard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("--tensorboard needs the extra: uv sync --extra tensorboard") from None
    return SummaryWriter


def import_wandb():
    try:
        import wandb
    except ImportError:
        raise UserError("--wandb needs the extra: uv sync --extra wandb") from None
    return wandb


def import_trackio():
    try:
        import trackio
    except ImportError:
        raise UserError("--trackio needs the extra: uv sync --extra trackio") from None
    return trackio
