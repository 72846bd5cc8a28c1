"""A pre-trained model of 135 million weights learns to reason, stage by stage.

    uv run --extra gguf studies/experiment.py --seeds 0 1 2
    uv run --extra gguf studies/experiment.py --seeds 0 --stages untrained warm-start grpo

    untrained     SmolLM2-135M-Instruct after four solved examples: answer only, and with steps
    warm-start    a few hundred worked solutions of two and three steps
    pass-rates    which problems does it solve sometimes? eight answers to each
    grpo          reinforcement learning on problems of two to four steps, from the warm start
    grpo-chosen   the same on problems that are solved sometimes
    grpo-untrained   reinforcement learning without a warm start

Rivals learn from somebody who knows more. They also begin with the warm start:

    solutions     more worked solutions, of all lengths: a program is the teacher
    teacher-answers   the answers of GRPO's model to training problems
    from-teacher  its correct answers as worked solutions: off-policy distillation
    on-policy     the student's own answers, each token marked by that model: reverse KL
    self-teacher  the same, marked by the warm start itself, which is shown the solution

And, to look at and to share:

    adapter       LoRA on the untrained model, trained on the solutions of warm-start and
                  from-teacher: 4.9 MB, which `rfs chat --model` takes
    examples      the answers of warm start and GRPO, word for word, and the curve of GRPO

The rivals and grpo-chosen take as many steps as fit into the processor time of grpo, including the
time to sample what they train on. Each stage writes a row to the CSV file, with its cost and its
results on families of problems that no stage trains on. A finished stage is not repeated, and an
interrupted run continues from its last save: give the same command again.
"""

import json
import random
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Literal

import torch

from reasoning_from_scratch.errors import UserError, check_names
from reasoning_from_scratch.files.disk import write_atomically
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import Problem, with_prompt
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.sampling import Sampling, greedy
from reasoning_from_scratch.text import json_lines, read_lines
from rfs.commands.cli import run_script
from rfs.config import RunConfig
from rfs.engine import FAST
from rfs.files.saved_models import evaluations_in
from rfs.files.tables import replace_rows
from rfs.own_policy import Policy
from rfs.report.metrics import MIXED
from rfs.run.evaluations import solution_loss
from rfs.run.options import configure, resumed_config
from rfs.run.start import train
from rfs.run.study import refuse_other_settings
from rfs.tasks.own_task import function_from_file

HERE = Path(__file__).resolve()
sys.path += [str(HERE.parent)]
import word_problems  # noqa: E402
from real_model import perplexity  # noqa: E402

PROMPT = str(HERE.parents[1] / "ch08" / "question.txt")
PROBLEMS = str(HERE.parent / "word_problems.py")
MAX_NEW_TOKENS = 128  # of an answer; a solution of four steps has 95, at most 119
GREEDY_LONGER = greedy(150)  # has room for five steps
ADAPTER_RANK = 8
ADAPTER_STEPS = 64
STAGES = (
    "untrained", "warm-start", "pass-rates", "grpo", "grpo-chosen", "grpo-untrained", "solutions",
    "teacher-answers", "from-teacher", "on-policy", "self-teacher", "adapter", "examples",
)  # fmt: skip
COLUMNS = """
    seconds steps lr answer_only greedy sampled pass@8 tokens false_steps correct_by_mistake
    never between always 2_steps 3_steps 4_steps 5_steps bus game garden heights
    solution_loss perplexity
    fresh_answer_only fresh fresh_families fresh_5_steps fresh_sampled fresh_pass@8
    fresh_false_steps fresh_correct_by_mistake fresh_tokens
""".split()


@dataclass
class Options:
    seeds: tuple[int, ...] = (0, 1, 2)
    """Make all stages with each of these seeds."""
    stages: tuple[str, ...] = STAGES
    """Make these stages, in their order."""
    out: Path = Path("studies/experiment.csv")
    """Write a row for each seed and stage to this file."""
    folder: Path = Path("runs/ch08")
    """Keep the models and runs in this folder."""
    model: str = "smollm2"
    """Let this model learn."""
    examples: int = 512
    """Warm up on this many worked solutions."""
    batch: int = 8
    """Take this many worked solutions per step."""
    sft_lr: float = 2e-4
    """Warm up at this learning rate; it falls linearly to 0."""
    steps: int = 60
    """Make this many steps of GRPO."""
    problems_per_step: int = 16
    """Sample this many problems per step of GRPO, with eight answers each."""
    lr: float = 3e-5
    """Train by GRPO at this learning rate; it falls linearly to 0."""
    choose_from: int = 400
    """Measure the pass rates of this many problems."""
    answers: int = 3000
    """Let the teacher answer this many problems for from-teacher, once each."""
    eval_every: int = 20
    """Measure after every N steps of GRPO."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Train weights in this number format, except in the warm start. bfloat16 takes a quarter to a
    half of the time if the processor supports it (lscpu lists avx512_bf16 or amx_bf16); otherwise
    it is slower."""
    lora_rank: int = 0
    """Train LoRA matrices of this rank (0 trains all weights); set the learning rates to ten times
    those of all weights then."""
    held_out: int = 64
    """Measure on this many held-out problems for each number of steps."""
    final: bool = False
    """Also measure on problems that nobody has looked at. Do this once, when all is decided."""


