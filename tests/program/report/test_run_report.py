"""report.html, the probes behind its slider, and the command."""

import json
import re
import webbrowser

import pytest

from reasoning_from_scratch.errors import UserError
from rfs.commands.cli import main
from rfs.report import write_run_report
from tests.program.report.written import Page, metrics_line


def test_a_folder_without_a_run_is_a_user_error(tmp_path, capsys):
    with pytest.raises(UserError, match="no run in"):
        write_run_report(tmp_path)
    assert main(["report", str(tmp_path)]) == 2
    assert "no metrics.jsonl" in capsys.readouterr().err


def test_a_run_that_has_only_begun_has_a_report(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert "no step finished yet" in write_run_report(tmp_path).read_text("utf-8")


def test_the_report_shows_all_of_it(run):
    html = write_run_report(run).read_text("utf-8")
    text = re.sub(r"<(script|style)[^>]*>.*?</\1>|<[^>]+>", " ", html, flags=re.S)
    text = re.sub(r"\s+", " ", text)
    evaluated = "Problem 3?", "after step", "test, after 4", "25.0%", "4.6 to 69.9%"
    headings = "Most improved", "Still failing", "Best", "Worst", "Gradient norm"
    # "step 4 reward": of the best and worst of the last steps
    for words in ("grpo on tiny", "4 of 4 steps", "step 4 reward", *headings, *evaluated):
        assert words in text, words
    links = set(re.findall(r'href="([^"#]+)"', html)) - {"data:,"}
    assert "train_iteration_000003.html" in links and "eval_test_iteration_000004.html" in links
    assert all((run / link).is_file() for link in links)


def test_a_run_on_worked_solutions_shows_none_of_them_as_an_answer(run):
    """All of them are correct, and say nothing about the model."""
    (run / "config.json").write_text(json.dumps({"objective": "cross_entropy"}))
    lines = [metrics_line(step, **{"optim/loss": 2 - step / 4}) for step in range(4)]
    (run / "metrics.jsonl").write_text("".join(lines))
    page = Page(write_run_report(run).read_text("utf-8"))
    assert page.texts("dt") == ["accuracy, test (4)", "loss"]
    headings = [text.strip() for text in page.texts("h2")]
    assert "What it learned, step by step" in headings
    assert not {"Styles of answer", "Best and worst answers of the last steps"} & set(headings)


def test_the_pages_are_a_table_that_folds(run):
    """A run of 500 steps would otherwise end in a wall of links."""
    html = write_run_report(run).read_text("utf-8")
    steps = html[html.index('id="steps"') :]
    steps = steps[: steps.index("</section>")]
    always, folded = steps.split("<details>")
    assert "First: step 3" in always and "Last: step 4" in always
    rows = re.findall(r"<tr>(.*?)</tr>", folded, flags=re.S)
    texts = [re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", row)).strip() for row in rows]
    assert texts == [
        "step reward evaluated before it",
        "test, after 0",
        "3 0.200 test, after 2",
        "4 0.300",
        "test, after 4",
    ]


def test_a_table_of_some_of_the_pages_does_not_say_all(run):
    assert "All 4 in a table" in write_run_report(run).read_text("utf-8")
    for step in range(10, 410):
        (run / f"train_iteration_{step:06d}.html").touch()
    text = write_run_report(run).read_text("utf-8")
    assert "400 of the 404, evenly spaced, in a table" in text


# ---- the command


def test_the_command_writes_the_page_and_prints_its_address(run, capsys, monkeypatch):
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"{(run / 'report.html').as_uri()}\n"
    (run / "report.html").unlink()
    (run / "report.html").mkdir()
    assert main(["report", str(run)]) == 2
    assert "cannot write a report into" in capsys.readouterr().err
    (run / "report.html").rmdir()
    (run.parent / "runs").mkdir()
    run.rename(run.parent / "runs" / "newest")
    monkeypatch.chdir(run.parent)
    assert main(["report"]) == 0
    assert (run.parent / "runs/newest/report.html").is_file()


@pytest.mark.parametrize("opens, said", [(True, ""), (False, "there is no browser here")])
def test_the_page_opens_in_a_browser_if_asked(run, opens, said, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or opens)
    assert main(["report", str(run)]) == 0 and not opened
    assert main(["report", str(run), "--open"]) == 0
    assert opened == [(run / "report.html").as_uri()]
    assert said in capsys.readouterr().err
