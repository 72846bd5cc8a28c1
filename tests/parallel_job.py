"""What each rank of a test does; torchrun starts it. Usage: parallel_job.py SCRATCH JOBS.json

JOBS is a list of runs of the toy world: {"name": ..., "resume": bool, "config": {...}, ...}.
Rank 0 writes NAME.json beside the run folder: all tokens that were sampled, on all ranks.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from toy import LETTERS, toy_config, toy_world, train

from rfs.commands.cli import guarded
from rfs.config import RunConfig
from rfs.run import training_run
from rfs.run.options import resumed_config


def job_config(folder: Path, **changes) -> RunConfig:
    values = {
        "steps": 10,
        "problems_per_step": 5,
        "rollouts": 4,
        "weight_decay": 0.1,
        "reward": LETTERS,
        "report_every": 0,
        "num_groups_to_log": 0,
        "micro_batch_tokens": 32,
    }
    return toy_config(folder, **(values | changes))


def run_job(job: dict, scratch: Path) -> None:
    folder, sampled = scratch / job["name"], []

    def noting(groups):
        sampled.append([rollout.response_ids for group in groups for rollout in group.rollouts])
        disturb(job.get("disturb", {}), len(sampled), scratch)
        return rollout_metrics(groups)

    changes = dict(job.get("config", {}))
    if os.environ.get("RANK") == "1":
        changes |= job.get("rank 1", {})
    resume = job.get("resume")
    asked = resumed_config(folder, **changes) if resume else job_config(folder, **changes)
    world = toy_world(scratch)
    if asked.dtype == "bfloat16":
        world["model"].bfloat16()
    rollout_metrics, training_run.rollout_metrics = training_run.rollout_metrics, noting
    try:
        result = train(asked, quiet=True, **world)
    finally:
        training_run.rollout_metrics = rollout_metrics
    if result.writes:
        told = {"sampled": sampled, "stopped": result.stopped, "rows": len(result.rows)}
        Path(f"{folder}.json").write_text(json.dumps(told))


def disturb(when: dict, step: int, scratch: Path) -> None:
    """{"kill": [3, 5]}: rank 1 dies in its third step, and after a restart in its fifth."""
    if os.environ.get("RANK") != "1":
        return
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if when.get("kill", [])[attempt : attempt + 1] == [step]:
        with (scratch / "died").open("a") as file:
            print(time.time(), file=file)
        os.kill(os.getpid(), signal.SIGKILL)
    if when.get("interrupt") == step:
        interrupted_by_torchrun()


def interrupted_by_torchrun() -> None:
    """Ctrl-C reaches torchrun, which passes it on to all ranks; come back when it is here."""
    handler, received = signal.getsignal(signal.SIGINT), []

    def noting(*signal_and_frame) -> None:
        received.append(signal_and_frame)
        handler(*signal_and_frame)

    signal.signal(signal.SIGINT, noting)
    os.kill(os.getppid(), signal.SIGINT)
    while not received:
        time.sleep(0.01)
    signal.signal(signal.SIGINT, handler)


def main() -> int:
    if os.environ.get("RANK") == "0" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
        time.sleep(3)  # after a restart rank 1 comes first: it must not take a dead one for rank 0
    torch.set_num_threads(1)
    scratch = Path(sys.argv[1])
    for job in json.loads(Path(sys.argv[2]).read_text()):
        run_job(job, scratch)
    return 0


if __name__ == "__main__":
    sys.exit(guarded("job", main))