# -------------------------------------------------------------------------- what it can do now


@dataclass(frozen=True)
class Answers:
    """A model's answers to problems, and how many are correct."""

    groups: list[Group]

    @property
    def correct(self) -> list[list[float]]:
        """For each problem: which of its answers are correct."""
        return [
            [correctness(rollout.text, group.problem.answer) for rollout in group.rollouts]
            for group in self.groups
        ]

    @property
    def accuracy(self) -> float:
        return mean(map(mean, self.correct))

    @property
    def pass_at_k(self) -> float:
        """The share of problems with at least one correct answer: pass@k."""
        return mean(map(any, self.correct))

    @property
    def tokens(self) -> float:
        return mean(len(r.response_ids) for group in self.groups for r in group.rollouts)

    def accuracy_by(self, key: Callable[[Problem], str]) -> dict[str, float]:
        """Accuracy by the problems' family or number of steps."""
        accuracies: dict[str, list[float]] = {}
        for group, correct in zip(self.groups, self.correct, strict=True):
            accuracies.setdefault(key(group.problem), []).append(mean(correct))
        return {name: mean(values) for name, values in sorted(accuracies.items())}

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


def sample_answers(policy: LocalPolicy, problems: Sequence[Problem], sampling: Sampling) -> Answers:
    prompted = with_prompt(problems, PROMPT, policy.tokenizer)
    return Answers(policy.sample(prompted, sampling))


def measure_held_out(policy: LocalPolicy, count: int) -> dict[str, float]:
    """A row of the table, on families that no stage trained on: `count` problems for each number of
    steps. The warm start shows up to three steps, GRPO trains on up to four; five are new to both,
    and count in no mean."""
    answers = {
        steps: sample_answers(policy, word_problems.held_out(count, (steps,)), GREEDY_LONGER)
        for steps in (2, 3, 4, 5)
    }
    row = {f"{steps}_steps": answered.accuracy for steps, answered in answers.items()}
    trained_lengths = Answers([g for n in word_problems.TRAINED_STEPS for g in answers[n].groups])
    row |= {"greedy": trained_lengths.accuracy, "tokens": trained_lengths.tokens}
    row |= {"false_steps": trained_lengths.false_steps}
    row |= {"correct_by_mistake": trained_lengths.correct_by_mistake}
    row |= trained_lengths.accuracy_by(lambda problem: problem.type)
    mixed_lengths = word_problems.held_out(count)
    sampled = sample_answers(policy, mixed_lengths, Sampling(MAX_NEW_TOKENS, rollouts=8, seed=1))
    row |= {"sampled": sampled.accuracy, "pass@8": sampled.pass_at_k}
    return row | measure_losses(policy, mixed_lengths)


def measure_losses(policy: LocalPolicy, problems: Sequence[Problem]) -> dict[str, float]:
    """The loss on worked solutions that no stage trains on, and the perplexity of ordinary text."""
    prompted = with_prompt(problems, PROMPT, policy.tokenizer)
    row = {"solution_loss": solution_loss(policy, prompted)}
    return row | {"perplexity": perplexity(policy.model, policy.tokenizer)}


