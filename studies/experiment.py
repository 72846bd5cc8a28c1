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
from reasoning_from_scratch.text import as_lines, read_lines
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
LONGEST = 128  # tokens of an answer; a solution of four steps has 95, at most 119
LONGEST_HARDER = 150
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
    """What a model answers to problems, and how much of it is correct."""

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
    def solved(self) -> float:
        """The share of problems with at least one correct answer: pass@k."""
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


def answers_to(policy: LocalPolicy, problems: Sequence[Problem], sampling: Sampling) -> Answers:
    shown = with_prompt(problems, PROMPT, policy.tokenizer)
    return Answers(policy.sample(shown, sampling))


def measured(policy: LocalPolicy, count: int) -> dict[str, float]:
    """A row of the table, on families that no stage trained on: `count` problems for each number of
    steps. The warm start shows up to three steps, GRPO trains on up to four; five are new to both,
    and count in no mean."""
    answers = {
        steps: answers_to(policy, word_problems.held_out(count, (steps,)), greedy(LONGEST_HARDER))
        for steps in (2, 3, 4, 5)
    }
    row = {f"{steps}_steps": some.accuracy for steps, some in answers.items()}
    practiced = Answers([g for n in word_problems.TRAINED_STEPS for g in answers[n].groups])
    row |= {"greedy": practiced.accuracy, "tokens": practiced.tokens}
    row |= {"false_steps": practiced.false_steps}
    row |= {"correct_by_mistake": practiced.correct_by_mistake}
    row |= practiced.by(lambda problem: problem.type)
    mixed = word_problems.held_out(count)
    sampled = answers_to(policy, mixed, Sampling(LONGEST, rollouts=8, seed=1))
    row |= {"sampled": sampled.accuracy, "pass@8": sampled.solved}
    return row | losses(policy, mixed)


def losses(policy: LocalPolicy, problems: Sequence[Problem]) -> dict[str, float]:
    """On worked solutions that no stage has learned, and on ordinary text."""
    shown = with_prompt(problems, PROMPT, policy.tokenizer)
    row = {"solution_loss": solution_loss(policy, shown)}
    return row | {"perplexity": perplexity(policy.model, policy.tokenizer)}


def measure_finally(options: Options, folder: Path) -> dict[str, float]:
    """On problems that nobody looked at while the stages were chosen: new ones of the held-out
    families, and as many of two families that were written for this (`fresh_families`)."""
    held_out, families = list(word_problems.HELD_OUT), list(word_problems.FRESH)
    practiced, count = word_problems.TRAINED_STEPS, options.held_out
    new_families = word_problems.fresh(families, 3 * count, practiced)
    new = [*word_problems.fresh(held_out, 3 * count, practiced), *new_families]
    if not (folder / "run").exists():
        row = after_examples(Policy.load(options.model), new)
        return {f"fresh_{name}".removesuffix("_greedy"): value for name, value in row.items()}
    policy, longest = load(folder), greedy(LONGEST_HARDER)
    answers = answers_to(policy, new, longest)
    harder = answers_to(policy, word_problems.fresh(held_out + families, 2 * count, (5,)), longest)
    few = word_problems.fresh(held_out + families, count, practiced)
    sampled = answers_to(policy, few, Sampling(LONGEST, rollouts=8, seed=2))
    return {
        "fresh": answers.accuracy, "fresh_5_steps": harder.accuracy,
        "fresh_families": Answers(answers.groups[-len(new_families) :]).accuracy,
        "fresh_sampled": sampled.accuracy, "fresh_pass@8": sampled.solved,
        "fresh_false_steps": answers.false_steps, "fresh_tokens": answers.tokens,
        "fresh_correct_by_mistake": answers.correct_by_mistake,
    }  # fmt: skip


# -------------------------------------------------------------------------- stage 0: untrained


def untrained(policy: LocalPolicy, count: int) -> dict[str, float]:
    row = losses(policy, word_problems.held_out(count))
    return row | after_examples(policy, word_problems.held_out(2 * count))


def after_examples(policy: LocalPolicy, problems: Sequence[Problem]) -> dict[str, float]:
    """After four solved examples: the answer alone, and with the steps before it."""
    policy.tokenizer.use_chat_template(False)
    examples = word_problems.worked(40)
    shown = [
        next(p for p in examples if p.type == name) for name in list(word_problems.TRAINED)[:4]
    ]
    alone = "".join(f"Question: {p.problem}\nAnswer: {p.answer}\n\n" for p in shown)
    worked = "".join(f"Question: {p.problem}\nAnswer:\n{p.solution}\n\n" for p in shown)
    row = {}
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


