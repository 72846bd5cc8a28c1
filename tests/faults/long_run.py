"""A run of many small steps with everything switched on, and what it costs step by step.

Usage: long_run.py FOLDER STEPS; prints a summary as JSON.
"""

import gc
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from toy import toy_config, toy_world, train

from reasoning_from_scratch.run.training_run import TrainingRun

SIZES = {
    "problems_per_step": 2,
    "rollouts": 4,
    "max_new_tokens": 24,
    "eval_every": 50,
    "eval_limit": 4,
    "report_every": 10,
    "lr": 1e-5,
    "num_groups_to_log": 2,
    "save_every": 50,
    "keep_last": 2,
    "rolling_every": 20,
}


def memory() -> float:
    """MB that are this process's own; of its libraries the system keeps what it likes."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return (int(status["RssAnon"].split()[0]) + int(status["VmSwap"].split()[0])) / 1024


def measured(folder: Path, steps: int) -> dict:
    costs, write = [], TrainingRun.record

    def writing(self, row, spans):
        write(self, row, spans)
        gc.collect()
        costs.append((row["step"], memory(), len(os.listdir("/proc/self/fd"))))

    TrainingRun.record = writing
    train(toy_config(folder, steps=steps, **SIZES), quiet=True, **toy_world(folder.parent))
    settled = costs[len(costs) // 5 :]  # allocators and caches fill up first
    return {
        "steps": len(costs),
        "mb_per_100_steps": 100 * slope([(step, mb) for step, mb, _ in settled]),
        "files": [settled[0][2], max(files for *_, files in settled)],
        "saves": sorted(path.name for path in (folder / "checkpoints").iterdir()),
    }


def slope(points: list[tuple[float, float]]) -> float:
    """Of the straight line that fits best."""
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measured(Path(sys.argv[1]), int(sys.argv[2]))))
