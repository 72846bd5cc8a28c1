"""Twenty first questions: what is asked, what is mixed into training, and the file of results."""

import csv
from fractions import Fraction
from itertools import islice

import first_questions
import pytest
from first_questions import (
    QUESTIONS,
    SHIPPED,
    SHORT_EVERY,
    TABLES,
    Options,
    main,
    measured,
    on_one_line,
    problems,
)

from reasoning_from_scratch import grade_answer, load_model_and_tokenizer
from rfs.run.start import TrainResult
from tests.conftest import ROOT


def test_the_answers_are_correct():
    worth = {"Solve for x: 2x + 3 = 11": 4, "What is 50% of 80?": 40, "What is 10% of 200?": 20}
    for question, answer in QUESTIONS.items():
        asked = question.removeprefix("What is ").removesuffix("?")
        if set(asked) <= set("0123456789+-*/() "):
            worth[question] = Fraction(eval(asked.replace("1/2 + 1/3", "Fraction(5, 6)")))
        assert grade_answer(answer, str(worth.get(question, answer)))
    for rows in TABLES.values():
        assert all(eval(calculation) == result for calculation, result in rows)
    assert len(QUESTIONS) == 20


def test_no_measured_question_is_trained_on():
    asked = {problem.problem for table in TABLES for problem in measured(table)}
    trained = list(islice(problems(), 4000))
    short = [problem.problem for problem in trained if problem.id.startswith("short/")]
    assert short == [problem.problem for problem in trained[::SHORT_EVERY]]
    assert len(asked) == 200 and not asked & set(short)
    assert {text.split()[3] for text in short} == set("+-*/")


def test_an_answer_on_one_line():
    assert on_one_line(" Let's see.\n6 * 7 = 42? Yes\n\\boxed{42}") == "6 * 7 = 42? Yes / 42"
    assert on_one_line("\n\\boxed{\\frac{1}{2}}") == "\\frac{1}{2}"


def rows_of(file):
    return list(csv.DictReader(file.read_text("utf-8").splitlines()))


@pytest.mark.parametrize("name", SHIPPED)
def test_the_file_has_what_the_shipped_models_do(name, monkeypatch):
    tables = {table: rows for table, rows in TABLES.items() if table in ("a * b", "a / b")}
    monkeypatch.setattr(first_questions, "TABLES", tables)
    monkeypatch.setattr(first_questions, "load_problems", lambda name: measured("a * b")[:1])
    lines = list(first_questions.measure(*load_model_and_tokenizer(name), name, "shipped"))
    stored = (ROOT / "studies" / "first_questions.csv").read_text("utf-8").splitlines()
    assert set(lines[:2]) <= set(stored)


def test_a_run_with_and_one_without_short_questions(tmp_path, monkeypatch, capsys):
    configs = []

    def train(config):
        configs.append(config)
        model, tokenizer = load_model_and_tokenizer("tiny-base")
        return TrainResult(model, tokenizer, tmp_path, [])

    monkeypatch.setattr(first_questions, "train", train)
    monkeypatch.setattr(first_questions, "load_problems", lambda name: measured("a * b")[:2])
    monkeypatch.setattr(first_questions, "MEASURED_PER_TABLE", 2)
    main(Options(seeds=(3,), out=tmp_path / "mine.csv"))
    plain, mixed = configs
    assert plain.problems is None and plain.seed == mixed.seed == 3
    assert mixed.problems.endswith("first_questions.py:problems")
    assert mixed.eval_problems == ["tiny-test"]
    rows = rows_of(tmp_path / "mine.csv")
    models = [*SHIPPED, "the quickstart", "short questions mixed in"]
    assert list(dict.fromkeys(row["model"] for row in rows)) == models
    assert [row["problems"] for row in rows[:6]] == [*TABLES, "tiny-test", "tiny-longer"]
    said = capsys.readouterr().out
    counts = {"tiny-base": 9, "tiny-grpo": 11, "tiny-grpo-longer": 10}
    for name, count in counts.items():
        assert f"{name:17}{count} of 20 correct" in said
    assert "    tiny-grpo        incorrect  6 * 7 = 42? Yes / 42 * 7" in said


def test_a_run_that_was_interrupted_is_not_measured(tmp_path, monkeypatch):
    """It would stand in the file as if it had made all of its steps."""
    ended = TrainResult(*load_model_and_tokenizer("tiny-base"), tmp_path, [], "interrupted at 3")
    monkeypatch.setattr(first_questions, "train", lambda config: ended)
    monkeypatch.setattr(first_questions, "measure", lambda *given: [])
    with pytest.raises(KeyboardInterrupt):
        main(Options(seeds=(3,), out=tmp_path / "mine.csv"))
    assert not (tmp_path / "mine.csv").exists()
