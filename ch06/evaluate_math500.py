"""Accuracy of Qwen3-0.6B, or of a checkpoint of it, on MATH-500.

MATH-500 means nothing to the tiny model, so `--which_model tiny` uses its own test set. As in the
book's table, if an answer has no box, its last number counts.
"""

import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from reasoning_from_scratch.commands.cli import run_script


@dataclass
class Options:
    device: str = "auto"
    """cpu, cuda, mps, or auto."""
    which_model: Literal["tiny", "base", "reasoning", "instruct"] = "tiny"
    """base and reasoning are variants of Qwen3-0.6B, instruct is reasoning told not to think; tiny
    comes with this repository."""
    dataset_size: int = 500
    """How many problems to use, from the start of the set."""
    max_new_tokens: int = 2048
    """Longest answer in tokens."""
    batch_size: int = 64
    """Answers sampled side by side; lower it when memory runs out."""
    checkpoint_path: Path | None = None
    """Other weights for --which_model: a file, a folder, a run (its best save) or RUN@SAVE."""
    compile: bool = False
    """Compile the model with torch.compile."""
    verbose: bool = False
    """Print every answer."""
    show_eta: bool = False
    """Show a progress bar with the remaining time."""
    out_path: Path | None = None
    """File for a JSON line per problem (default: in runs/, named after the weights)."""


def main(options: Options) -> None:
    from reasoning_from_scratch.evaluation.evaluate import evaluate
    from reasoning_from_scratch.fast.device import default_dtype, trusted_device
    from reasoning_from_scratch.files.saved_models import which_weights
    from reasoning_from_scratch.files.weights import load_model_and_tokenizer, load_weights
    from reasoning_from_scratch.sampling import greedy
    from reasoning_from_scratch.tasks.problem_sets import load_problems
    from reasoning_from_scratch.text import visible

    test_set = "tiny-test" if options.which_model == "tiny" else "math-500"
    problems = load_problems(test_set, limit=options.dataset_size)
    device = trusted_device(options.device)
    model, tokenizer = load_model_and_tokenizer(
        options.which_model, device, options.compile, dtype=partial(default_dtype, device)
    )
    name = options.which_model
    if options.checkpoint_path:
        weights = Path(which_weights(options.checkpoint_path))
        load_weights(model, weights)
        name += f"-{options.checkpoint_path.stem}"
        if weights != options.checkpoint_path:
            name += f"-{weights.name}"  # the save of the run
    out_path = options.out_path or Path("runs") / f"{test_set}-{name}.jsonl"
    print(f"{name} on {test_set}, {len(problems)} problems, {device}")
    start = time.perf_counter()
    result = evaluate(
        model,
        tokenizer,
        problems,
        replace(greedy(options.max_new_tokens), sample_rows=options.batch_size),
        fallback="number_then_full",
        progress=options.show_eta,
        out_path=out_path,
        name=test_set,
        model_name=name,
    )
    for row in result.rows if options.verbose else []:
        verdict = "correct" if row["correct"] else f"incorrect: it is {row['gtruth_answer']}"
        print(visible(f"{row['index']}: {row['problem']}\n{row['generated_text']}\n({verdict})\n"))
    print(f"{result.report()}\n  {'time':<16}{time.perf_counter() - start:.1f} s")
    print(f"answers: {out_path}")


if __name__ == "__main__":
    sys.exit(run_script(main))
