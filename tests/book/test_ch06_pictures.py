"""The drawings of chapter 6 show the numbers that they are given."""

import ch06_pictures as pictures
import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def figures_are_closed():
    plt.switch_backend("Agg")
    yield
    plt.close("all")


def drawn():
    """The only axes of the figure that was drawn last, and the texts on it."""
    panel = plt.gcf().axes[0]
    return panel, [text.get_text() for text in panel.texts]


def test_a_group_shows_rewards_and_advantages_to_either_side():
    pictures.draw_group("a problem", ["one", "two", "three"], [1.0, 0.0, 0.0], [1.15, -0.58, -0.58])
    panel, texts = drawn()
    assert {"a problem", "one", "two", "three", "+1.15", "-0.58"} <= set(texts)
    bars = [patch for patch in panel.patches if hasattr(patch, "get_x") and patch.get_hatch()]
    assert len(bars) == 2 and all(bar.get_width() < 0 for bar in bars)  # told apart in grey


def test_the_mask_is_1_on_the_answer_alone():
    pictures.draw_tokens(["a", "b", "c"], ["d", "<end>"], padding=1)
    panel, _ = drawn()
    row = [t.get_text() for t in panel.texts if t.get_position()[1] == 0.3]
    assert row == ["mask", "0", "0", "0", "1", "1", "0"]


def test_the_sum_of_an_answer_goes_down_token_by_token():
    pictures.draw_answer_logprob(["a", "b", "c"], [-0.5, -0.1, -1.0])
    panel, texts = drawn()
    assert texts == ["-0.5", "-1.0", "-1.6"]  # what a token adds if it is much; the whole sum
    assert list(panel.get_lines()[0].get_ydata()) == pytest.approx([-0.5, -0.6, -1.6])
    assert [bar.get_height() for bar in panel.patches] == [-0.5, -0.1, -1.0]


def test_the_push_is_one_minus_p_and_turns_around_with_the_advantage():
    pictures.draw_push(["x", "y", "z"], [0.6, 0.3, 0.1], sampled=1)
    up, down = ([bar.get_height() for bar in panel.patches] for panel in plt.gcf().axes)
    assert up == pytest.approx([-0.6, 0.7, -0.1]) and down == pytest.approx([0.6, -0.7, 0.1])
    hatched = [bool(bar.get_hatch()) for bar in plt.gcf().axes[0].patches]
    assert hatched == [True, False, True]  # told apart in grey
