"""The picture of the ways of answering: every area has its name, in the page and in the file."""

from reasoning_from_scratch.report import write_run_report
from reasoning_from_scratch.report.picture_files import save_picture
from reasoning_from_scratch.report.run_files import read_run
from reasoning_from_scratch.report.ways import train_answers, ways_over_time
from reasoning_from_scratch.report.ways_picture import draw_all_ways
from reasoning_from_scratch.tiny.ways import WAYS
from tests.report.test_ways import write_tiny_run


def test_a_run_has_it_in_its_page_and_as_a_file(tmp_path):
    run = write_tiny_run(tmp_path / "run")
    page = write_run_report(run).read_text("utf-8")
    assert "Styles of answer" in page and "Problems of 5 or 6 steps" in page
    assert all(way in page for way in WAYS)
    pictures = ways_over_time(train_answers(read_run(run)))
    path = save_picture(draw_all_ways(pictures), run / "ways.png")
    assert path.read_bytes().startswith(b"\x89PNG")
