"""A Qwen of half a billion weights learns GSM8K on a laptop.

    uv run --extra gguf studies/gsm8k.py --arms base
    uv run --extra gguf studies/gsm8k.py --arms grpo --seeds 0 1 2

    base      the untrained model under four prompts, greedy and sampled: the line to beat
    grpo      reinforcement learning: 1 for the correct number in the box
    format    the same, rewarded for any box: what the format alone brings

Learning rate, batch and prompt are chosen with seed 3 on 200 problems split off the training set;
the other seeds are run once. The test set is asked once per final model (`--final`). Each arm
writes a row to the CSV file, with its cost; a finished one is not repeated, and an interrupted one
continues from its last save: give the same command again.

No arm has run to its end yet. gsm8k_first_steps.csv has the first 21 steps of grpo with seed 3, on
one core beside other programs, before it was interrupted: rewards of 0.08, 0.09 and 0.17 in each
seven of them, after 16.5 % with greedy decoding on the problems that were held back.

The weights are those of Qwen's own 4-bit file, computed with in bfloat16 where the processor
multiplies that. Each prompt is put into the model's chat template, except where the name says
otherwise.
"""

import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean

from reasoning_from_scratch import load_problems
from reasoning_from_scratch.commands.cli import run_script
from reasoning_from_scratch.errors import check_names
from reasoning_from_scratch.fast.engine import FAST
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.files.disk import write_whole
from reasoning_from_scratch.files.tables import replace_rows
from reasoning_from_scratch.grading import get_last_boxed
from reasoning_from_scratch.problems import Problem, with_prompt
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.run.options import configure
from reasoning_from_scratch.run.own_policy import Policy
from reasoning_from_scratch.run.study import refuse_other_settings, run_to_end
from reasoning_from_scratch.sampling import Sampling, greedy

HERE = Path(__file__).resolve()
ARMS = ("base", "grpo", "format")
SHOWN = 4  # the first training problems, solved, are in the prompt and in no measurement
HELD_BACK = 200  # training problems that nothing is trained on: here the settings are chosen
LONGEST = 200  # tokens of an answer in one line
LONGEST_FREE = 320  # and of one that may be as it likes
COLUMNS = """
    seconds steps lr greedy box correct_in_box last_number tokens cut_off
    sampled pass@8 mixed
    test_greedy test_box test_correct_in_box test_last_number test_tokens test_cut_off
    test_sampled
""".split()


@dataclass
class Options:
    arms: tuple[str, ...] = ARMS
    """Which arms, in their order."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds; each arm but base is run for each."""
    model: str = "qwen-0.5b"
    """The student."""
    out: Path = Path("studies/gsm8k.csv")
    """File to write: a row for each model, arm and seed."""
    folder: Path = Path("runs/gsm8k")
    """Folder for the runs."""
    steps: int = 100
    """Steps of grpo and format."""
    problems_per_step: int = 16
    """Problems per step, with eight answers each."""
    lr: float = 1e-4
    """Learning rate of LoRA (rank 8)."""
    every: int = 25
    """Steps between two looks at the problems that were held back."""
    final: bool = False
    """Also ask the test set. Do this once, when all is decided."""


# ------------------------------------------------------------------------------- the problems


@cache
def split() -> tuple[list[Problem], list[Problem], list[Problem]]:
    """GSM8K's training set as (shown in the prompt, held back, to train on)."""
    every = load_problems("gsm8k")
    shown, rest = every[:SHOWN], every[SHOWN:]
    random.Random("held back").shuffle(rest)
    return shown, rest[:HELD_BACK], rest[HELD_BACK:]


def in_one_line(problem: Problem) -> str:
    """The worked solution without its notes for a calculator, in one line, its answer in a box."""
    words = re.sub(r"<<.*?>>", "", problem.solution).split()
    return f"{' '.join(words)} \\boxed{{{problem.answer}}}"


