"""The laboratory: a page for each regime, and a README whose verdicts are those of regimes.csv.

Run as a script, `python tests/book/test_laboratory.py`, it writes the README's table anew.
"""

import csv
import itertools
import json
import math
import re
import sys
from pathlib import Path
from statistics import fmean

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "ch07")]

import laboratory  # noqa: E402
import pass_over_training  # noqa: E402
import regimes  # noqa: E402
from regime_findings import (  # noqa: E402
    CHOOSING,
    OUTCOMES,
    choices,
    close_call,
    findings,
    rate_values,
    values_of,
    verdicts,
)

from reasoning_from_scratch.config import replaced  # noqa: E402
from reasoning_from_scratch.errors import UserError  # noqa: E402
from reasoning_from_scratch.files.tables import read_table  # noqa: E402
from reasoning_from_scratch.run.options import resolved  # noqa: E402
from tests.metrics_page import metric_names  # noqa: E402

README = ROOT / "ch07" / "README.md"
BEGIN, END = "<!-- verdicts -->\n", "<!-- end of verdicts -->"

REGIMES = laboratory.REGIMES
NOTEBOOK = json.loads((ROOT / "ch07" / "ch07_laboratory.ipynb").read_text(encoding="utf-8"))
CELLS = {cell["id"]: "".join(cell["source"]) for cell in NOTEBOOK["cells"]}


def readme_table() -> str:
    return verdicts(findings(REGIMES, laboratory.stored())) + "\n"


def test_the_readme_has_the_verdicts_of_the_stored_runs():
    shown = README.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert shown == readme_table(), "python tests/book/test_laboratory.py writes it anew"


@pytest.mark.parametrize("name", laboratory.PAGES)
def test_what_was_found_stands_in_the_table_of_its_page(name):
    """Its differences as pairs with their errors, and each number with a decimal place."""
    prose = CELLS[f"{name}-found"].split("**At scale")[0].replace("−", "-")
    found = findings({name: REGIMES[name]}, laboratory.stored())
    pairs = {(one_place(of.effect.mean), one_place(of.effect.error)) for of in found}
    for sign, mean, error in re.findall(r"([+-]?)([\d.]+) points \(s\.e\. ([\d.]+)\)", prose):
        assert (f"{sign or '+'}{mean}", f"+{error}") in pairs
    sides = [side.values() for of in found for side in (of.with_it, of.without)]
    numbers = {place for pair in pairs for place in pair} | {one_place(fmean(s)) for s in sides}
    numbers = {place.lstrip("+-") for place in numbers}
    numbers |= {f"{abs(of.effect.mean):.1f}" for of in found if "tokens" in of.outcome}
    assert stated(prose) <= numbers


@pytest.mark.parametrize("id", [id for id in CELLS if id.endswith("-rate")])
def test_what_is_said_of_other_rates_is_stored(id):
    """Each number with a decimal place is a mean of an arm at a rate, reported or choosing, or the
    difference of two rates of an arm."""
    name = id.removesuffix("-rate")
    means = set()
    for arm in REGIMES[name].arms:
        for column in OUTCOMES:
            for kind in (values_of, rate_values):
                runs = kind(laboratory.stored(), name, arm, column)
                each = [fmean(of.values()) for of in runs.values()]
                means |= {*each, *(a - b for a, b in itertools.permutations(each, 2))}
    said = stated(CELLS[id].split("**At scale")[0])
    assert said <= {f"{100 * mean:.1f}" for mean in means if not math.isnan(mean)}


def stated(prose: str) -> set[str]:
    """Its numbers with a decimal place, but for a section's."""
    return set(re.findall(r"(?<![\d.])\d+\.\d(?!\d)", re.sub(r"section [\d.]+", "", prose)))


