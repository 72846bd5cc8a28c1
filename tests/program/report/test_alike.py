"""Shares and colors are alike wherever they are shown: pages, pictures, terminal."""

import math
import re

import pytest

from reasoning_from_scratch.scores import score_rows
from rfs.commands.compare import CompareOptions, Row, markdown, summary
from rfs.commands.ending import before_and_after
from rfs.commands.preflight import TaskFigures, figures_table, task_table
from rfs.evaluation.group_signal import Preflight
from rfs.evaluation.pass_curves import (
    curve_values,
    curve_with_band,
    difference_with_band,
    share_with_band,
)
from rfs.report import write_run_report
from rfs.report.health import length_limit, reward_without_accuracy
from rfs.report.palette import COLOR
from rfs.report.progress import status_line as progress_line
from rfs.report.ways import WAYS, Answered, first_and_last, ways_over_time
from rfs.report.ways_picture import way_pictures
from tests.conftest import ROOT
from tests.program.report.written import metrics_line

# What may stand before a percent sign: one digit, no space. Bounds of a legend and the name of an
# interval are whole numbers, as are those of an axis.
SHOWN = re.compile(r"[\d.–]+\s*%")
ALIKE = re.compile(r"\d+\.\d%|95%")
LEGEND = re.compile(
    r'<p class="legend".*?</p>|<svg.*?</svg>|<style.*?</style>|<script.*?</script>', re.S
)
HEX = re.compile(r"#[0-9a-fA-F]{6}\b|#[0-9a-fA-F]{3}\b(?=[;,\s)\"'])|\brgba?\(")


def unlike(text: str) -> list[str]:
    return [found for found in SHOWN.findall(text) if not ALIKE.fullmatch(found)]


@pytest.fixture
def pages(run):
    """Every page of a run, with a chart of each kind of share, and of the shipped runs."""
    measured = {
        "env/all/correct": 1 / 3,
        "env/all/by_group/frac_mixed": 0.625,
        "env/all/by_group/frac_all_good": 0.25,
        "env/all/by_group/frac_all_bad": 0.125,
        "optim/clip_frac": 0.0123,
        "time/sampling": 1.0,
        "time/total": 3.0,
    }
    lines = [metrics_line(step, **measured) for step in range(4)]
    (run / "metrics.jsonl").write_text("".join(lines))
    write_run_report(run)
    shipped = (ROOT / "checkpoints").glob("tiny-grpo*/run")
    paths = [path for folder in (run, *shipped) for path in folder.rglob("*.html")]
    assert len(paths) > 40
    return {str(path): path.read_text("utf-8") for path in paths} | {
        "report.html": (run / "report.html").read_text("utf-8")
    }


def test_every_share_on_a_page_has_one_digit(pages):
    texts = {name: re.sub(r"<[^>]*>", " ", LEGEND.sub("", text)) for name, text in pages.items()}
    # The problems and answers of the shipped runs say things like 10%.
    quoted = re.compile(r"\d+\s*%")
    faults = {
        name: [x for x in unlike(text) if not quoted.fullmatch(x)] for name, text in texts.items()
    }
    assert {name: found for name, found in faults.items() if found} == {}
    assert unlike(texts["report.html"]) == []
    assert "33.3%" in texts["report.html"] and "50.0%" in texts["report.html"]


def test_a_chart_of_shares_is_in_percent(pages):
    report = pages["report.html"]
    labels = dict(re.findall(r'aria-label="(\w[\w ]*)\. ([^"]*)"', report))
    assert labels["Groups"].startswith("mixed: 62.5% at step 1, 62.5% at step 4; all good: 25.0%")
    assert labels["Clip fraction"] == "clipped: 1.2% at step 1, 1.2% at step 4"
    assert "training: 33.3% at step 1" in labels["Accuracy"]
    assert labels["Reward"] == "total: 0 at step 1, 0.3 at step 4"  # no share
    for title, percents in (("Groups", True), ("Accuracy", True), ("Reward", False)):
        (svg,) = re.findall(rf'<svg role="img" aria-label="{title}\..*?</svg>', report, re.S)
        assert bool(re.search(r">\d+%<", svg)) == percents, title


def test_what_judges_has_the_color_of_its_verdict(pages):
    (groups,) = re.findall(
        r'<svg role="img" aria-label="Groups\..*?</svg>', pages["report.html"], re.S
    )
    drawn = [name for name in ("mixed", "wrong", "c2") if f"var(--{name})" in groups]
    assert drawn == ["mixed", "wrong", "c2"]  # c2 is the green of what is correct
    assert COLOR["c2"] == COLOR["right"] and "var(--c0)" not in groups
    assert 'class="key k2 k-wrong">all bad' in pages["report.html"]


