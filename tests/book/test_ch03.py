"""Chapter 3 with stand-ins for model and tokenizer, and against the batched evaluation."""

import json

import pytest
from small_model import small_model

from reasoning_from_scratch import Problem, ch03, greedy
from rfs import evaluate
from tests.book.stand_ins import ChainModel, LetterTokenizer


@pytest.fixture
def stand_ins():
    return ChainModel(), LetterTokenizer()


def test_text_stops_at_the_limit_and_is_shown_if_wanted(stand_ins, capsys):
    text = ch03.generate_text_stream_concat(*stand_ins, "Answer:", "cpu", 5, verbose=True)
    assert text == "\\boxe"
    assert capsys.readouterr().out == "\\boxe\n"


MATH_DATA = [
    {"problem": "3 + 4", "answer": "7"},
    {"problem": "3 + 5", "answer": "8"},
    {"problem": "1/2 of 14", "answer": "\\frac{14}{2}"},
]


def test_math500_stream(stand_ins, tmp_path, capsys):
    path = tmp_path / "out.jsonl"
    found = ch03.evaluate_math500_stream(*stand_ins, "cpu", MATH_DATA, out_path=path)
    assert found == (2, 3, pytest.approx(2 / 3))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["index"] for row in rows] == [1, 2, 3]
    assert rows[1] == {
        "index": 2,
        "problem": "3 + 5",
        "gtruth_answer": "8",
        "generated_text": "\\boxed{7}",
        "extracted": "7",
        "correct": False,
    }
    assert "66.7% (2/3)" in capsys.readouterr().out


def test_math500_stream_writes_each_line_before_the_next_problem(tmp_path):
    path, lines = tmp_path / "out.jsonl", []

    class Watching(ChainModel):
        def reset_kv_cache(self):
            lines.append(len(path.read_text().splitlines()))

    ch03.evaluate_math500_stream(Watching(), LetterTokenizer(), "cpu", MATH_DATA, out_path=path)
    assert sorted(set(lines)) == [0, 1, 2]


def test_plain_and_batched_evaluation_agree(tmp_path):
    """A random Qwen3: the same texts and verdicts, one by one and in a batch."""
    model = small_model(128, context_length=512)
    path = tmp_path / "plain.jsonl"
    plain = ch03.evaluate_math500_stream(
        model, LetterTokenizer(), "cpu", MATH_DATA, out_path=path, max_new_tokens=30
    )
    problems = [Problem(str(i), row["problem"], row["answer"]) for i, row in enumerate(MATH_DATA)]
    batched = evaluate(model, LetterTokenizer(), problems, greedy(30), fallback="number_then_full")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == [{key: row[key] for key in rows[0]} for row in batched.rows]
    assert plain[2] == batched.accuracy