@pytest.mark.parametrize("name", laboratory.PAGES)
def test_the_rates_of_a_page_were_chosen_by_seeds_of_their_own_inside_their_range(name):
    """By three more, where it was a close call."""
    regime, rows = REGIMES[name], laboratory.stored()
    found, first = choices(name, regime, rows), range(CHOOSING, CHOOSING + 3)
    several = [arm for arm in regime.arms if len(regime.rates(arm)) > 1]
    assert sorted(itertools.chain(*found.values())) == sorted(several)
    for choice, arms in found.items():
        close = [bool(close_call(rows, name, arm, regime.chosen_by, first)) for arm in arms]
        assert choice.apart and {choice.seeds} == {6 if again else 3 for again in close}
        assert not choice.edge


def test_the_ratio_to_the_sampler_is_ppo_with_another_denominator():
    logprobs = torch.tensor([[-1.0, -1.0, -1.0]], requires_grad=True)
    old, advantages = torch.tensor([[-1.1, -2.0, -0.5]]), torch.tensor([[1.0, 1.0, -1.0]])
    regimes.clipped_against_the_sampler(logprobs, old, advantages).sum().backward()
    # e^0.1 is within 0.8 and 1.2; e^1 is not, and good; e^-0.5 is not, and bad.
    assert logprobs.grad.tolist() == [[pytest.approx(math.exp(0.1)), 0.0, 0.0]]


def one_place(share: float) -> str:
    """A share in percent, rounded as the table rounds it before."""
    return "-" if math.isnan(share) else f"{100 * round(share, 3):+.1f}"


@pytest.mark.parametrize("name", laboratory.LIVE)
def test_a_live_run_is_of_two_arms_and_shows_what_is_measured(name):
    shown = laboratory.LIVE[name]
    regime = REGIMES[name]
    assert set(shown.arms) <= set(regime.arms)
    for arm in shown.arms:
        changes = laboratory.changes_of(regime, arm)
        resolved(laboratory.config_of(changes, 1e-4, 0))
    known = " ".join(metric_names())
    for metric in shown.curves:
        assert metric.rpartition("/")[2] in known or metric == "env/all/correct", metric


def test_two_steps_live(monkeypatch):
    """A run of the smallest size, drawn: four panels with a line of each arm."""
    config_of = laboratory.config_of
    small = {"problems_per_step": 2, "rollouts": 2, "max_new_tokens": 8}
    monkeypatch.setattr(
        laboratory, "config_of", lambda *of: replaced(config_of(*of), **small), raising=True
    )
    figure = laboratory.live("format", steps=2)
    assert len([panel for panel in figure.axes if panel.get_visible()]) == 4


@pytest.fixture
def short_runs(monkeypatch):
    """Four steps each, and four answers to each of two problems."""
    small = {"steps": 4, "eval_every": 2, "problems_per_step": 2, "rollouts": 2}
    runs = {name: run | small for name, run in pass_over_training.RUNS.items()}
    monkeypatch.setattr(pass_over_training, "RUNS", runs)
    monkeypatch.setattr(pass_over_training, "KS", (1, 4))
    asked = pass_over_training.ASKED | {"eval_limit": 2, "eval_samples": 4}
    monkeypatch.setattr(pass_over_training, "ASKED", asked)


def test_pass_at_k_is_measured_while_it_learns(short_runs, tmp_path):
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


def test_what_is_said_of_long_runs_is_stored(capsys):
    figure = laboratory.five_hundred_steps()
    assert len(figure.axes) == len(laboratory.long_runs.CURVES)
    rows = read_table(laboratory.LONG)
    shown = laboratory.long_runs.ends(rows) + laboratory.long_runs.differences(rows)
    said = CELLS["long-found"].split("**At scale")[0].replace("−", "-")
    numbers = set(re.findall(r"\d+\.\d+", said))
    assert len(numbers) > 5 and numbers <= set(re.findall(r"\d+\.\d+", shown))


def test_what_is_said_of_another_base_model_is_stored():
    shown = re.findall(r"\d\.\d{3}", laboratory.other_base().data)
    said = stated(CELLS["other-base-found"])
    assert said and said <= {f"{100 * float(share):.1f}" for share in shown}


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    README.write_text(before + BEGIN + readme_table() + END + rest.split(END)[1], encoding="utf-8")
