"""A run of many small steps with everything switched on, and what it costs step by step.

Usage: long_run.py FOLDER STEPS MODEL   (toy, or the name of a shipped model)
Writes FOLDER/costs.jsonl (step, memory in MB, open files) and prints a summary as JSON.
"""

import gc
import json
import os
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from toy import toy_config, toy_world

from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.run.start import train
from reasoning_from_scratch.run.training_run import TrainingRun
from reasoning_from_scratch.text import append, read_lines

KEPT = {"save_every": 50, "keep_last": 2, "rolling_every": 20}


def config(folder: Path, steps: int, model: str) -> TrainConfig:
    sizes = {
        "steps": steps,
        "problems_per_step": 2,
        "rollouts": 4,
        "max_new_tokens": 24,
        "eval_every": 50,
        "eval_limit": 4,
        "report_every": 10,
        "lr": 1e-5,
        "num_groups_to_log": 2,
        **KEPT,
    }
    if model == "toy":
        return toy_config(folder, **sizes)
    return TrainConfig(model=model, log_path=str(folder), device="cpu", preflight=False, **sizes)


def memory() -> float:
    """MB that are this process's own; of its libraries the system keeps what it likes."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return (int(status["RssAnon"].split()[0]) + int(status["VmSwap"].split()[0])) / 1024


def measured(folder: Path, steps: int, model: str) -> dict:
    costs = folder.parent / f"{folder.name}-costs.jsonl"
    write = TrainingRun.record

    def writing(self, row, spans):
        write(self, row, spans)
        gc.collect()
        files = len(os.listdir("/proc/self/fd"))
        line = {"step": row["step"], "mb": memory(), "files": files}
        append(costs, json.dumps(line) + "\n")

    TrainingRun.record = writing
    world = toy_world(folder.parent) if model == "toy" else {}
    try:
        train(config(folder, steps, model), quiet=True, **world)
    finally:
        TrainingRun.record = write
    return summary(folder, costs)


def summary(folder: Path, costs: Path) -> dict:
    rows = read_lines(costs)
    settled = rows[len(rows) // 5 :]  # allocators and caches fill up first
    times = [row["time/total"] for row in read_lines(folder / "metrics.jsonl")]
    times = times[len(times) // 5 :]
    fifth = max(1, len(times) // 4)
    saves = folder / "checkpoints"
    return {
        "steps": len(rows),
        "mb": [round(rows[0]["mb"]), round(settled[0]["mb"]), round(rows[-1]["mb"])],
        "mb_per_100_steps": 100 * slope([(row["step"], row["mb"]) for row in settled]),
        "files": [settled[0]["files"], max(row["files"] for row in settled)],
        "seconds_a_step": [median(times[:fifth]), median(times[-fifth:])],
        "mean_seconds_a_step": [sum(t) / len(t) for t in (times[:fifth], times[-fifth:])],
        "saves": sorted(path.name for path in saves.iterdir()),
        "saves_mb": weight(saves),
        "pages_kb_a_step": 1024 * (weight(folder) - weight(saves)) / len(rows),
    }


def slope(points: list[tuple[float, float]]) -> float:
    """Of the straight line that fits best."""
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def weight(folder: Path) -> float:
    """MB on the disk; a file with two names weighs once."""
    sizes = {
        path.stat().st_ino: path.stat().st_size for path in folder.rglob("*") if path.is_file()
    }
    return sum(sizes.values()) / 2**20


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measured(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])))
