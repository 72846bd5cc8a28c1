"""pass@k while a model learns: two runs that regularly answer each held-out problem 64 times.

    uv run studies/pass_over_training.py

The runs are the quickstart's, and the first 150 steps on longer problems, which begin where it
ends. Each line of the CSV file is one set of problems after some number of steps. Both runs take
some fifteen minutes on one core.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from reasoning_from_scratch.errors import UserError
from rfs.commands.cli import run_script
from rfs.config import replaced
from rfs.files.saved_models import evaluated_at
from rfs.files.tables import write_table
from rfs.run.options import configure
from rfs.run.start import train

RUNS = {
    "quickstart": {"model": "tiny-base", "problems": "tiny", "steps": 90, "eval_every": 15},
    "longer": {
        "model": "tiny-grpo",
        "problems": "tiny-longer-train",
        "steps": 150,
        "eval_every": 50,
    },
}
COMMON = {"lr": 1e-4, "max_new_tokens": 224, "seed": 0, "device": "cpu", "preflight": False}
EVALUATION = {"eval_problems": ["tiny-test", "tiny-longer"], "eval_limit": 100, "eval_samples": 64}
KS = (1, 8, 64)


@dataclass
class Options:
    out: Path = Path("studies/pass_over_training.csv")
    """Write this file."""


def main(options: Options) -> None:
    if not options.out.parent.is_dir():
        raise UserError(f"there is no folder {options.out.parent}; make it or give another --out")
    rows = [row for name in RUNS for row in train_and_measure(name)]
    write_table(options.out, rows)
    print(options.out)


def train_and_measure(name: str) -> Iterator[dict]:
    """Trains the run of that name; yields what it solved at each evaluation."""
    with TemporaryDirectory() as folder:
        config = configure("grpo", **RUNS[name], **COMMON, **EVALUATION, num_groups_to_log=0)
        result = train(replaced(config, log_path=f"{folder}/run"), quiet=True).require_finished()
        for row in result.rows:
            for problems in EVALUATION["eval_problems"]:
                if f"{problems}/pass@1" in row:
                    solved = {f"pass@{k}": f"{row[f'{problems}/pass@{k}']:.4f}" for k in KS}
                    yield {"run": name, "step": evaluated_at(row), "problems": problems} | solved


if __name__ == "__main__":
    sys.exit(run_script(main))
