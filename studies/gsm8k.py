"""A Qwen of half a billion weights learns GSM8K on a laptop, and every rival gets its turn.

    uv run --extra gguf studies/gsm8k.py --arms grpo --smoke       how long will it take here?
    uv run --extra gguf studies/gsm8k.py --arms base
    uv run --extra gguf studies/gsm8k.py --arms grpo --seeds 0 1 2
    uv run --extra gguf --extra gym studies/gsm8k.py --final       everything, and the test set
    uv run --extra gguf studies/gsm8k.py --table                   what has been measured so far

    base           the untrained model under five prompts, greedy and sampled: the line to beat
    grpo           reinforcement learning: 1 for the correct number in the box
    grpo-falling   the same with a learning rate that falls to 0 in equal steps
    dr-grpo        the same with Dr. GRPO's averages, which do not spare long incorrect answers
    grpo-kl        the same as grpo with a KL term that keeps it near the untrained model
    grpo-qwen      the same as grpo with Qwen's own prompt, with which the untrained model does best
    format         the same as grpo, rewarded for any box: what the format alone brings
    half-trained   the same as grpo, trained on the four of each eight answers that differ most
    int8-rollouts  the same as grpo, sampled with weights in 8 bits

The rivals of grpo cost as much as its run with the same seed, in processor-seconds, with all that
prepares them (or --budget seconds):

    own-answers    the student's own correct answers, learned as solutions, three times in turn
    solutions      GSM8K's own worked solutions
    distilled      correct answers of a larger model, --teacher, with its time to sample them
    distilled-grpo half of the time each: distilled, then grpo
    on-policy      the student's own answers, each token weighed by the teacher's log-probability

Ground rules, written down before the first run:

1. Learning rate, batch and prompt are chosen with seed 3, on 200 problems split off the training
   set; then come seeds 0, 1 and 2. RATES lists what is tried: --seeds 3 --lr 1e-4 2e-4 5e-4
2. The test set is asked once per final model (--final), in all the ways of gsm8k_measurements.py.
3. Differences have a paired standard error over the problems; the seeds' range stands beside it.
4. A cost is the processor's time in all threads, without the measurements. A teacher's counts.
5. Every arm that was run is in the table.
6. A trained model is also asked with Qwen's own prompt, the best of the untrained model, in a row
   of its own: what is learned should not depend on the prompt.

Each arm writes a row to the CSV file. Beside it, gsm8k_problems.csv says of every problem that was
asked how many answers were correct, gsm8k_curves.csv (drawn in gsm8k.png) has the steps of the runs
that sample, and gsm8k_answers.json has twenty test problems, chosen at random, with what each model
answers. A finished arm is not repeated; an interrupted one continues from its last save: give the
same command again.

So far gsm8k.csv has the untrained model with three of the prompts ("four examples" only with greedy
decoding), grpo with seeds 3 and 0, its seed 3 also asked with Qwen's prompt, and with seed 3 also
grpo-falling and, for --budget 3660, solutions, own-answers and distilled (docs/gsm8k.md tells of
them). What was asked with the other prompts was measured in float32. gsm8k_first_steps.csv has
three runs with the same seed that were interrupted: with 16 problems a step, in 21 and 22 steps,
mean rewards of each seven were 0.08, 0.09, 0.17 and 0.09, 0.13, 0.22; with 8 problems, in 18 steps,
they were 0.07, 0.10, 0.09 for each six, and answers grew from 125 to 156 tokens. With so few groups
of mixed rewards (a third of the eight) a step follows chance, so 16 is the default.

The weights are those of Qwen's own 4-bit file, computed with in bfloat16 where the processor
multiplies that. Each prompt is put into the model's chat template, except where the name says
otherwise.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from answer_grader import get_last_boxed
from reasoning_from_scratch.errors import UserError, check_names
from reasoning_from_scratch.files.model_names import is_model_name
from reasoning_from_scratch.problems import Problem, with_prompt
from reasoning_from_scratch.text import read_lines
from rfs.commands.cli import run_script
from rfs.config import RunConfig
from rfs.files.tables import read_table, replace_rows
from rfs.own_policy import Policy
from rfs.run.option_checks import flag
from rfs.run.options import configure, resolved

HERE = Path(__file__).resolve()
sys.path.append(str(HERE.parent))
import gsm8k_questions as questions  # noqa: E402
from costs import delete_weights, final_model, processor_seconds, train_for_seconds, train_to_end  # noqa: E402
from gsm8k_lessons import check_teacher, collect_chunks, seconds_spent, write_lessons  # noqa: E402
from gsm8k_measurements import (  # noqa: E402
    TRANSFER,
    MeasuredModel,
    check_test_sets,
    load_or_compute,
    store_answers_to_read,
    store_correct_counts,
)
from gsm8k_picture import draw  # noqa: E402
from gsm8k_questions import (  # noqa: E402
    MAX_NEW_TOKENS,
    TRAINED_WITH,
    as_file_name,
    load_model,
    prompt_in,
    split,
)
from gsm8k_styles import STYLE_COLUMNS, measure_styles  # noqa: E402
from gsm8k_table import arms_table, prompt_table  # noqa: E402

# What each of these arms changes in grpo.
GRPO_CHANGES: dict[str, dict[str, Any]] = {
    "grpo": {},
    "grpo-falling": {"lr_schedule": "linear"},
    "dr-grpo": {"recipe": "dr_grpo"},
    "grpo-kl": {"kl": "k3", "kl_coef": 0.04},  # as in DeepSeekMath (2024)
    "grpo-qwen": {},  # see OTHER_PROMPTS
    "format": {"reward": f"{HERE}:any_box"},
    "half-trained": {"train_rollouts": 4},
    "int8-rollouts": {"sampling_weights": "int8"},
}
# Learning rates of LoRA: an arm uses its first unless --lr names others; seed 3 tries all.
RATES = {
    "grpo": (1e-4, 5e-5, 2e-4),
    "grpo-falling": (1e-4, 2e-4),
    "dr-grpo": (1e-4, 2e-4),
    "grpo-kl": (1e-4, 2e-4),
    "grpo-qwen": (1e-4, 2e-4),
    "format": (1e-4,),
    "half-trained": (1e-4,),
    "int8-rollouts": (1e-4,),
    "own-answers": (2e-4, 1e-4, 5e-4),
    "solutions": (2e-4, 1e-4, 5e-4),
    "distilled": (2e-4, 1e-4, 5e-4),
    "distilled-grpo": (1e-4, 5e-5),
    "on-policy": (1e-4, 5e-5, 2e-4),
}
ARMS = ("base", *RATES)
OTHER_PROMPTS = {"grpo-qwen": questions.QWEN_PROMPT}  # of arms that do not use TRAINED_WITH
ASKED_WITH_QWEN_PROMPT = ", asked with Qwen's prompt"  # which the other arms never train with
TEACHER_ARMS = ("distilled", "distilled-grpo", "on-policy")
# Their last run learns from rollouts.
ROLLOUT_ARMS = (*GRPO_CHANGES, "distilled-grpo", "on-policy")
ROUNDS = 3  # of own-answers: sample, learn, and sample with what was learned
SAMPLING_SHARE = 0.5  # of a budget: the time to sample what is then learned in the rest
COLUMNS = f"""
    seconds steps lessons solved
    greedy box correct_in_box last_number tokens cut_off latex greedy_longer
    sampled pass@8 mixed majority
    test_greedy test_box test_correct_in_box test_last_number test_tokens test_cut_off
    test_latex test_sampled test_majority
    test_pass@1 test_pass@2 test_pass@4 test_pass@8 test_pass@16
    {" ".join(TRANSFER)} perplexity
