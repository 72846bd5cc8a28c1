"""What can a model learn? Asks it some problems of many tasks, several times each.

    uv run --extra gym python benchmarks/real_tasks.py --model HuggingFaceTB/SmolLM2-135M-Instruct

Prints a line for each task as soon as it is asked, then the table of `rfs preflight`: a task
teaches where some answers to a problem are right and some wrong.
"""

import time
from dataclasses import dataclass, replace

import torch
import tyro

from reasoning_from_scratch.evaluation.evaluate import evaluate, open_model
from reasoning_from_scratch.files.problem_sets import load_problems, with_prompt
from reasoning_from_scratch.run.preflight import TaskFigures, suggestions, task_figures
from reasoning_from_scratch.sampling import Sampling
from reasoning_from_scratch.text import aligned, one_line

TASKS = (
    "instructions",
    "gym:chain_sum?max_terms=3&max_digits=2",
    "gym:basic_arithmetic?max_terms=3&max_digits=2",
    "gym:letter_counting?min_words=2&max_words=4",
    "gym:spell_backward?max_word_len=5",
    "gym:family_relationships",
    "gym:number_sorting?min_numbers=3&max_numbers=4",
    "gym:word_sorting?min_words=3&max_words=4",
    "gym:gcd",
    "gym:number_filtering?max_numbers=5",
    "gym:syllogism",
    "gym:leg_counting?max_animals=3",
)


@dataclass
class Options:
    """What to ask, and how often."""

    model: str
    """A model as `rfs evaluate` takes it."""
    tasks: tuple[str, ...] = TASKS
    """Problem sets with rules of their own."""
    problems: int = 24
    """Problems of each."""
    samples: int = 8
    """Answers to each problem."""
    max_new_tokens: int = 64
    """Longest answer in tokens."""
    threads: int = 1
    """Processor cores."""
    by_kind: bool = False
    """A line for each kind of instruction, too."""


def figures_of(name: str, options: Options, model, tokenizer) -> list[TaskFigures]:
    """The line of one set, and those of its kinds."""
    problems = with_prompt(load_problems(name, limit=options.problems), None, tokenizer)
    sampling = Sampling(max_new_tokens=options.max_new_tokens, rollouts=options.samples)
    start = time.perf_counter()
    result = evaluate(model, tokenizer, problems, sampling)
    seconds = time.perf_counter() - start
    (whole,) = task_figures([replace(p, type=name) for p in problems], result.rows, options.samples)
    paid = sum(row["reward"] for row in result.rows) / len(result.rows)
    print(*whole.cells(), f"paid {paid:.3f}, cut {result.cutoff_share:.0%}, {seconds:.0f} s")
    best = max(result.rows, key=lambda row: row["reward"])
    print(f"    {one_line(best['problem'], 150)}\n    -> {one_line(best['generated_text'], 150)}")
    kinds = task_figures(problems, result.rows, options.samples)
    return [whole, *(kinds if options.by_kind and len(kinds) > 1 else [])]


def main(options: Options) -> None:
    torch.set_num_threads(options.threads)
    model, tokenizer = open_model(options.model, "cpu", "auto")
    found = []
    for name in options.tasks:
        found += figures_of(name, options, model, tokenizer)
    found.sort(key=lambda task: -task.mixed_share)
    head = ["task", "problems", "pass@1", f"pass@{options.samples}", "mixed groups", "tokens"]
    print("\n".join(["", *aligned([head, *(task.cells() for task in found)])]))
    print("\n".join(["", *suggestions(found)]))


if __name__ == "__main__":
    main(tyro.cli(Options))
