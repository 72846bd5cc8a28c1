"""Will it work? One question about a configuration and its problems, asked in three places:

a run, before its first step     on a few problems; the verdict is a line of its log
`rfs train --smoke`              the same, then two small steps, and how long the full run takes
`rfs preflight`                  on more problems, with all figures and the cost of a step
"""

import math
from collections.abc import Sequence

from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rollouts import Group, reward_groups, worked_rollout
from reasoning_from_scratch.text import counted
from rfs.config import RunConfig, replaced
from rfs.evaluation.group_signal import Outlook, preflight_summary
from rfs.tasks.judge import judge_of

NUM_JUDGED = 32  # worked solutions that are judged before the first is learned


def will_it_work(
    config: RunConfig,
    model,
    tokenizer,
    problems: Sequence[Problem],
    num_problems: int = 8,
    progress: bool = False,
) -> Outlook:
    """Whether this model can learn from these problems, and why. Groups are sampled and judged as
    in training; where solutions are learned, the first of them are judged."""
    if config.is_supervised:
        return judge_solutions(config, tokenizer, problems)
    sampling = replaced(config, keep_sampling_mask=False)
    return preflight_summary(
        model, tokenizer, problems, sampling, num_problems=num_problems, progress=progress
    )


def judge_solutions(config: RunConfig, tokenizer, problems: Sequence[Problem]) -> Outlook:
    """How often each solution is trained on, and whether the first would be rewarded as answers."""
    passes = (
        f"{counted(config.steps, 'step')} of {config.problems_per_step} are "
        f"{config.steps * config.problems_per_step / len(problems):.3g} passes over "
        f"{counted(len(problems), 'worked solution')}."
    )
    groups = [Group(p, [worked_rollout(p, tokenizer)]) for p in problems[:NUM_JUDGED]]
    reward_groups(groups, config, tokenizer, judge_of(config))
    unrewarded = [group.problem for group in groups if not group.rollouts[0].rewards["correct"]]
    if not unrewarded:
        return Outlook(can_work=True, verdict=f"Training can work: {passes}")
    return Outlook(
        can_work=False,
        verdict=f"{len(unrewarded)} of the first {counted(len(groups), 'worked solution')} would "
        f"get no reward as answers, such as that of {unrewarded[0].where}: does it end with the "
        f"answer, in the format that the reward expects? {passes}",
    )


def run_time_text(config: RunConfig, seconds: float, at_most: bool) -> str:
    """How long the run takes if one of its steps takes so many seconds."""
    each = f"{config.problems_per_step} worked solutions"
    if not config.is_supervised:
        each = f"{config.problems_per_step} x {config.rollouts} answers"
    seconds *= config.steps
    time = counted(math.ceil(seconds / 60), "minute")
    if seconds >= 7200:
        time = f"{seconds / 3600:.1f} hours"
    return (
        f"{counted(config.steps, 'step')} of {each} take {'at most' if at_most else 'about'} "
        f"{time} here"
    )
