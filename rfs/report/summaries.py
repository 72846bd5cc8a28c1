"""One line per rollout, with the keys that viewers of such files read."""

from collections.abc import Iterator, Sequence

from answer_grader import get_last_boxed
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.text import json_line


def is_correct(rollout) -> bool | None:
    """None where no part of the reward says whether the answer is correct."""
    correct = rollout.rewards.get("correct")
    return None if correct is None else correct >= 1


def extracted(rollout) -> str | None:
    """The answer that the grader read: the last box. None if there is no box, or if your own
    verifier judged the answer: it may read anything."""
    if "correct" not in rollout.rewards or "reward_failed" in rollout.rewards:
        return None
    boxed = get_last_boxed(rollout.text)
    return boxed and boxed.strip()


def stop_reason(rollout) -> str:
    return "stop" if rollout.finished else "length"


def summary_lines(split: str, iteration: int, groups: Sequence[Group]) -> Iterator[str]:
    for group_idx, group in enumerate(groups):
        for traj_idx, rollout in enumerate(group.rollouts):
            yield json_line(_summary(split, iteration, group_idx, traj_idx, rollout))


def _summary(split: str, iteration: int, group_idx: int, traj_idx: int, rollout) -> dict:
    return {
        "schema_version": 1,
        "split": split,
        "iteration": iteration,
        "group_idx": group_idx,
        "traj_idx": traj_idx,
        "tags": [rollout.problem.type] if rollout.problem.type else [],
        "sampling_client_step": rollout.policy_version,
        "total_reward": rollout.reward,
        "final_reward": 0.0,  # the whole reward is in the one step
        "trajectory_metrics": {
            "logprob_mean": _mean(rollout.select_sampled(rollout.logprobs)),
            "entropy_mean": _mean(rollout.select_sampled(rollout.entropies)),
        },
        "steps": [_only_step(rollout)],
        "final_ob_len": 0,
        "problem_id": rollout.problem.id,
        "advantage": rollout.advantage,
        "stop_reason": stop_reason(rollout),
        "text": rollout.text,
    } | ({"forced": rollout.forced} if rollout.forced else {})  # positions of a tool's tokens


def _only_step(rollout) -> dict:
    return {
        "step_idx": 0,
        "ob_len": len(rollout.prompt_ids),
        "ac_len": rollout.num_sampled,
        "reward": rollout.reward,
        "episode_done": True,
        "metrics": dict(rollout.rewards),
        "logs": {"problem": rollout.problem.problem, "answer": rollout.problem.answer}
        | ({"extracted": answer} if (answer := extracted(rollout)) is not None else {})
        | ({"reward_failure": rollout.failure} if rollout.failure else {}),
    }


def _mean(values) -> float | None:
    return sum(values) / len(values) if len(values) else None