# ----------------------------------------------------------------------- runs, as rfs makes them

SESSION = time.time()  # a run that was interrupted has several
# A run imports this file once more, for its evaluator. There the processor-seconds are counted.
EVALUATOR = f"{HERE}:measured_on_the_way"
BEGAN = time.process_time()
spent_measuring = 0.0


def count_from_now() -> None:
    """What this process did before is not counted: it may have run other stages."""
    counter = function_from_file(EVALUATOR).__globals__
    counter |= {"BEGAN": time.process_time(), "spent_measuring": 0.0}


def measured_on_the_way(model, tokenizer) -> dict[str, float]:
    """An evaluator of the runs; it also reports the processor time of training so far."""
    global spent_measuring
    started = time.process_time() - BEGAN
    policy = LocalPolicy(model, tokenizer=tokenizer, engine=FAST)
    answers = answers_to(policy, word_problems.held_out(64), greedy(LONGEST))
    row = {"greedy": answers.accuracy, "false_steps": answers.false_steps}
    seconds = started - spent_measuring
    spent_measuring += time.process_time() - BEGAN - started
    return {"session": SESSION, "seconds": seconds} | row


def rows_of_run(config: RunConfig) -> list[dict]:
    """What a run reports at each step; it starts a new run or continues an interrupted one."""
    folder = Path(config.log_path)
    if (folder / "config.json").exists():
        config = resumed_config(folder)
    count_from_now()
    result = train(config)
    if result.stopped:
        raise UserError(f"{folder}: {result.stopped}; the same command goes on from there")
    return list(result.rows)


def config_of(options: Options, settings: dict, folder: Path) -> RunConfig:
    return configure(
        **usual(options) | settings, log_path=str(folder), rolling_every=10,
        eval_every=options.eval_every * (5 if settings["recipe"] == "sft" else 1),
        evaluators=[EVALUATOR], eval_problems=[f"{PROBLEMS}:held_out"],
        eval_limit=1,
    )  # fmt: skip


def usual(options: Options) -> dict:
    """What all runs have in common."""
    return dict(
        prompt=PROMPT, max_new_tokens=LONGEST, lr_schedule="linear", warmup_steps=5,
        preflight=False, micro_batch_tokens=4096, lora_rank=options.lora_rank,
    )  # fmt: skip


def pace(options: Options, folder: Path, settings: dict) -> float:
    """Processor-seconds per step of a run: the mean of the last four of five trial steps, which are
    then thrown away."""
    # A call that was interrupted here has left its steps.
    settings = usual(options) | settings | {"steps": 5, "overwrite": True}
    config = configure(**settings, log_path=str(folder))
    started = time.process_time(), time.perf_counter()
    rows = train(config).finished().rows
    share = (time.process_time() - started[0]) / (time.perf_counter() - started[1])
    shutil.rmtree(folder)
    return share * mean(row["time/total"] for row in rows[1:])


def seconds_of(rows: Sequence[dict]) -> float:
    """Processor time of a run without its measurements. What an interrupted run did after its last
    measurement is not counted either."""
    sessions: dict[float, list[dict]] = {}
    for found in chain.from_iterable(map(evaluations_in, rows)):
        if "measured_on_the_way/seconds" in found:
            sessions.setdefault(found["measured_on_the_way/session"], []).append(found)
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
                show(options, seed, folder.parent)
                continue
            if (folder / "run" / "config.json").exists():  # finished or not
                refuse_other_settings(stage_config(options, seed, stage, folder), "--folder")
            row = kept(folder / "row.json", run_stage, options, seed, stage, folder)
            final = folder / "final.json"  # once measured, it stays in the table
            if final.exists() or options.final and stage not in ("pass-rates", "teacher-answers"):
                row |= kept(final, measure_finally, options, folder)
            shown = {name: f"{row[name]:.4g}" if name in row else "" for name in COLUMNS}
            replace_rows(options.out, {"seed": str(seed), "stage": stage}, [shown])
            print(seed, stage, {name: value for name, value in shown.items() if value}, flush=True)


def kept(path: Path, compute: Callable[..., dict], *given) -> dict[str, float]:
    """The file's contents; if there is no file yet, they are computed and written."""
    if not path.exists():
        write_atomically(path, json.dumps(compute(*given), indent=2) + "\n")
    return json.loads(path.read_text(encoding="utf-8"))


