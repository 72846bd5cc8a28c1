"""Accuracy of Qwen3-0.6B, or of a checkpoint of it, on MATH-500.

MATH-500 means nothing to the tiny model, so `--model tiny` uses its own test set. As in the
book's table, if an answer has no box, its last number counts.
"""

import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rfs.commands.cli import run_script


@dataclass
class Options:
    device: str = "auto"
    """Compute on this: cpu, cuda, mps, or auto."""
    model: str = "tiny"
    """Measure tiny, base or reasoning (variants of Qwen3-0.6B), instruct (reasoning told not to
    think), a folder, a file, a run (its best save) or RUN@SAVE."""
    limit: int = 500
    """Use only this many problems, the first ones."""
    max_new_tokens: int = 2048
    """End an answer after this many tokens."""
    sample_rows: int = 64
    """Sample this many answers in parallel; lower it when memory runs out."""
    checkpoint_path: Path | None = None
    """Load other weights into that model: a file, a folder, a run (its best save) or RUN@SAVE."""
    compile: bool = False
    """Compile the model with torch.compile."""
    verbose: bool = False
    """Print every answer."""
    show_eta: bool = False
    """Show a progress bar with the remaining time."""
    out_path: Path | None = None
    """Write a JSON line per problem to this file (default: in runs/, named after the weights)."""


def main(options: Options) -> None:
    from reasoning_from_scratch.fast.device import default_dtype, trusted_device
    from reasoning_from_scratch.files.weights import load_weights
    from reasoning_from_scratch.sampling import greedy
    from reasoning_from_scratch.text import visible
    from rfs.evaluation.evaluate import evaluate
    from rfs.files.models import load_model_and_tokenizer
    from rfs.files.saved_models import which_weights
    from rfs.run.options import preset
    from rfs.tasks.problem_sets import load_problems

    test_set = "tiny-test" if preset(options.model)["problems"] == "tiny" else "math-500"
    problems = load_problems(test_set, limit=options.limit)
    device = trusted_device(options.device)
    model, tokenizer = load_model_and_tokenizer(
        options.model, device, options.compile, dtype=partial(default_dtype, device)
    )
    name = Path(options.model).name
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
        replace(greedy(options.max_new_tokens), sample_rows=options.sample_rows),
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
