"""N ranks give the rollouts and the weights of one; what goes wrong ends all of them in words.

All on a CPU, in float32 but for NARROW. Sums are taken in another order on other numbers of ranks,
so weights agree to 1e-5 of their size or 5e-6, whichever is larger. One update moves a weight by
up to 1e-3; measured were 1.2e-7 after 10 steps, and 2.1e-6 where Adam enlarges a gradient near 0.
"""

import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from parallel_job import run_job
from safetensors.torch import load_file
from toy import toy_model

from reasoning_from_scratch.text import read_lines
from rfs.scale import sharding
from rfs.scale.ranks import Ranks
from rfs.scale.ranks_policy import BUCKET_SIZE, buckets

HERE = Path(__file__).parents[2]
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
}
ENVIRONMENT |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{HERE.parent}{os.pathsep}{HERE}"}
SAVES = {"eval_every": 5, "save_every": 4, "preflight": True, "report_every": 5}
SHORT = {"steps": 4}
NARROW = {"dtype": "bfloat16"}
# What must come out the same however many ranks there are; each is run on one rank first.
PLAIN = {"name": "plain", "config": SAVES}
VARIANTS = [
    PLAIN,
    {"name": "stream", "config": SHORT | {"num_minibatches": 5, "aggregate": "token"}},
    {
        "name": "active",
        "config": SHORT
        | {
            "active_sampling": True,
            "advantage_per_part": True,
            "epochs": 2,
            "top_p": 0.9,
            "reward_parts": {"correct": 1.0, "format": 0.5},
            "keep_sampling_mask": True,
        },
    },
    {
        "name": "substeps",
        "config": SHORT
        | {"problems_per_step": 8, "num_substeps": 2, "num_minibatches": 2, "epochs": 2},
    },
    {
        "name": "token",
        "config": SHORT | {"kl": "token", "kl_coef": 0.1, "kl_discount_factor": 0.9, "epochs": 2},
    },
    {"name": "paid", "config": SHORT | {"kl": "reward", "kl_coef": 0.1, "compute_post_kl": True}},
    {
        "name": "lora",
        "config": SHORT
        | {"lora_rank": 2, "kl": "k3", "kl_coef": 0.1, "lr": 1e-2, "gradient_checkpointing": True},
    },
    {"name": "kept", "config": SHORT | {"train_rollouts": 3, "epochs": 2}},
    {"name": "muon", "config": SHORT | {"optimizer": "muon"}},
    # In bfloat16 the gradient of each micro-batch is rounded. Row by row these are the same however
    # many ranks there are, and their sums are float32 up to the optimizer.
    {"name": "narrow", "config": SHORT | NARROW | {"micro_batch_rows": 1}},
    {
        "name": "stochastic",
        "config": SHORT
        | NARROW
        | {"micro_batch_rows": 1, "low_precision_updates": "stochastic", "grad_clip": 0.1},
    },
    {
        "name": "taught",  # 8 rollouts are the default, which nobody has asked for
        "config": SHORT | {"objective": "cross_entropy", "aggregate": "token", "rollouts": 8},
    },
    {"name": "few", "config": SHORT | {"problems_per_step": 2}},
]
# One update on gradients that are rounded in other micro-batches on two ranks than on one.
COARSE = {"name": "coarse", "config": NARROW | {"steps": 1, "micro_batch_tokens": 512}}


def torchrun_command(scratch: Path, jobs: list[dict], *flags: str) -> list[str]:
    (scratch / "jobs.json").write_text(json.dumps(jobs))
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *flags,
        str(HERE / "parallel_job.py"),
        str(scratch),
        str(scratch / "jobs.json"),
    ]


def torchrun_jobs(scratch: Path, ranks: int, jobs: list[dict], *flags: str):
    """Run jobs on so many ranks."""
    ranks_here = ("--standalone", f"--nproc_per_node={ranks}")
    command = torchrun_command(scratch, jobs, *ranks_here, *flags)
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=500)
    print(done.stderr)  # pytest shows it where a test fails
    return done


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """All variants on one rank; and PLAIN, stopped after 4 steps."""
    scratch = tmp_path_factory.mktemp("single")
    for job in (*VARIANTS, COARSE, {"name": "half", "config": SAVES | SHORT}):
        run_job(job, scratch)
    return scratch


