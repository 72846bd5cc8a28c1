"""A pre-trained model of 135 million weights learns to reason, stage by stage.

    uv run --extra gguf ch08/experiment.py --seeds 0 1 2
    uv run --extra gguf ch08/experiment.py --seeds 0 --stages untrained warm-start grpo

    untrained     SmolLM2-135M-Instruct after four solved examples: answers alone, and steps
    warm-start    a few hundred worked solutions of two and three steps
    pass-rates    which problems does it solve sometimes? eight answers to each
    grpo          reinforcement learning on problems of two to four steps, from the warm start
    grpo-chosen   the same on problems that are solved sometimes, at the same cost
    solutions     a rival: the same cost spent on more worked solutions, of all lengths
    grpo-untrained   reinforcement learning without a warm start

Each stage writes a row to the CSV file, with what it cost and how it does on families of problems
that no stage trains on. A stage that is done is not done again, and a run that was interrupted
goes on from its last save: give the same command again.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import torch

from reasoning_from_scratch.commands.cli import run_script
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast.engine import FAST
from reasoning_from_scratch.files.disk import replacing
from reasoning_from_scratch.files.tables import replace_rows
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import Problem, with_prompt
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.run.options import configure, resumed_config
from reasoning_from_scratch.run.own_policy import Policy
from reasoning_from_scratch.run.start import train
from reasoning_from_scratch.sampling import Sampling, greedy

HERE = Path(__file__).resolve()
sys.path += [str(HERE.parent), str(HERE.parents[1] / "ch06")]
import word_problems  # noqa: E402
from real_model import perplexity  # noqa: E402

PROMPT = str(HERE.parent / "question.txt")
PROBLEMS = str(HERE.parent / "word_problems.py")
LONGEST = 128  # tokens of an answer; a solution of four steps has 95, at most 119
LONGEST_HARDER = 150
STAGES = (
    "untrained", "warm-start", "pass-rates", "grpo", "grpo-chosen", "solutions", "grpo-untrained"
)  # fmt: skip
COLUMNS = """
    seconds steps lr answer_only greedy sampled pass@8 tokens false_steps correct_by_mistake
    never between always 2_steps 3_steps 4_steps 5_steps bus game garden heights perplexity
""".split()


@dataclass
class Options:
    seeds: tuple[int, ...] = (0, 1, 2)
    """A run of all stages for each."""
    stages: tuple[str, ...] = STAGES
    """Which stages, in their order."""
    out: Path = Path("ch08/experiment.csv")
    """File to write: a row for each seed and stage."""
    folder: Path = Path("runs/ch08")
    """The models and runs go here."""
    model: str = "smollm2"
    """The model that learns."""
    examples: int = 512
    """Worked solutions of the warm start."""
    batch: int = 8
    """Worked solutions of a step."""
    sft_lr: float = 2e-4
    """Learning rate of the warm start; it falls linearly to 0."""
    steps: int = 100
    """Steps of GRPO."""
    problems_per_step: int = 16
    """Problems of a step of GRPO, with eight answers each."""
    lr: float = 2e-5
    """Learning rate of GRPO; it falls linearly to 0."""
    choose_from: int = 400
    """Problems whose pass rates are measured."""
    every: int = 20
    """Steps of GRPO between two measurements."""
    lora_rank: int = 0
    """Train additions of this rank instead of all weights; the learning rates are ten times those
    of all weights then."""
    held_out: int = 64
    """Held-out problems of each number of steps."""


# -------------------------------------------------------------------------- what it can do now


@dataclass(frozen=True)
class Answers:
    """What a model answers to problems, and how much of it is correct."""

    groups: list[Group]

    @property
    def correct(self) -> list[list[float]]:
        """For each problem: which of its answers are."""
        return [
            [correctness(rollout.text, group.problem.answer) for rollout in group.rollouts]
            for group in self.groups
        ]

    @property
    def accuracy(self) -> float:
        return mean(map(mean, self.correct))

    @property
    def solved(self) -> float:
        """The share of problems with a correct answer among theirs: pass@k."""
        return mean(map(any, self.correct))

    @property
    def tokens(self) -> float:
        return mean(len(r.response_ids) for group in self.groups for r in group.rollouts)

    def by(self, key: Callable[[Problem], str]) -> dict[str, float]:
        """Accuracy by the problems' family or number of steps."""
        found: dict[str, list[float]] = {}
        for group, correct in zip(self.groups, self.correct, strict=True):
            found.setdefault(key(group.problem), []).append(mean(correct))
        return {name: mean(some) for name, some in sorted(found.items())}

    @property
    def false_steps(self) -> float:
        """The share of equations that are false."""
        steps = [
            step
            for group in self.groups
            for rollout in group.rollouts
            for step in word_problems.checked_steps(rollout.text)
        ]
        return 1 - mean(steps) if steps else 0.0

    @property
    def correct_by_mistake(self) -> float:
        """Of the correct answers, the share with a false equation above them."""
        steps = [
            all(word_problems.checked_steps(rollout.text))
            for group, correct in zip(self.groups, self.correct, strict=True)
            for rollout, right in zip(group.rollouts, correct, strict=True)
            if right
        ]
        return 1 - mean(steps) if steps else 0.0


