"""Which notebooks pytest runs: all but the exercises, whose stubs must fail (test_exercises.py)."""

import gc
import os
import signal

import pytest

# A script's background job ignores Ctrl-C; the tests send it to themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Images of containers often set it. Then each process that a test starts, and there are hundreds,
# compiles the two thousand modules of torch and its neighbors anew: five seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Some set a backend for matplotlib, too. A notebook's pictures are drawn by that of its kernel.
os.environ.pop("MPLBACKEND", None)

# One worker per core (-n 0 runs all in this process): two threads in each of two would mostly wait
# for each other. torch reads this when it is imported, in kernels and in all that tests start, too.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

collect_ignore_glob = ["ch0*/*_exercises.ipynb", "runs/*"]


def pytest_addoption(parser):
    parser.addoption(
        "--everything",
        action="store_true",
        help="also what is slow and rarely breaks: RARELY_BROKEN in tests/conftest.py",
    )


def pytest_configure(config):
    # Plain `pytest` leaves out what is slow and rarely breaks; a file that is named is run.
    if hasattr(config, "workerinput"):
        config.option.everything = config.workerinput["everything"]
    else:
        named = config.args_source is not config.ArgsSource.TESTPATHS
        config.option.everything = config.option.everything or named
    # pyproject.toml gives a path from here; pytest may have been started in another folder.
    sanitize = config.option.nbval_sanitize_with
    config.option.nbval_sanitize_with = sanitize and str(config.rootpath / sanitize)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """All that is imported here stays: a third of the time would go into looking for garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """A worker of pytest-xdist is told by the first process."""
    node.workerinput["everything"] = node.config.option.everything
