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
from statistics import correlation, fmean, variance

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
    chosen_rates,
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
WORDS_A_MINUTE, MINUTES_A_RESULT = 100, 3  # of reading: slow prose, and a table or a picture

REGIMES = laboratory.REGIMES
NOTEBOOK = json.loads((ROOT / "ch07" / "ch07_laboratory.ipynb").read_text(encoding="utf-8"))
CELLS = {cell["id"]: "".join(cell["source"]) for cell in NOTEBOOK["cells"]}


def readme_table() -> str:
    return verdicts(findings(REGIMES, laboratory.stored())) + "\n"


def test_the_readme_has_the_verdicts_of_the_stored_runs():
    shown = README.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert shown == readme_table(), "python tests/book/test_laboratory.py writes it anew"


def test_each_page_has_a_change_a_guess_and_its_stored_runs():
    assert {id.removesuffix("-stored") for id in CELLS if id.endswith("-stored")} == {
        *laboratory.PAGES,
        "sharpening",
        "long",
        "other-base",
    }
    for name in laboratory.PAGES:
        assert "```diff" in CELLS[name] and "**A guess.**" in CELLS[name]
        assert CELLS[f"{name}-stored"] == f'page("{name}")'
        assert CELLS[f"{name}-found"].startswith("**Found.**")
    for name in laboratory.LIVE:
        assert CELLS[f"{name}-live"] == f'live("{name}")'


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


def mean_at(
    rate: float, name: str, arm: str, column: str = "pass@1", runs=values_of
) -> tuple[float, int]:
    """In percent, and over how many seeds."""
    values = runs(laboratory.stored(), name, arm, column)[rate].values()
    return round(100 * fmean(values), 1), len(values)


def test_what_is_said_of_other_rates_of_a_lag_is_stored():
    """Of a lag of eight: 10 % at 2e-4, below the base model's 18, and 43 % at 1e-4."""
    assert mean_at(2e-4, "lag", "lag 8") == (10.4, 5)
    assert mean_at(1e-4, "lag", "lag 8") == (43.0, 5)
    assert 17 < mean_at(0.0, "spurious", "untrained")[0] < 19
    assert "ends at 10 %" in CELLS["lag-rate"] and "base model" in CELLS["lag-rate"]
    assert "10 %" in CELLS["what-misled"] and "43 %" in CELLS["what-misled"]


def test_what_is_said_of_other_rates_of_several_passes_and_of_lora_is_stored():
    assert mean_at(1e-4, "epochs", "4 passes, no clip") == (79.9, 5)
    by_rate = [
        mean_at(rate, "epochs", "4 passes, no clip", "sampled", rate_values)
        for rate in (2e-4, 1e-4)
    ]
    assert by_rate == [(79.1, 3), (77.4, 3)]
    assert all(f"{share} %" in CELLS["epochs-rate"] for share in (79.9, 79.1, 77.4))
    below, best, above = (
        mean_at(rate, "lora", "LoRA, rank 8", "sampled", rate_values)
        for rate in regimes.REGIMES["lora"].rates("LoRA, rank 8")
    )
    assert (below[1], best[1], above[1]) == (3, 3, 3)
    worse = f"{best[0] - below[0]:.1f} and {best[0] - above[0]:.1f} points"
    assert worse in CELLS["lora-rate"]


def test_what_is_said_of_the_three_ways_beside_their_table_is_stored():
    said = CELLS["three-ways-rate"]
    assert mean_at(2e-4, "three-ways", "GRPO", "old answers") == (34.3, 5) and "0.34 nats" in said
    assert mean_at(2e-4, "three-ways", "GRPO") == (79.1, 5) and "79.1 %" in said
    assert mean_at(2e-4, "three-ways", "distilled") == (82.9, 5) and "82.9 %" in said
    for arm, rate in (("distilled", 4e-4), ("GRPO", 4e-4), ("own right answers", 2e-4)):
        share, seeds = mean_at(rate, "three-ways", arm, "checked")
        assert seeds == 5 and f"{share:.0f} %" in said


