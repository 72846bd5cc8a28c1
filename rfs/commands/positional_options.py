"""Options of the commands whose first word is a model or a run."""

from dataclasses import dataclass, field
from pathlib import Path

from tyro.conf import Positional

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.model_names import HUB_NAME
from rfs.commands.options import NeedsTorch
from rfs.files.models import check_model_name


@dataclass
class ExportOptions:
    """Options of `rfs export`."""

    model: Positional[str]
    """Export a run (its best save), RUN@SAVE, or any other model."""
    out: Path
    """Write this folder: config, weights in safetensors, tokenizer, generation config, model
    card."""

    def check(self) -> str:
        """Refuses a model that cannot be loaded; returns the name of one that can."""
        check_model_name(self.model)
        return self.model


@dataclass
class PushOptions:
    """Options of `rfs push`."""

    model: Positional[str]
    """Upload a run (its best save), RUN@SAVE, or any other model."""
    repository: Positional[str]
    """Upload to OWNER/NAME on the hub, which is created if it does not exist."""
    private: bool = False
    """Make the repository private, if it is new."""

    def check(self) -> str:
        """Refuses what cannot be uploaded, or not there; returns the model's name."""
        check_model_name(self.model)
        if not HUB_NAME.fullmatch(self.repository):
            raise UserError(f"{self.repository} is not OWNER/NAME; OWNER is your name on the hub")
        return self.model


@dataclass
class PlotOptions(NeedsTorch):
    """Options of `rfs plot`."""

    runs: Positional[list[str]] = field(default_factory=list)
    """Draw these run folders, or CSV files of the book's scripts (default: the newest run in
    runs/)."""
    out: str | None = None
    """Write this picture; its ending sets the format (default: curves.png in the run's folder or,
    for several runs or a CSV file, here)."""


@dataclass
class ReportOptions(NeedsTorch):
    """Options of `rfs report`."""

    run: Positional[str] = ""
    """Report on the run in this folder (default: the newest in runs/)."""
    open: bool = False
    """Open the page in a browser, too."""