""".split()

# Columns of the curves, and what a run's metrics call them.
CURVE_COLUMNS = {
    "step": "step",
    "reward": "env/all/reward/total",
    "tokens": "env/all/ac_tokens_per_turn",
    "cut_off": "env/all/cutoff_share",
    "mixed": "env/all/by_group/frac_mixed",
    "entropy": "optim/entropy",
    "grad_norm": "optim/grad_norm",
    "held_back": "eval_acc",
    "held_back_after": "eval_step",  # so many steps
}


@dataclass
class Options:
    arms: tuple[str, ...] = ARMS
    """Run these arms, in their order."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Run each arm but base with each of these seeds."""
    model: str = "qwen-0.5b"
    """Train this model, the student."""
    teacher: str = "qwen-1.5b"
    """Let distilled, distilled-grpo and on-policy learn from this larger model."""
    out: Path = Path("studies/gsm8k.csv")
    """Write a row for each model, arm, seed and learning rate to this file."""
    folder: Path = Path("runs/gsm8k")
    """Keep the runs in this folder."""
    steps: int = 50
    """Train grpo and what differs from it in one thing for this many steps."""
    problems_per_step: int = 16
    """Sample this many problems at each step, with eight answers each (four in on-policy)."""
    solutions_per_step: int = 32
    """Learn this many worked solutions at each step."""
    lr: tuple[float, ...] = ()
    """Train LoRA (rank 8) at these learning rates, one run each (default: the arm's first in
    RATES)."""
    budget: float | None = None
    """Give the rivals this many processor-seconds (default: those of grpo with the same model and
    seed)."""
    eval_every: int = 25
    """Ask the problems that were held out every this many steps."""
    micro_batch_tokens: int = 4096
    """Train on this many tokens at a time; a quarter of them needs half of the memory, but the four
    examples before each problem are then computed more often."""
    final: bool = False
    """Also ask the test set. Do this once, when all is decided."""
    smoke: bool = False
    """Only estimate, in two minutes, how long the arms take here."""
    table: bool = False
    """Only print what has been measured."""