def run_stage(options: Options, seed: int, stage: str, folder: Path) -> dict[str, float]:
    """What the stage cost, and what the model can do after it."""
    warm, grpo = folder.parent / "warm-start", folder.parent / "grpo"
    if stage == "untrained":
        return untrained(Policy.load(options.model), options.held_out)
    if stage == "pass-rates":
        return pass_rates(options, load(warm), seed, folder / "chosen.jsonl")
    if stage == "teacher-answers":
        return teacher_answers(options, load(grpo), seed, folder / "answers.jsonl")
    if stage == "adapter":
        write_lessons(options, folder.parent)
    config = stage_config(options, seed, stage, folder)
    row = {"seconds": seconds_of(rows_of_run(config)), "steps": float(config.steps)}
    return row | {"lr": config.lr} | measured(load(folder), options.held_out)


def stage_config(options: Options, seed: int, stage: str, folder: Path) -> RunConfig:
    """The run of a stage. Where its steps follow from a budget, a run that has begun keeps them."""
    run, grpo = folder / "run", folder.parent / "grpo"
    settings = settings_of(options, stage, folder.parent) | {"seed": seed}
    if "steps" in settings:
        return config_of(options, settings, run)
    if (run / "config.json").exists():
        settings["steps"] = resumed_config(run).steps
    else:  # its budget is GRPO's time, minus its preparation
        prepared = {"grpo-chosen": "pass-rates", "from-teacher": "teacher-answers"}.get(stage)
        left = seconds_at(grpo) - (seconds_at(folder.parent / prepared) if prepared else 0)
        settings["steps"] = max(1, int(left / pace(options, folder / "pace", settings)))
    return config_of(options, settings, run)


def settings_of(options: Options, stage: str, others: Path) -> dict:
    """What is special about a stage's run."""
    solutions = dict(recipe="sft", problems_per_step=options.batch, lr=options.sft_lr)
    if stage == "adapter":
        return solutions | dict(
            model=options.model, problems=str(others / "adapter" / "lessons.jsonl"),
            steps=ADAPTER_STEPS, dtype=options.dtype, lora_rank=ADAPTER_RANK,
            lr=10 * options.sft_lr,
        )  # fmt: skip
    practice = dict(
        problems=f"{PROBLEMS}:problems", problems_per_step=options.problems_per_step, rollouts=8,
        lr=options.lr, dtype=options.dtype,
    )  # fmt: skip
    if stage == "warm-start":
        steps = options.examples // options.batch
        return solutions | dict(model=options.model, problems=f"{PROBLEMS}:worked", steps=steps)
    if stage == "grpo-untrained":
        return practice | dict(recipe="grpo", model=options.model, steps=options.steps)
    solutions |= dict(model=saved(others / "warm-start"), dtype=options.dtype)
    practice |= dict(model=saved(others / "warm-start"))
    if stage == "grpo":
        return practice | dict(recipe="grpo", steps=options.steps)
    if stage == "grpo-chosen":
        return practice | dict(recipe="grpo", problems=str(others / "pass-rates" / "chosen.jsonl"))
    if stage == "solutions":
        return solutions | dict(problems=f"{PROBLEMS}:worked_longer")
    if stage == "from-teacher":
        return solutions | dict(problems=str(others / "teacher-answers" / "answers.jsonl"))
    practice |= dict(rollouts=4)  # each token is marked, so fewer answers suffice
    if stage == "on-policy":
        return practice | dict(recipe="distill", kl_reference=saved(others / "grpo"))
    return practice | dict(recipe="opsd")


def saved(stage: Path) -> str:
    """The model at the end of a stage, as --model takes it."""
    need(stage, "run/config.json")
    if stage.name == "adapter":  # we measure exactly what we share
        return str(stage / "run" / "adapter")
    steps = resumed_config(stage / "run").steps
    return f"{stage / 'run'}@{steps:06d}"


def need(stage: Path, file: str) -> None:
    if not (stage / file).exists():
        raise UserError(f"run the stage {stage.name} first: {stage} has no {file}")


def load(stage: Path) -> Policy:
    return Policy.load(saved(stage))


def seconds_at(stage: Path) -> float:
    need(stage, "row.json")
    return json.loads((stage / "row.json").read_text(encoding="utf-8"))["seconds"]


