"""What several tests of a run share."""

import shutil

import pytest
from command_world import commands, make_world, train_words
from toy import toy_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run with evaluations and saves."""
    folder = tmp_path_factory.mktemp("runs")
    often = dict(eval_every=2, save_every=2, rolling_every=1, keep_last=1)
    return toy_run(folder / "run", steps=6, lr=1e-2, **often)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """The world in which `rfs` is called here, and a finished run X in it."""
    folder = tmp_path_factory.mktemp("world")
    make_world(folder)
    assert commands(train_words(folder, folder / "X")) == 0
    return folder


@pytest.fixture
def world(made, tmp_path):
    """A copy of this test's own."""
    shutil.copytree(made, tmp_path / "world")
    return tmp_path / "world"