def measure_fresh(options: Options, folder: Path) -> dict[str, float]:
    """Columns for problems that nobody looked at while the stages were chosen: new ones of the
    held-out families, and as many of two families that were written for this (`fresh_families`)."""
    held_out, families = list(word_problems.HELD_OUT), list(word_problems.FRESH)
    trained_steps, count = word_problems.TRAINED_STEPS, options.held_out
    new_families = word_problems.fresh(families, 3 * count, trained_steps)
    fresh = [*word_problems.fresh(held_out, 3 * count, trained_steps), *new_families]
    if not (folder / "run").exists():
        row = measure_after_examples(Policy.load(options.model), fresh)
        return {f"fresh_{name}".removesuffix("_greedy"): value for name, value in row.items()}
    policy = load_final_model(folder)
    answers = sample_answers(policy, fresh, GREEDY_LONGER)
    five_steps = word_problems.fresh(held_out + families, 2 * count, (5,))
    harder = sample_answers(policy, five_steps, GREEDY_LONGER)
    fewer = word_problems.fresh(held_out + families, count, trained_steps)
    sampled = sample_answers(policy, fewer, Sampling(MAX_NEW_TOKENS, rollouts=8, seed=2))
    return {
        "fresh": answers.accuracy, "fresh_5_steps": harder.accuracy,
        "fresh_families": Answers(answers.groups[-len(new_families) :]).accuracy,
        "fresh_sampled": sampled.accuracy, "fresh_pass@8": sampled.pass_at_k,
        "fresh_false_steps": answers.false_steps, "fresh_tokens": answers.tokens,
        "fresh_correct_by_mistake": answers.correct_by_mistake,
    }  # fmt: skip


# -------------------------------------------------------------------------- stage 0: untrained


def measure_untrained(policy: LocalPolicy, count: int) -> dict[str, float]:
    row = measure_losses(policy, word_problems.held_out(count))
    return row | measure_after_examples(policy, word_problems.held_out(2 * count))


def measure_after_examples(policy: LocalPolicy, problems: Sequence[Problem]) -> dict[str, float]:
    """Accuracy after four solved examples, which show the answer alone or the steps before it."""
    policy.tokenizer.use_chat_template(False)
    examples = word_problems.worked(40)
    solved = [
        next(p for p in examples if p.type == name) for name in list(word_problems.TRAINED)[:4]
    ]
    answer_examples = "".join(f"Question: {p.problem}\nAnswer: {p.answer}\n\n" for p in solved)
    solution_examples = "".join(f"Question: {p.problem}\nAnswer:\n{p.solution}\n\n" for p in solved)
    row = {}
    for name, prefix, ending, max_new_tokens in (
        ("answer_only", answer_examples, "", 6),
        ("greedy", solution_examples, "\n", MAX_NEW_TOKENS),
    ):
        prompted = [
            replace(p, prompt=f"{prefix}Question: {p.problem}\nAnswer:{ending}") for p in problems
        ]
        groups = policy.sample(prompted, greedy(max_new_tokens))
        row[name] = mean(
            first_paragraph_is_correct(group.rollouts[0].text, group.problem) for group in groups
        )
    return row


def first_paragraph_is_correct(text: str, problem: Problem) -> float:
    """Whether the first paragraph is the answer, or ends with it in a box. More
    questions follow, which an untrained model makes up itself."""
    first = text.strip().split("\n\n")[0]
    return float(first == problem.answer) or correctness(first, problem.answer)


# ----------------------------------------------------------------------- runs, as rfs makes them

SESSION = time.time()  # a run that was interrupted has several
# A run imports this file once more, for its evaluator. There the processor-seconds are counted.
EVALUATOR = f"{HERE}:measured_on_the_way"
BEGAN = time.process_time()
spent_measuring = 0.0


def reset_processor_time() -> None:
    """Starts counting anew: this process may have run other stages before."""
    counter = function_from_file(EVALUATOR).__globals__
    counter |= {"BEGAN": time.process_time(), "spent_measuring": 0.0}


def measured_on_the_way(model, tokenizer) -> dict[str, float]:
    """An evaluator of the runs; it also reports the processor time of training so far."""
    global spent_measuring
    start = time.process_time() - BEGAN
    policy = LocalPolicy(model, tokenizer=tokenizer, engine=FAST)
    answers = sample_answers(policy, word_problems.held_out(64), greedy(MAX_NEW_TOKENS))
    row = {"greedy": answers.accuracy, "false_steps": answers.false_steps}
    seconds = start - spent_measuring
    spent_measuring += time.process_time() - BEGAN - start
    return {"session": SESSION, "seconds": seconds} | row


def train_or_resume(config: RunConfig) -> list[dict]:
    """Starts a run or continues an interrupted one; returns its metrics, a row for each step."""
    folder = Path(config.log_path)
    if (folder / "config.json").exists():
        config = resumed_config(folder)
    reset_processor_time()
    result = train(config)
    if result.stopped:
        raise UserError(f"{folder}: {result.stopped}; the same command goes on from there")
    return list(result.rows)