def test_a_page_has_no_color_of_its_own(pages):
    for name, text in pages.items():
        (style,) = re.findall(r"<style>(.*?)</style>", text, re.S)
        palette, _, rest = style.partition(':root[data-theme="light"]')
        assert palette.count("light-dark(") > 20 and HEX.findall(rest) == [], name
        assert HEX.findall("".join(re.findall(r"<svg.*?</svg>", text, re.S))) == [], name


def test_the_styles_of_answer_take_the_pages_colors():
    answers = [Answered(1, way, True, 5, step) for step in range(1, 9) for way in WAYS]
    ((_, svg), *_) = way_pictures(ways_over_time(answers))
    assert HEX.findall(svg) == [] and "var(--w0)" in svg and "var(--w3)" in svg
    assert unlike(re.search('aria-label="([^"]*)"', svg)[1]) == [] and "25.0% at the end" in svg
    assert first_and_last(answers)[0][1]["full"].share == 0.25


@pytest.mark.parametrize("folder", ["rfs", "docs/explore", "docs/site"])
def test_colors_are_written_down_in_one_file(folder):
    kinds = (".css", ".html", ".js", ".py")
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in kinds]
    found = {path.name: HEX.findall(path.read_text("utf-8")) for path in files}
    assert {name for name, colors in found.items() if colors} <= {"colors.css"} and files


def test_shares_are_written_in_one_place():
    """ch03.py prints what the published book's does."""
    files = [*(ROOT / "rfs").rglob("*.py"), *(ROOT / "reasoning_from_scratch").rglob("*.py")]
    own = re.compile(r"\.\d%\}|f\}%")
    found = {path.name for path in files if own.search(path.read_text("utf-8"))}
    assert found == {"ch03.py", "text.py"}


def evaluation_report() -> str:
    rows = [
        {"correct": i % 3 == 0, "tokens": 5, "stopped": i % 4 > 0, "parsed": True, "extracted": ""}
        for i in range(12)
    ]
    return score_rows(rows, 4, 100.0).report()


def preflight_tables() -> str:
    found = Preflight([], 8, 0.375, 1.0, 0.0, 0.9999, 1 / 3, 5.25, 100.0, 1.0, [])
    tasks = [TaskFigures("sums", 8, 0.375, 1.0, 1 / 3, 5.25)]
    return figures_table(found) + task_table(tasks, 8)


def comparison() -> str:
    values = dict(recipe="grpo", lr=1e-4, accuracy=0.6, error=0.0123, accuracy_gain=0.0, start=0.05)
    values |= dict(accuracy_gain_error=math.nan, sampled=0.5, sampled_error=math.nan, gain=0.0)
    rows = [Row(**values, gain_error=0.0, same_as="", tokens=9.0, minutes=1.0)]
    options = CompareOptions(recipes=("grpo",))
    return summary(rows, options) + markdown(rows, options, 100)


def alarm() -> str:
    before = {"step": 0, "eval_acc": 0.9, "env/all/reward/total": 0.1}
    after = {"step": 1, "eval_acc": 0.1, "env/all/reward/total": 0.5}
    cut = [{"step": step, "env/all/cutoff_share": 1 / 3} for step in range(10)]
    return f"{reward_without_accuracy([before, after])} {length_limit(cut)}"


def curves() -> str:
    import torch

    rates = torch.tensor([[0.25, 1.0], [0.5, 1.0]], dtype=torch.float64)
    first = [values[0] for values in curve_values(curve_with_band(rates))]
    return share_with_band(*first) + difference_with_band(*first)


LAST = {
    "step": 3,
    "env/all/reward/total": 0.4125,
    "env/all/correct": 1 / 3,
    "env/all/ac_tokens_per_turn": 7.25,
    "env/all/by_group/frac_mixed": 0.5,
    "eval_acc": 0.98765,
}
MEASURED = {"eval_problems": 8, "eval_step": 4} | {
    f"before/eval_{name}": value for name, value in {"problems": 8, "step": 0, "acc": 0.25}.items()
}


@pytest.mark.parametrize(
    "text, has",
    [
        (evaluation_report(), "33.3%  (95% interval"),
        (preflight_tables(), "37.5%"),
        (comparison(), "60.0 ± 1.2%"),
        (alarm(), "fell by 80.0 points"),
        (curves(), "37.5% (25.0 to 50.0%)+37.5 (+25.0 to +50.0)"),
        (
            progress_line(LAST),
            "reward 0.412  correct 33.3%  tokens 7.2  mixed 50.0%  eval 98.8%",
        ),
        (before_and_after([LAST | MEASURED]), "25.0% after 0 steps, 98.8% after 4"),
    ],
    ids="evaluate preflight compare alarm pass progress ending".split(),
)
def test_the_terminal_shows_what_the_pages_show(text, has):
    assert unlike(text) == [] and has in text
