"""Runs that several tests of the report read."""

import pytest

from tests.program.report.written import write_run, write_steps


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "a-run")


@pytest.fixture(scope="session")
def steps(tmp_path_factory):
    return write_steps(tmp_path_factory.mktemp("steps"))