def make_config(options: Options, settings: dict, folder: Path) -> RunConfig:
    return configure(
        **common_settings(options) | settings, log_path=str(folder), rolling_every=10,
        eval_every=options.eval_every * (5 if settings["recipe"] == "sft" else 1),
        evaluators=[EVALUATOR], eval_problems=[f"{PROBLEMS}:held_out"],
        eval_limit=1,
    )  # fmt: skip


def common_settings(options: Options) -> dict:
    """The settings of all runs."""
    return dict(
        prompt=PROMPT, max_new_tokens=MAX_NEW_TOKENS, lr_schedule="linear", warmup_steps=5,
        preflight=False, micro_batch_tokens=4096, lora_rank=options.lora_rank,
    )  # fmt: skip


def seconds_per_step(options: Options, folder: Path, settings: dict) -> float:
    """Processor-seconds per step of a run: the mean of the last four of five trial steps, which are
    then thrown away."""
    # An interrupted call leaves its steps.
    settings = common_settings(options) | settings | {"steps": 5, "overwrite": True}
    config = configure(**settings, log_path=str(folder))
    started = time.process_time(), time.perf_counter()
    rows = train(config).require_finished().rows
    share = (time.process_time() - started[0]) / (time.perf_counter() - started[1])
    shutil.rmtree(folder)
    return share * mean(row["time/total"] for row in rows[1:])


def training_seconds(rows: Sequence[dict]) -> float:
    """A run's processor time without its measurements, and without what interrupted sessions did
    after their last measurement."""
    sessions: dict[float, list[dict]] = {}
    for evaluation in chain.from_iterable(map(evaluations_in, rows)):
        if "measured_on_the_way/seconds" in evaluation:
            sessions.setdefault(evaluation["measured_on_the_way/session"], []).append(evaluation)
    total = 0.0
    for measurements in sessions.values():
        total += measurements[-1]["measured_on_the_way/seconds"]
        if measurements[0]["eval_step"] == 0:  # what comes before the first step
            total -= measurements[0]["measured_on_the_way/seconds"]
    return total


# ---------------------------------------------------------------------------------- the stages


def main(options: Options) -> None:
    """Runs each stage of each seed that is not done yet."""
    check_names("stage", options.stages, STAGES)
    torch.set_num_threads(1)  # so that processor time equals time by the clock
    for seed in options.seeds:
        for stage in options.stages:
            folder = options.folder / f"seed-{seed}" / stage
            if stage == "examples":
                write_examples_and_curve(options, seed, folder.parent)
                continue
            if (folder / "run" / "config.json").exists():  # finished or not
                refuse_other_settings(stage_config(options, seed, stage, folder), "--folder")
            row = load_or_compute(folder / "row.json", run_stage, options, seed, stage, folder)
            final_file = folder / "final.json"  # once measured, it stays in the table
            has_model = stage not in ("pass-rates", "teacher-answers")
            if final_file.exists() or options.final and has_model:
                row |= load_or_compute(final_file, measure_fresh, options, folder)
            shown = {name: f"{row[name]:.4g}" if name in row else "" for name in COLUMNS}
            replace_rows(options.out, {"seed": str(seed), "stage": stage}, [shown])
            print(seed, stage, {name: value for name, value in shown.items() if value}, flush=True)


def load_or_compute(path: Path, compute: Callable[..., dict], *given) -> dict[str, float]:
    """The file's contents; if there is no file yet, they are computed and written."""
    if not path.exists():
        write_atomically(path, json.dumps(compute(*given), indent=2) + "\n")
    return json.loads(path.read_text(encoding="utf-8"))


def run_stage(options: Options, seed: int, stage: str, folder: Path) -> dict[str, float]:
    """Returns the stage's cost and the metrics of its model."""
    warm, grpo = folder.parent / "warm-start", folder.parent / "grpo"
    if stage == "untrained":
        return measure_untrained(Policy.load(options.model), options.held_out)
    if stage == "pass-rates":
        return measure_pass_rates(options, load_final_model(warm), seed, folder / "chosen.jsonl")
    if stage == "teacher-answers":
        teacher = load_final_model(grpo)
        return sample_teacher_answers(options, teacher, seed, folder / "answers.jsonl")
    if stage == "adapter":
        write_adapter_lessons(options, folder.parent)
    config = stage_config(options, seed, stage, folder)
    row = {"seconds": training_seconds(train_or_resume(config)), "steps": float(config.steps)}
    return row | {"lr": config.lr} | measure_held_out(load_final_model(folder), options.held_out)


