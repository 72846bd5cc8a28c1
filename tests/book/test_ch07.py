"""Chapter 7's plain functions by hand, and its plot."""

import matplotlib
import pytest
import torch

from reasoning_from_scratch import ch07
from reasoning_from_scratch.advantages import zscore

matplotlib.use("Agg")


def test_advantage_stats():
    advantages, mean, std = ch07.compute_advantage_stats([1.0, 0.0, 0.0, 1.0])
    torch.testing.assert_close(advantages, zscore(torch.tensor([1.0, 0.0, 0.0, 1.0])))
    assert mean == pytest.approx(0, abs=1e-6) and std == pytest.approx(1, abs=1e-3)
    advantages, mean, std = ch07.compute_advantage_stats([1, 1, 1])
    assert advantages.tolist() == [0, 0, 0] and mean == 0 and std == 0


S, E, A = 151667, 151668, 5


@pytest.mark.parametrize(
    "answer, expected",
    [
        ([S, A, E, A], 1.0),
        ([A, S, E], 1.0),
        ([E, S], 0.0),
        ([S, A], 0.0),
        ([A, E], 0.0),
        ([], 0.0),
        ([A], 0.0),
    ],
)
def test_reward_format(answer, expected):
    prompt = [S, A, E]  # what stands in the prompt does not count
    assert ch07.reward_format(torch.tensor(prompt + answer), 3) == expected
    assert ch07.reward_format(prompt + answer, 3) == expected


def test_reward_format_with_other_ids():
    assert ch07.reward_format([0, 8, 9], 1, start_think_id=8, end_think_id=9) == 1.0
    assert ch07.reward_format([0, 8, 9], 1) == 0.0


def test_moving_average():
    values = [1, 2, 3, 4, 5, 6, 7, 8]
    assert ch07.moving_average(values) == [1, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5]  # window 2
    assert ch07.moving_average(values, 0.5)[-1] == 6.5
    assert ch07.moving_average([4, 8], 0.25) == [4, 8]  # at least 1
    assert ch07.moving_average([]) == []


def test_plot(tmp_path, monkeypatch):
    path = tmp_path / "metrics.csv"
    path.write_text(
        "step,reward_avg,eval_acc\n1,0.1,\n2,0.3,0.2\n3,0.2,\n4,0.5,0.4\n", encoding="utf-8"
    )
    monkeypatch.setattr(ch07.plt, "show", lambda: None)
    picture = tmp_path / "curves.png"
    ch07.plot_grpo_metrics(path, ["reward_avg", "missing", "eval_acc"], save_as=picture)
    figure = ch07.plt.gcf()
    reward, missing, accuracy, unused = figure.axes
    assert picture.stat().st_size > 1000
    assert list(reward.lines[0].get_ydata()) == [0.1, 0.3, 0.2, 0.5]
    assert [bar.get_height() for bar in accuracy.patches] == [0.2, 0.4] and not accuracy.lines
    assert not missing.has_data() and not unused.has_data()
    assert [axis.get_visible() for axis in figure.axes] == [True, False, True, False]
    ch07.plt.close("all")
