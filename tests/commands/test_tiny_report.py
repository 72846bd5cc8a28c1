"""rfs tiny-report: what a tiny model can do, and what it does of its own accord."""

from types import SimpleNamespace

from reasoning_from_scratch.commands.tiny_report import (
    TinyReportOptions,
    begin_answers,
    by_family,
    report_text,
    starts_working,
    tiny_figures,
    tiny_report,
)
from reasoning_from_scratch.files.problem_sets import load_problems
from reasoning_from_scratch.files.weights import load_model_and_tokenizer
from reasoning_from_scratch.problems import Problem, render_prompt
from reasoning_from_scratch.tiny.world import WORKED_START


def test_a_working_is_known_by_its_first_words():
    for text in (f"{WORKED_START} 2 + 3", f" \n{WORKED_START}", f"<think>\n{WORKED_START} 2"):
        assert starts_working({"generated_text": text})
    for text in ("", "\\boxed{5}", f"5. {WORKED_START}"):
        assert not starts_working({"generated_text": text})


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


def test_families_are_in_order_and_each_has_its_share():
    problems = [Problem(str(i), "?", "1", type=name) for i, name in enumerate("baab")]
    rows = [{"correct": right} for right in (True, False, False, False)]
    assert by_family(problems, SimpleNamespace(rows=rows)) == {"a": 0.0, "b": 0.5}


def test_the_report_shows_every_figure_and_family(capsys):
    options = TinyReportOptions(limit=8, samples=1)
    figures = tiny_figures(*load_model_and_tokenizer("tiny-base"), options)
    text = report_text("tiny-base", figures)
    tiny_report(options)
    assert capsys.readouterr().out == text + "\n"
    for name, values in figures.items():
        assert name in text and values["problems"] == 8
    assert set(figures["tiny-test"]["begun, by family"]) == {
        problem.type for problem in load_problems("tiny-test", limit=8)
    }
    assert "begun accuracy" in text and "greedy length" in text
