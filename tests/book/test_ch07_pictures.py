"""Chapter 7's pictures show what they say: the numbers of the runs, the clip, who works when."""

import json
import math

import pytest
import torch
from ch07_pictures import (
    STAGES,
    answer_ways,
    clip_cases,
    clip_curves,
    groups_and_advantages,
    hump,
    joint_curves,
    kl_exact,
    lag_timeline,
    loop_strip,
    three_records,
    two_directions,
    where_length_enters,
)

from reasoning_from_scratch.tiny.world import tiny_problem

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


@pytest.mark.parametrize("order", [(9.0, -1.0), (1.0, 9.0)])
def test_every_line_is_within_its_panel(order):
    """Also the second run's, where it is larger than the first's."""
    runs = {str(size): [{"step": step, "a": size} for step in range(3)] for size in order}
    panel = joint_curves(runs, {"a": "a"}).axes[0]
    low, high = panel.get_ylim()
    assert low <= min(0.0, *order) and high >= max(order)


def test_what_was_not_measured_is_an_empty_panel():
    figure = joint_curves({"one": ROWS}, {"a": "a", "eval_acc": "accuracy"})
    assert not any(len(line.get_xdata()) for line in figure.axes[1].lines)


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


def test_the_three_records_are_named():
    words = " ".join(words_of(three_records()))
    for name in ("old_logprobs", "start_logprobs", "now: logprobs", "ref_logprobs", "ratio", "KL"):
        assert name in words


def test_the_loop_has_its_stages_and_the_notes_below_them():
    figure = loop_strip({"loss": "7.2 the clip"})
    words = words_of(figure)
    assert [f"{n} {stage}" for n, stage in enumerate(STAGES, 1)] == words[::2]
    assert words[11] == "7.2 the clip"
    filled = [patch.get_facecolor() for patch in figure.axes[0].patches]
    assert [fill == filled[5] for fill in filled] == [stage == "loss" for stage in STAGES]


def test_the_clip_switches_off_two_of_four_cases():
    words = words_of(clip_cases())[2:]  # below the two headings
    good, bad = words[1:3], words[4:6]
    assert ["pushed up" in case for case in good] == [True, False]
    assert ["pushed down" in case for case in bad] == [False, True]
    assert ["switched off" in case for case in good + bad] == [False, True, True, False]


def test_one_direction_picks_a_habit_and_the_other_covers_both():
    picks, covers = two_directions().axes
    left, right = (panel.lines[0].get_ydata() for panel in (picks, covers))
    assert left[29] < 0.01 < right[29] and left.argmax() == 11 and 11 < right.argmax() < 29


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


def test_the_weight_of_a_token_in_each_average():
    said = [words_of_panel(panel) for panel in where_length_enters().axes]
    assert said == [
        ["1/20 each; 50% of all", "1/80 each; 50% of all"],
        ["1/50 each; 20% of all", "1/50 each; 80% of all"],
        ["1/80 each; 20% of all", "1/80 each; 80% of all"],
    ]
    heights = {bar.get_height() for bar in where_length_enters().axes[0].patches}
    assert heights == {1 / 20, 1 / 80}


def words_of_panel(panel):
    return [text.get_text() for text in panel.texts]


def test_side_by_side_work_is_one_version_behind():
    turns, beside = lag_timeline().axes
    words = [[text.get_text() for text in panel.texts] for panel in (turns, beside)]
    assert words[0][4:6] == ["batch 3\nby version 2", "batch 3\nversion 2 → 3"]
    assert words[1][4:6] == ["batch 3\nby version 1", "batch 3\nversion 2 → 3"]


def test_the_ways_of_a_run_are_drawn(tmp_path):
    row = tiny_problem("train", 0)
    problem = {"problem": row["problem"], "answer": row["answer"], "extracted": row["answer"]}
    answer = {
        "iteration": 0,
        "group_idx": 0,
        "traj_idx": 0,
        "problem_id": "tiny/train/0",
        "total_reward": 1.0,
        "advantage": 0.0,
        "stop_reason": "stop",
        "text": f"\n\\boxed{{{row['answer']}}}",
        "trajectory_metrics": {},
        "steps": [{"ob_len": 9, "ac_len": 7, "metrics": {"correct": 1.0}, "logs": problem}],
    }
    path = tmp_path / "train_iteration_000000_rollout_summaries.jsonl"
    path.write_text(json.dumps(answer) + "\n", encoding="utf-8")
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n', encoding="utf-8")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    figure = answer_ways({"mine": tmp_path})
    assert figure.axes[0].get_title() == "mine" and "at once" in words_of(figure)