def test_what_is_said_of_twice_the_problems_is_stored():
    said, twice = CELLS["active-found"] + CELLS["active-rate"], "as they come, 16 problems"
    close = (
        mean_at(rate, "active", twice, "sampled", rate_values)[0]
        for rate in regimes.REGIMES["active"].rates(twice)
    )
    assert sorted(close)[2:] == [46.2, 47.2] and "1e-4 was a close second" in said
    assert mean_at(1e-4, "active", twice, "greedy longer") == (19.0, 5) and "at 19.0 %" in said
    plain, more, active = (
        mean_at(rate, "active", arm, "tokens")[0]
        for arm, rate in (("as they come", 2e-4), (twice, 2e-4), ("active", 4e-4))
    )
    assert 2.7 < active / plain < 3 and "nearly three times its tokens" in said
    assert 0.23 < 1 - more / active < 0.27 and "a quarter fewer tokens" in said


def test_what_is_said_of_the_pay_for_the_form_is_stored():
    both = "correct and form"
    paid = [mean_at(rate, "format", both, "reward", rate_values)[0] for rate in (8e-4, 2e-4)]
    said = CELLS["format-found"]
    assert paid == [121.1, 111.1] and "1.21 points" in said and "against 1.11 at 2e-4" in said
    assert mean_at(3.2e-3, "format", "form alone", "reward")[0] == 99.8 and "0.998 of 1" in said
    greedy = values_of(laboratory.stored(), "format", both, "greedy test")[2e-4]
    assert sum(right > 0.7 for right in greedy.values()) == 4 and "four of five seeds" in said


def test_what_is_said_of_four_runs_with_a_price_is_stored():
    """Apart from the fifth, which answers everything at once."""
    rows, said = laboratory.stored(), CELLS["overlong-found"]
    tokens, right, greedy = (
        values_of(rows, "overlong", "over all 160", column)[4e-4]
        for column in ("tokens test", "pass@1", "greedy test")
    )
    assert [seed for seed in greedy if not greedy[seed]] == [0] and "nothing is right" in said
    free = fmean(values_of(rows, "overlong", "no price", "tokens test")[4e-4].values())
    four = (1, 2, 3, 4)
    assert round(free - fmean(tokens[seed] for seed in four)) == 9 and "nine tokens" in said
    assert round(100 * fmean(right[seed] for seed in four)) == 75 and "75 %" in said
    assert mean_at(4e-4, "overlong", "no price") == (79.1, 5) and "79 %" in said


def stated(prose: str) -> set[str]:
    """Its numbers with a decimal place, but for a section's."""
    return set(re.findall(r"(?<![\d.])\d+\.\d(?!\d)", re.sub(r"section [\d.]+", "", prose)))


def test_how_much_pairing_by_seed_is_worth():
    """Over all pairs of arms of a regime, each at its best rate."""
    rows, found = laboratory.stored(), []
    for name, regime in REGIMES.items():
        rates = chosen_rates(name, regime, rows)
        runs = [values_of(rows, name, arm, "pass@1")[rate] for arm, rate in rates.items()]
        for ours, theirs in itertools.combinations(runs, 2):
            seeds = sorted(ours.keys() & theirs.keys())
            pair = [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]
            if all(map(variance, pair)):  # "untrained" is one model, asked once
                found.append(pair)
    shares = [
        variance([x - y for x, y in zip(*pair, strict=True)]) / sum(map(variance, pair))
        for pair in found
    ]
    correlated = fmean(correlation(*pair) for pair in found)
    worse = fmean(share > 1 for share in shares)
    said = CELLS["the-table"]
    assert f"the {len(found)} pairs of arms" in said
    assert f"correlated by {correlated:.2f}." in said
    assert f"is {1 - fmean(shares):.0%} smaller".replace("%", " %") in said
    assert f"in {worse:.0%} of the pairs".replace("%", " %") in said


def test_pages_that_share_runs_say_so():
    assert laboratory.shared_runs("kl") == ["The runs of *no KL* are also those of `active`."]
    assert laboratory.shared_runs("three-ways") == []
    (plain,) = laboratory.shared_runs("lag")
    named = set(re.findall(r"`([a-z-]+)`", plain)) | {"lag"}
    said = README.read_text(encoding="utf-8").split("is the other side in ")[1]
    assert set(re.findall(r"`([a-z-]+)`", said.split(", so the luck")[0])) == named


