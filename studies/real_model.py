"""A real model learns: SmolLM2-135M-Instruct, which others pre-trained on two trillion tokens,
none of them ours. There are two tasks, and several runs of each:

    uv run --extra gguf studies/real_model.py
    uv run --extra gguf studies/real_model.py --task instructions
    uv run --extra gguf studies/real_model.py --picture-only

Arithmetic: a sum, a difference or a product, after three solved examples. Instructions: "Describe
rain briefly. Use exactly 8 words." Each line of the CSV file is a run after some number of steps:
the share of held-out problems it solves, and how well it still predicts ordinary text. One run is

    rfs train --model smollm2 --problems studies/real_model.py:problems \
        --reward studies/real_model.py:reward --prompt studies/three_examples.txt --stop "\\n" \
        --max-new-tokens 6 --problems-per-step 64 --lr 2e-5 --lr-schedule linear --steps 200
    rfs train --model smollm2 --problems instructions --max-new-tokens 48 --problems-per-step 16 \
        --lr 5e-5 --lr-schedule linear --steps 60
"""

import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal

import torch

from reasoning_from_scratch.ch06 import sequence_logprob
from reasoning_from_scratch.config import Schedule
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.hub_models import kept_smollm2  # noqa: F401  for the notebook
from reasoning_from_scratch.problems import Problem, with_prompt
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.sampling import Sampling, greedy
from rfs.commands.cli import run_script
from rfs.engine import sample_groups
from rfs.files.saved_models import evaluations_in
from rfs.files.tables import read_table, replace_rows
from rfs.run.options import configure
from rfs.run.study import refuse_other_settings, run_to_end
from rfs.tasks.instructions import score
from rfs.tasks.problem_sets import load_problems

HERE = Path(__file__).resolve()
EXAMPLES_FILE = str(HERE.parent / "three_examples.txt")
SIGNS = {"sums": "+", "differences": "-", "products": "*"}
# Ordinary text, to see what else training changes in the model.
TEXT = """The ferry leaves at six in the morning, and by then the fishermen have been at work for
three hours. They stand on the quay in yellow coats and sort what the nets brought up: herring for
the market in town, crabs for the hotel, and a bucket of odd things for the children, who collect
starfish. Nobody speaks much. When the sun comes over the hill behind the church, the light falls
on the windows of the harbour office first, and then on the water, which turns from grey to green.
My grandmother used to say that you can tell the weather of the whole day from that green. I never
learned how. I only remember that she was right more often than the radio."""


@dataclass
class Options:
    task: Literal["arithmetic", "instructions"] = "arithmetic"
    """Learn this task."""
    out: Path | None = None
    """Write this file (default: studies/real_model_TASK.csv); the picture has the same name with
    .png."""
    folder: Path = Path("runs/real_model")
    """Keep the runs, each with its report, in this folder."""
    model: str = "smollm2"
    """Train this model."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Make a run with each of these seeds."""
    steps: int | None = None
    """Make this many updates per run (default: the task's)."""
    eval_every: int = 25
    """Measure after every N steps."""
    lr: float | None = None
    """Learn at this rate (default: the task's)."""
    lr_schedule: Schedule = "linear"
    """Let the learning rate take this shape."""
    problems_per_step: int | None = None
    """Sample this many problems at each step (default: the task's)."""
    rollouts: int = 8
    """Sample this many answers per problem."""
    lora_rank: int = 0
    """Train LoRA matrices of this rank; 0 trains all weights."""
    picture_only: bool = False
    """Draw the picture from the file, and train nothing."""


@dataclass(frozen=True)
class Task:
    """The problems, the length of training, and what is measured along the way."""

    problems: str
    eval_problems: str  # the run evaluates on one of them, the table on all
    steps: int
    lr: float
    problems_per_step: int
    max_new_tokens: int
    held_out: Callable[[], dict[str, list[Problem]]]  # each kind is a column of the table
    score: Callable[[str, Problem], float]
    new_kinds: tuple[str, ...] = ()  # kinds excluded from "greedy", "sampled" and "pass@8"
    settings: dict[str, Any] = field(default_factory=dict)