def stage_config(options: Options, seed: int, stage: str, folder: Path) -> RunConfig:
    """The run of a stage. Where its steps follow from a budget, a run that has begun keeps them."""
    run, grpo = folder / "run", folder.parent / "grpo"
    settings = stage_settings(options, stage, folder.parent) | {"seed": seed}
    if "steps" in settings:
        return make_config(options, settings, run)
    if (run / "config.json").exists():
        settings["steps"] = resumed_config(run).steps
    else:  # its budget is GRPO's time, minus its preparation
        preparation = {"grpo-chosen": "pass-rates", "from-teacher": "teacher-answers"}.get(stage)
        budget = stage_seconds(grpo)
        if preparation:
            budget -= stage_seconds(folder.parent / preparation)
        each = seconds_per_step(options, folder / "pace", settings)
        settings["steps"] = max(1, int(budget / each))
    return make_config(options, settings, run)


def stage_settings(options: Options, stage: str, seed_folder: Path) -> dict:
    """The settings of a stage's run."""
    sft_settings = dict(recipe="sft", problems_per_step=options.batch, lr=options.sft_lr)
    if stage == "adapter":
        return sft_settings | dict(
            model=options.model, problems=str(seed_folder / "adapter" / "lessons.jsonl"),
            steps=ADAPTER_STEPS, dtype=options.dtype, lora_rank=ADAPTER_RANK,
            lr=10 * options.sft_lr,
        )  # fmt: skip
    grpo_settings = dict(
        problems=f"{PROBLEMS}:problems", problems_per_step=options.problems_per_step, rollouts=8,
        lr=options.lr, dtype=options.dtype,
    )  # fmt: skip
    if stage == "warm-start":
        steps = options.examples // options.batch
        return sft_settings | dict(model=options.model, problems=f"{PROBLEMS}:worked", steps=steps)
    if stage == "grpo-untrained":
        return grpo_settings | dict(recipe="grpo", model=options.model, steps=options.steps)
    sft_settings |= dict(model=final_model(seed_folder / "warm-start"), dtype=options.dtype)
    grpo_settings |= dict(model=final_model(seed_folder / "warm-start"))
    if stage == "grpo":
        return grpo_settings | dict(recipe="grpo", steps=options.steps)
    if stage == "grpo-chosen":
        chosen = str(seed_folder / "pass-rates" / "chosen.jsonl")
        return grpo_settings | dict(recipe="grpo", problems=chosen)
    if stage == "solutions":
        return sft_settings | dict(problems=f"{PROBLEMS}:worked_longer")
    if stage == "from-teacher":
        return sft_settings | dict(problems=str(seed_folder / "teacher-answers" / "answers.jsonl"))
    grpo_settings |= dict(rollouts=4)  # each token is marked, so fewer answers suffice
    if stage == "on-policy":
        teacher = final_model(seed_folder / "grpo")
        return grpo_settings | dict(recipe="distill", kl_reference=teacher)
    return grpo_settings | dict(recipe="opsd")


def final_model(stage: Path) -> str:
    """The model at the end of a stage, as --model takes it."""
    require_file(stage, "run/config.json")
    if stage.name == "adapter":  # the very files that we publish
        return str(stage / "run" / "adapter")
    steps = resumed_config(stage / "run").steps
    return f"{stage / 'run'}@{steps:06d}"


def require_file(stage: Path, file: str) -> None:
    if not (stage / file).exists():
        raise UserError(f"run the stage {stage.name} first: {stage} has no {file}")


def load_final_model(stage: Path) -> Policy:
    return Policy.load(final_model(stage))


def stage_seconds(stage: Path) -> float:
    require_file(stage, "row.json")
    return json.loads((stage / "row.json").read_text(encoding="utf-8"))["seconds"]


def sample_teacher_answers(options: Options, teacher: Policy, seed: int, path: Path) -> dict:
    """The teacher answers many problems, once each; its correct answers go into the file."""
    start = time.process_time()
    problems = random.Random(f"teacher {seed}").sample(word_problems.problems(), options.answers)
    answers = sample_answers(teacher, problems, Sampling(MAX_NEW_TOKENS, rollouts=1, seed=seed))
    rows = [
        {"problem": p.problem, "answer": p.answer, "solution": group.rollouts[0].text}
        for p, group, (correct,) in zip(problems, answers.groups, answers.correct, strict=True)
        if correct
    ]
    write_atomically(path, json_lines(rows))
    return {"seconds": time.process_time() - start, "sampled": answers.accuracy}


