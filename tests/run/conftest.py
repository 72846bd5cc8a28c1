"""What several tests of a run share."""

import errno
import os

import pytest
from toy import toy_config, toy_world

from reasoning_from_scratch.run.start import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run with evaluations and saves."""
    folder = tmp_path_factory.mktemp("runs")
    config = toy_config(
        folder / "run", steps=6, eval_every=2, save_every=2, rolling_every=1, keep_last=1, lr=1e-2
    )
    return train(config, quiet=True, **toy_world(folder))


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
