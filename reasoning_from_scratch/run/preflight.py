"""`rfs preflight`: can reinforcement learning work with this model on these problems?

It learns from groups in which some rollouts are right and some are wrong. So: sample a few
groups, look at them, and say in words what stands in the way, before hours are spent.
"""

import logging
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import mean, median

import torch

from reasoning_from_scratch.config import TrainConfig, part_of
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.evaluation.evaluate import open_model, problem_bar
from reasoning_from_scratch.fast.engine import FAST
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.grading import parses
from reasoning_from_scratch.problems import Problem, problem_prompt, with_prompt
from reasoning_from_scratch.report.health import SHOWN
from reasoning_from_scratch.rollouts import (
    Group,
    Rollout,
    in_order,
    make_batch,
    reward_groups,
    sample_each,
)
from reasoning_from_scratch.run.asked import usable_problems
from reasoning_from_scratch.run.options import preset
from reasoning_from_scratch.run.preflight_options import PreflightOptions
from reasoning_from_scratch.tasks.judge import judge_of
from reasoning_from_scratch.tasks.problem_sets import training_problems
from reasoning_from_scratch.text import aligned, counted, one_line, visible
from reasoning_from_scratch.tiny.model import TINY_CONFIG
from reasoning_from_scratch.tiny.world import of_tiny_world

GIB = 2**30
SOME_MIXED, MANY_MIXED = 0.1, 0.3  # share of groups with a signal: enough to learn, and to be quick
MANY_TASKS = 12  # of more tasks than this, problems are tried as they come
log = logging.getLogger("reasoning_from_scratch")


@dataclass
class Preflight:
    """What some groups of rollouts looked like."""

    problems: int
    rollouts: int  # per problem
    pass_at_1: float
    pass_at_g: float
    cutoff_share: float
    parse_rate: float
    live_share: float  # groups with right and wrong rollouts
    mean_length: float
    tokens_per_sec: float
    sampling_seconds: float  # all groups together
    rows: list[dict]  # one per answer
    tasks: "list[TaskFigures]"  # each kind of problem by itself, in a set with rules of its own
    can_work: bool = False
    verdict: str = ""  # why, in words

    @property
    def example(self) -> str:
        """An answer as the model wrote it that shows what goes wrong: unparsed if there is one,
        else wrong, else any."""
        return min(self.rows, key=lambda row: (row["parsed"], row["correct"]))["generated_text"]

    def table(self) -> str:
        """The figures, one per line."""
        groups = f"{counted(self.problems, 'problem')} x {self.rollouts} rollouts"
        rows = {
            "pass@1": f"{self.pass_at_1:.1%}",
            f"pass@{self.rollouts}": f"{self.pass_at_g:.1%}",
            "groups with signal": f"{self.live_share:.1%}",
            "cut off": f"{self.cutoff_share:.1%}",
            "answers parsed": f"{self.parse_rate:.1%}",
            "mean length": f"{self.mean_length:.1f} tokens",
            "sampling": f"{self.tokens_per_sec:,.0f} tokens/s, {self.sampling_seconds:.1f} s",
        }
        return "\n".join([groups, *(f"  {name:<20}{value}" for name, value in rows.items())])

    def task_table(self) -> str:
        """A line for each task, those with the most to learn first, and which to train on."""
        head = ["task", "problems", "pass@1", f"pass@{self.rollouts}", "mixed groups", "tokens"]
        tasks = sorted(self.tasks, key=lambda task: (-task.mixed_share, task.name))
        lines = [head, *(task.cells() for task in tasks)]
        return "\n".join([*aligned(lines), "", *suggestions(tasks)])


@dataclass
class TaskFigures:
    """What a model made of one task."""

    name: str
    problems: int
    pass_at_1: float
    pass_at_g: float
    mixed_share: float  # groups in which some answers are right and some wrong
    mean_length: float

    def cells(self) -> list[str]:
        shares = (self.pass_at_1, self.pass_at_g, self.mixed_share)
        return [
            self.name,
            f"{self.problems}",
            *(f"{share:.1%}" for share in shares),
            f"{self.mean_length:.0f}",
        ]


def task_figures(
    problems: Sequence[Problem], rows: list[dict], num_rollouts: int
) -> list[TaskFigures]:
    """From the rows of an evaluation, `num_rollouts` for each problem in order."""
    by_task: dict[str, list[list[dict]]] = {}
    for place, problem in enumerate(problems):
        group = rows[place * num_rollouts : (place + 1) * num_rollouts]
        if problem.judge:
            by_task.setdefault(problem.type, []).append(group)
    figures = []
    for name, groups in by_task.items():
        right = [sum(row["correct"] for row in group) for group in groups]
        figures.append(
            TaskFigures(
                name=name,
                problems=len(groups),
                pass_at_1=sum(right) / len(groups) / num_rollouts,
                pass_at_g=sum(count > 0 for count in right) / len(groups),
                mixed_share=sum(0 < count < num_rollouts for count in right) / len(groups),
                mean_length=mean(row["tokens"] for group in groups for row in group),
            )
        )
    return figures


