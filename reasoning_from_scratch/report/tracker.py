"""Weights & Biases, where --wandb asks for it; else nothing. Files are always written."""

from pathlib import Path

from reasoning_from_scratch.config import TrainConfig, to_json
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.text import one_line

ID_FILE = "wandb_id"


class Tracker:
    """Sends the metrics lines to a run that a resumed training continues."""

    def __init__(self) -> None:
        self.run = None

    def start(self, config: TrainConfig, folder: Path) -> None:
        """Before anything in the folder changes: without a login or a network it is refused."""
        if not config.wandb:
            return
        wandb, known = import_wandb(), folder / ID_FILE
        try:
            self.run = wandb.init(
                project=config.wandb,
                id=known.read_text() if config.resume and known.exists() else None,
                resume="allow",
                name=folder.name,
                config=to_json(config),
            )
        except Exception as error:  # of another program, which has kinds of its own
            why = one_line(str(error), 200)
            raise UserError(
                f"--wandb {config.wandb}: Weights & Biases began no run ({why}): try `wandb "
                "login`, set WANDB_MODE=offline, or leave out --wandb"
            ) from error

    def keep_id(self, folder: Path) -> None:
        """A resumed training goes on with the same run."""
        if self.run is not None:
            (folder / ID_FILE).write_text(self.run.id)

    def log(self, row: dict) -> None:
        if self.run is not None:
            measured = {name: value for name, value in row.items() if value is not None}
            self.run.log(measured, step=row["step"])

    def finish(self) -> None:
        if self.run is not None:
            self.run.finish()


def import_wandb():
    try:
        import wandb
    except ImportError:
        raise UserError("--wandb needs the extra: uv sync --extra wandb") from None
    return wandb