def as_rows(some: Sequence[Problem]) -> Iterator[dict]:
    for one in some:
        yield {"problem": one.problem, "answer": one.answer, "solution": in_one_line(one)}


def problems() -> Iterator[dict]:
    """What --problems trains on."""
    return as_rows(split()[2])


def test_problems() -> Iterator[dict]:
    """What a run evaluates on: not the test set, but what was held back of the training set."""
    return as_rows(split()[1])


def any_box(text: str, problem: Problem) -> float:
    """The reward of the arm format."""
    return float(get_last_boxed(text) is not None)


# -------------------------------------------------------------------------------- the prompts


def four_examples() -> str:
    """Four training problems, each solved in a line, before the question."""
    solved = [f"Problem: {one.problem}\nSolution: {in_one_line(one)}" for one in split()[0]]
    return "\n\n".join([*solved, "Problem: {problem}\nSolution:"])


PROMPTS: dict[str, Callable[[], str]] = {
    "book": lambda: (
        "You are a helpful math assistant.\nAnswer the question and write the final result on a "
        "new line as:\n\\boxed{ANSWER}\n\nQuestion:\n{problem}\n\nAnswer:"
    ),
    "qwen": lambda: (
        "{problem}\nPlease reason step by step, and put your final answer within \\boxed{}."
    ),
    "box at the end": lambda: (
        "{problem}\nThink in short steps. Then write the number that answers the question in a box "
        "at the very end, as in \\boxed{7}."
    ),
    "four examples": four_examples,
    "four examples, no template": four_examples,
}
BEST = "four examples, no template"
IN_ONE_LINE = ("four examples", BEST)  # answers end with their line


def prompt_in(folder: Path, name: str) -> str:
    """The prompt as a file, which is what --prompt takes."""
    path = folder / f"{spelled(name)}.txt"
    write_whole(path, PROMPTS[name]() + "\n")
    return f"{'plain' if name.endswith('no template') else 'chat'}:{path}"


def spelled(name: str) -> str:
    return re.sub(r"\W+", "_", name)


# ------------------------------------------------------------------------------- measurements

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def last_number(text: str) -> str:
    """What to read where there is no box, or instead of it."""
    found = NUMBER.findall(text)
    return found[-1].replace(",", "") if found else ""


def answers_to(
    policy: Policy, some: Sequence[Problem], prompt: str, sampling: Sampling
) -> list[Group]:
    return policy.sample(with_prompt(some, prompt, policy.tokenizer), sampling)


def greedy_figures(groups: Sequence[Group]) -> dict[str, float]:
    """Of one answer to each problem."""
    found = [(group.rollouts[0], group.problem) for group in groups]
    correct = [correctness(rollout.text, problem.answer) for rollout, problem in found]
    boxed = [get_last_boxed(rollout.text) is not None for rollout, _ in found]
    read = [correctness(f"\\boxed{{{last_number(r.text)}}}", p.answer) for r, p in found]
    return {
        "greedy": mean(correct),
        "box": mean(boxed),
        "correct_in_box": sum(correct) / max(1, sum(boxed)),
        "last_number": mean(read),
        "tokens": mean(len(rollout.response_ids) for rollout, _ in found),
        "cut_off": mean(not rollout.finished for rollout, _ in found),
    }


def sampled_figures(groups: Sequence[Group]) -> dict[str, float]:
    """Of eight answers at temperature 1 to each problem."""
    correct = [
        [correctness(rollout.text, group.problem.answer) for rollout in group.rollouts]
        for group in groups
    ]
    return {
        "sampled": mean(map(mean, correct)),
        "pass@8": mean(map(any, correct)),
        "mixed": mean(0 < sum(some) < len(some) for some in correct),
    }


def on_held_back(policy: Policy, prompt: str, longest: int) -> dict[str, float]:
    some = split()[1]
    row = greedy_figures(answers_to(policy, some, prompt, greedy(longest)))
    sampling = Sampling(longest, rollouts=8, seed=1)
    return row | sampled_figures(answers_to(policy, some[:50], prompt, sampling))


