"""The book's cells import `download_file` from a module of this name."""

from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from reasoning_from_scratch.files import downloads


def download_file(url, out_dir=".", backup_url=None):
    """Download `url`, or else `backup_url`, into `out_dir` under its own name; returns the path."""
    name = PurePosixPath(unquote(urlsplit(url).path)).name
    return downloads.download_file(url, Path(out_dir) / name, backup_url)