def any_box(text: str, problem: Problem) -> float:
    """The reward of the arm format."""
    return float(get_last_boxed(text) is not None)


def problems() -> Iterator[dict]:
    """What --problems trains on."""
    return questions.as_rows(split()[2])


def test_problems() -> Iterator[dict]:
    """What a run evaluates on: not the test set, but what was held out of the training set."""
    return questions.as_rows(split()[1])


def worked() -> Iterator[dict]:
    """What the arm solutions learns."""
    return questions.worked_solutions()


# ------------------------------------------------------------------------------------ the arms


def main(options: Options) -> None:
    """Runs each arm of each seed that is not done yet, and prints the table."""
    check_names("arm", options.arms, ARMS)
    if options.smoke:
        print(estimate(options))
        return
    arms = () if options.table else options.arms
    if set(arms) & set(TEACHER_ARMS):  # before the first of them has trained for hours
        check_teacher(options.model, options.teacher, TEACHER_ARMS)
    if arms and options.final:
        check_test_sets()
    for arm in arms:
        if arm == "base":
            for name in questions.PROMPTS:
                measure_base(options, name)
            continue
        for seed in options.seeds:
            for lr in options.lr or RATES[arm][:1]:
                train_and_measure(Trial(options, arm, seed, lr))
    rows, problem_rows = (
        read_table(path) for path in (options.out, beside_table(options, "problems.csv"))
    )
    if curves := read_table(beside_table(options, "curves.csv")):
        draw(curves, options.out.with_suffix(".png"))
    print(f"{prompt_table(rows)}\n\n{arms_table(rows, problem_rows)}")


@dataclass(frozen=True)
class Trial:
    """An arm with a seed and a learning rate."""

    options: Options
    arm: str
    seed: int
    lr: float

    @property
    def prompt_name(self) -> str:
        """The name of the prompt that it trains with."""
        return OTHER_PROMPTS.get(self.arm, TRAINED_WITH)

    @property
    def folder(self) -> Path:
        return model_folder(self.options) / f"{self.arm}-{self.seed}-{self.lr:g}"


def student_name(options: Options) -> str:
    """The model's name in tables and folders."""
    return options.model if is_model_name(options.model) else Path(options.model).stem


def model_folder(options: Options) -> Path:
    return options.folder / student_name(options)


def beside_table(options: Options, name: str) -> Path:
    """A file beside the table."""
    return options.out.with_name(f"{options.out.stem}_{name}")


def measure_base(options: Options, prompt_name: str) -> None:
    """The untrained model under one prompt. The test set gets greedy decoding from all prompts, and
    the rest of what is measured from the one that is trained with."""
    folder = model_folder(options) / "base" / as_file_name(prompt_name)
    # (model, arm, seed, learning rate) is a row's name.
    key = row_key(options, f"base, {prompt_name}", "", "")
    beyond_greedy = prompt_name == TRAINED_WITH
    measure_and_store(options, key, prompt_name, folder, lambda: options.model, {}, beyond_greedy)


