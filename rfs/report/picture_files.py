"""A figure as a file, where the user wants it."""

from pathlib import Path

from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import disk_errors_as


def save_picture(figure: Figure, path: str | Path) -> Path:
    """Write the picture where the user wants it."""
    path = picture_path(path)
    with disk_errors_as(f"cannot write {path}", "choose another place"):
        figure.savefig(path, dpi=110)
    return path


def picture_path(path: str | Path) -> Path:
    """The path, if a picture can have that name; its folder is made."""
    path, supported = Path(path), FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in supported:
        raise UserError(f"{path}: a picture's name ends in one of .{', .'.join(sorted(supported))}")
    with disk_errors_as(f"cannot make {path.parent}", "choose another place"):
        path.parent.mkdir(parents=True, exist_ok=True)
    return path