def test_how_the_rates_were_chosen():
    """As the page says: by right rollouts, on two pages and in a line by something else."""
    chosen = {name: of.chosen_by for name, of in REGIMES.items() if of.chosen_by != "sampled"}
    assert chosen == {"format": "reward", "sampling-mask": "pass@1", "spurious": "pass@1"}
    stored = laboratory.stored()
    pages = laboratory.PAGES
    tried = {len(of.tried) for name in pages for of in choices(name, REGIMES[name], stored)}
    assert {3, 7} <= tried <= {*range(3, 8)}
    assert "three to seven learning rates" in CELLS["how-rates-were-chosen"]


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


def test_a_page_says_where_its_rates_lie_and_how_many_seeds_chose_them():
    assert laboratory.rates_told("lora") == [
        "- *all weights*: 4e-4, inside the range of 3 tried; chosen by 3 other seeds.",
        "- *LoRA, rank 8*: 2e-3, inside the range of 3 tried; chosen by 3 other seeds.",
    ]
    by_six = "inside the range of 7 tried; chosen by 6 other seeds."
    assert f"- *form alone*: 3.2e-3, {by_six}" in laboratory.rates_told("format")


def test_the_methods_without_a_page_have_a_line_each():
    """With a verdict of its own only where an interval excludes 0, as the intro says."""
    lines = laboratory.rest().data.splitlines()[2:]
    assert len(lines) == len(REGIMES) - len(laboratory.PAGES) - 1 == 9  # but for whole recipes
    unseen = [line for line in lines if "no difference seen in this regime" in line]
    assert [line for line in lines if "Muon hurts" in line] == [
        line for line in lines if line not in unseen
    ]
    assert "for eight of nine we saw no difference" in CELLS["title"]
    (muon,) = (of.effect for of in findings({"muon": REGIMES["muon"]}, laboratory.stored())[:1])
    remarks = CELLS["the-rest-found"].replace("−", "-")
    assert f"{100 * muon.mean:+.1f} points (s.e. {100 * muon.error:.1f})" in remarks
    (gspo,) = (
        of.effect
        for of in findings({"objective": REGIMES["objective"]}, laboratory.stored())
        if (of.ours, of.outcome) == ("gspo", "greedy test")
    )
    assert f"{100 * gspo.mean:+.1f} points (s.e. {100 * gspo.error:.1f})" in remarks
    no_penalty = values_of(laboratory.stored(), "kl", "no KL", "greedy test")[2e-4].values()
    assert f"{100 * fmean(no_penalty):.1f} %" in remarks


def test_the_time_to_read_it_is_counted():
    words = sum(len(CELLS[cell["id"]].split()) for cell in NOTEBOOK["cells"])
    results = sum(cell["cell_type"] == "code" for cell in NOTEBOOK["cells"]) - 1
    minutes = words / WORDS_A_MINUTE + results * MINUTES_A_RESULT
    assert 75 <= minutes <= 95 and "an hour and a half" in CELLS["title"], minutes


def test_the_ratio_to_the_sampler_is_ppo_with_another_denominator():
    logprobs = torch.tensor([[-1.0, -1.0, -1.0]], requires_grad=True)
    old, advantages = torch.tensor([[-1.1, -2.0, -0.5]]), torch.tensor([[1.0, 1.0, -1.0]])
    regimes.clipped_against_the_sampler(logprobs, old, advantages).sum().backward()
    # e^0.1 is within 0.8 and 1.2; e^1 is not, and good; e^-0.5 is not, and bad.
    assert logprobs.grad.tolist() == [[pytest.approx(math.exp(0.1)), 0.0, 0.0]]


def one_place(share: float) -> str:
    """A share in percent, rounded as the table rounds it before."""
    return "-" if math.isnan(share) else f"{100 * round(share, 3):+.1f}"


def test_a_change_is_a_few_lines():
    for name in laboratory.PAGES:
        diff = CELLS[name].split("```diff\n")[1].split("```")[0].splitlines()
        assert all(line[0] in "+-" for line in diff)
        assert sum(line[0] == "+" for line in diff) <= 3


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
