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


def test_the_loop_names_its_stages_in_order():
    pictures.draw_loop()
    assert [text for text in drawn()[1] if text] == [
        f"{number} {stage}" for number, stage in enumerate(pictures.STAGES, start=1)
    ]


def test_a_group_shows_rewards_and_advantages_to_either_side():
    pictures.draw_group("a problem", ["one", "two", "three"], [1.0, 0.0, 0.0], [1.15, -0.58, -0.58])
    panel, texts = drawn()
    assert {"a problem", "one", "two", "three", "+1.15", "-0.58"} <= set(texts)
    bars = [patch for patch in panel.patches if hasattr(patch, "get_x") and patch.get_hatch()]
    assert len(bars) == 2 and all(bar.get_width() < 0 for bar in bars)  # told apart in grey


def test_a_uniform_group_has_bars_of_no_length():
    pictures.draw_group("a problem", ["one", "two"], [0.0, 0.0], [0.0, 0.0])
    assert drawn()[1].count("+0.00") == 2


def test_the_mask_is_1_on_the_answer_alone():
    pictures.draw_tokens(["a", "b", "c"], ["d", "<end>"], padding=1)
    panel, _ = drawn()
    row = [t.get_text() for t in panel.texts if t.get_position()[1] == 0.3]
    assert row == ["mask", "0", "0", "0", "1", "1", "0"]


def test_all_curves_are_drawn_and_smoothing_keeps_what_is_constant():
    pictures.draw_training({"right": {"ours": [0.5] * 20, "theirs": [0.25] * 20}})
    lines = plt.gcf().axes[0].get_lines()
    assert [set(line.get_ydata()) for line in lines] == [{0.5}, {0.5}, {0.25}, {0.25}]


def test_noise_names_the_mean_of_each_size():
    pictures.draw_noise({2: [0.0, 0.5], 8: [0.9, 0.7]})
    panel, texts = drawn()
    assert texts == ["0.25", "0.80"]
    assert [label.get_text() for label in panel.get_xticklabels()] == ["G = 2", "G = 8"]


def test_the_heat_map_writes_what_is_unlikely():
    pictures.draw_logprobs(["a", "b"], {"before": [-2.5, -0.1], "after": [-0.05, -0.4]})
    assert drawn()[1] == ["-2.5", "-0.4"]


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


def test_pictures_drawn_first_leave_no_setting_behind():
    """A notebook shows figures only while matplotlib is interactive, which its first figure
    switches on: within rc_context that would be undone."""
    plt.ion()
    pictures.draw_baseline([0.0, 1.0], [1.0, 2.0], 0.3)
    pictures.draw_first_token(["a"], {"temperature 1": [0.5], "temperature 2": [0.4]})
    pictures.draw_critic_and_group()
    assert plt.isinteractive() and "rc_context" not in vars(pictures)
    plt.ioff()
