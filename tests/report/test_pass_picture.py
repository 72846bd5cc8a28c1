"""The picture of pass@k: each model told apart without color, and every number in the CSV file."""

import csv

import pytest

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.evaluation.pass_curves import Curve
from reasoning_from_scratch.report.pass_picture import curve_csv, draw_pass_curves, save_pass_curves

BASE = Curve([0.1, 0.2, 0.3, 0.4], [0.05, 0.1, 0.2, 0.3], [0.2, 0.3, 0.4, 0.5])
AFTER = Curve([0.3, 0.3, 0.3, 0.35], [0.2, 0.2, 0.2, 0.3], [0.4, 0.4, 0.4, 0.4])
PANELS = {"short, 5 problems": {"base": BASE, "after": AFTER}, "long, 5 problems": {"base": BASE}}


def test_a_panel_per_set_and_a_line_per_model():
    figure = draw_pass_curves(PANELS)
    assert [panel.get_title() for panel in figure.axes] == list(PANELS)
    left = figure.axes[0]
    base, after = left.lines
    assert list(base.get_xdata()) == [1, 2, 3, 4] and list(after.get_ydata()) == AFTER.mean
    assert base.get_linestyle() != after.get_linestyle() and base.get_marker() != after.get_marker()
    assert left.get_xscale() == "log"
    assert [label.get_text() for label in left.get_xticklabels()] == ["1", "2", "4"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.texts] == ["base", "after"]


def test_the_band_is_where_the_numbers_are():
    band = draw_pass_curves(PANELS).axes[0].collections[0]
    corners = {(x, round(y, 9)) for x, y in band.get_paths()[0].vertices.tolist()}
    assert {(1, 0.05), (4, 0.3), (1, 0.2), (4, 0.5)} <= corners


def test_every_number_is_in_the_csv(tmp_path):
    save_pass_curves(PANELS, tmp_path / "a.png")
    assert (tmp_path / "a.csv").read_text() == curve_csv(PANELS)
    rows = list(csv.DictReader(curve_csv(PANELS).splitlines()))
    assert len(rows) == 12
    where, numbers = ["short, 5 problems", "after", "2"], ["0.300000", "0.200000", "0.400000"]
    assert list(rows[5].values()) == where + numbers


def test_a_csv_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*a\.csv"):
        save_pass_curves(PANELS, tmp_path / "a.png")
