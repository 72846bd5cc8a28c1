"""The other runs of a folder, beside this one on its page."""

import json

import pytest

from reasoning_from_scratch.report import write_run_report
from reasoning_from_scratch.report.run_report import run_page
from tests.report.written import Page, metrics_line, write_run


@pytest.fixture
def run(tmp_path):
    folder = write_run(tmp_path / "runs" / "first")
    (folder / "metrics.jsonl").write_text("".join(map(evaluated_line, range(6))))
    return folder


def evaluated_line(step: int) -> str:
    """Of six steps in which the accuracy rises from 0 to 0.8."""
    accuracies = {0: {"eval_acc": 0.0}, 5: {"eval_acc": 0.8, "eval_step": 6}}
    return metrics_line(step, **accuracies.get(step, {}))


def beside(run, name: str, **settings):
    folder = run.parent / name
    folder.mkdir()
    config = json.loads((run / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))
    (folder / "metrics.jsonl").write_text("".join(map(evaluated_line, range(4))))
    return folder


def section(page: str) -> str:
    return page.partition('<h2 id="others">')[2].partition("</section>")[0]


def test_the_others_stand_in_a_table_and_as_faint_lines(run):
    other = beside(run, "high rate", lr=0.001, seed=3, log_path="runs/high rate")
    page = write_run_report(run).read_text("utf-8")
    table = Page(section(page).partition("<tbody>")[2])
    cells = table.texts("td")
    assert table.texts("th") == ["first", "high rate"]
    assert cells[:5] == ["6", "0.400", "80 %", "–", "this run"]
    assert cells[5:] == ["4", "0.250", "0 %", "–", "seed 3; lr 0.001"]
    assert section(page).count("<svg ") == 2 and "opacity: 0.6" in section(page)
    assert "high rate: 0 at step 1, 0.3 at step 4" in section(page)
    # A link to its report, once it has one.
    assert "<a " not in section(page)
    write_run_report(other)
    assert 'href="../high%20rate/report.html"' in section(run_page(run))
    assert 'href="../first/report.html"' in section(run_page(other))


TYPES = """{"step": 0, "env/all/reward/total": "x", "eval_acc": [], "eval_step": {}}
{"step": 1, "eval_acc": 0.5, "eval_step": "later"}
"""
HUGE = """{"step": 1HUGE, "env/all/reward/total": 1HUGE, "eval_acc": 0.5, "eval_step": 1HUGE}
{"step": 1, "env/all/reward/total": 1e308, "eval_acc": 1HUGE, "eval_step": 1HUGE}
""".replace("HUGE", "0" * 400)
# What is there in a file's place.
BROKEN = {
    "no metrics": ("metrics.jsonl", None),
    "bytes": ("metrics.jsonl", bytes(range(256))),
    "huge": ("metrics.jsonl", HUGE.encode()),
    "types": ("metrics.jsonl", TYPES.encode()),
    "half a config": ("config.json", b'{"lr": '),
    "config is a folder": ("config.json", "folder"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_one_spoils_nothing(run, kind):
    name, content = BROKEN[kind]
    file = beside(run, kind) / name
    file.unlink()
    if content == "folder":
        file.mkdir()
    elif content is not None:
        file.write_bytes(content)
    beside(run, "whole")
    assert "whole" in section(write_run_report(run).read_text("utf-8"))
