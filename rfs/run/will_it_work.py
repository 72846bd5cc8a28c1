"""Will it work? One question about a configuration and its problems, asked in three places.

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

LOOKED_AT = 32  # worked solutions that are judged before the first is learned


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
        return judged_solutions(config, tokenizer, problems)
    asked = replaced(config, keep_sampling_mask=False)
    return preflight_summary(
        model, tokenizer, problems, asked, num_problems=num_problems, progress=progress
    )


def judged_solutions(config: RunConfig, tokenizer, problems: Sequence[Problem]) -> Outlook:
    """How often each is learned, and whether the first ones would get a reward as answers."""
    passes = (
        f"{counted(config.steps, 'step')} of {config.problems_per_step} are "
        f"{config.steps * config.problems_per_step / len(problems):.3g} passes over "
        f"{counted(len(problems), 'worked solution')}."
    )
    groups = [Group(one, [worked_rollout(one, tokenizer)]) for one in problems[:LOOKED_AT]]
    reward_groups(groups, config, tokenizer, judge_of(config))
    wrong = [group.problem for group in groups if not group.rollouts[0].rewards["correct"]]
    if not wrong:
        return Outlook(can_work=True, verdict=f"Training can work: {passes}")
    return Outlook(
        can_work=False,
        verdict=f"{len(wrong)} of the first {counted(len(groups), 'worked solution')} would get no "
        f"reward as answers, such as that of {wrong[0].where}: does it end with the answer, in "
        f"the format that the reward expects? {passes}",
    )


def all_steps(config: RunConfig, seconds: float, at_most: bool) -> str:
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
