"""The laboratory: a page for each regime, and a README whose verdicts are those of regimes.csv.

Run as a script, `python tests/book/test_laboratory.py`, it writes the README's table anew.
"""

import csv
import itertools
import math
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "studies")]

import laboratory  # noqa: E402
import pass_over_training  # noqa: E402
import regimes  # noqa: E402
from regime_findings import (  # noqa: E402
    FIRST_CHOOSING,
    arms_by_choice,
    close_call_rates,
    findings,
    verdicts_table,
)

from reasoning_from_scratch.errors import UserError  # noqa: E402
from tests.metrics_page import metric_names  # noqa: E402

README = ROOT / "ch07" / "README.md"
BEGIN, END = "<!-- verdicts -->\n", "<!-- end of verdicts -->"

REGIMES = laboratory.REGIMES


def readme_table() -> str:
    return verdicts_table(findings(REGIMES, laboratory.stored())) + "\n"


def test_the_readme_has_the_verdicts_of_the_stored_runs():
    shown = README.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert shown == readme_table(), "python tests/book/test_laboratory.py writes it anew"


@pytest.mark.parametrize("name", laboratory.PAGES)
def test_the_rates_of_a_page_were_chosen_by_seeds_of_their_own_inside_their_range(name):
    """By three more, where it was a close call."""
    regime, rows = REGIMES[name], laboratory.stored()
    found = arms_by_choice(name, regime, rows)
    first = range(FIRST_CHOOSING, FIRST_CHOOSING + 3)
    several = [arm for arm in regime.arms if len(regime.rates(arm)) > 1]
    assert sorted(itertools.chain(*found.values())) == sorted(several)
    for choice, arms in found.items():
        close = [bool(close_call_rates(rows, name, arm, regime.chosen_by, first)) for arm in arms]
        assert choice.separate_seeds and {choice.seeds} == {6 if again else 3 for again in close}
        assert not choice.edge


def test_the_ratio_to_the_sampler_is_ppo_with_another_denominator():
    logprobs = torch.tensor([[-1.0, -1.0, -1.0]], requires_grad=True)
    old, advantages = torch.tensor([[-1.1, -2.0, -0.5]]), torch.tensor([[1.0, 1.0, -1.0]])
    regimes.clipped_against_the_sampler(logprobs, old, advantages).sum().backward()
    # e^0.1 is within 0.8 and 1.2; e^1 is not, and good; e^-0.5 is not, and bad.
    assert logprobs.grad.tolist() == [[pytest.approx(math.exp(0.1)), 0.0, 0.0]]


@pytest.mark.parametrize("name", laboratory.LIVE_RUNS)
def test_a_live_run_is_of_two_arms_and_shows_what_is_measured(name):
    shown, known = laboratory.LIVE_RUNS[name], " ".join(metric_names())
    assert set(shown.arms) <= set(REGIMES[name].arms)
    for metric in shown.curves:
        assert metric.rpartition("/")[2] in known or metric == "env/all/correct", metric


def test_each_arm_has_stored_runs():
    arms = {(name, arm) for name, regime in REGIMES.items() for arm in regime.arms}
    assert {(row["regime"], row["arm"]) for row in laboratory.stored()} == arms


def test_a_trial_may_have_a_seed(monkeypatch):
    monkeypatch.setattr(laboratory, "train_without_folder", lambda config: config)
    tried = laboratory.tried(seed=3, advantage="mean", epochs=2)
    assert (tried.seed, tried.advantage, tried.epochs) == (3, "mean", 2)


def test_pass_at_k_is_measured_while_it_learns(tmp_path, monkeypatch):
    """Four steps each, and four answers to each of two problems."""
    small = {"steps": 4, "eval_every": 2, "problems_per_step": 2, "rollouts": 2}
    runs = {name: run | small for name, run in pass_over_training.RUNS.items()}
    monkeypatch.setattr(pass_over_training, "RUNS", runs)
    monkeypatch.setattr(pass_over_training, "KS", (1, 4))
    asked = pass_over_training.EVALUATION | {"eval_limit": 2, "eval_samples": 4}
    monkeypatch.setattr(pass_over_training, "EVALUATION", asked)
    out = tmp_path / "passes.csv"
    pass_over_training.main(pass_over_training.Options(out))
    rows = list(csv.DictReader(out.open(encoding="utf-8")))
    assert [(row["run"], row["step"]) for row in rows[::2]] == [
        (name, step) for name in ("quickstart", "longer") for step in "024"
    ]
    assert [row["problems"] for row in rows] == ["tiny-test", "tiny-longer"] * 6
    assert all(0 <= float(row["pass@1"]) <= float(row["pass@4"]) <= 1 for row in rows)
    assert any(float(row["pass@4"]) > 0 for row in rows)
    with pytest.raises(UserError, match="nowhere"):  # before it trains
        pass_over_training.main(pass_over_training.Options(tmp_path / "nowhere" / "passes.csv"))


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    README.write_text(before + BEGIN + readme_table() + END + rest.split(END)[1], encoding="utf-8")
