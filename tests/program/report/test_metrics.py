"""Step metrics by hand."""

import pytest

from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.trainer import advantage_metrics
from rfs.report.metrics import group_shares, rollout_metrics
from tests.test_rollouts import PROBLEM, rollout


def group(*rewards):
    return Group(PROBLEM, [rollout([1, 2], [3] * (i + 1), reward=r) for i, r in enumerate(rewards)])


def test_shares_of_groups():
    shares = group_shares([group(0, 1), group(0.5, 0.5), group(0.4, 0.4), group(1, 1)])
    assert shares == {
        "env/all/by_group/frac_mixed": 0.25,
        "env/all/by_group/frac_all_good": 0.5,
        "env/all/by_group/frac_all_bad": 0.25,
    }


def test_means_over_all_rollouts():
    groups = [group(0, 1), group(1, 1)]
    for item in groups:
        for member in item.rollouts:
            member.rewards = {"correct": member.reward, "format": 0.5}
    groups[0].rollouts[0].finished = False
    found = rollout_metrics(groups)
    assert found["env/all/reward/total"] == found["env/all/correct"] == 0.75
    assert found["env/all/format"] == 0.5 and found["env/all/cutoff_share"] == 0.25
    assert found["env/all/ac_tokens_per_turn"] == 1.5 and found["env/all/total_ac_tokens"] == 6
    assert found["env/all/ob_tokens_per_turn"] == 2 and found["env/all/total_episodes"] == 4
    assert found["optim/entropy"] == pytest.approx(0.5)
    assert found["optim/token_entropy"] == pytest.approx(0.1)
    assert advantage_metrics(groups) == {"advantage/mean": 0, "advantage/std": 0}
    assert advantage_metrics([]) == {"advantage/mean": 0, "advantage/std": 0}