def teacher_answers(options: Options, teacher: Policy, seed: int, path: Path) -> dict[str, float]:
    """The teacher answers many problems, once each; its correct answers go into the file."""
    started = time.process_time()
    problems = random.Random(f"teacher {seed}").sample(word_problems.problems(), options.answers)
    answers = answers_to(teacher, problems, Sampling(LONGEST, rollouts=1, seed=seed))
    rows = [
        {"problem": p.problem, "answer": p.answer, "solution": group.rollouts[0].text}
        for p, group, (right,) in zip(problems, answers.groups, answers.correct, strict=True)
        if right
    ]
    write_atomically(path, as_lines(rows))
    return {"seconds": time.process_time() - started, "sampled": answers.accuracy}


def write_lessons(options: Options, others: Path) -> None:
    """For the adapter: the solutions of the warm start, and the teacher's correct answers."""
    need(others / "teacher-answers", "answers.jsonl")
    rows = [
        {"problem": p.problem, "answer": p.answer, "solution": p.solution}
        for p in word_problems.worked()[: options.examples]
    ]
    rows += read_lines(others / "teacher-answers" / "answers.jsonl")
    write_atomically(others / "adapter" / "lessons.jsonl", as_lines(rows))


def pass_rates(options: Options, policy: Policy, seed: int, path: Path) -> dict[str, float]:
    """Stage 2: of eight answers to each problem, how many are correct? Problems with both correct
    and incorrect answers go into the file."""
    started = time.process_time()
    problems = random.Random(f"pass rates {seed}").sample(
        word_problems.problems(), options.choose_from
    )
    sampling = Sampling(LONGEST, rollouts=8, seed=seed)
    found = [mean(correct) for correct in answers_to(policy, problems, sampling).correct]
    rows = [
        {"problem": problem.problem, "answer": problem.answer}
        for problem, rate in zip(problems, found, strict=True)
        if 0 < rate < 1
    ]
    write_atomically(path, as_lines(rows))
    row = {"seconds": time.process_time() - started, "sampled": mean(found)}
    row |= {"never": mean(rate == 0 for rate in found), "between": len(rows) / len(found)}
    return row | {"always": mean(rate == 1 for rate in found)}


# ------------------------------------------------------------------------------ to look at


def show(options: Options, seed: int, stages: Path) -> None:
    """Two files beside the table: how often warm start and GRPO are correct, incorrect, or
    differ, with the first two problems of each kind; and the curve of GRPO."""
    by_steps = [word_problems.held_out(options.held_out, (steps,)) for steps in (2, 3, 4, 5)]
    problems = [problem for row in zip(*by_steps, strict=True) for problem in row]
    names = ("warm-start", "grpo")
    before, after = (
        answers_to(load(stages / name), problems, greedy(LONGEST_HARDER)).groups for name in names
    )
    kinds: dict[str, list[dict]] = {
        kind: [] for kind in ("only grpo", "both", "neither", "only warm-start")
    }
    for problem, *groups in zip(problems, before, after, strict=True):
        texts = [group.rollouts[0].text for group in groups]
        right = [correctness(text, problem.answer) for text in texts]
        kind = "both" if all(right) else "neither"
        if sum(right) == 1:
            kind = f"only {names[right.index(1)]}"
        told = {"problem": problem.problem, "solution": problem.solution}
        kinds[kind].append(told | dict(zip(names, texts, strict=True)))
    found = {kind: {"count": len(some), "first": some[:2]} for kind, some in kinds.items()}
    path = options.out.with_name(f"{options.out.stem}_examples_{seed}.json")
    write_atomically(path, json.dumps(found, indent=2) + "\n")
    replace_rows(
        options.out.with_name(f"{options.out.stem}_curve.csv"),
        {"seed": str(seed)}, curve(read_lines(stages / "grpo" / "run" / "metrics.jsonl")),
    )  # fmt: skip


def curve(rows: Sequence[dict]) -> list[dict[str, str]]:
    """For each step of a run: the reward of its rollouts and, where measured, held-out problems.
    The last line has only the latter, after all steps."""
    lines: dict[int, dict[str, float]] = {step: {} for step in range(len(rows) + 1)}
    for row in rows:
        lines[row["step"]] |= {
            "reward": row["reward/total"], "tokens": row["ac_tokens_per_turn"],
            "both": row[MIXED],
        }  # fmt: skip
        for found in evaluations_in(row):
            watched = ("greedy", "false_steps")
            lines[found["eval_step"]] |= {n: found[f"measured_on_the_way/{n}"] for n in watched}
    names = "reward tokens both greedy false_steps".split()
    return [
        {"step": str(step)} | {name: f"{line[name]:.4g}" if name in line else "" for name in names}
        for step, line in lines.items()
    ]


if __name__ == "__main__":
    sys.exit(run_script(main))
