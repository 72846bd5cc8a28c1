"""What the tests of faults share."""

import pytest


@pytest.fixture(autouse=True)
def logs_go_nowhere_else():
    """A test that runs the trainer leaves no log file open for the next one."""
    yield
    from rfs.run.folder import close_logs

    close_logs()
