"""grading_report.py: the figures of the grader's README, and of data sets that are there."""

import json

import pytest
from grading_report import (
    Count,
    Options,
    Pair,
    labelled_pairs,
    main,
    print_gsm8k,
    print_math,
    print_pairs,
)

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.grading import GRADER_VERSION, UnreadableTruth


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


def test_gold_solutions_against_their_own_answer_and_the_next(tmp_path, capsys):
    """The second solution is wrong, and the third answer is that of the first problem."""
    rows = [("4", "4"), ("8", "9"), ("2^2", "\\frac{8}{2}")]
    rows = [{"solution": f"So \\boxed{{{box}}}.", "answer": answer} for box, answer in rows]
    (tmp_path / "math.json").write_text(json.dumps(rows))
    print_math(tmp_path / "math.json")
    first, second, speed = capsys.readouterr().out.splitlines()
    assert first == "math.json: 2 of 3 gold solutions right"
    assert second == r"  against the next answer: 1 accepted: [('\\frac{8}{2}', '4')]"
    assert speed.endswith(" verdicts per second")


def test_an_answer_that_cannot_be_read_ends_the_report(tmp_path, capsys):
    path = tmp_path / "gsm8k_test.jsonl"
    rows = [{"answer": "2 * 3 = 6\n#### 6"}, {"answer": "#### 1,234"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print_gsm8k(path)
    assert capsys.readouterr().out == "gsm8k_test.jsonl: 2 answers, all can be read\n"
    path.write_text(json.dumps({"answer": "#### \\frac{1}{"}))
    with pytest.raises(UnreadableTruth):
        print_gsm8k(path)


def test_the_command_measures_what_is_there(tmp_path, capsys):
    for folder in ("pairs", "data"):
        (tmp_path / folder).mkdir()
    (tmp_path / "pairs" / "a.txt").write_text("## number\n? 5\n= 5.0\n")
    options = Options(tmp_path / "pairs", tmp_path / "data")
    main(options)
    out = capsys.readouterr().out
    assert out.startswith(f"grader version {GRADER_VERSION}\n") and "100.00 %" in out
    assert "gold solutions" not in out and "gsm8k" not in out
    (tmp_path / "data" / "gsm8k_train.jsonl").write_text('{"answer": "#### 7"}\n')
    main(options)
    assert "gsm8k_train.jsonl: 1 answer, all can be read" in capsys.readouterr().out
    (tmp_path / "pairs" / "a.txt").unlink()
    with pytest.raises(UserError, match="no labelled pairs in"):
        main(options)
