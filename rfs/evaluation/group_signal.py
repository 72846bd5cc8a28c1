"""Do groups of rollouts teach? Reinforcement learning learns from those in which some rollouts are
correct and some are not. So: sample a few groups, look at them, and say in words what is missing,
before hours are spent. Each run does so briefly, `rfs preflight` at length.
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
    in_order,
    reward_groups,
    sample_each,
)
from reasoning_from_scratch.text import one_line, percent
from reasoning_from_scratch.tiny.model import TINY_CONFIG
from reasoning_from_scratch.tiny.world import of_tiny_world
from rfs.config import RunConfig
from rfs.engine import FAST
from rfs.evaluation.evaluate import progress_bar
from rfs.tasks.judge import judge_of

SOME_MIXED, MANY_MIXED = 0.1, 0.3  # share of groups with a signal: enough to learn, and to be quick
SHOWN = 300  # characters of a failure


@dataclass(kw_only=True)
class Outlook:
    """What can be said of a run before its first step."""

    can_work: bool = False
    verdict: str = ""  # why, in words


@dataclass
class Preflight(Outlook):
    """What some groups of rollouts looked like."""

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
    whether they teach."""
    if config.rollouts < 2:
        raise UserError("a group needs at least 2 rollouts; raise --rollouts")
    chosen, ended = spread_out(problems, num_problems), []
    start = time.perf_counter()
    with progress_bar(len(chosen), words="preflight", quiet=not progress) as bar:
        for group in sample_each(model, tokenizer, chosen, config, step=0, engine=FAST):
            ended.append(group)
            bar.update()
    groups = in_order(ended)
    reward_groups(groups, config, tokenizer, judge_of(config))
    seconds = time.perf_counter() - start
    answered = [answers_of(group) for group in groups]
    rows = list(chain.from_iterable(answered))
    seen = Preflight(
        problems=chosen,
        rollouts=config.rollouts,
        pass_at_1=mean(row["correct"] for row in rows),
        pass_at_g=mean(any(row["correct"] for row in group) for group in answered),
        cutoff_share=mean(not row["stopped"] for row in rows),
        parse_rate=mean(row["parsed"] for row in rows),
        live_share=mean(group.solved_sometimes for group in groups),
        mean_length=mean(row["tokens"] for row in rows),
        tokens_per_sec=sum(row["tokens"] for row in rows) / seconds,
        sampling_seconds=seconds,
        rows=rows,
    )
    tiny = model.cfg["vocab_size"] == TINY_CONFIG["vocab_size"]
    at_home = config.environment or all(of_tiny_world(problem.id) for problem in chosen)
    own = config.environment and f"The environment {config.environment}"
    seen.can_work, seen.verdict = can_training_work(
        seen, config.max_new_tokens, tiny and not at_home, own or "Your reward function"
    )
    return seen


def answers_of(group: Group) -> list[dict]:
    """A row per answer, with the words of `rfs evaluate`."""

    def parsed(rollout: Rollout) -> bool:
        """By the grader; a verifier or an environment reads what it likes."""
        own = rollout.outcome is not None or "reward_failed" in rollout.rewards
        return not rollout.failure if own else has_readable_answer(rollout.text)

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
    """This many problems, from all over the set."""
    count = min(count, len(problems))
    return [problems[place * len(problems) // count] for place in range(count)]


def can_training_work(
    found: Preflight, max_new_tokens: int, out_of_world: bool, rewarder: str
) -> tuple[bool, str]:
    """Whether training can work, and the sentence that says why; the first cause that fits.
    `out_of_world`: the tiny model got problems from outside its own world. `rewarder`: what
    computed the rewards, for the message if it failed."""
    live = found.live_share
    failed = [row for row in found.rows if row.get("reward_failure")]
    if 2 * len(failed) > len(found.rows):
        return False, (
            f"{rewarder} failed on {len(failed)} of {len(found.rows)} answers: it "
            f"{one_line(failed[0]['reward_failure'], SHOWN)}. Such answers get 0: fix it first."
        )
    if out_of_world and found.pass_at_1 == 0:
        return False, (
            f"None of {len(found.rows)} answers was correct. The tiny model knows only the sums of "
            "its own small world, in that world's words. Take problems like those of --problems "
            "tiny or ch07/my_task.py, or a model that has read more, such as --model base."
        )
    if live >= SOME_MIXED:
        slow = "" if live >= MANY_MIXED else ", slowly: filter the problems by difficulty"
        cut = found.cutoff_share
        also = (
            "" if cut < 0.3 else f"; {percent(cut)} of answers are cut off, a longer limit may help"
        )
        return True, f"Training can work{slow}: {percent(live)} of groups have a signal{also}."
    if found.pass_at_1 > 0.9:
        return False, (
            f"There is little left to learn: {percent(found.pass_at_1)} of answers are correct "
            "already. Take harder problems."
        )
    if found.cutoff_share > 0.5:
        cut_off = [row["length"] for row in found.rows if not row["stopped"]]
        rambles = (
            " if the model rambles on, the cause is not the limit but a prompt template or stop"
            " token that does not fit the model."
        )
        if median(cut_off) < max_new_tokens:  # the model's context was full before
            return False, (
                f"{percent(found.cutoff_share)} of answers are cut off before their result, where"
                f" prompt and answer fill the model's context. Take shorter problems;{rambles}"
            )
        return False, (
            f"{percent(found.cutoff_share)} of answers are cut off at {max_new_tokens} tokens "
            f"before their result. Raise --max-new-tokens;{rambles}"
        )
    if found.parse_rate < 0.5:
        return False, (
            f"Only {percent(found.parse_rate)} of answers have a readable \\boxed{{}} result, so "
            "correct ones cannot be rewarded. The prompt does not suit the model, or the model "
            "needs supervised training on the answer format first."
        )
    if found.pass_at_1 < 0.05:
        return False, (
            "The answers can be read but almost none is correct: the problems are too hard for this"
            " model. Take easier problems, more rollouts per problem, or a stronger model."
        )
    return False, (
        "Each problem is always or never answered correctly, so no group has a signal. Raise"
        " --temperature or --rollouts, or take problems of medium difficulty."
    )
