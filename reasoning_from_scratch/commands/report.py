"""`rfs report`: write a run's page."""

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import tyro

from reasoning_from_scratch.files.disk import disk_errors_as
from reasoning_from_scratch.report import newest_run, write_run_report
from reasoning_from_scratch.text import visible

RUN = tyro.conf.arg(metavar="[RUN]", help_behavior_hint="")


def report_command(
    run: Annotated[str, tyro.conf.Positional, RUN] = "",
    open: bool = False,
) -> None:
    """Write report.html into a run's folder, and print its address.

    Args:
        run: Folder of the run (default: the newest in runs/).
        open: Open it in a browser, too.
    """
    folder = Path(run) if run else newest_run(Path("runs"))
    advice = "copy the run to a folder that you can write to"
    with disk_errors_as(f"cannot write a report into {folder}", advice):
        address = write_run_report(folder).resolve().as_uri()
    print(visible(address), flush=True)
    if open and not webbrowser.open(address):
        print("there is no browser here; open that address yourself", file=sys.stderr)
