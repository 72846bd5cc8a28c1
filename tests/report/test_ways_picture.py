"""The picture of the ways of answering: every area has its name, in the page and in the file."""

import pytest
from matplotlib.figure import Figure

from reasoning_from_scratch.report import write_run_report
from reasoning_from_scratch.report.plots import plot_ways
from reasoning_from_scratch.report.ways import WaysOverTime
from reasoning_from_scratch.report.ways_picture import draw_ways, way_pictures
from reasoning_from_scratch.tiny.ways import WAYS
from tests.report.test_ways import write_tiny_run
from tests.report.written import write_run


def over_time(*shares, at=None):
    """Shares of the four ways, one after the other in time."""
    columns = zip(*shares, strict=True)
    at = at or list(range(len(shares)))
    return WaysOverTime("all problems", at, dict(zip(WAYS, map(list, columns), strict=True)))


def names(picture):
    """Name -> (x, y, inside an area or beside), as drawn."""
    panel = Figure().add_subplot()
    draw_ways(panel, picture)
    return {
        text.get_text(): (*text.get_position(), text.get_transform() is panel.transData)
        for text in panel.texts
    }


def test_a_name_stands_within_its_area_where_there_is_room():
    found = names(over_time(*[(0.5, 0.2, 0.2, 0.1)] * 10))
    assert {name for name, (*_, inside) in found.items() if inside} == set(WAYS[:3])
    assert 0 < found["at once"][1] < 0.5 < found["rough"][1] < 0.7 < found["full"][1] < 0.9
    assert found["checked"][1] == pytest.approx(0.95)  # beside it, at its height


def test_names_beside_do_not_overlap_and_who_never_comes_has_none():
    found = names(over_time(*[(0.94, 0.03, 0.03, 0)] * 10))
    assert set(found) == {"at once", "rough", "full"}
    assert found["full"][1] - found["rough"][1] >= 0.09


@pytest.mark.parametrize("shares", [[(1, 0, 0, 0)], [(1, 0, 0, 0), (0, 0, 0, 1)]])
def test_a_run_of_one_or_two_steps_is_drawn(shares):
    assert names(over_time(*shares))


def test_the_page_has_the_style_sheets_colors_and_says_the_shares_in_words():
    ((title, svg),) = way_pictures([over_time((0.7, 0.1, 0.1, 0.1), (0.1, 0.1, 0.1, 0.7))])
    assert title == "all problems" and "step of training" in svg and "share of answers" in svg
    assert "at once 70 % at first, 10 % at last" in svg
    assert "var(--w0)" in svg and "var(--w3)" in svg and "var(--soft)" in svg
    assert "#97b0e0" not in svg


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
