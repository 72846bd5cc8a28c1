"""A regime's picture shows each seed, each rate and each difference; the last one shows all."""

from regime_findings import Contrast, Regime, findings
from regime_pictures import MARKS, all_effects, regime_picture

TWO = Regime("Is new better?", {"old": {}, "new": {"epochs": 2}}, "pass@1", lrs=(2e-4, 4e-4))


def test_the_picture_of_a_page():
    rows = [
        {"regime": "two", "arm": arm, "lr": lr, "seed": seed, "pass@1": seed / 10, "sampled": lr}
        for arm in TWO.arms
        for lr in TWO.lrs
        for seed in range(3)
    ]
    figure = regime_picture("two", TWO, rows, findings({"two": TWO}, rows))
    seeds, rates, differences = figure.axes
    assert [text.get_text() for text in seeds.get_yticklabels()] == ["new", "old"]
    dots = [line for line in seeds.lines if line.get_marker() in MARKS]
    assert [list(line.get_xdata()) for line in dots] == [[0.0, 0.1, 0.2]] * 2
    assert [text.get_text() for text in rates.get_xticklabels()] == ["2e-4", "4e-4"]
    assert [text.get_text() for text in differences.get_yticklabels()] == ["new\nagainst old"]


def test_an_arm_without_a_run_leaves_its_line_empty():
    rows = [{"regime": "two", "arm": "old", "lr": 2e-4, "seed": 0, "pass@1": 0.5, "sampled": 0.5}]
    seeds, _, differences = regime_picture("two", TWO, rows, []).axes
    assert len(seeds.get_yticklabels()) == 2 and not differences.get_yticklabels()


def found(name: str, ours: str, effects: tuple[float, ...], outcome: str = "pass@1") -> Contrast:
    values = dict(enumerate(effects))
    zeros = dict.fromkeys(values, 0.0)
    return Contrast(name, ours, "plain", outcome, values, zeros, (1e-4, 1e-4), True, False)


def test_all_effects_have_a_panel_for_each_unit():
    several = [found("a", "x", (0.1, 0.2)), found("b", "y", (0.3, 0.3)), found("c", "z", (0.1,))]
    shares, lengths = all_effects([*several, found("d", "w", (1.0, 2.0), "tokens test")]).axes
    names = [text.get_text() for text in shares.get_yticklabels()]
    assert names == ["a: x / plain", "b: y / plain"]  # the largest on top; one seed is no effect
    assert len(lengths.get_yticklabels()) == 1 and "tokens" in lengths.get_xlabel()
