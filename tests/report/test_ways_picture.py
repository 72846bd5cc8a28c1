"""The picture of the ways of answering: every area has its name, in the page and in the file."""

from reasoning_from_scratch.report import write_run_report
from reasoning_from_scratch.report.plots import plot_ways
from reasoning_from_scratch.tiny.ways import WAYS
from tests.report.test_ways import write_tiny_run
from tests.report.written import write_run


def test_a_run_has_it_in_its_page_and_as_a_file(tmp_path):
    run = write_tiny_run(tmp_path / "run")
    page = write_run_report(run).read_text("utf-8")
    assert "Ways of answering" in page and "Problems of 5 or 6 steps" in page
    assert all(way in page for way in WAYS)
    path = plot_ways(run, run / "ways.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_run_on_other_problems_has_no_picture(tmp_path):
    assert plot_ways(write_run(tmp_path / "run"), tmp_path / "ways.png") is None
    assert not (tmp_path / "ways.png").exists()