def suggestions(tasks: Sequence[TaskFigures]) -> list[str]:
    """Which tasks this model can learn from, and why not from the others."""
    learnable, slow, known, hard = [], [], [], []
    for task in tasks:
        if task.mixed_share >= MANY_MIXED:
            learnable.append(task.name)
        elif task.mixed_share >= SOME_MIXED:
            slow.append(task.name)
        elif task.pass_at_1 > 0.5:
            known.append(task.name)
        else:
            hard.append(task.name)
    kinds = {
        "train on": learnable,
        "slow to learn from, few groups are mixed": slow,
        "known already": known,
        "too hard, hardly anything to reward": hard,
    }
    return [f"{words}: {', '.join(names)}" for words, names in kinds.items() if names]


def preflight_summary(
    model,
    tokenizer,
    problems: Sequence[Problem],
    config: TrainConfig,
    *,
    num_problems: int = 16,
    progress: bool = False,
) -> Preflight:
    """Samples groups from problems spread over the whole set, as training would, and judges
    whether they teach."""
    if config.rollouts < 2:
        raise UserError("a group needs at least 2 rollouts; raise --rollouts")
    chosen, ended = spread(problems, num_problems), []
    start = time.perf_counter()
    with problem_bar(len(chosen), words="preflight", quiet=not progress) as bar:
        for group in sample_each(model, tokenizer, chosen, config, step=0, engine=FAST):
            ended.append(group)
            bar.update()
    groups = in_order(ended)
    reward_groups(groups, config, tokenizer, judge_of(config))
    seconds = time.perf_counter() - start
    answered = [answers_of(group) for group in groups]
    rows = list(chain.from_iterable(answered))
    found = Preflight(
        problems=len(chosen),
        rollouts=config.rollouts,
        pass_at_1=mean(row["correct"] for row in rows),
        pass_at_g=mean(any(row["correct"] for row in group) for group in answered),
        cutoff_share=mean(not row["stopped"] for row in rows),
        parse_rate=mean(row["parsed"] for row in rows),
        live_share=mean(group.mixed for group in groups),
        mean_length=mean(row["tokens"] for row in rows),
        tokens_per_sec=sum(row["tokens"] for row in rows) / seconds,
        sampling_seconds=seconds,
        rows=rows,
        tasks=task_figures(chosen, rows, config.rollouts),
    )
    tiny = model.cfg["vocab_size"] == TINY_CONFIG["vocab_size"]
    at_home = config.environment or all(of_tiny_world(problem.id) for problem in chosen)
    own = config.environment and f"The environment {config.environment}"
    found.can_work, found.verdict = judge_groups(
        found, config.max_new_tokens, tiny and not at_home, own or "Your reward function"
    )
    return found


def answers_of(group: Group) -> list[dict]:
    """A row per answer, with the words of `rfs evaluate`."""

    def parsed(rollout: Rollout) -> bool:
        """By the grader; a verifier or an environment reads what it likes."""
        own = rollout.outcome is not None or "reward_failed" in rollout.rewards
        return not rollout.failure if own else parses(rollout.text)

    return [
        {
            "correct": rollout.rewards["correct"] >= 1,  # a verifier may also pay in part
            "parsed": parsed(rollout),
            "reward_failure": rollout.failure,
            "tokens": rollout.num_sampled,
            "stopped": rollout.finished,
            "generated_text": rollout.text,
        }
        for rollout in group.rollouts
    ]


