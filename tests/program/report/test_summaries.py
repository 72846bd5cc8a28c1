"""Rollout summaries: the documented keys and values."""

import pytest
from report_groups import make_groups

from tests.program.report.written import summaries


def test_summaries_have_the_documented_keys_and_values(steps):
    rows = summaries(steps)
    assert [(r["group_idx"], r["traj_idx"]) for r in rows] == [
        (g, t) for g in range(6) for t in range(4)
    ]
    rollout = make_groups(seed=1)[2].rollouts[1]
    row = rows[9]
    mean = sum(rollout.logprobs) / len(rollout.logprobs)
    means = {"logprob_mean": pytest.approx(mean), "entropy_mean": 0.5}
    assert row.pop("trajectory_metrics") == means
    assert row == {
        "schema_version": 1,
        "split": "train",
        "iteration": 1,
        "group_idx": 2,
        "traj_idx": 1,
        "tags": ["sums"],
        "sampling_client_step": 7,
        "total_reward": 0.0,
        "final_reward": 0.0,
        "steps": [
            {
                "step_idx": 0,
                "ob_len": len(rollout.prompt_ids),
                "ac_len": len(rollout.response_ids),
                "reward": 0.0,
                "episode_done": True,
                "metrics": {"correct": 0.0, "format": 1.0},
                "logs": {
                    "problem": rollout.problem.problem,
                    "answer": rollout.problem.answer,
                    "extracted": rollout.text.partition("boxed{")[2][:-1],
                },
            }
        ],
        "final_ob_len": 0,
        "problem_id": "sum/2",
        "advantage": -1.0,
        "stop_reason": "stop",
        "text": rollout.text,
    }
    assert summaries(steps, "eval_my_test_iteration_000001")[0]["split"] == "eval/my test!"