def asked(policy: LocalPolicy, problems: Sequence[Problem], sampling: Sampling) -> Answers:
    shown = with_prompt(problems, PROMPT, policy.tokenizer)
    return Answers(policy.sample(shown, sampling))


def measured(policy: LocalPolicy, count: int) -> dict[str, float]:
    """A row of the table, of families that nobody trained on: `count` problems of each number of
    steps. The warm start shows up to three steps, GRPO practices on up to four; five are new to
    both, and count in no mean."""
    answers = {
        steps: asked(policy, word_problems.held_out(count, (steps,)), greedy(LONGEST_HARDER))
        for steps in (2, 3, 4, 5)
    }
    row = {f"{steps}_steps": some.accuracy for steps, some in answers.items()}
    practiced = Answers([g for n in word_problems.TRAINED_STEPS for g in answers[n].groups])
    row |= {"greedy": practiced.accuracy, "tokens": practiced.tokens}
    row |= {"false_steps": practiced.false_steps}
    row |= {"correct_by_mistake": practiced.correct_by_mistake}
    row |= practiced.by(lambda problem: problem.type)
    sampled = asked(policy, word_problems.held_out(count), Sampling(LONGEST, rollouts=8, seed=1))
    row |= {"sampled": sampled.accuracy, "pass@8": sampled.solved}
    return row | {"perplexity": perplexity(policy.model, policy.tokenizer)}


# -------------------------------------------------------------------------- stage 0: untrained


def untrained(policy: LocalPolicy, count: int) -> dict[str, float]:
    """After four solved examples: the answer alone, and with the steps before it."""
    policy.tokenizer.use_chat_template(False)
    examples = word_problems.worked(40)
    shown = [
        next(p for p in examples if p.type == name) for name in list(word_problems.TRAINED)[:4]
    ]
    problems = word_problems.held_out(2 * count)
    alone = "".join(f"Question: {p.problem}\nAnswer: {p.answer}\n\n" for p in shown)
    worked = "".join(f"Question: {p.problem}\nAnswer:\n{p.solution}\n\n" for p in shown)
    row = {"perplexity": perplexity(policy.model, policy.tokenizer)}
    for name, before, after, longest in (
        ("answer_only", alone, "", 6),
        ("greedy", worked, "\n", LONGEST),
    ):
        put = [
            replace(p, prompt=f"{before}Question: {p.problem}\nAnswer:{after}") for p in problems
        ]
        groups = policy.sample(put, greedy(longest))
        row[name] = mean(
            answered_in_line(group.rollouts[0].text, group.problem) for group in groups
        )
    return row


def answered_in_line(text: str, problem: Problem) -> float:
    """Whether the first paragraph is the answer, or ends with it in a box. What follows are more
    questions, which an untrained model makes up itself."""
    first = text.strip().split("\n\n")[0]
    return float(first == problem.answer) or correctness(first, problem.answer)


# --------------------------------------------------------------- stages 1 to 3: runs, as of rfs

SESSION = time.time()  # a run that was interrupted has several
spent_measuring = 0.0  # processor-seconds of this process


def measured_on_the_way(model, tokenizer) -> dict[str, float]:
    """An evaluator of the runs: also tells the processor time that training took so far."""
    global spent_measuring
    started = time.process_time()
    policy = LocalPolicy(model, tokenizer=tokenizer, engine=FAST)
    answers = asked(policy, word_problems.held_out(64), greedy(LONGEST))
    row = {"greedy": answers.accuracy, "false_steps": answers.false_steps}
    seconds = started - spent_measuring
    spent_measuring += time.process_time() - started
    return {"session": SESSION, "seconds": seconds} | row


def rows_of_run(options: Options, folder: Path, recipe: str, **settings) -> list[dict]:
    """What a run reports at each step: a new one, or the rest of one that was interrupted."""
    if (folder / "config.json").exists():
        config = resumed_config(folder)
    else:
        config = configure(
            recipe, prompt=PROMPT, max_new_tokens=LONGEST, lr_schedule="linear", warmup_steps=5,
            evaluators=[f"{HERE}:measured_on_the_way"], eval_problems=[f"{PROBLEMS}:held_out"],
            eval_limit=1, preflight=False, rolling_every=10, micro_batch_tokens=4096,
            lora_rank=options.lora_rank, log_path=str(folder), **settings,
        )  # fmt: skip
    result = train(config)
    if result.stopped:
        raise UserError(f"{folder}: {result.stopped}; the same command goes on from there")
    return list(result.rows)


def learn_solutions(
    options: Options, folder: Path, function: str, steps: int, seed: int
) -> list[dict]:
    """Worked solutions, from the untrained model."""
    return rows_of_run(
        options, folder, "sft", model=options.model, problems=f"{PROBLEMS}:{function}", steps=steps,
        problems_per_step=options.batch, lr=options.sft_lr, seed=seed, eval_every=max(1, steps),
    )  # fmt: skip


