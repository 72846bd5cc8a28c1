"""How ranks meet, and what they say when they do not."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from parallel_job import job_config
from toy import toy_config

from reasoning_from_scratch.errors import UserError
from rfs.run.folder import USED_ADVICE, RunFolder
from rfs.run.options import configure, resolved
from rfs.run.start import resume_or_refuse_used_folder
from rfs.scale import torchrun
from rfs.scale.ranks import Ranks
from rfs.scale.torchrun import (
    check_equal_options,
    check_restartable,
    fresh_store,
    join_ranks,
    rank_device,
)


@pytest.fixture
def two_ranks(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        values = dict(RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1")
        for name, value in (values | {"MASTER_PORT": port}).items():
            monkeypatch.setenv(name, value)
        yield port


def test_a_single_rank_meets_nobody(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    ranks = join_ranks(toy_config(tmp_path))
    assert (ranks.size, ranks.device) == (1, "cpu")


def test_no_rank_takes_a_dead_one_for_rank_0():
    """torchrun keeps its store across restarts; a rank that comes before rank 0 waits for it."""
    store = dist.HashStore()
    places = []
    for first, second in [(0, 1), (1, 0), (1, 0)]:
        with ThreadPoolExecutor() as ranks:
            early = ranks.submit(fresh_store, store, first, 2)
            time.sleep(0.2)
            late = ranks.submit(fresh_store, store, second, 2)
        early.result().set("address", f"{first} at {len(places)}")
        assert late.result().get("address").decode() == f"{first} at {len(places)}"
        places.append(late.result())
    assert [place.get("address").decode() for place in places] == ["0 at 0", "1 at 1", "1 at 2"]


def test_a_rank_0_that_does_not_come_is_said(two_ranks, tmp_path, monkeypatch):
    """The store is there, as under torchrun, but who should be rank 0 is not."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store.set("rank 0", "a dead one's name")
    monkeypatch.setattr(torchrun, "JOIN_TIMEOUT", timedelta(seconds=1))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    with pytest.raises(UserError, match="within 1 s: rank 0 has not"):
        join_ranks(toy_config(tmp_path))


def test_a_port_in_use_is_said(two_ranks, tmp_path):
    with pytest.raises(UserError, match=f"{two_ranks} is in use.*--master-port"):
        join_ranks(toy_config(tmp_path))


def test_ranks_need_a_gpu_each_or_the_cpu(monkeypatch):
    assert rank_device("cpu", 3) == "cpu"
    for name in ("mps", "cuda:1"):
        with pytest.raises(UserError, match=f"--device {name} cannot be shared"):
            rank_device(name, 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UserError, match="2 GPUs here for .* ranks.*--nproc_per_node=2"):
        rank_device("cuda", 2)


def test_other_options_on_another_rank_are_said(tmp_path):
    class Two(Ranks):
        def exchange(self, value):
            return [value | {"steps": 7, "log_path": "runs/zero"}, value]

    with pytest.raises(UserError, match="rank 1 .*steps is 4 there"):
        check_equal_options(resolved(toy_config(tmp_path)), Two())


def test_only_a_restart_of_the_same_job_goes_on(tmp_path, monkeypatch):
    """A folder that somebody else's run has used stays refused, also the second time."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "ours")
    config = resolved(job_config(tmp_path / "run"))
    folder = torchrun_folder(config)
    with pytest.raises(UserError, match="already holds a run"):
        resume_or_refuse_used_folder(config, folder, False, USED_ADVICE)
    assert resume_or_refuse_used_folder(config, folder, True, USED_ADVICE).resume == str(
        tmp_path / "run"
    )
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "another")
    with pytest.raises(UserError, match="already holds a run"):
        resume_or_refuse_used_folder(config, folder, True, USED_ADVICE)


def torchrun_folder(config):
    folder = RunFolder(config.log_path)
    folder.create(config)
    folder.close()
    return folder


def test_restarts_need_a_name_to_find_the_folder(tmp_path, monkeypatch):
    check_restartable(configure())
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    check_restartable(toy_config(tmp_path))
    with pytest.raises(UserError, match="--max-restarts needs --out"):
        check_restartable(configure())
