"""Findings: each arm at its best rate, then seed by seed; tables whose numbers can be checked."""

import dataclasses

from regime_findings import Regime, arms_by_choice, findings, findings_table, verdicts_table

TWO = Regime(
    "Is two more than one?",
    {"one": {}, "two": {"epochs": 2}},
    outcome="tokens test",
    lrs=(1e-4, 2e-4),
    lower_is_better=True,
    also=("greedy test",),
)
WORSE = dataclasses.replace(TWO, lower_is_better=False)


def row(arm, lr, seed, **outcomes):
    return {"regime": "two", "arm": arm, "lr": lr, "seed": seed} | outcomes


ROWS = [
    row("one", 1e-4, 0, sampled=0.5, **{"tokens test": 30.0, "greedy test": 0.5}),
    row("one", 1e-4, 1, sampled=0.5, **{"tokens test": 50.0, "greedy test": 0.7}),
    row("one", 2e-4, 0, sampled=0.4, **{"tokens test": 1.0, "greedy test": 0.0}),
    row("two", 1e-4, 0, sampled=0.1, **{"tokens test": 99.0, "greedy test": 0.0}),
    row("two", 2e-4, 0, sampled=0.6, **{"tokens test": 20.0, "greedy test": 0.5}),
    row("two", 2e-4, 1, sampled=0.6, **{"tokens test": 39.0, "greedy test": 0.7}),
]


def test_the_table_by_hand():
    found = findings({"two": TWO}, ROWS)
    first, second = found
    assert (first.ours, first.theirs, first.rates) == ("two", "one", (2e-4, 1e-4))
    assert first.with_it == {0: 20.0, 1: 39.0} and first.without == {0: 30.0, 1: 50.0}
    assert (first.effect.mean, first.effect.error) == (-10.5, 0.5)
    assert first.verdict == "helps"  # 0.5 x 12.71 is below 10.5
    assert (second.outcome, second.verdict) == ("greedy test", "no difference seen")
    assert [one.verdict for one in findings({"two": WORSE}, ROWS)][0] == "hurts"
    cells = [cell.strip() for cell in findings_table(found).splitlines()[4].split("|")[1:-1]]
    line = ["two", "one", "tokens test", "-10.5", "0.500", "helps"]
    line += ["29.5", "40.0", "2", "2e-4 / 1e-4"]
    assert cells == line
    again = findings({"two": TWO, "again": TWO}, [*ROWS, *(r | {"regime": "again"} for r in ROWS)])
    cells = [cell.strip() for cell in findings_table(again).splitlines()[4].split("|")[1:-1]]
    assert cells == ["two", *line]  # of several regimes with their names
    assert "greedy test" in findings_table(found) and "greedy test" not in verdicts_table(found)


def test_what_is_missing():
    few = findings({"two": TWO}, ROWS[:1] + ROWS[3:4])
    assert few[0].verdict == "too few seeds"
    assert findings({"two": TWO}, ROWS[:3]) == []  # an arm without a run
    lost = [*ROWS[:5], ROWS[5] | {"tokens test": float("nan")}]
    assert findings({"two": TWO}, lost)[0].verdict == "a run has no value"
    assert " -" in findings_table(findings({"two": TWO}, lost))


def test_the_rate_is_that_of_the_seeds_which_all_rates_have():
    """A later seed, run at one rate alone, does not choose."""
    unlucky = [*ROWS, row("two", 2e-4, 2, sampled=0.0, **{"tokens test": 9.0, "greedy test": 0.1})]
    assert findings({"two": TWO}, unlucky)[0].rates == (2e-4, 1e-4)


def test_other_seeds_choose_a_rate_and_are_not_reported():
    """By the reported runs it would be 1e-4 for the first arm."""
    other = [row("one", lr, 100 + seed, sampled=lr) for lr in (1e-4, 2e-4) for seed in (0, 1)]
    found = findings({"two": TWO}, [*ROWS, *other])[0]
    assert found.rates == (2e-4, 2e-4) and found.without == {0: 1.0}
    told = [str(choice) for choice, arms in arms_by_choice("two", TWO, [*ROWS, *other]).items()]
    assert [words.split("chosen by ")[1] for words in told] == ["2 other seeds", "one seed"]
    assert findings({"two": TWO}, [*ROWS[3:], *other]) == []  # no run at the rate that was chosen
