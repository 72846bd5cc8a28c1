"""The long forms run only when they are asked for: pytest tests/faults -m soak."""

import pytest


def pytest_collection_modifyitems(config, items):
    if config.option.markexpr:
        return
    long = [item for item in items if item.get_closest_marker("soak")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture(autouse=True)
def logs_go_nowhere_else():
    """A test that runs the trainer leaves no log file open for the next one."""
    yield
    from reasoning_from_scratch.run.folder import close_logs

    close_logs()
