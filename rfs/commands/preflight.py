"""`rfs preflight`: can reinforcement learning work with this model on these problems?

It loads what the run would, asks run/will_it_work.py, and shows the figures as tables, with the
cost of a step.
"""

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import torch

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.problems import Problem, problem_prompt
from reasoning_from_scratch.rollouts import Rollout, make_batch
from reasoning_from_scratch.text import align_table, counted, percent, visible
from rfs.commands.preflight_options import PreflightOptions
from rfs.config import RunConfig, part_of
from rfs.evaluation.group_signal import (
    FAST_LIVE_SHARE,
    MIN_LIVE_SHARE,
    Outlook,
    Preflight,
    spread_out,
)
from rfs.report.progress import show_log
from rfs.run.start import load_for_dry_run
from rfs.run.will_it_work import run_time_text, will_it_work

GIB = 2**30
MANY_TASKS = 12  # with more tasks than this, they are not tried one by one


def figures_table(result: Preflight) -> str:
    """The figures, one per line."""
    groups = f"{counted(len(result.problems), 'problem')} x {result.rollouts} rollouts"
    rows = {
        "pass@1": percent(result.pass_at_1),
        f"pass@{result.rollouts}": percent(result.pass_at_g),
        "groups with signal": percent(result.live_share),
        "cut off": percent(result.cutoff_share),
        "answers parsed": percent(result.parse_rate),
        "mean length": f"{result.mean_length:.1f} tokens",
        "sampling": f"{result.tokens_per_sec:,.0f} tokens/s, {result.sampling_seconds:.1f} s",
    }
    return "\n".join([groups, *(f"  {name:<20}{value}" for name, value in rows.items())])


@dataclass
class TaskFigures:
    """How a model did on one task."""

    name: str
    problems: int
    pass_at_1: float
    pass_at_g: float
    mixed_share: float  # groups in which some answers are correct and some are not
    mean_length: float

    def cells(self) -> list[str]:
        shares = (self.pass_at_1, self.pass_at_g, self.mixed_share)
        return [
            self.name,
            f"{self.problems}",
            *map(percent, shares),
            f"{self.mean_length:.1f}",
        ]


def task_figures(
    problems: Sequence[Problem], rows: list[dict], num_rollouts: int
) -> list[TaskFigures]:
    """From the rows of an evaluation, `num_rollouts` for each problem in order."""
    by_task: dict[str, list[list[dict]]] = {}
    for place, problem in enumerate(problems):
        group = rows[place * num_rollouts : (place + 1) * num_rollouts]
        if problem.rules:
            by_task.setdefault(problem.type, []).append(group)
    figures = []
    for name, groups in by_task.items():
        correct = [sum(row["correct"] for row in group) for group in groups]
        figures.append(
            TaskFigures(
                name=name,
                problems=len(groups),
                pass_at_1=sum(correct) / len(groups) / num_rollouts,
                pass_at_g=sum(count > 0 for count in correct) / len(groups),
                mixed_share=sum(0 < count < num_rollouts for count in correct) / len(groups),
                mean_length=mean(row["tokens"] for group in groups for row in group),
            )
        )
    return figures


def suggestions(tasks: Sequence[TaskFigures]) -> list[str]:
    """Which tasks this model can learn from, and why not from the others."""
    learnable, slow, solved, hard = [], [], [], []
    for task in tasks:
        if task.mixed_share >= FAST_LIVE_SHARE:
            learnable.append(task.name)
        elif task.mixed_share >= MIN_LIVE_SHARE:
            slow.append(task.name)
        elif task.pass_at_1 > 0.5:
            solved.append(task.name)
        else:
            hard.append(task.name)
    kinds = {
        "train on": learnable,
        "slow to learn from, few groups are mixed": slow,
        "known already": solved,
        "too hard, hardly anything to reward": hard,
    }
    return [f"{words}: {', '.join(names)}" for words, names in kinds.items() if names]


def task_table(tasks: Sequence[TaskFigures], num_rollouts: int) -> str:
    """A line for each task, those with the most to learn first, and which to train on."""
    head = ["task", "problems", "pass@1", f"pass@{num_rollouts}", "mixed groups", "tokens"]
    tasks = sorted(tasks, key=lambda task: (-task.mixed_share, task.name))
    lines = [head, *(task.cells() for task in tasks)]
    return "\n".join([*align_table(lines), "", *suggestions(tasks)])


def choose_problems(problems: Sequence[Problem], count: int) -> tuple[Sequence[Problem], int]:
    """The problems to try, or to choose from, and how many of them: if a set has a few tasks,
    `count` of each."""
    by_task: dict[str, list[Problem]] = {}
    for problem in problems:
        by_task.setdefault(problem.type if problem.rules else "", []).append(problem)
    if not 1 < len(by_task) <= MANY_TASKS:
        return problems, count
    chosen = [problem for group in by_task.values() for problem in spread_out(group, count)]
    return chosen, len(chosen)


# --- what one training step costs ---


def train_seconds(model, length: int) -> float:
    """Seconds for forward and backward of a rollout of `length` tokens, the longest possible."""
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
    """Peak memory so far in bytes: of the GPU's allocator, else of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return math.nan
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def cost_table(model, outlook: Outlook, length: int, config: RunConfig) -> str:
    """Time and memory of one training step, measured on the longest shape."""
    training = config.problems_per_step * train_seconds(model, length)
    shape, sampling, sampled = f"{config.problems_per_step} worked solutions", 0.0, ""
    if isinstance(outlook, Preflight):
        shape = f"{config.problems_per_step} x {config.rollouts} rollouts"
        training *= config.rollouts
        sampling = outlook.sampling_seconds * config.problems_per_step / len(outlook.problems)
        sampled = f"{sampling:.1f} s sampling + "
    peak = peak_memory(model.tok_emb.weight.device) / GIB
    # Two moments and a float32 master copy of each weight that is trained.
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    optimizer = 12 * trained / GIB
    return (
        f"one step of {shape}, at most {length} tokens each\n"
        f"  {'time':<20}{sampled}up to {training:.1f} s training\n"
        f"  {'memory':<20}{peak:.2f} GiB measured + {optimizer:.2f} GiB for the optimizer\n"
        f"  {'full run':<20}{run_time_text(config, sampling + training, at_most=True)}"
    )


# --- the command ---


def preflight(options: PreflightOptions) -> int:
    """Prints figures, cost and verdict; exit code 1 if training cannot work."""
    show_log()
    config, inputs = load_for_dry_run(part_of(options, RunConfig))
    model, tokenizer, problems = inputs.model, inputs.tokenizer, inputs.problems
    chosen, count = problems, options.num_problems
    if not config.is_supervised:
        chosen, count = choose_problems(problems, count)
    outlook = will_it_work(config, model, tokenizer, chosen, count, progress=True)
    if isinstance(outlook, Preflight):
        print(figures_table(outlook))
    prompts = [len(tokenizer.encode(problem_prompt(problem))) for problem in problems[:200]]
    longest = min(max(prompts) + config.max_new_tokens, model.cfg["context_length"])
    print(cost_table(model, outlook, longest, config))
    if isinstance(outlook, Preflight):
        if not outlook.can_work:
            print(f"\nan example answer:\n{visible(outlook.example[-600:])}")
        if tasks := task_figures(outlook.problems, outlook.rows, config.rollouts):
            print(f"\n{task_table(tasks, config.rollouts)}")
    print(f"\n{outlook.verdict}")
    return int(not outlook.can_work)