def write_adapter_lessons(options: Options, seed_folder: Path) -> None:
    """Writes the warm start's solutions and the teacher's correct answers into a file."""
    require_file(seed_folder / "teacher-answers", "answers.jsonl")
    rows = [
        {"problem": p.problem, "answer": p.answer, "solution": p.solution}
        for p in word_problems.worked()[: options.examples]
    ]
    rows += read_lines(seed_folder / "teacher-answers" / "answers.jsonl")
    write_atomically(seed_folder / "adapter" / "lessons.jsonl", json_lines(rows))


def measure_pass_rates(options: Options, policy: Policy, seed: int, path: Path) -> dict[str, float]:
    """Stage 2: of eight answers to each problem, how many are correct? Problems with both correct
    and incorrect answers go into the file."""
    start = time.process_time()
    problems = random.Random(f"pass rates {seed}").sample(
        word_problems.problems(), options.choose_from
    )
    sampling = Sampling(MAX_NEW_TOKENS, rollouts=8, seed=seed)
    rates = [mean(correct) for correct in sample_answers(policy, problems, sampling).correct]
    rows = [
        {"problem": problem.problem, "answer": problem.answer}
        for problem, rate in zip(problems, rates, strict=True)
        if 0 < rate < 1
    ]
    write_atomically(path, json_lines(rows))
    row = {"seconds": time.process_time() - start, "sampled": mean(rates)}
    row |= {"never": mean(rate == 0 for rate in rates), "between": len(rows) / len(rates)}
    return row | {"always": mean(rate == 1 for rate in rates)}


# ------------------------------------------------------------------------------ to look at


def write_examples_and_curve(options: Options, seed: int, seed_folder: Path) -> None:
    """Writes two files beside the table: how often warm start and GRPO are correct, incorrect, or
    differ, with the first two problems of each kind; and the curve of GRPO."""
    by_steps = [word_problems.held_out(options.held_out, (steps,)) for steps in (2, 3, 4, 5)]
    problems = [problem for row in zip(*by_steps, strict=True) for problem in row]
    names = ("warm-start", "grpo")
    before, after = (
        sample_answers(load_final_model(seed_folder / name), problems, GREEDY_LONGER).groups
        for name in names
    )
    kinds: dict[str, list[dict]] = {
        kind: [] for kind in ("only grpo", "both", "neither", "only warm-start")
    }
    for problem, *groups in zip(problems, before, after, strict=True):
        texts = [group.rollouts[0].text for group in groups]
        correct = [correctness(text, problem.answer) for text in texts]
        kind = "both" if all(correct) else "neither"
        if sum(correct) == 1:
            kind = f"only {names[correct.index(1)]}"
        example = {"problem": problem.problem, "solution": problem.solution}
        kinds[kind].append(example | dict(zip(names, texts, strict=True)))
    examples = {kind: {"count": len(rows), "first": rows[:2]} for kind, rows in kinds.items()}
    path = options.out.with_name(f"{options.out.stem}_examples_{seed}.json")
    write_atomically(path, json.dumps(examples, indent=2) + "\n")
    curve = training_curve(read_lines(seed_folder / "grpo" / "run" / "metrics.jsonl"))
    path = options.out.with_name(f"{options.out.stem}_curve.csv")
    replace_rows(path, {"seed": str(seed)}, curve)


def training_curve(rows: Sequence[dict]) -> list[dict[str, str]]:
    """For each step of a run: the reward of its rollouts and, where measured, held-out problems.
    The last line has only the latter, after all steps."""
    lines: dict[int, dict[str, float]] = {step: {} for step in range(len(rows) + 1)}
    for row in rows:
        lines[row["step"]] |= {
            "reward": row["reward/total"], "tokens": row["ac_tokens_per_turn"],
            "both": row[MIXED],
        }  # fmt: skip
        for evaluation in evaluations_in(row):
            line = lines[evaluation["eval_step"]]
            for name in ("greedy", "false_steps"):
                line[name] = evaluation[f"measured_on_the_way/{name}"]
    names = "reward tokens both greedy false_steps".split()
    return [
        {"step": str(step)} | {name: f"{line[name]:.4g}" if name in line else "" for name in names}
        for step, line in lines.items()
    ]


if __name__ == "__main__":
    sys.exit(run_script(main))