def same(one: Path, other: Path, name: str, other_name: str | None = None) -> None:
    other_name = other_name or name
    told = [
        json.loads(path.read_text())
        for path in (one / f"{name}.json", other / f"{other_name}.json")
    ]
    steps = len(told[1]["sampled"])  # a resumed run has sampled the last steps only
    assert told[0]["sampled"][-steps:] == told[1]["sampled"]
    assert told[0]["rows"] == told[1]["rows"]
    last = max(path.name for path in (one / name / "checkpoints").iterdir())
    for file in (f"checkpoints/{last}/model", f"training_state/{last}/optimizer"):
        tensors = [
            load_file(path / f"{file}.safetensors") for path in (one / name, other / other_name)
        ]
        assert list(tensors[0]) == list(tensors[1])
        for key in tensors[0]:
            torch.testing.assert_close(
                tensors[0][key],
                tensors[1][key],
                rtol=1e-5,
                atol=5e-6,
                msg=lambda text, key=key: f"{key}: {text}",
            )


def apart(one: Path, other: Path) -> float:
    """How far the weights of two runs are from each other, as a share of their first update."""
    place = "training_state/000001/optimizer.safetensors"
    saved = [load_file(path / place) for path in (one, other)]
    begun = toy_model().bfloat16().state_dict()
    mine, theirs = ({name: state[f"{name}.master"] for name in begun} for state in saved)
    difference = sum((mine[name] - theirs[name]).square().sum() for name in begun)
    moved = sum((mine[name] - begun[name].float()).square().sum() for name in begun)
    return float((difference / moved).sqrt())


def same_metrics(one: Path, other: Path) -> None:
    rows = [read_lines(run / "metrics.jsonl") for run in (one, other)]
    for mine, theirs in zip(*rows, strict=True):
        assert set(mine) == set(theirs)
        for key in (k for k in mine if not k.startswith(("time/", "perf/"))):
            if mine[key] is None:  # a step without a signal
                assert theirs[key] is None
            else:
                assert theirs[key] == pytest.approx(mine[key], rel=1e-4, abs=1e-6), key


def with_shards(*jobs: dict) -> list[dict]:
    """None with a torch that shards on GPUs only."""
    return [
        {"name": f"{job['name']}-fsdp", "config": job["config"] | {"shard": "fsdp"}}
        for job in jobs
        if sharding.CAN_SHARD_ON_CPU
    ]


def test_two_ranks_are_one(single, tmp_path):
    """Also sharded; also going on from another number of ranks; and another option is noticed."""
    names = ("plain", "active", "token", "paid", "lora")
    sharded = with_shards(*(job for job in VARIANTS if job["name"] in names))
    resumed = [{"name": "one-two", "config": {"steps": 10}}]
    resumed += with_shards({"name": "one", "config": {"steps": 10}})
    halves = [{"name": "two-one", "config": SAVES | SHORT}]
    halves += with_shards({"name": "half", "config": SAVES | SHORT})
    for job in resumed:
        job["resume"] = True
        shutil.copytree(single / "half", tmp_path / job["name"])
    differs = {"name": "differs", "config": SHORT, "rank 1": {"lr": 0.5}}
    sharded_coarse = with_shards(COARSE)
    jobs = [*VARIANTS, *sharded, *resumed, *halves, COARSE, *sharded_coarse, differs]
    done = torchrun_jobs(tmp_path, 2, jobs)
    for job in VARIANTS:
        same(single, tmp_path, job["name"])
        if "dtype" not in job["config"]:  # a sampler's bfloat16 depends on the shape of its batch
            same_metrics(single / job["name"], tmp_path / job["name"])
    for job in sharded:
        name = job["name"].removesuffix("-fsdp")
        same(single, tmp_path, name, job["name"])
        same_metrics(single / name, tmp_path / job["name"])
    for job in resumed:
        same(single, tmp_path, "plain", job["name"])
    for job in halves:
        run_job(job | {"resume": True, "config": {"steps": 10, "shard": "none"}}, tmp_path)
        same(single, tmp_path, "plain", job["name"])
    for job in [COARSE, *sharded_coarse]:
        assert 0 < apart(single / "coarse", tmp_path / job["name"]) < 0.08  # measured: 0.046
    told = re.findall("rank 1 was started with other options than rank 0: (.*)", done.stderr)
    # One rank or both: torchrun may end the other before it speaks. Whoever does is not cut up.
    assert set(told) == {"lr is 0.5 there and 0.001 on rank 0"}, done.stderr[-2000:]
    assert done.returncode == 1


