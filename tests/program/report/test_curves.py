"""Curves: ticks, labels, colors, and what was not measured."""

import json

import pytest

from rfs.report import curves
from rfs.report.curves import Line, make_charts, page_panel
from rfs.report.run_files import read_run
from tests.program.report.written import metrics_line, write_eval


def test_curves_skip_what_was_not_measured(run):
    with open(run / "metrics.jsonl", "a") as file:
        file.write(metrics_line(4, **{"optim/grad_norm": None, "optim/clip_frac": None}))
    charts = {chart.title: chart for chart in make_charts(read_run(run))}
    assert set(charts) == {"Reward", "Accuracy", "Gradient norm"}
    assert charts["Gradient norm"].lines[0].steps == [1, 2, 3, 4]
    assert charts["Accuracy"].lines[0].values == [0.25, 0.5, 0.5]
    assert "total: 0 at step 1, 0.4 at step 5" in charts["Reward"].svg


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dots", [False, True], ids=["line", "dots"])
@pytest.mark.parametrize("length", [1, 2, 40])
@pytest.mark.parametrize("size", [0.0, 1e-300, 1e-9, 1.0, -3.0, 1e18, 1e300])
def test_any_finite_numbers_have_a_chart(size, length, dots):
    steps = [10**9 + 3 * number for number in range(length)]
    lines = [
        Line(str(i), steps, [size * (n % (i + 2)) for n in range(length)], dots) for i in (0, 1)
    ]
    svg = curves.chart_svg(page_panel(), "Any", lines)
    assert "nan" not in svg and "inf" not in svg
    assert svg.count("var(--c0)") and svg.count("var(--c1)")


KL, CLIPPED = "optim/kl_sample_train_v2", "optim/clip_frac"


@pytest.mark.parametrize(
    "values, settings, shown",
    [
        ({KL: 6e-13, CLIPPED: 0.0}, {}, set()),
        ({KL: 1e-4, CLIPPED: 0.01}, {}, {"KL", "Clip fraction"}),
        ({KL: 6e-13, CLIPPED: 0.0}, {"epochs": 2}, {"Clip fraction"}),
        ({KL: 6e-13, "kl_policy_base": 0.02}, {}, {"KL"}),
    ],
)
def test_what_is_rounding_or_cannot_be_otherwise_has_no_chart(run, values, settings, shown):
    (run / "config.json").write_text(json.dumps(settings))
    (run / "metrics.jsonl").write_text("".join(metrics_line(step, **values) for step in range(4)))
    charts = {chart.title: chart for chart in make_charts(read_run(run))}
    assert set(charts) & {"KL", "Clip fraction"} == shown
    if "kl_policy_base" in values:
        assert [line.label for line in charts["KL"].lines] == ["from the reference"]


def test_the_loss_of_held_out_problems_is_found_under_the_name_of_their_set(run):
    """mine.jsonl@held-out in the metrics; in the names of files, @ is _."""
    name = "mine.jsonl@held-out"
    (run / "config.json").write_text(json.dumps({"objective": "cross_entropy"}))
    measured = {"optim/loss": 2.0, f"{name}/loss": 1.5, "eval_acc": 0.5, "eval_step": 0}
    (run / "metrics.jsonl").write_text(metrics_line(0, **measured))
    write_eval(run, 0, [True], name)
    (chart,) = [chart for chart in make_charts(read_run(run)) if chart.title == "Loss"]
    assert [(line.label, line.values) for line in chart.lines] == [
        ("training", [2.0]),
        ("mine.jsonl_held-out", [1.5]),
    ]