def main(options: Options) -> None:
    """Trains, measures, and draws."""
    task = TASKS[options.task]
    out = options.out or Path(f"studies/real_model_{options.task}.csv")
    columns = {name for row in read_table(out) for name in row}
    if columns and not set(task.held_out()) <= columns:
        raise UserError(f"{out} has the figures of another task; choose another --out")
    if not options.picture_only:
        other = options.model != Options.model or options.steps not in (None, task.steps)
        if other and options.out is None:  # the rows would pass for seeds of the stored runs
            raise UserError(
                f"{out} has runs of {task.steps} steps of {Options.model}; choose another --out"
            )
        lr, problems = options.lr or task.lr, options.problems_per_step or task.problems_per_step
        for seed in options.seeds:
            key = {
                "lr": f"{lr:g}", "problems": str(problems), "rollouts": str(options.rollouts),
                "schedule": options.lr_schedule, "lora": str(options.lora_rank), "seed": str(seed),
            }  # fmt: skip
            replace_rows(out, key, train_and_measure(options, task, lr, problems, seed))
    draw(read_table(out), task, out.with_suffix(".png"))
    print(out.with_suffix(".png"))


def train_and_measure(
    options: Options, task: Task, lr: float, problems: int, seed: int
) -> Iterator[dict[str, str]]:
    """Trains one run; yields a row for each measurement along the way."""
    name = f"{options.task}-{problems}x{options.rollouts}-{lr:g}-lora{options.lora_rank}-{seed}"
    config = configure(
        "grpo", model=options.model, steps=options.steps or task.steps, lr=lr, seed=seed,
        problems_per_step=problems, rollouts=options.rollouts, lora_rank=options.lora_rank,
        lr_schedule=options.lr_schedule, problems=task.problems, max_new_tokens=task.max_new_tokens,
        evaluators=[f"{HERE}:measured_{options.task}"], eval_every=options.eval_every,
        eval_problems=[task.eval_problems], eval_limit=1, preflight=False,
        log_path=str(options.folder / name), **task.settings,
    )  # fmt: skip
    seconds = 0.0
    refuse_other_settings(config, "--folder")
    for row in run_to_end(config, quiet=False).require_finished().rows:
        seconds += row["time/total"]
        for evaluation in evaluations_in(row):
            metrics = {
                name.partition("/")[2]: f"{value:.4f}"
                for name, value in evaluation.items()
                if name.startswith(f"measured_{options.task}/")
            }
            if metrics:
                step = f"{evaluation['eval_step']:.0f}"
                yield {"step": step, "seconds": f"{seconds:.0f}"} | metrics


# ---------------------------------------------------------------------------------- arithmetic

HELD_OUT = 32  # of each kind


def split_problems() -> tuple[list[Problem], list[Problem]]:
    """(to train on, held out). 13 + 24 and 24 + 13 are on the same side."""
    rng = random.Random("real model")
    training, held_out_problems = [], []
    for kind, sign in SIGNS.items():
        if kind == "products":
            pairs = [(a, b) for a in range(2, 13) for b in range(2, a + 1)]
        else:
            pairs = [(a, b) for a in range(1, 100) for b in range(1, a + 1)]
            pairs = [(a, b) for a, b in pairs if (a + b <= 100 if sign == "+" else a > b)]
        rng.shuffle(pairs)
        for index, (a, b) in enumerate(pairs):
            orders = [(a, b)] if sign == "-" or a == b else [(a, b), (b, a)]
            if index < HELD_OUT:
                held_out_problems.append(make_problem(kind, *rng.choice(orders)))
            else:
                training += [make_problem(kind, *order) for order in orders]
    return training, held_out_problems


def make_problem(kind: str, a: int, b: int) -> Problem:
    question = f"{a} {SIGNS[kind]} {b} ="
    answer = {"sums": a + b, "differences": a - b, "products": a * b}[kind]
    return Problem(question, question, str(answer), type=kind)


def problems() -> Iterator[Problem]:
    """Random training problems without end, each kind equally often."""
    rng = random.Random(0)
    training = split_problems()[0]
    kinds = [[problem for problem in training if problem.type == kind] for kind in SIGNS]
    while True:
        yield rng.choice(rng.choice(kinds))


def held_out() -> list[Problem]:
    return split_problems()[1]


def held_out_arithmetic() -> dict[str, list[Problem]]:
    problems = held_out()
    return {kind: [problem for problem in problems if problem.type == kind] for kind in SIGNS}


def reward(text: str, problem: Problem) -> float:
    return float(text.strip() == problem.answer)


# -------------------------------------------------------------------------------- instructions


NEW_TOPICS, NEW_CONSTRAINTS = 64, 32  # held-out prompts


def held_out_instructions() -> dict[str, list[Problem]]:
    """Topics that are never trained on, and kinds of instruction that are never trained on."""
    return {
        "new topics": load_problems("instructions@held-out", limit=NEW_TOPICS),
        "new constraints": load_problems("instructions@new-constraints", limit=NEW_CONSTRAINTS),
    }


