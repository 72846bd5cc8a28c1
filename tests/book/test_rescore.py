"""A stored file of answers, graded again."""

import json

import pytest
from rescore import rescore

from reasoning_from_scratch import Sampling, load_model_and_tokenizer
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.scores import wilson_interval
from reasoning_from_scratch.text import percent, percent_range
from rfs import evaluate, load_problems


def stored(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(index, text, truth="7", **more):
    return {"index": index, "generated_text": text, "gtruth_answer": truth, **more}


def test_a_file_of_an_evaluation(tmp_path):
    path, sampling = tmp_path / "a.jsonl", Sampling(12, rollouts=3)
    problems = load_problems("tiny-test", limit=8)
    options = {"out_path": path, "fallback": "number_only"}
    result = evaluate(*load_model_and_tokenizer("tiny"), problems, sampling, **options)
    again = rescore(path, "number_only")
    assert [new["correct"] for new in again.rows] == [old["correct"] for old in result.rows]
    assert again.changed == []
    low, high = result.interval
    assert "24, to 8 problems" in again.report()
    assert (
        f"{percent(result.accuracy)}  (95% interval {percent_range(low, high)})" in again.report()
    )


def test_verdicts_that_changed_are_shown(tmp_path):
    path = stored(
        tmp_path / "a.jsonl",
        row(1, "\\boxed{14/2}", correct=False),
        row(2, "It is 7.", correct=True),
        row(3, "\\boxed{7}", correct=True),
        row(4, "\\boxed{7}"),  # was never graded
    )
    report = rescore(path, None).report()
    assert "changed     2 verdicts" in report
    assert "1: incorrect -> correct, '14/2' for '7'" in report
    assert "2: correct -> incorrect, '' for '7'" in report
    low, high = wilson_interval(3, 4)
    assert f"75.0%  (95% interval {percent_range(low, high)})" in report
    assert "changed     1 verdict\n" in rescore(path, "number_then_full").report()


@pytest.mark.parametrize(
    "content, words",
    [
        ("", "holds no answers"),
        ("notes\n", "line 1: not valid JSON"),
        ("[1, 2]", "entry 1: expected an object"),
        ('{"problem": "1 + 1", "answer": "2"}\n', "line 1: no text 'gtruth_answer'"),
        (json.dumps(row(1, None)) + "\n", "line 1: no text 'generated_text'"),
        (json.dumps(row(1, "7", truth=" ")) + "\n", "line 1: "),
        (json.dumps(row(1, "7")) + '\n{"ind', "line 2: not valid JSON"),
    ],
)
def test_a_file_of_something_else_is_one_line(tmp_path, content, words):
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=words) as error:
        rescore(path, None)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