def grpo(
    options: Options, folder: Path, model: str, problems: str, steps: int, seed: int
) -> list[dict]:
    """Reinforcement learning, from the warm start or without one."""
    return rows_of_run(
        options, folder, "grpo", model=model, problems=problems, steps=steps, rollouts=8,
        problems_per_step=options.problems_per_step, lr=options.lr, seed=seed,
        eval_every=options.every,
    )  # fmt: skip


def seconds_of(rows: Sequence[dict]) -> float:
    """Processor time of a run, measurements not counted. What an interrupted run did after its
    last measurement is not counted either; the process that goes on does nothing before."""
    sessions: dict[float, list[dict]] = {}
    for row in rows:
        if "measured_on_the_way/seconds" in row:
            sessions.setdefault(row["measured_on_the_way/session"], []).append(row)
    total = 0.0
    for measurements in sessions.values():
        total += measurements[-1]["measured_on_the_way/seconds"]
        if measurements[0]["eval_step"] == 0:  # other stages may have come before it
            total -= measurements[0]["measured_on_the_way/seconds"]
    return total


# ---------------------------------------------------------------------------------- the stages


def main(options: Options) -> None:
    """Each stage of each seed, as far as it is not done."""
    torch.set_num_threads(1)  # processor time and time by the clock are one
    for seed in options.seeds:
        for stage in options.stages:
            folder = options.folder / f"seed-{seed}" / stage
            done = folder / "row.json"
            if not done.exists():
                row = run_stage(options, seed, stage, folder)
                folder.mkdir(parents=True, exist_ok=True)
                with replacing(done) as path:
                    path.write_text(json.dumps(row, indent=2) + "\n", encoding="utf-8")
            row = json.loads(done.read_text(encoding="utf-8"))
            shown = {name: f"{row[name]:.4g}" if name in row else "" for name in COLUMNS}
            replace_rows(options.out, {"seed": str(seed), "stage": stage}, [shown])
            print(seed, stage, {name: value for name, value in shown.items() if value}, flush=True)


def run_stage(options: Options, seed: int, stage: str, folder: Path) -> dict[str, float]:
    """What the stage cost, and what the model can do after it."""
    if stage == "untrained":
        return untrained(Policy.load(options.model), options.held_out)
    run, others = folder / "run", folder.parent
    warm_steps = options.examples // options.batch
    warm = f"{others / 'warm-start' / 'run'}@{warm_steps:06d}"
    if stage == "pass-rates":
        return pass_rates(options, Policy.load(warm), seed, folder / "chosen.jsonl")
    practice, steps, lr = f"{PROBLEMS}:problems", options.steps, options.lr
    if stage == "warm-start":
        steps, lr = warm_steps, options.sft_lr
        rows = learn_solutions(options, run, "worked", steps, seed)
    elif stage == "grpo":
        rows = grpo(options, run, warm, practice, steps, seed)
    elif stage == "grpo-untrained":
        rows = grpo(options, run, options.model, practice, steps, seed)
    elif stage == "grpo-chosen":  # fewer steps: to choose the problems took time as well
        left = 1 - seconds_at(others / "pass-rates") / seconds_at(others / "grpo")
        steps = max(1, int(options.steps * left))
        chosen = str(others / "pass-rates" / "chosen.jsonl")
        rows = grpo(options, run, warm, chosen, steps, seed)
    else:  # as many solutions as take the time of warm start and GRPO
        lr, warm_seconds = options.sft_lr, seconds_at(others / "warm-start")
        steps = int(warm_steps * (1 + seconds_at(others / "grpo") / warm_seconds))
        rows = learn_solutions(options, run, "worked_longer", steps, seed)
    row = {"seconds": seconds_of(rows), "steps": float(steps), "lr": lr}
    return row | measured(Policy.load(f"{run}@{steps:06d}"), options.held_out)


def seconds_at(stage: Path) -> float:
    return json.loads((stage / "row.json").read_text(encoding="utf-8"))["seconds"]


def pass_rates(options: Options, policy: Policy, seed: int, path: Path) -> dict[str, float]:
    """Stage 2: of eight answers to each problem, how many are correct? Into the file go those
    problems of which some answers are and others are not."""
    started = time.process_time()
    problems = random.Random(f"pass rates {seed}").sample(
        word_problems.problems(), options.choose_from
    )
    sampling = Sampling(LONGEST, rollouts=8, seed=seed)
    found = [mean(correct) for correct in asked(policy, problems, sampling).correct]
    lines = [
        json.dumps({"problem": problem.problem, "answer": problem.answer}) + "\n"
        for problem, rate in zip(problems, found, strict=True)
        if 0 < rate < 1
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")
    row = {"seconds": time.process_time() - started, "sampled": mean(found)}
    row |= {"never": mean(rate == 0 for rate in found), "between": len(lines) / len(found)}
    return row | {"always": mean(rate == 1 for rate in found)}


if __name__ == "__main__":
    sys.exit(run_script(main))
