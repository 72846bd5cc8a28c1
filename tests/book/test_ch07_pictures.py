"""Chapter 7's pictures show what they say: the numbers of the runs, the clip, who works when."""

import math

import pytest
import torch
from ch07_pictures import (
    clip_cases,
    clip_curves,
    groups_and_advantages,
    hump,
    joint_curves,
    kl_exact,
)

ROWS = [{"step": step, "a": value} for step, value in enumerate((1.0, 4.0, None, 7.0, 0.0))]


def words_of(figure):
    return [text.get_text() for panel in figure.axes for text in panel.texts]


def test_a_line_is_what_was_measured_and_its_mean_over_three_steps():
    figure = joint_curves({"one": ROWS}, {"a": "apples (pieces)"})
    panel, *others = figure.axes
    measured, mean = panel.lines[:2]
    assert list(measured.get_ydata()) == [1.0, 4.0, None, 7.0, 0.0]
    shown = list(mean.get_ydata())
    assert shown[:2] == [1.0, 2.5] and math.isnan(shown[2]) and shown[3:] == [5.5, 3.5]
    assert panel.get_title() == "apples (pieces)" and panel.get_xlabel() == "step"
    assert not any(other.get_visible() for other in others)


def test_the_clip_counts_the_tokens_without_gradient():
    """Of four with a positive advantage those above 1.2, of two with a negative the one below 0.8;
    a token whose advantage is 0 is in neither panel."""
    ratios = [0.5, 1.0, 1.5, 30.0, 0.5, 1.5, 1.0]
    advantages = [2.0, 2.0, 1.0, 1.0, -1.0, -1.0, 0.0]
    words = words_of(clip_curves(ratios, advantages))
    assert "4 tokens of a step, 50.0% without gradient" in words
    assert "2 tokens of a step, 50.0% without gradient" in words


def test_the_clip_without_a_run():
    figure = clip_curves()
    above, below = figure.axes
    _, clipped = above.lines
    assert max(clipped.get_ydata()) == pytest.approx(1.2)
    _, clipped = below.lines
    assert max(clipped.get_ydata()) == pytest.approx(-0.8)


def test_the_clip_switches_off_two_of_four_cases():
    words = words_of(clip_cases())[2:]  # below the two headings
    good, bad = words[1:3], words[4:6]
    assert ["pushed up" in case for case in good] == [True, False]
    assert ["pushed down" in case for case in bad] == [False, True]
    assert ["switched off" in case for case in good + bad] == [False, True, True, False]


def test_the_exact_kl():
    policy, reference = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.5, 0.3, 0.2])
    assert kl_exact(policy, reference) == pytest.approx(0.0851, abs=1e-4)
    far = hump(torch.arange(41.0), 0, 0.5)  # most of it underflows to 0
    assert math.isfinite(kl_exact(far, far.flip(0)))


def test_each_group_shows_its_advantages():
    """A lone right answer of eight: 2.47 by z-score, 7/8 without the division."""
    lone, even, full = groups_and_advantages().axes
    assert words_of_panel(lone) == ["+2.47", "-0.35", "+0.88", "-0.12"]
    assert words_of_panel(even) == ["+0.94", "-0.94", "+0.50", "-0.50"]
    assert words_of_panel(full) == ["+0.35", "-2.47", "+0.12", "-0.88"]


def words_of_panel(panel):
    return [text.get_text() for text in panel.texts]
