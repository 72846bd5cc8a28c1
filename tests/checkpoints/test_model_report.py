"""model_report.py: what a tiny model can do, what it does of its own accord, and its README."""

import random

import pytest
from four_ways import written
from model_report import (
    END,
    SETS,
    START,
    Checks,
    Options,
    begin_answers,
    checks_in,
    checks_text,
    main,
)

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.weights import load_model_and_tokenizer
from reasoning_from_scratch.problems import render_prompt
from reasoning_from_scratch.tiny.ways import WAYS
from reasoning_from_scratch.tiny.world import WORKED_START, tiny_problem


def test_a_base_model_is_given_the_first_words_after_its_prompt():
    _, tokenizer = load_model_and_tokenizer("tiny-base")
    same, prompt = begin_answers(tokenizer)
    assert same is tokenizer
    assert prompt("2 + 3?") == f"{render_prompt('2 + 3?')} {WORKED_START}"


def test_a_reasoning_model_is_given_them_in_its_turn_which_is_written_once():
    _, tokenizer = load_model_and_tokenizer("tiny-reasoning")
    plain, prompt = begin_answers(tokenizer)
    text = prompt("2 + 3?")
    assert text == f"{tokenizer.wrap_chat(render_prompt('2 + 3?'))}<think>\n{WORKED_START}"
    assert tokenizer.decode(plain.encode(text)) == text
    assert tokenizer.apply_chat_template  # the caller's own is left as it was


def test_checks_are_counted_line_by_line():
    text = (
        f" {WORKED_START}2 + 3 = 6? No, 5\n2 + 3 = 5? Yes\n2 + 3 = 6? Yes\n2 + 3 = 6? No, 7\n"
        "2 + 3 = 5? No, 6\n10%: 50 / 10 = 5? Yes\n1/2 = 5/0? No, 5/10\nx = y? Yes\n2 + 3 = 5\n"
        "\\boxed{5}"
    )
    assert checks_in([text]) == Checks(wrong=4, mended=2, right=3, spoiled=1)
    assert "mended 2 of" in checks_text([text]) and "spoiled 1" in checks_text([text])
    assert checks_text(["\\boxed{5}"]) == "No sampled answer checks a line."


def test_every_line_of_the_tiny_worlds_own_checks_is_read_and_right_in_the_end():
    lines = slips = 0
    texts = []
    for index in range(300):
        row = tiny_problem("test", index)
        working = row["solution"].splitlines()[1:-1]
        pieces = list(written(working, row["answer"], "checked", random.Random(index)))
        lines += len(working)
        slips += sum(kind == "slip" for _, kind in pieces)
        texts.append("".join(text for text, _ in pieces))
    assert checks_in(texts) == Checks(wrong=slips, mended=slips, right=lines - slips, spoiled=0)


def report_into(readme):
    main(Options(limit=6, samples=2, write=str(readme)))


def test_the_report_is_printed_and_put_into_a_readme(tmp_path, capsys):
    readme = tmp_path / "README.md"
    readme.write_text(f"# A model\n\n{START}\nold\n{END}\n\n## How to use it\n", encoding="utf-8")
    report_into(readme)
    report = capsys.readouterr().out.strip()
    text = readme.read_text("utf-8")
    assert text == f"# A model\n\n{START}\n\n{report}\n\n{END}\n\n## How to use it\n"
    assert all(name in report for name in (*SETS, *WAYS))
    assert "| problems | 6 | 6 |" in report and "a working begun" in report
    report_into(readme)
    assert readme.read_text("utf-8") == text


@pytest.mark.parametrize("text, words", [(None, "cannot read"), (f"# A\n{START}\n", "lacks")])
def test_a_readme_without_the_marks_is_refused_before_anything_is_measured(
    tmp_path, capsys, text, words
):
    readme = tmp_path / "README.md"
    if text:
        readme.write_text(text)
    with pytest.raises(UserError, match=words):
        report_into(readme)
    assert not capsys.readouterr().out
