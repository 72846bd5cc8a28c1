"""A Qwen of half a billion weights learns the easier half of MATH on a laptop.

    uv run --extra gguf studies/math_levels.py

GRPO on the training problems of levels 1 to 3, with two seeds. Before and after, all 500 problems
of MATH-500, by level: with greedy decoding, and four answers each at temperature 1. Levels 4 and 5
are never trained on. MATH-500 is asked once per final model; prompt and learning rate are chosen
with seed 3, on 200 problems split off the training set:

    uv run --extra gguf studies/math_levels.py --seeds 3 --held_back --prompt "four examples"

Each level is a row of the CSV file. A finished part is not repeated, and an interrupted one goes on
where it was: give the same command again. The weights are those of Qwen's own 4-bit file.
"""

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from reasoning_from_scratch.errors import check_names
from reasoning_from_scratch.files.disk import write_atomically
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.sampling import Sampling, greedy
from reasoning_from_scratch.text import json_lines
from rfs import load_problems
from rfs.commands.cli import run_script
from rfs.files.tables import read_table, replace_rows

HERE = Path(__file__).resolve()
sys.path.append(str(HERE.parent))
from costs import final_model, train_to_end  # noqa: E402
from gsm8k_measurements import MeasuredModel, group_by_problem  # noqa: E402
from gsm8k_questions import PROMPTS, as_file_name, load_model, prompt_in, stop_option  # noqa: E402

TRAINED_LEVELS = ("Level 1", "Level 2", "Level 3")
HELD_BACK = 200
SAMPLES = 4


@dataclass
class Options:
    seeds: tuple[int, ...] = (0, 1)
    """Run once with each of these seeds."""
    model: str = "qwen-0.5b"
    """Train this model."""
    prompt: str = "qwen"
    """Ask with this one of the prompts of gsm8k_questions.py, before and after."""
    problems: str = "math-train"
    """Take MATH's training problems with their levels from here: math-train, or a file."""
    out: Path = Path("studies/math_levels.csv")
    """Write a row for each level, before and after, to this file."""
    folder: Path = Path("runs/math_levels")
    """Keep the runs in this folder."""
    steps: int = 100
    """Train for this many steps."""
    problems_per_step: int = 16
    """Sample this many problems at each step, with eight answers each."""
    longest: int = 400
    """End an answer after this many tokens."""
    lr: float = 1e-4
    """Train LoRA (rank 8) at this learning rate."""
    micro_batch_tokens: int = 4096
    """Train on this many tokens at a time; a quarter of them needs half of the memory."""
    held_back: bool = False
    """Ask the held-out problems, not MATH-500: to choose prompt and learning rate."""


def main(options: Options) -> None:
    """Measures the untrained model, trains, and measures again."""
    check_names("prompt", [options.prompt], PROMPTS)
    name = as_file_name(f"{Path(options.model).name} {options.prompt}")
    before = options.folder / name / "base"
    measure_by_level(options, {"arm": "base", "seed": ""}, options.model, before, 0.0)
    for seed in options.seeds:
        folder = options.folder / name / f"grpo-{seed}-{options.lr:g}"
        seconds = train(options, seed, folder)
        key = {"arm": "grpo", "seed": str(seed)}
        measure_by_level(options, key, final_model(folder), folder, seconds)
    print(table(read_table(options.out)))


def split_training_problems(source: str) -> tuple[list[Problem], list[Problem]]:
    """The training problems of the easier levels as (held out, to train on)."""
    easier = [problem for problem in load_problems(source) if problem.level in TRAINED_LEVELS]
    random.Random("held back").shuffle(easier)
    return easier[:HELD_BACK], easier[HELD_BACK:]


def train(options: Options, seed: int, folder: Path) -> float:
    """Trains one run; returns its cost in processor-seconds."""
    files = {"held_back": folder.parent / "held_back.jsonl", "train": folder.parent / "train.jsonl"}
    sets = split_training_problems(options.problems)
    for path, problems in zip(files.values(), sets, strict=True):
        rows = [{"problem": p.problem, "answer": p.answer, "level": p.level} for p in problems]
        write_atomically(path, json_lines(rows))
    settings = dict(
        recipe="grpo", model=options.model, problems=str(files["train"]), steps=options.steps,
        seed=seed, prompt=prompt_in(folder.parent, options.prompt), lora_rank=8, lr=options.lr,
        stop=stop_option(options.prompt), max_new_tokens=options.longest,
        problems_per_step=options.problems_per_step, rollouts=8, preflight=False, rolling_every=5,
        eval_every=25, eval_problems=[str(files["held_back"])], eval_limit=HELD_BACK,
        micro_batch_tokens=options.micro_batch_tokens,
    )  # fmt: skip
    return train_to_end(settings, folder / "run")["seconds"]


def measure_by_level(
    options: Options, key: dict[str, str], model: str, folder: Path, seconds: float
) -> None:
    """Answers the problems, and writes a row for each level."""
    if options.held_back:
        set_name, problems = "held out", split_training_problems(options.problems)[0]
    else:
        set_name, problems = "MATH-500", load_problems("math-500")
    key = {"model": Path(options.model).name, "prompt": options.prompt, "set": set_name, **key}
    key["lr"] = f"{options.lr:g}" if key["seed"] else ""
    prompt = prompt_in(folder.parent, options.prompt)
    answers_folder = folder / as_file_name(set_name)
    policy = load_model(model, options.prompt)
    measured = MeasuredModel(policy, prompt, answers_folder, options.longest)
    greedy_rows = measured.answers("greedy", problems, greedy(options.longest)).rows
    sampling = Sampling(options.longest, rollouts=SAMPLES, seed=1)
    sampled_groups = group_by_problem(measured.answers("sampled", problems, sampling).rows)
    levels = [problem.level for problem in problems]
    rows = []
    for level in (*sorted(set(levels)), "all"):
        indices = [i for i, other in enumerate(levels) if level in (other, "all")]
        of_level = [greedy_rows[i] for i in indices]
        groups = [sampled_groups[i] for i in indices]
        rows.append(
            {
                "level": level,
                "problems": str(len(indices)),
                "greedy": format_mean(row["correct"] for row in of_level),
                "sampled": format_mean(row["correct"] for group in groups for row in group),
                f"pass@{SAMPLES}": format_mean(
                    any(r["correct"] for r in group) for group in groups
                ),
                "tokens": format_mean(row["tokens"] for row in of_level),
                "cut_off": format_mean(not row["stopped"] for row in of_level),
                "seconds": f"{seconds:.0f}",
            }
        )
    replace_rows(options.out, key, rows)


def format_mean(numbers) -> str:
    return f"{mean(map(float, numbers)):.4g}"


def table(rows: Sequence[dict[str, str]]) -> str:
    """The rows in Markdown."""
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([row[name] for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(run_script(main))
