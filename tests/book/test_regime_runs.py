"""Regimes: rows that are never made twice, and a table whose numbers can be checked."""

import runpy
from dataclasses import replace

import pytest
import regime_runs
import torch
from regime_findings import OUTCOMES, stored_rows
from regime_runs import KEY, RegimesOptions, SettingsMarks, key_of, run_regimes

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.tiny.ways import WAYS
from rfs.own_policy import Policy
from rfs.run.options import resolved
from rfs.tasks.problem_sets import load_problems
from tests.book import test_regime_findings
from tests.conftest import ROOT

TINY = {"steps": 1, "problems_per_step": 1, "rollouts": 2, "max_new_tokens": 4}
TWO = replace(test_regime_findings.TWO, common=TINY)


@pytest.fixture
def counted(monkeypatch):
    """Runs take no time, and are counted."""
    made = []

    def make_row(trial):
        made.append(key_of(trial))
        head = dict(zip(KEY, key_of(trial), strict=True))
        return head | {"settings": trial.arm.settings, "seconds": 1.0, "sampled": 100 * trial.lr}

    monkeypatch.setattr(regime_runs, "make_row", make_row)
    return made


def run(tmp_path, *, table_of=None, **changes):
    usual = {"out": tmp_path / "rows.csv", "jobs": 1, "seeds": 2, "choosing": 2}
    options = RegimesOptions(**(usual | changes))
    run_regimes(table_of or {"two": TWO}, options)


def test_rows_are_made_once_and_each_alone(counted, tmp_path, capsys):
    run(tmp_path, arm=("two",), lrs=(2e-4,), seeds=1)  # a rate that is given need not be chosen
    assert counted == [("two", "two", 2e-4, 0)]
    run(tmp_path)
    assert len(counted) == len(set(counted)) == 1 + 2 * 2 * 2 + 3
    # Whole seeds first; then those that are reported, at the best rate: see make_row above.
    assert [key[3] for key in counted[1:9]] == [100] * 4 + [101] * 4
    later = [("two", "one", 2e-4, 0), ("two", "one", 2e-4, 1), ("two", "two", 2e-4, 1)]
    assert counted[9:] == later
    rows = stored_rows(tmp_path / "rows.csv")
    assert {tuple(row[name] for name in KEY) for row in rows} == set(counted)
    assert len(rows) == len(counted)
    capsys.readouterr()
    run(tmp_path, list=True, seeds=3)
    assert "|            2 | Is two" in capsys.readouterr().out and len(counted) == 12
    run(tmp_path, seeds=3)
    assert counted[12:] == [("two", "one", 2e-4, 2), ("two", "two", 2e-4, 2)]
    run(tmp_path, seeds=1, lrs=(1e-4,))
    assert counted[14:] == [("two", "one", 1e-4, 0), ("two", "two", 1e-4, 0)]


def test_rows_of_other_settings_are_not_taken(counted, tmp_path, capsys):
    run(tmp_path, seeds=1, choosing=1)
    longer = replace(TWO, common=TINY | {"steps": 2})
    run(tmp_path, table_of={"two": longer}, seeds=1, choosing=1)
    assert len(counted) == 12 and "6 rows have other settings" in capsys.readouterr().out
    marks = SettingsMarks()
    assert len({marks.of(of, arm) for of in (TWO, longer) for arm in of.arms}) == 4


def test_rows_from_another_model_need_a_file_of_their_own(counted):
    with pytest.raises(UserError, match="regimes.csv has runs from tiny-base; choose another"):
        run_regimes({}, RegimesOptions(model="tiny-grpo"))


def test_a_real_row_of_one_step(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(regime_runs, "GREEDY_PROBLEMS", 2)
    monkeypatch.setattr(regime_runs, "SAMPLED_PROBLEMS", 2)
    run(tmp_path, arm=("one",), lrs=(1e-4,), seeds=1)
    (made,) = stored_rows(tmp_path / "rows.csv")
    assert 0 <= made["greedy test"] <= 1 and made["tokens"] > 0 and made["stopped"] == ""
    assert sum(made[way] for way in WAYS) == pytest.approx(1)
    assert "1 of 1: two, one, lr 0.0001, seed 0" in capsys.readouterr().out


def test_rollouts_that_are_exactly_so_old(tmp_path):
    """With a lag of 0 it is the package's own run, to the bit. With 2 each step's rollouts are of
    the policy two updates before, and the first ones of that at the start."""
    config = regime_runs.config_of(TINY | {"steps": 5, "rollouts": 4, "max_new_tokens": 8}, 1e-3, 0)
    usual = regime_runs.run_to_end(replace(config, log_path=str(tmp_path / "run")))
    mine = regime_runs.run_with_exact_lag(config, 0)
    pairs = zip(usual.model.parameters(), mine.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    figures = regime_runs.late_metrics(usual.rows)
    assert figures == regime_runs.late_metrics(mine.rows) and figures.keys() >= {"sampled"}
    policy = Policy.load("tiny-base", resolved(config), "cpu")
    problems = load_problems("tiny", limit=5)
    steps = regime_runs.lagged_rollouts(policy, problems, resolved(config), 2)
    versions = [{one.policy_version for group in of for one in group.rollouts} for of in steps]
    assert versions == [{0}, {0}, {0}, {1}, {2}]


def test_a_lag_is_another_experiment():
    marks, late = SettingsMarks(), replace(TWO, lag=8)
    assert marks.of(late, "one") != marks.of(TWO, "one")


REGIMES = runpy.run_path(str(ROOT / "studies" / "regimes.py"))["REGIMES"]


@pytest.mark.parametrize("name", REGIMES)
def test_the_regimes_of_the_chapter(name, monkeypatch):
    """Each arm is a run that is not refused, and differs from the others."""
    monkeypatch.chdir(ROOT)  # where their own reward is
    regime = REGIMES[name]
    assert regime.question.endswith("?")
    assert {regime.outcome, regime.chosen_by, *regime.also} <= set(OUTCOMES)
    assert {arm for pair in regime.compared_pairs() for arm in pair} == set(regime.arms)
    assert set(regime.arm_lrs) <= set(regime.arms)
    configs = [
        resolved(
            regime_runs.config_of(regime_runs.changes_of(regime, arm), regime.rates(arm)[0], 0)
        )
        for arm in regime.arms
    ]
    assert all(one != other for i, one in enumerate(configs) for other in configs[:i])