def on_test_set(policy: Policy, prompt: str, longest: int) -> dict[str, float]:
    some = load_problems("gsm8k-test")
    row = greedy_figures(answers_to(policy, some, prompt, greedy(longest)))
    once = answers_to(policy, some, prompt, Sampling(longest, rollouts=1, seed=1))
    row |= {"sampled": sampled_figures(once)["sampled"]}
    return {f"test_{name}": value for name, value in row.items()}


# ------------------------------------------------------------------------------------ the arms


def main(options: Options) -> None:
    """Runs each arm of each seed that is not done yet."""
    check_names("arm", options.arms, ARMS)
    for arm in options.arms:
        if arm == "base":
            for name in PROMPTS:
                write(options, {"arm": f"base, {name}", "seed": ""}, base(options, name))
            continue
        for seed in options.seeds:
            write(options, {"arm": arm, "seed": str(seed)}, trained(options, arm, seed))


def write(options: Options, this: dict[str, str], row: dict[str, float]) -> None:
    this = {"model": Path(options.model).stem, **this}
    shown = {name: f"{row[name]:.4g}" if name in row else "" for name in COLUMNS}
    replace_rows(options.out, this, [shown])
    print(*this.values(), {name: value for name, value in shown.items() if value}, flush=True)


def kept(path: Path, compute: Callable[[], dict]) -> dict[str, float]:
    """The file's contents; if there is no file yet, they are computed and written."""
    if not path.exists():
        started = time.process_time()
        row = compute() | {"measuring": time.process_time() - started}
        write_whole(path, json.dumps(row, indent=2) + "\n")
    return json.loads(path.read_text(encoding="utf-8"))


def base(options: Options, name: str) -> dict[str, float]:
    folder = options.folder / Path(options.model).stem / "base"
    prompt, stem, longest = prompt_in(folder, name), spelled(name), LONGEST

    def opened() -> Policy:
        policy = Policy.load(options.model)
        if name in IN_ONE_LINE:
            policy.tokenizer.end_answers_at("\n")
        return policy

    if name not in IN_ONE_LINE:
        longest = LONGEST_FREE
    row = kept(folder / f"{stem}.json", lambda: on_held_back(opened(), prompt, longest))
    if options.final:
        row |= kept(folder / f"{stem}_test.json", lambda: on_test_set(opened(), prompt, longest))
    return row


def trained(options: Options, arm: str, seed: int) -> dict[str, float]:
    """Trains, and measures what came of it."""
    folder = options.folder / Path(options.model).stem / f"{arm}-{seed}-{options.lr:g}"
    prompt = prompt_in(folder, BEST)
    config = configure(
        "grpo", model=options.model, problems=f"{HERE}:problems", prompt=prompt, stop="\\n",
        reward=f"{HERE}:any_box" if arm == "format" else None, max_new_tokens=LONGEST,
        problems_per_step=options.problems_per_step, rollouts=8, steps=options.steps, seed=seed,
        lora_rank=8, lr=options.lr, preflight=False, eval_every=options.every,
        micro_batch_tokens=4096,
        eval_limit=HELD_BACK, rolling_every=5, log_path=str(folder / "run"),
    )  # fmt: skip
    refuse_other_settings(config, "--folder")
    result = run_to_end(config, quiet=False).finished()
    row = {"lr": options.lr, "steps": float(options.steps)}
    row |= {"seconds": sum(row["time/total"] for row in result.rows)}
    policy = Policy(result.model, None, config, packed_logprobs, result.tokenizer, FAST)
    row |= kept(folder / "held_back.json", lambda: on_held_back(policy, prompt, LONGEST))
    if options.final:
        row |= kept(folder / "test.json", lambda: on_test_set(policy, prompt, LONGEST))
    return row


if __name__ == "__main__":
    sys.exit(run_script(main))
