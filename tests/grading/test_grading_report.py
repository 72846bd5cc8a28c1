"""grading_report.py: the figures of the grader's README, and of data sets that are there."""

import pytest
from grading_report import (
    Count,
    Pair,
    labelled_pairs,
    print_pairs,
)

from reasoning_from_scratch.errors import UserError


def test_a_file_of_labelled_pairs(tmp_path):
    (tmp_path / "a.txt").write_text(
        "## set\n? \\{1, 2\\}\n= {2,1} ;; 1, 2\n\n! (1, 2)\n## unit\n? 5\n= 5 cm\n"
    )
    assert list(labelled_pairs(tmp_path / "a.txt")) == [
        Pair("set", "{2,1}", "\\{1, 2\\}", True),
        Pair("set", "1, 2", "\\{1, 2\\}", True),
        Pair("set", "(1, 2)", "\\{1, 2\\}", False),
        Pair("unit", "5 cm", "5", True),
    ]


def test_the_report_counts_what_is_wrong(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("## number\n? 5\n= 5.0 ;; 6\n! 7 ;; 10/2\n")
    assert print_pairs(tmp_path) == Count(pairs=4, rejected=1, accepted=1)
    assert "50.00 %" in capsys.readouterr().out
    with pytest.raises(UserError):
        print_pairs(tmp_path / "nowhere")
