"""Weights & Biases, where --wandb asks for it; else nothing. Files are always written."""

from reasoning_from_scratch.config import Records, to_json
from reasoning_from_scratch.errors import UserError

ID_FILE = "wandb_id"


class Tracker:
    """Sends the metrics lines to a run that a resumed training continues."""

    def __init__(self, run=None) -> None:
        self.run = run

    @classmethod
    def start(cls, config: Records, folder) -> "Tracker":
        if not config.wandb:
            return cls()
        wandb = import_wandb()
        known = folder.path / ID_FILE
        identity = known.read_text() if known.exists() else None
        run = wandb.init(
            project=config.wandb,
            id=identity,
            resume="allow",
            name=folder.path.name,
            config=to_json(config),
        )
        known.write_text(run.id)
        return cls(run)

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