def spread(problems: Sequence[Problem], count: int) -> Sequence[Problem]:
    """So many problems, from all over the set."""
    stride = max(1, len(problems) // count)
    return problems[::stride][:count]


def to_try(problems: Sequence[Problem], count: int) -> tuple[Sequence[Problem], int]:
    """From which problems to try how many: so many of each task, where a set has a few."""
    by_task: dict[str, list[Problem]] = {}
    for problem in problems:
        by_task.setdefault(problem.type if problem.judge else "", []).append(problem)
    if not 1 < len(by_task) <= MANY_TASKS:
        return problems, count
    chosen = [problem for some in by_task.values() for problem in spread(some, count)]
    return chosen, len(chosen)


def judge_groups(
    found: Preflight, max_new_tokens: int, out_of_world: bool, judge: str
) -> tuple[bool, str]:
    """Whether training can work, and the sentence that says why; the first cause that fits.
    `out_of_world`: the tiny model was asked problems of another world than its own."""
    live = found.live_share
    failed = [row for row in found.rows if row.get("reward_failure")]
    if 2 * len(failed) > len(found.rows):
        return False, (
            f"{judge} failed on {len(failed)} of {len(found.rows)} answers: it "
            f"{one_line(failed[0]['reward_failure'], SHOWN)}. Such answers get 0: mend it first."
        )
    if out_of_world and found.pass_at_1 == 0:
        return False, (
            f"None of {len(found.rows)} answers was right. The tiny model knows only the sums of "
            "its own small world, in that world's words. Take problems like those of --problems "
            "tiny or ch07/my_task.py, or a model that has read more, such as --model base."
        )
    if live >= SOME_MIXED:
        slow = "" if live >= MANY_MIXED else ", slowly: filter the problems by difficulty"
        cut = found.cutoff_share
        also = "" if cut < 0.3 else f"; {cut:.0%} of answers are cut off, a longer limit may help"
        return True, f"Training can work{slow}: {live:.0%} of groups have a signal{also}."
    if found.pass_at_1 > 0.9:
        return False, (
            f"There is little left to learn: {found.pass_at_1:.0%} of answers are right already."
            " Take harder problems."
        )
    if found.cutoff_share > 0.5:
        cut_off = [row["tokens"] for row in found.rows if not row["stopped"]]
        rambles = (
            " if the model rambles on, it is not the limit but the prompt template or the stop"
            " token that does not fit the model."
        )
        if median(cut_off) < max_new_tokens:  # the model's context was full before
            return False, (
                f"{found.cutoff_share:.0%} of answers are cut off before their result, where"
                f" prompt and answer fill the model's context. Take shorter problems;{rambles}"
            )
        return False, (
            f"{found.cutoff_share:.0%} of answers are cut off at {max_new_tokens} tokens before"
            f" their result. Raise --max-new-tokens;{rambles}"
        )
    if found.parse_rate < 0.5:
        return False, (
            f"Only {found.parse_rate:.0%} of answers have a readable \\boxed{{}} result, so right"
            " ones cannot be rewarded. The prompt does not suit the model, or the model needs"
            " supervised training on the answer format first."
        )
    if found.pass_at_1 < 0.05:
        return False, (
            "The answers can be read but almost none is right: the problems are too hard for this"
            " model. Take easier problems, more rollouts per problem, or a stronger model."
        )
    return False, (
        "Each problem is answered always right or always wrong, so no group has a signal. Raise"
        " --temperature or --rollouts, or take problems of medium difficulty."
    )


# --- what one training step costs ---


def train_seconds(model, length: int) -> float:
    """Forward and backward of a rollout of `length` tokens, the longest there can be."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    read = length - 1  # the last token is only predicted
    trial = Rollout(prompt_ids=[0], response_ids=[0] * read, logprobs=[0.0] * read)
    batch = make_batch([trial], weights[0].device)
    start = time.perf_counter()
    logprobs = packed_logprobs(model, batch)
    gradients = torch.autograd.grad(logprobs.sum(), weights)
    if not all(bool(gradient.isfinite().all()) for gradient in gradients):  # waits for the GPU
        raise UserError("gradients are not finite on this device; try --device cpu")
    return time.perf_counter() - start


def peak_memory(device: torch.device) -> float:
    """Bytes at the highest point so far: of the GPU's allocator, else of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return math.nan
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def cost_table(model, summary: Preflight, length: int, options: PreflightOptions) -> str:
    """Time and memory of one training step, measured on the longest shape."""
    training = options.problems_per_step * options.rollouts * train_seconds(model, length)
    sampling = summary.sampling_seconds * options.problems_per_step / summary.problems
    peak = peak_memory(model.tok_emb.weight.device) / GIB
    # Two moments and a float32 master copy of each weight.
    optimizer = 12 * sum(weight.numel() for weight in model.parameters()) / GIB
    rollouts = f"{options.problems_per_step} x {options.rollouts} rollouts"
    return (
        f"one step of {rollouts}, at most {length} tokens each\n"
        f"  {'time':<20}{sampling:.1f} s sampling + up to {training:.1f} s training\n"
        f"  {'memory':<20}{peak:.2f} GiB measured + {optimizer:.2f} GiB for the optimizer"
    )


# --- the command ---


def preflight(options: PreflightOptions) -> int:
    """Prints figures, cost and verdict; exit code 1 if training cannot work."""
    defaults = preset(options.model)
    limit = options.max_new_tokens or defaults["max_new_tokens"]
    problems = training_problems(options.problems or defaults["problems"])
    model, tokenizer = open_model(options.model, options.device, options.dtype)
    context = model.cfg["context_length"]  # as in training, what cannot be used is left out
    if options.stop is not None:
        tokenizer.end_answers_at(options.stop)
    problems = with_prompt(problems, options.prompt, tokenizer)
    problems = usable_problems(problems, tokenizer, context, options.reward)
    chosen, count = to_try(problems, options.num_problems)
    asked = part_of(options, TrainConfig, max_new_tokens=limit)
    summary = preflight_summary(model, tokenizer, chosen, asked, num_problems=count, progress=True)
    print(summary.table())
    longest = max(len(tokenizer.encode(problem_prompt(p))) for p in problems[:200]) + limit
    print(cost_table(model, summary, longest, options))
    if not summary.can_work:
        print(f"\nan answer:\n{visible(summary.example[-600:])}")
    if summary.tasks:
        print(f"\n{summary.task_table()}")
    print(f"\n{summary.verdict}")
    return int(not summary.can_work)
