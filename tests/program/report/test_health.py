"""Each alarm: set off by what it names, silent on a healthy run, said once."""

import re
from pathlib import Path

import pytest

from rfs.report.health import CHECKS, alarms, new_alarms

HEALTHY = {
    "env/all/by_group/frac_mixed": 0.5,
    "env/all/by_group/frac_all_good": 0.2,
    "env/all/cutoff_share": 0.05,
    "env/all/correct": 0.5,
    "env/all/reward/total": 0.5,
    "optim/token_entropy": 0.5,
    "optim/grad_norm": 1.0,
    "optim/kl_sample_train_v2": 1e-9,
}


def history(count=30, last=None, every=None, window=10):
    """Healthy steps; `every` changes the last `window` of them, `last` the very last."""
    rows = [HEALTHY | {"step": step} for step in range(count)]
    for row in rows[-window:]:
        row |= every or {}
    rows[-1] |= last or {}
    return rows


LAG = {"sampling_client/step_min": 7, "training_client/step": 9}
SILENT = {
    "a healthy run": history(),
    "its first step": history(1),
    "an almost perfect model is sure": history(
        every={"optim/token_entropy": 0.001, "env/all/correct": 0.99}
    ),
    "lag explains a gap": history(last={"optim/kl_sample_train_v2": 0.5, **LAG}),
    "numbers are missing": history(
        last={"optim/grad_norm": None, "optim/kl_sample_train_v2": None}
    ),
}


@pytest.mark.parametrize("rows", SILENT.values(), ids=SILENT.keys())
def test_nothing_is_said(rows):
    assert alarms(rows) == []


@pytest.mark.parametrize(
    "name, changes, cause",
    [
        ("no_signal", {"env/all/by_group/frac_mixed": 0.0}, "too hard"),
        (
            "no_signal",
            {"env/all/by_group/frac_mixed": 0.0, "env/all/by_group/frac_all_good": 0.9},
            "too easy",
        ),
        ("no_signal", {"env/all/by_group/frac_mixed": 0.0, "env/all/cutoff_share": 0.9}, "cut off"),
        ("entropy_collapse", {"optim/token_entropy": 0.001}, "lr is too high"),
        ("entropy_rise", {"optim/token_entropy": 4.0}, "dissolves"),
        ("length_limit", {"env/all/cutoff_share": 0.6}, "max-new-tokens"),
    ],
)
def test_trends(name, changes, cause):
    found = [alarm for alarm in alarms(history(every=changes)) if alarm.name == name]
    assert len(found) == 1 and cause in found[0].cause
    assert name in str(found[0]) and "Usual cause" in str(found[0])
    short = history(every=changes, window=2)
    assert name not in {alarm.name for alarm in alarms(short)}


def test_a_teacher_needs_no_reward():
    """Distillation: answers are correct now and then, and none is paid for it."""
    uniform = {"env/all/by_group/frac_mixed": 0.0, "env/all/reward/total": 0.0}
    assert alarms(history(every=uniform)) == []
    assert alarms(history(every=uniform | {"env/all/correct": 0.0}))[0].name == "no_signal"


@pytest.mark.parametrize(
    "name, last",
    [
        ("sampler_gap", {"optim/kl_sample_train_v2": 0.5}),
        ("sampler_gap", {"optim/kl_sample_train_v1": 0.02}),
        ("sampler_gap", {"optim/kl_sample_train_v1": -0.02}),
        ("gradient_spike", {"optim/grad_norm": 50.0}),
    ],
)
def test_single_steps(name, last):
    assert [alarm.name for alarm in alarms(history(last=last))] == [name]


def moving(ratios, rates):
    return [
        HEALTHY | {"step": step, "optim/update_ratio": ratio, "optim/lr": rate}
        for step, (ratio, rate) in enumerate(zip(ratios, rates, strict=True))
    ]


def test_weights_that_hardly_move():
    (alarm,) = alarms(moving([1e-6] * 10, [5e-5] * 10))
    assert alarm.name == "hardly_moves" and "1e-06 of their size" in alarm.observation
    assert "--matrix-lr" in alarm.cause
    assert alarms(moving([1e-6] * 9, [5e-5] * 9)) == [], "too early to tell"
    assert alarms(moving([1e-5] + [1e-7] * 20, [5e-5] * 21)) == [], "a schedule that ends at zero"
    rising = [step * 1e-8 for step in range(1, 31)]
    assert alarms(moving(rising, rising)) == [], "a long warm-up"
    assert alarms(moving([None] * 20, [5e-5] * 20)) == [], "no update at all: no_signal says so"


def test_reward_up_while_held_out_accuracy_falls():
    rows = history()
    rows[5] |= {"eval_acc": 0.8, "env/all/reward/total": 0.5}
    rows[-1] |= {"eval_acc": 0.6, "env/all/reward/total": 0.9}
    assert [alarm.name for alarm in alarms(rows)] == ["reward_without_accuracy"]
    rows[-1]["eval_acc"] = 0.79
    assert alarms(rows) == []
    rows[-1] |= {"eval_acc": 0.6, "env/all/reward/total": 0.5}  # both fall: nothing is gamed
    assert alarms(rows) == []
    rows[5]["hard/env/all/correct"], rows[-1]["easy/env/all/correct"] = 0.8, 0.6
    rows[-1] |= {"env/all/reward/total": 0.9}  # resumed with other problems to evaluate on
    assert alarms(rows) == []


@pytest.mark.parametrize(
    ("problems", "before", "after", "goes_off"),
    [
        (1, 1.0, 0.0, False),
        (20, 0.5, 0.3, False),
        (20, 0.8, 0.3, True),
        (100, 0.77, 0.68, True),
        (100, 0.5, 0.42, False),
        (1000, 0.5, 0.42, True),
    ],
)
def test_a_fall_that_few_problems_make_by_chance(problems, before, after, goes_off):
    rows = history(every={"eval_problems": problems}, window=30)
    rows[5] |= {"eval_acc": before, "env/all/reward/total": 0.5}
    rows[-1] |= {"eval_acc": after, "env/all/reward/total": 0.9}
    assert [alarm.name for alarm in alarms(rows)] == ["reward_without_accuracy"] * goes_off


def test_each_trouble_is_said_once():
    bad = {"env/all/cutoff_share": 0.9}
    rows = history(every=bad)
    said = [len(new_alarms(rows[:end])) for end in range(1, len(rows) + 1)]
    assert sum(said) == 1


def test_the_page_lists_every_alarm():
    page = Path(__file__).parents[3] / "docs" / "troubleshooting.md"
    listed = page.read_text(encoding="utf-8").partition("\n## Alarms\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", listed, re.MULTILINE) == [one.__name__ for one in CHECKS]
