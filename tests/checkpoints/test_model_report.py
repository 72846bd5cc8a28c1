"""model_report.py: what a tiny model can do, what it does of its own accord, and its README."""

from model_report import Checks, begin_answers, checks_in, checks_text

from reasoning_from_scratch.problems import render_prompt
from reasoning_from_scratch.tiny.world import WORKED_START
from rfs.files.models import load_model_and_tokenizer


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
    assert "corrected 2 of" in checks_text([text]) and "spoiled 1" in checks_text([text])
    assert checks_text(["\\boxed{5}"]) == "No sampled answer checks a line."
