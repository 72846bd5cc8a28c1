"""The laboratory: a page for each regime, and a README whose verdicts are those of regimes.csv.

    python tests/book/test_laboratory.py      writes the README's table anew
"""

import csv
import json
import math
import re
import sys
from pathlib import Path
from statistics import fmean

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "ch07")]

import laboratory  # noqa: E402
import pass_over_training  # noqa: E402

from reasoning_from_scratch.config import replaced  # noqa: E402
from reasoning_from_scratch.errors import UserError  # noqa: E402
from reasoning_from_scratch.evaluation.regime_findings import findings, verdicts  # noqa: E402
from reasoning_from_scratch.report.glossary import METRICS  # noqa: E402
from reasoning_from_scratch.run.options import resolved  # noqa: E402

README = ROOT / "ch07" / "README.md"
BEGIN, END = "<!-- verdicts -->\n", "<!-- end of verdicts -->"
LONGEST = 180  # words of a cell that are read in one go
DEAREST = ("kl", "active")  # live pages of half a minute each, if they took six steps

REGIMES = laboratory.REGIMES
NOTEBOOK = json.loads((ROOT / "ch07" / "ch07_laboratory.ipynb").read_text(encoding="utf-8"))
CELLS = {cell["id"]: "".join(cell["source"]) for cell in NOTEBOOK["cells"]}


def readme_table() -> str:
    return verdicts(findings(REGIMES, laboratory.stored())) + "\n"


def test_the_readme_has_the_verdicts_of_the_stored_runs():
    shown = README.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert shown == readme_table(), "python tests/book/test_laboratory.py writes it anew"


def test_each_method_has_its_double_page():
    for name in laboratory.LIVE:
        assert "```diff" in CELLS[name] and "**A guess.**" in CELLS[name]
        shorter = ", steps=4" if name in DEAREST else ""
        assert CELLS[f"{name}-live"] == f'live("{name}"{shorter})'
        assert CELLS[f"{name}-stored"] == f'page("{name}")'
        assert CELLS[f"{name}-found"].startswith("**Found.**")


@pytest.mark.parametrize("name", [*laboratory.LIVE, "recipes"])
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
    stated = re.findall(r"(?<![\d.])\d+\.\d(?!\d)", re.sub(r"section [\d.]+", "", prose))
    assert set(stated) <= numbers


def one_place(share: float) -> str:
    """A share in percent, rounded as the table rounds it before."""
    return "-" if math.isnan(share) else f"{100 * round(share, 3):+.1f}"


def test_a_change_is_a_few_lines():
    for name in laboratory.LIVE:
        diff = CELLS[name].split("```diff\n")[1].split("```")[0].splitlines()
        assert all(line[0] in "+-" for line in diff)
        assert sum(line[0] == "+" for line in diff) <= 3


@pytest.mark.parametrize("notebook", sorted(ROOT.glob("ch07/*.ipynb")), ids=lambda path: path.stem)
def test_no_cell_is_longer_than_can_be_read_in_one_go(notebook):
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            assert len("".join(cell["source"]).split()) <= LONGEST, cell["id"]


@pytest.mark.parametrize("name", laboratory.LIVE)
def test_a_live_run_is_of_two_arms_and_shows_what_is_measured(name):
    shown = laboratory.LIVE[name]
    regime = REGIMES[name]
    assert set(shown.arms) <= set(regime.arms)
    for arm in shown.arms:
        changes = laboratory.changes_of(regime, arm)
        resolved(laboratory.config_of(shown.also | changes, 1e-4, 0))
    known = " ".join(metric.name for metric in METRICS)
    for metric in shown.curves:
        assert metric.rpartition("/")[2] in known or metric == "env/all/correct", metric


def test_two_steps_live(monkeypatch):
    """A run of the smallest size, drawn: two panels with a line of each arm."""
    config_of = laboratory.config_of
    small = {"problems_per_step": 2, "rollouts": 2, "max_new_tokens": 8}
    monkeypatch.setattr(
        laboratory, "config_of", lambda *of: replaced(config_of(*of), **small), raising=True
    )
    figure = laboratory.live("muon", steps=2)
    assert len([panel for panel in figure.axes if panel.get_visible()]) == 2


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
    with pytest.raises(UserError, match="there is no folder .*nowhere"):  # before it trains
        pass_over_training.main(pass_over_training.Options(tmp_path / "nowhere" / "passes.csv"))


def test_the_stored_passes_are_of_these_runs_and_drawn_in_one_row(capsys):
    with open(laboratory.PASSES, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for name, run in pass_over_training.RUNS.items():
        steps = {int(row["step"]) for row in rows if row["run"] == name}
        assert sorted(steps) == list(range(0, run["steps"] + 1, run["eval_every"]))
    short, longer = laboratory.solved().axes
    assert [short.get_title(), longer.get_title()] == ["tiny-test", "tiny-longer"]
    ones, *_, most = longer.get_lines()[:3]
    assert list(ones.get_xdata())[:2] == [0, 15] and ones.get_xdata()[-1] == 240
    values = [float(row["pass@64"]) for row in rows if row["problems"] == "tiny-longer"]
    assert list(most.get_ydata()) == values


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    README.write_text(before + BEGIN + readme_table() + END + rest.split(END)[1], encoding="utf-8")
