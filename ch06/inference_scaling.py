"""MATH-500 with the methods of chapters 3 to 5: more tokens per problem, not more training.

    uv run ch06/inference_scaling.py --method vote --samples 16

greedy: always the most probable token; the baseline to beat. cot: the same after a
chain-of-thought prompt. sample: one sampled answer. vote: the most frequent of several answers.
best: the one of them with the best score. refine: a draft, a review, a revision. rescore: grade a
file of answers again.

The word after the _ names the score that decides a tie, picks the best sample, or keeps or rejects
a revision. logprob is the mean log-probability of the answer's tokens, heuristic the book's rules.

A command that was killed continues where it stopped. The tiny model gets a test set of its own.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.text import counted
from rfs.commands.cli import run_script


@dataclass
class Options:
    method: tuple[
        Literal[
            "greedy",
            "cot",
            "sample",
            "vote",
            "vote_logprob",
            "vote_heuristic",
            "best_logprob",
            "best_heuristic",
            "refine",
            "refine_logprob",
            "refine_heuristic",
            "rescore",
        ],
        ...,
    ] = ("vote",)
    """Measure one or several methods."""
    model: tuple[str, ...] = ("tiny",)
    """Measure tiny, tiny-grpo, base, reasoning, a file, a folder, a run or RUN@SAVE; one or
    several."""
    limit: int = 500
    """Use only this many problems, the first ones."""
    samples: tuple[int, ...] = (8,)
    """Draw this many answers per problem, for vote and best; with several numbers, each is
    measured."""
    iterations: int = 1
    """Review and revise this many times, for refine."""
    max_new_tokens: int = 2048
    """End an answer after this many tokens."""
    max_critique_tokens: int = 256
    """End a review after this many tokens."""
    temperature: float = 0.8
    """Sample at this temperature, with all methods but greedy and cot."""
    top_p: float = 0.9
    """Sample, with these methods, from the smallest set of tokens with this probability; 1 keeps
    all."""
    seed: int = 0
    """Draw the answers with this seed."""
    prompt_suffix: str = ""
    """Add this text to the prompt (default: none; for cot, a request to explain step by step)."""
    sample_rows: int = 64
    """Sample this many answers in parallel; lower it when memory runs out."""
    device: str = "auto"
    """Compute on this: cpu, cuda, mps, or auto."""
    show_eta: bool = False
    """Show a progress bar with the remaining time."""
    out_path: Path = Path("runs")
    """Write the answers into this folder: a file for each model and method, a JSON line per
    problem."""
    answers: Path | None = None
    """Let rescore grade this file of answers again."""


def main(options: Options) -> None:
    """Prints what each method reaches, and a table if there are several."""
    if "rescore" in options.method or options.answers:
        if options.method != ("rescore",) or not options.answers:
            raise UserError("--method rescore needs --answers FILE, and no other method with it")
        from rescore import rescore

        print(rescore(options.answers, "number_then_full").report())
        return

    from inference_methods import (
        METHODS,
        answer_with,
        method_label,
        method_report,
        methods_table,
    )

    from reasoning_from_scratch.sampling import Sampling
    from rfs.evaluation.evaluate import open_model
    from rfs.run.options import TINY_VOCABULARY
    from rfs.tasks.problem_sets import load_problems

    results = {}
    for name in options.model:
        model, tokenizer = open_model(name, options.device, "auto")
        problem_set = "tiny-test" if model.cfg["vocab_size"] < TINY_VOCABULARY else "math-500"
        problems = load_problems(problem_set, limit=options.limit)
        for method in options.method:
            for samples in options.samples if METHODS[method].several else (1,):
                title, model_name = method_label(method, samples), Path(name).name
                out_path = options.out_path / f"{problem_set}-{model_name}-{title}.jsonl"
                print(f"{name}, {title} on {problem_set}, {counted(len(problems), 'problem')}")
                result = answer_with(
                    method,
                    model,
                    tokenizer,
                    problems,
                    Sampling(
                        max_new_tokens=options.max_new_tokens,
                        temperature=options.temperature,
                        top_p=options.top_p,
                        rollouts=samples,
                        seed=options.seed,
                        sample_rows=options.sample_rows,
                    ),
                    iterations=options.iterations,
                    max_critique_tokens=options.max_critique_tokens,
                    prompt_suffix=options.prompt_suffix,
                    out_path=out_path,
                    progress=options.show_eta,
                    problem_set=problem_set,
                    model_name=name,
                )
                print(f"{method_report(result)}\n  answers     {out_path}")
                results[name, title] = result
    if not results:
        raise UserError("nothing to do: name a --method, a --model and a number of --samples")
    if len(results) > 1:
        print(f"\n{methods_table(results)}")


if __name__ == "__main__":
    sys.exit(run_script(main))
