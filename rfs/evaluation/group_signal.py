"""Do groups of rollouts have a learning signal? Reinforcement learning learns from groups in which
some rollouts are correct and some are not. So sample a few groups and say what is missing, before
hours are spent. Each run does so briefly, `rfs preflight` at length.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import mean, median

from answer_grader import has_readable_answer
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rollouts import (
    Group,
    Rollout,
    reward_groups,
    sample_each,
    sort_by_place,
)
from reasoning_from_scratch.text import one_line, percent
from reasoning_from_scratch.tiny.model import TINY_CONFIG
from reasoning_from_scratch.tiny.world import is_tiny_problem
from rfs.config import RunConfig
from rfs.engine import FAST
from rfs.evaluation.evaluate import progress_bar
from rfs.tasks.judge import judge_of

# Share of groups with a signal that is enough to learn, and enough to learn quickly.
MIN_LIVE_SHARE, FAST_LIVE_SHARE = 0.1, 0.3
SHOWN = 300  # characters of a failure


@dataclass(kw_only=True)
class Outlook:
    """Whether a run can work, judged before its first step."""

    can_work: bool = False
    verdict: str = ""  # a sentence that says why


@dataclass
class Preflight(Outlook):
    """Figures of a few groups of rollouts."""

    problems: Sequence[Problem]  # that were asked
    rollouts: int  # per problem
    pass_at_1: float
    pass_at_g: float
    cutoff_share: float
    parse_rate: float
    live_share: float  # groups with correct and incorrect rollouts
    mean_length: float
    tokens_per_sec: float
    sampling_seconds: float  # all groups together
    rows: list[dict]  # one per answer

    @property
    def example(self) -> str:
        """An answer as the model wrote it that shows what goes wrong: unparsed if there is one,
        else incorrect, else any."""
        return min(self.rows, key=lambda row: (row["parsed"], row["correct"]))["generated_text"]


def preflight_summary(
    model,
    tokenizer,
    problems: Sequence[Problem],
    config: RunConfig,
    *,
    num_problems: int = 16,
    progress: bool = False,
) -> Preflight:
    """Samples groups from problems spread over the whole set, as training would, and judges
    whether they have a learning signal."""
    if config.rollouts < 2:
        raise UserError("a group needs at least 2 rollouts; raise --rollouts")
    chosen, finished = spread_out(problems, num_problems), []
    start = time.perf_counter()
    with progress_bar(len(chosen), label="preflight", quiet=not progress) as bar:
        for group in sample_each(model, tokenizer, chosen, config, step=0, engine=FAST):
            finished.append(group)
            bar.update()
    groups = sort_by_place(finished)
    reward_groups(groups, config, tokenizer, judge_of(config))
    seconds = time.perf_counter() - start
    rows_by_group = [preflight_rows(group) for group in groups]
    rows = list(chain.from_iterable(rows_by_group))
    preflight = Preflight(
        problems=chosen,
        rollouts=config.rollouts,
        pass_at_1=mean(row["correct"] for row in rows),
        pass_at_g=mean(any(row["correct"] for row in group) for group in rows_by_group),
        cutoff_share=mean(not row["stopped"] for row in rows),
        parse_rate=mean(row["parsed"] for row in rows),
        live_share=mean(group.solved_sometimes for group in groups),
        mean_length=mean(row["tokens"] for row in rows),
        tokens_per_sec=sum(row["tokens"] for row in rows) / seconds,
        sampling_seconds=seconds,
        rows=rows,
    )
    is_tiny = model.cfg["vocab_size"] == TINY_CONFIG["vocab_size"]
    in_tiny_world = config.environment or all(is_tiny_problem(problem.id) for problem in chosen)
    environment = config.environment and f"The environment {config.environment}"
    preflight.can_work, preflight.verdict = can_training_work(
        preflight,
        config.max_new_tokens,
        is_tiny and not in_tiny_world,
        environment or "Your reward function",
    )
    return preflight


def preflight_rows(group: Group) -> list[dict]:
    """A row per answer, with the keys of `rfs evaluate`."""

    def parsed(rollout: Rollout) -> bool:
        """Whether the grader can read it; a verifier or an environment may read anything."""
        has_other_judge = rollout.outcome is not None or "reward_failed" in rollout.rewards
        return not rollout.failure if has_other_judge else has_readable_answer(rollout.text)

    return [
        {
            "correct": rollout.rewards["correct"] >= 1,  # a verifier may also give part of a reward
            "parsed": parsed(rollout),
            "reward_failure": rollout.failure,
            "tokens": rollout.num_sampled,
            "length": len(rollout.response_ids),  # with what an environment said
            "stopped": rollout.finished,
            "generated_text": rollout.text,
        }
        for rollout in group.rollouts
    ]


def spread_out(problems: Sequence[Problem], count: int) -> Sequence[Problem]:
    """`count` problems, evenly spaced over the set."""
    count = min(count, len(problems))
    return [problems[index * len(problems) // count] for index in range(count)]


def can_training_work(
    preflight: Preflight, max_new_tokens: int, outside_tiny_world: bool, rewarder: str
) -> tuple[bool, str]:
    """Whether training can work, and the sentence that says why; the first cause that fits.
    `outside_tiny_world`: the tiny model got problems from outside its own world. `rewarder`: what
    computed the rewards, for the message if it failed."""
    live_share = preflight.live_share
    failed = [row for row in preflight.rows if row.get("reward_failure")]
    if 2 * len(failed) > len(preflight.rows):
        return False, (
            f"{rewarder} failed on {len(failed)} of {len(preflight.rows)} answers: it "
            f"{one_line(failed[0]['reward_failure'], SHOWN)}. Such answers get 0: fix it first."
        )
    if outside_tiny_world and preflight.pass_at_1 == 0:
        return False, (
            f"None of {len(preflight.rows)} answers was correct. The tiny model knows only the "
            "sums of its own small world, in that world's words. Take problems like those of "
            "--problems tiny or ch07/my_task.py, or a model that has read more, such as --model "
            "base."
        )
    cut_off = percent(preflight.cutoff_share)
    if live_share >= MIN_LIVE_SHARE:
        slow = (
            "" if live_share >= FAST_LIVE_SHARE else ", slowly: filter the problems by difficulty"
        )
        hint = f"; {cut_off} of answers are cut off, a longer limit may help"
        return True, (
            f"Training can work{slow}: {percent(live_share)} of groups have a signal"
            f"{hint if preflight.cutoff_share >= 0.3 else ''}."
        )
    if preflight.pass_at_1 > 0.9:
        return False, (
            f"There is little left to learn: {percent(preflight.pass_at_1)} of answers are correct "
            "already. Take harder problems."
        )
    if preflight.cutoff_share > 0.5:
        cutoff_lengths = [row["length"] for row in preflight.rows if not row["stopped"]]
        rambles = (
            " if the model rambles on, the cause is not the limit but a prompt template or stop"
            " token that does not fit the model."
        )
        if median(cutoff_lengths) < max_new_tokens:  # the model's context was full before
            return False, (
                f"{cut_off} of answers are cut off before their result, where"
                f" prompt and answer fill the model's context. Take shorter problems;{rambles}"
            )
        return False, (
            f"{cut_off} of answers are cut off at {max_new_tokens} tokens "
            f"before their result. Raise --max-new-tokens;{rambles}"
        )
    if preflight.parse_rate < 0.5:
        return False, (
            f"Only {percent(preflight.parse_rate)} of answers have a readable \\boxed{{}} result, "
            "so correct ones cannot be rewarded. The prompt does not suit the model, or the model "
            "needs supervised training on the answer format first."
        )
    if preflight.pass_at_1 < 0.05:
        return False, (
            "The answers can be read but almost none is correct: the problems are too hard for this"
            " model. Take easier problems, more rollouts per problem, or a stronger model."
        )
    return False, (
        "Each problem is always or never answered correctly, so no group has a signal. Raise"
        " --temperature or --rollouts, or take problems of medium difficulty."
    )
