"""Curves of a training run: columns of its metrics.csv, with a moving average.

    uv run ch06/plot_metrics.py runs/first

A window opens if there is a screen; the picture is saved either way.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from reasoning_from_scratch.errors import UserError
from rfs.commands.cli import run_script


@dataclass
class Options:
    metrics: tyro.conf.Positional[Path]
    """Plot a run folder, or the CSV file that `train_rlvr_grpo` wrote."""
    columns: tuple[str, ...] = ("reward_avg", "avg_response_len", "entropy_avg", "eval_acc")
    """Draw up to four columns; one that was not measured leaves its panel empty."""
    out: Path = Path("metrics.png")
    """Write this picture."""


def main(options: Options) -> None:
    from reasoning_from_scratch.ch07 import plot_grpo_metrics
    from rfs.report.picture_files import picture_path

    path = options.metrics / "metrics.csv" if options.metrics.is_dir() else options.metrics
    if not path.is_file():
        raise UserError(f"there is no {path}; give a run folder or a metrics.csv")
    plot_grpo_metrics(path, options.columns, picture_path(options.out))
    print(options.out)


if __name__ == "__main__":
    sys.exit(run_script(main))
