"""Make checkpoints/tiny-grpo: the quickstart's run with seed 0, its weights and its run folder.

    uv run python benchmarks/make_tiny_grpo.py [--from-run RUN]

Of the pages that a run writes, those of every tenth step are kept, and of the saves the last.
"""

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

from reasoning_from_scratch.commands.cli import with_home
from reasoning_from_scratch.commands.quickstart import QuickstartOptions, quickstart
from reasoning_from_scratch.files.disk import write_whole
from reasoning_from_scratch.report import write_run_report
from reasoning_from_scratch.report.plots import plot_runs
from reasoning_from_scratch.text import as_lines, read_lines

TARGET = Path("checkpoints/tiny-grpo")
ONCE = (
    "config.json",
    "metrics.jsonl",
    "metrics.csv",
    "logs.log",
    "code.diff",
    "probes.jsonl",
    "timing_spans.jsonl",
)
STEP_FILE = re.compile(r"(train|eval_.+)_iteration_(\d{6})(\.html|_rollout_summaries\.jsonl)")
KEPT_EVERY = 10


def ship(run: Path, target: Path) -> None:
    last = read_lines(run / "checkpoints.jsonl")[-1]
    weights = run / "checkpoints" / f"{last['batch']:06d}"
    (target / "run").mkdir(parents=True, exist_ok=True)
    for name in (
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ):
        shutil.copyfile(weights / name, target / name)
    for old in (target / "run").iterdir():
        old.unlink()
    for name in ONCE:
        shutil.copyfile(run / name, target / "run" / name)
    for path in run.iterdir():
        found = STEP_FILE.fullmatch(path.name)
        if found and (int(found[2]) % KEPT_EVERY == 0):
            shutil.copyfile(path, target / "run" / path.name)
    line = {"name": "final", "batch": last["batch"], "final": True, "sampler_path": str(target)}
    write_whole(target / "run" / "checkpoints.jsonl", as_lines([line]))
    plot_runs([run], target / "curves.png")
    write_run_report(target / "run")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from-run", type=Path, help="a finished quickstart run to take")
    run = parser.parse_args(with_home(sys.argv[1:])).from_run
    if run is None:
        run = Path("runs/tiny-grpo")
        quickstart(QuickstartOptions(log_path=str(run)))
    ship(run, TARGET)
    config = json.loads((TARGET / "run" / "config.json").read_text())
    print(f"{TARGET}: {config['steps']} steps with seed {config['seed']}")


if __name__ == "__main__":
    main()