def train_and_measure(trial: Trial) -> None:
    """Trains the arm, then measures its final model."""
    options, folder = trial.options, trial.folder
    prompt = prompt_in(folder, trial.prompt_name)
    row = load_or_compute(folder / "row.json", partial(train, trial, prompt))
    refuse_other_options(trial, row.pop("options", {}))  # none in a row of an earlier version
    for run in folder.glob("*/run"):  # earlier runs, from which the last one started
        delete_weights(run)
    key = row_key(options, trial.arm, str(trial.seed), f"{trial.lr:g}")
    if trial.arm in ROLLOUT_ARMS:
        replace_rows(beside_table(options, "curves.csv"), key, training_curve(folder / "run"))
    find_model = partial(final_model, folder)
    measure_and_store(options, key, trial.prompt_name, folder, find_model, row, True)
    if trial.prompt_name != questions.QWEN_PROMPT:  # does what it learned carry over?
        key |= {"arm": trial.arm + ASKED_WITH_QWEN_PROMPT}
        qwen_folder = folder / questions.QWEN_PROMPT
        measure_and_store(options, key, questions.QWEN_PROMPT, qwen_folder, find_model, {}, False)


def train(trial: Trial, prompt: str) -> dict[str, Any]:
    """Returns the cost, the number of lessons, and the options that the arm depends on."""
    return TRAIN[trial.arm](trial, prompt) | {"options": deciding_options(trial)}


