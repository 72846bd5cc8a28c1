"""`rfs report`: write a run's page."""

import sys
import webbrowser
from pathlib import Path

from reasoning_from_scratch.files.disk import disk_errors_as
from reasoning_from_scratch.text import visible
from rfs.commands.positional_options import ReportOptions
from rfs.report import newest_run, write_run_report


def report_command(options: ReportOptions) -> None:
    """Writes report.html into a run's folder, and prints its address."""
    folder = Path(options.run) if options.run else newest_run(Path("runs"))
    advice = "copy the run to a folder that you can write to"
    with disk_errors_as(f"cannot write a report into {folder}", advice):
        address = write_run_report(folder).resolve().as_uri()
    print(visible(address), flush=True)
    if options.open and not webbrowser.open(address):
        print("there is no browser here; open that address yourself", file=sys.stderr)