TASKS = {
    "arithmetic": Task(
        f"{HERE}:problems", f"{HERE}:held_out", 200, 2e-5, 64, 6, held_out_arithmetic, reward,
        settings={"reward": f"{HERE}:reward", "prompt": EXAMPLES_FILE, "stop": "\n"},
    ),
    "instructions": Task(
        "instructions", "instructions@held-out", 60, 5e-5, 16, 48, held_out_instructions,
        score, new_kinds=("new constraints",),
    ),
}  # fmt: skip


# ------------------------------------------------------------------------------- what it can do

ACCURACIES = ("greedy", "sampled", "pass@8")


def measure(model, tokenizer, task: Task) -> dict[str, float]:
    """Accuracy on held-out problems, with greedy decoding and with eight samples each (by kind:
    sampled), the standard error of "sampled" over the problems, and the perplexity of ordinary
    text."""
    kinds = task.held_out()
    sampling = Sampling(task.max_new_tokens, rollouts=8, seed=1)
    scores_by_kind = {
        kind: score_answers(model, tokenizer, task, problems, sampling)
        for kind, problems in kinds.items()
    }
    main_kinds = [kind for kind in kinds if kind not in task.new_kinds]
    problems = [problem for kind in main_kinds for problem in kinds[kind]]
    greedy_scores = score_answers(model, tokenizer, task, problems, greedy(task.max_new_tokens))
    sampled_scores = [group for kind in main_kinds for group in scores_by_kind[kind]]
    return {
        "greedy": mean(map(mean, greedy_scores)),
        "sampled": mean(map(mean, sampled_scores)),
        "error": stdev(map(mean, sampled_scores)) / len(sampled_scores) ** 0.5,
        "pass@8": mean(map(any, sampled_scores)),
        **{kind: mean(map(mean, scores)) for kind, scores in scores_by_kind.items()},
        "perplexity": perplexity(model, tokenizer),
    }


def measured_arithmetic(model, tokenizer) -> dict[str, float]:
    return measure(model, tokenizer, TASKS["arithmetic"])


def measured_instructions(model, tokenizer) -> dict[str, float]:
    return measure(model, tokenizer, TASKS["instructions"])


def score_answers(
    model, tokenizer, task: Task, problems: Sequence[Problem], sampling: Sampling
) -> list[list[float]]:
    """For each problem: which of its answers are correct."""
    return [
        [task.score(rollout.text, group.problem) for rollout in group.rollouts]
        for group in sample_answers(model, tokenizer, task, problems, sampling)
    ]


def sample_answers(
    model, tokenizer, task: Task, problems: Sequence[Problem], sampling: Sampling
) -> list[Group]:
    """The groups of answers. Outside of a run, the tokenizer must be told here where they end."""
    if "stop" in task.settings:
        tokenizer.end_answers_at(task.settings["stop"])
    prompted = with_prompt(problems, task.settings.get("prompt"), tokenizer)
    return sample_groups(model, tokenizer, prompted, sampling)


def perplexity(model, tokenizer) -> float:
    ids = torch.tensor(tokenizer.encode(TEXT.replace("\n", " "), chat_wrapped=False))  # (T,)
    with torch.no_grad():
        return math.exp(-sequence_logprob(model, ids, 1).item() / (len(ids) - 1))


def draw(rows: Sequence[dict[str, str]], task: Task, path: Path) -> None:
    """Left: all held-out problems. Right: each kind, sampled. A band is the range of the seeds."""
    import matplotlib.pyplot as plt

    rows = [row for row in rows if row["lora"] == "0"] or rows
    rows_by_settings: dict[tuple, list[dict[str, str]]] = {}
    for row in rows:
        rows_by_settings.setdefault(run_settings(row), []).append(row)
    # The settings with the most rows; in a tie, those with the highest accuracy.
    chosen = max(
        rows_by_settings.values(),
        key=lambda rows: (len(rows), max(float(row["sampled"]) for row in rows)),
    )
    steps = sorted({int(row["step"]) for row in chosen})
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    for panel, names in zip(panels, (ACCURACIES[::-1], tuple(task.held_out())), strict=True):
        for name in names:
            values = [[float(r[name]) for r in chosen if int(r["step"]) == step] for step in steps]
            line = panel.plot(steps, list(map(mean, values)), "o-", label=name)[0]
            low, high = list(map(min, values)), list(map(max, values))
            panel.fill_between(steps, low, high, color=line.get_color(), alpha=0.2)
        panel.set(xlabel="step", ylim=(0, 1))
        panel.legend(fontsize=9)
    panels[0].set(title="Held-out problems", ylabel="share right")
    panels[1].set(title="By kind, sampled")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def run_settings(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in ("lr", "problems", "rollouts", "schedule", "lora"))


if __name__ == "__main__":
    sys.exit(run_script(main))