def deciding_options(trial: Trial) -> dict[str, Any]:
    """The options that the arm depends on. A budget taken from GRPO's time is not one."""
    names = ["problems_per_step"] if trial.arm in ROLLOUT_ARMS else []
    if trial.arm in GRPO_CHANGES:
        names += ["steps"]
    else:
        names += ["budget"] if trial.arm == "on-policy" else ["budget", "solutions_per_step"]
    if trial.arm in TEACHER_ARMS:
        names += ["teacher"]
    values = {name: getattr(trial.options, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def refuse_other_options(trial: Trial, stored: dict[str, Any]) -> None:
    """A finished arm is not repeated, so it must have been made with the same options."""
    for name, value in deciding_options(trial).items():
        if stored.get(name, value) != value:
            raise UserError(
                f"{trial.folder} was made with {flag(name)} {stored[name]}, not {value}; choose "
                "another --folder"
            )


def training_curve(run: Path) -> list[dict[str, str]]:
    """A row for each step of a run: CURVE_COLUMNS and STYLE_COLUMNS, empty where not measured."""
    rows = read_lines(run / "metrics.jsonl")
    steps = [
        {name: row.get(key) for name, key in CURVE_COLUMNS.items()}
        | {"processor_seconds": processor_seconds([row])}
        | dict.fromkeys(STYLE_COLUMNS)
        | measure_styles(run, row["step"])
        for row in rows
    ]
    return [
        {name: "" if value is None else f"{value:.4g}" for name, value in step.items()}
        for step in steps
    ]


def row_key(options: Options, arm: str, seed: str, lr: str) -> dict[str, str]:
    return {"model": student_name(options), "arm": arm, "seed": seed, "lr": lr}


def measure_and_store(
    options: Options,
    key: dict[str, str],
    prompt_name: str,
    folder: Path,
    find_model: Callable[[], str],
    metrics: dict[str, float],
    beyond_greedy: bool,
) -> None:
    """Measures the parts that are still missing with this prompt, and writes the row after each.
    The model is loaded only if a part is missing."""
    prompt, limit = prompt_in(folder, prompt_name), questions.max_new_tokens(prompt_name)

    def load() -> MeasuredModel:
        return MeasuredModel(load_model(find_model(), prompt_name), prompt, folder, limit)

    parts: dict[str, Callable[[], dict[str, float]]] = {
        "held_back": lambda: load().measure_held_out(split()[1]),
        "test": lambda: load().measure_test_set(),
        "beyond": lambda: load().measure_beyond_greedy(),
    }
    wanted_parts = ["held_back"]
    if options.final:
        wanted_parts += ["test", "beyond"] if beyond_greedy else ["test"]
    for part, measure in parts.items():
        if part not in wanted_parts and not (folder / f"{part}.json").exists():
            continue  # once measured, it stays in the table
        metrics |= load_or_compute(folder / f"{part}.json", measure)
        shown = {name: f"{metrics[name]:.5g}" if name in metrics else "" for name in COLUMNS}
        replace_rows(options.out, key, [shown])
        store_correct_counts(beside_table(options, "problems.csv"), key, folder)
        if part != "held_back":
            model_title = ", ".join(filter(None, key.values()))
            store_answers_to_read(beside_table(options, "answers.json"), model_title, folder)
    print(*key.values(), {name: value for name, value in shown.items() if value}, flush=True)


# -------------------------------------------------------------------------------------- runs


def grpo_settings(trial: Trial, prompt: str, **changes: Any) -> dict[str, Any]:
    """The settings of grpo: the student's own answers to training problems."""
    options, limit = trial.options, questions.max_new_tokens(trial.prompt_name)
    return dict(
        recipe="grpo", model=options.model, problems=f"{HERE}:problems", prompt=prompt,
        stop=questions.stop_option(trial.prompt_name), max_new_tokens=limit,
        problems_per_step=options.problems_per_step,
        rollouts=8, steps=options.steps, seed=trial.seed, lora_rank=8, lr=trial.lr,
        preflight=False, eval_every=options.eval_every, eval_limit=questions.HELD_BACK,
        micro_batch_tokens=options.micro_batch_tokens, sample_rows=128, rolling_every=5,
    ) | changes  # fmt: skip


def sft_settings(trial: Trial, prompt: str, file: str, **changes: Any) -> dict[str, Any]:
    """The settings of a run that learns the solutions in a file."""
    options = trial.options
    return dict(
        recipe="sft", model=options.model, problems=file, prompt=prompt, stop="\\n",
        max_new_tokens=MAX_NEW_TOKENS, problems_per_step=options.solutions_per_step,
        seed=trial.seed, lora_rank=8, lr=trial.lr, lr_schedule="linear", warmup_steps=5,
        preflight=False, micro_batch_tokens=options.micro_batch_tokens, rolling_every=10,
    ) | changes  # fmt: skip


def rival_budget(trial: Trial) -> float:
    options = trial.options
    if options.budget is not None:
        return options.budget
    grpo_run = {"model": student_name(options), "arm": "grpo", "seed": str(trial.seed)}
    seconds = [
        float(row["seconds"]) for row in read_table(options.out) if grpo_run.items() <= row.items()
    ]
    if not seconds:
        raise UserError(
            f"{trial.arm} takes as long as grpo: run that first, with --arms grpo --seeds "
            f"{trial.seed}, or give the processor-seconds, --budget N"
        )
    return mean(seconds)  # where several learning rates were tried


# ------------------------------------------------------------------------ how each arm trains


def train_grpo(trial: Trial, prompt: str) -> dict[str, float]:
    settings = grpo_settings(trial, prompt, **GRPO_CHANGES[trial.arm])
    return train_to_end(settings, trial.folder / "run")


def train_solutions(trial: Trial, prompt: str) -> dict[str, float]:
    settings = sft_settings(trial, prompt, f"{HERE}:worked")
    return train_for_seconds(rival_budget(trial), settings, trial.folder / "run")


def train_own_answers(trial: Trial, prompt: str) -> dict[str, float]:
    """Expert iteration: sample, learn all correct answers so far, sample with what was learned."""
    options, folder, chunks, total = trial.options, trial.folder, [], 0.0
    round_budget, model = rival_budget(trial) / ROUNDS, options.model
    for number in range(1, ROUNDS + 1):
        round_folder = folder if number == ROUNDS else folder / f"round-{number}"
        new_chunks = collect_chunks(
            partial(load_model, model), prompt, round_folder / "answers.jsonl",
            SAMPLING_SHARE * round_budget, f"{trial.seed} round {number}",
        )  # fmt: skip
        chunks += new_chunks
        row = write_lessons(round_folder / "lessons.jsonl", chunks, student_name(options))
        settings = sft_settings(trial, prompt, str(round_folder / "lessons.jsonl"), model=model)
        sampling = seconds_spent(new_chunks)
        row |= train_for_seconds(round_budget - sampling, settings, round_folder / "run")
        total += sampling + row["seconds"]
        model = final_model(round_folder)
    return row | {"seconds": total}


def train_distilled(trial: Trial, prompt: str) -> dict[str, float]:
    return distill_for_seconds(trial, prompt, trial.folder, rival_budget(trial))


def distill_for_seconds(trial: Trial, prompt: str, folder: Path, seconds: float) -> dict:
    """The teacher samples, and the student learns what is correct."""
    teacher = trial.options.teacher
    chunks = collect_chunks(
        partial(load_model, teacher), prompt, folder / "answers.jsonl", SAMPLING_SHARE * seconds,
        str(trial.seed),
    )  # fmt: skip
    row = write_lessons(folder / "lessons.jsonl", chunks, teacher)
    settings = sft_settings(trial, prompt, str(folder / "lessons.jsonl"))
    row |= train_for_seconds(seconds - seconds_spent(chunks), settings, folder / "run")
    return row | {"seconds": row["seconds"] + seconds_spent(chunks)}


def train_distilled_grpo(trial: Trial, prompt: str) -> dict[str, float]:
    """The learning rate is that of grpo; that of distilled is its usual one."""
    seconds, first_folder = rival_budget(trial), trial.folder / "distilled"
    distilling = Trial(trial.options, "distilled", trial.seed, RATES["distilled"][0])
    distill = partial(distill_for_seconds, distilling, prompt, first_folder, seconds / 2)
    row = load_or_compute(first_folder / "row.json", distill)
    seconds_left = seconds - row["seconds"]
    settings = grpo_settings(trial, prompt, model=final_model(first_folder))
    row |= train_for_seconds(seconds_left, settings, trial.folder / "run")
    return row | {"seconds": seconds - seconds_left + row["seconds"]}


def train_on_policy(trial: Trial, prompt: str) -> dict[str, float]:
    """Each token is judged, so fewer answers to a problem suffice than where only its end is."""
    settings = grpo_settings(
        trial, prompt, recipe="distill", kl_reference=trial.options.teacher, rollouts=4
    )
    return train_for_seconds(rival_budget(trial), settings, trial.folder / "run")


TRAIN: dict[str, Callable[[Trial, str], dict[str, float]]] = {
    **dict.fromkeys(GRPO_CHANGES, train_grpo),
    "own-answers": train_own_answers,
    "solutions": train_solutions,
    "distilled": train_distilled,
    "distilled-grpo": train_distilled_grpo,
    "on-policy": train_on_policy,
}

# ------------------------------------------------------------------------------ how long it takes

ESTIMATE_PROBLEMS = 4  # problems, with eight answers each
# As in gsm8k_measurements.py; and the test set once more with Qwen's own prompt.
ANSWERS_PER_FINAL_MODEL = 2 * 1319 + 16 * 200 + 500 + 200 + 1319


def estimate(options: Options) -> str:
    """From the answers to four problems, and one training pass over all of them."""
    trial = Trial(options, "grpo", 0, RATES["grpo"][0])
    prompt = prompt_in(model_folder(options) / "smoke", TRAINED_WITH)
    settings = grpo_settings(trial, prompt, problems_per_step=ESTIMATE_PROBLEMS)
    config: RunConfig = resolved(configure(**settings))
    policy = Policy.load(options.model, config)
    policy.tokenizer.end_answers_at("\n")
    prompted = with_prompt(split()[2][:ESTIMATE_PROBLEMS], prompt, policy.tokenizer)
    start = time.perf_counter()
    groups = policy.sample(prompted, config)
    sampling = time.perf_counter() - start
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    for rollout in rollouts:
        rollout.advantage = 1.0
    policy.forward_backward(rollouts, config, len(rollouts))
    training = time.perf_counter() - start - sampling
    tokens = mean(len(rollout.response_ids) for rollout in rollouts)
    repeats = options.steps * options.problems_per_step / ESTIMATE_PROBLEMS
    run_hours = repeats * (sampling + training) / 3600
    measuring_hours = ANSWERS_PER_FINAL_MODEL * sampling / len(rollouts) / 3600
    arms = len(options.arms) - ("base" in options.arms)
    runs = arms * len(options.seeds) * max(1, len(options.lr))
    return (
        f"{len(rollouts)} answers of {tokens:.0f} tokens took {sampling:.0f} seconds to sample and "
        f"{training:.0f} to train on (the first time, which is the slowest).\n"
        f"A run of grpo, {options.steps} steps of {options.problems_per_step} x 8 answers, takes "
        f"at most {run_hours:.1f} hours here, less where groups are uniform and not trained on; "
        f"each other arm takes about as long.\n"
        f"Asking a final model the test set takes about {measuring_hours:.1f} hours.\n"
        f"The {runs} runs asked for take at most {runs * run_hours:.0f} hours, and "
        f"{runs * measuring_hours:.0f} more with --final."
    )


if __name__ == "__main__":
    sys.exit(run_script(main))