def test_three_ranks_are_one_and_stop_after_the_same_step(single, tmp_path):
    """Five problems, or two, do not divide by three: one rank has less to do, or nothing.
    At the end comes a Ctrl-C, which torchrun passes on to all."""
    jobs = [PLAIN, VARIANTS[-1], *with_shards(PLAIN, VARIANTS[-1])]
    stop = {"name": "stopped", "config": jobs[-1]["config"] | {"steps": 10}}
    done = torchrun_jobs(tmp_path, 3, [*jobs, stop | {"disturb": {"interrupt": 3}}])
    for job in jobs:
        same(single, tmp_path, job["name"].removesuffix("-fsdp"), job["name"])
    saves = read_lines(tmp_path / "stopped/checkpoints.jsonl")
    assert [save["batch"] for save in saves] == [0, 3], done.stderr[-3000:]
    told = json.loads((tmp_path / "stopped.json").read_text())
    assert told["stopped"].startswith("interrupted after 3 of 10 steps") and told["rows"] == 3
    assert done.stderr.count("Saving, then stopping") == 1


def test_ranks_that_sample_nothing_stop_after_the_same_step(tmp_path):
    config = VARIANTS[-2]["config"] | {"steps": 10}
    job = {"name": "taught", "config": config, "disturb": {"interrupt": 3}}
    done = torchrun_jobs(tmp_path, 2, [job])
    told = json.loads((tmp_path / "taught.json").read_text())
    assert told["stopped"].startswith("interrupted after 3 of 10 steps"), done.stderr[-3000:]


def test_a_killed_rank_ends_all_and_the_run_goes_on(single, tmp_path):
    """Killed twice: torchrun restarts it once, and it goes on by itself; then --resume does."""
    job = {"name": "killed", "config": SAVES | {"rolling_every": 1}, "disturb": {"kill": [3, 2]}}
    done = torchrun_jobs(tmp_path, 2, [job], "--max-restarts=1")
    died = [float(moment) for moment in (tmp_path / "died").read_text().split()]
    assert len(died) == 2 and done.returncode == 1 and time.time() - died[-1] < 60, done.stderr
    told = re.findall(
        "rank 0: another rank has ended.*rfs train --resume .*/killed continues", done.stderr
    )
    assert len(told) >= 1, done.stderr[-3000:]
    steps = [row["step"] for row in read_lines(tmp_path / "killed/metrics.jsonl")]
    assert steps in ([0, 1], [0, 1, 2]), "a death may come before the step's line or after it"
    run_job({"name": "killed", "resume": True}, tmp_path)
    same(single, tmp_path, "plain", "killed")


def free_port() -> int:
    """One that no program gets which asks for any, as the tests beside this one do: those start
    above."""
    for port in random.sample(range(20_000, 30_000), 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


def test_machines_go_on_after_a_rank_of_one_has_died(single, tmp_path):
    """Two of them: torchrun restarts the ranks of both, and counts it where the death was."""
    job = {"name": "half", "config": SAVES | SHORT | {"rolling_every": 1}, "disturb": {"kill": [3]}}
    meeting = f"--rdzv_endpoint=127.0.0.1:{free_port()}"
    command = torchrun_command(
        tmp_path, [job], "--nnodes=2", "--rdzv_backend=c10d", meeting, "--max-restarts=1"
    )
    machines = [
        subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [machine.communicate(timeout=300)[1] for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], told
    assert len((tmp_path / "died").read_text().split()) == 1
    same(single, tmp_path, "half")


# ---- what a rank knows by itself


def test_rows_are_shared_out_evenly_and_each_once():
    lengths = [7, 100, 3, 50, 50, 1, 90, 2, 8, 60]
    shares = [[lengths[part] for part in Ranks(rank, 3).parts_here(lengths)] for rank in range(3)]
    assert sorted(sum(shares, [])) == sorted(lengths)
    loads = [sum(share) for share in shares]
    assert max(loads) <= 4 / 3 * sum(lengths) / 3  # what largest first is known to keep to
    assert Ranks().parts_here(lengths) == list(range(len(lengths)))


def test_buckets_are_few_and_hold_everything():
    sizes = [BUCKET_SIZE - 5, 5, 1, BUCKET_SIZE + 7, 3]
    tensors = [torch.empty(size, device="meta") for size in sizes]
    parts = [[tensor.numel() for tensor in part] for part in buckets(tensors)]
    assert parts == [[BUCKET_SIZE - 5, 5], [1], [BUCKET_SIZE + 7], [3]]
