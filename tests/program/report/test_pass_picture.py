"""The picture of pass@k: each model told apart without color, and every number in the CSV file."""

import csv

import pytest

from reasoning_from_scratch.errors import UserError
from rfs.evaluation.pass_curves import Curve
from rfs.report.pass_picture import curve_csv, save_pass_curves

BASE = Curve([0.1, 0.2, 0.3, 0.4], [0.05, 0.1, 0.2, 0.3], [0.2, 0.3, 0.4, 0.5])
AFTER = Curve([0.3, 0.3, 0.3, 0.35], [0.2, 0.2, 0.2, 0.3], [0.4, 0.4, 0.4, 0.4])
PANELS = {"short, 5 problems": {"base": BASE, "after": AFTER}, "long, 5 problems": {"base": BASE}}


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
