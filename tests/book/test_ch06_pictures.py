"""The drawings of chapter 6 show the numbers that they are given."""

import math
import re

import ch06_pictures as pictures
import IPython.display
import matplotlib.pyplot as plt
import pytest
from ch06_pictures import show_tokens, tokens_html
from report_groups import ByteTokenizer


@pytest.fixture(autouse=True)
def figures_are_closed():
    plt.switch_backend("Agg")
    yield
    plt.close("all")


def drawn():
    """The only axes of the figure that was drawn last, and the texts on it."""
    panel = plt.gcf().axes[0]
    return panel, [text.get_text() for text in panel.texts]


def test_the_loop_fills_the_stages_where_the_reader_is():
    pictures.draw_loop("rewards", "loss")
    panel, texts = drawn()
    bold = [text.get_text() for text in panel.texts if text.get_weight() == "bold"]
    assert bold == ["3 rewards", "6 loss"]
    assert [text for text in texts if text] == [
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


def test_pictures_drawn_first_leave_no_setting_behind():
    """A notebook shows figures only while matplotlib is interactive, which its first figure
    switches on: within rc_context that would be undone."""
    plt.ion()
    pictures.draw_baseline([0.0, 1.0], [1.0, 2.0], 0.3)
    pictures.draw_first_token(["a"], {"temperature 1": [0.5], "temperature 2": [0.4]})
    pictures.draw_critic_and_group()
    assert plt.isinteractive() and "rc_context" not in vars(pictures)
    plt.ioff()


@pytest.fixture
def displayed(monkeypatch):
    shown = []
    monkeypatch.setattr(IPython.display, "display", lambda thing: shown.append(thing.data))
    return shown


def test_the_less_probable_a_token_was_the_darker_it_is():
    page = tokens_html(ByteTokenizer(), list(b"abc"), [0.0, math.log(0.4), -50.0])
    assert re.findall(r"217, 119, 6, ([0-9.]+)", page) == ["0.00", "0.45", "0.75"]
    assert re.findall(r"probability ([0-9.]+)", page) == ["1.000", "0.400", "0.000"]
    assert re.findall(r">(.)</span>", page) == ["a", "b", "c"]


def test_markup_and_line_ends_are_shown(displayed):
    show_tokens(ByteTokenizer(), list(b"<\n"), [-1.0, -1.0])
    (page,) = displayed
    assert ">&lt;</span>" in page and ">↵<br></span>" in page
    assert page.count("<span") == 2


def test_a_probability_for_every_token():
    with pytest.raises(ValueError, match="shorter"):
        tokens_html(ByteTokenizer(), [1, 2], [-1.0])
