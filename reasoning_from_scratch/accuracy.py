"""How many answers are correct: every problem is asked, every answer graded."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from answer_grader import answer_verdict, judged_part
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast.engine import sample_groups
from reasoning_from_scratch.problems import Problem, problem_prompt, render_prompt
from reasoning_from_scratch.sampling import Rollout, Sampling
from reasoning_from_scratch.scores import EvalResult, score_rows


def evaluate(
    model,
    tokenizer,
    problems: Sequence[Problem],
    sampling: Sampling,
    *,
    prompt_fn: Callable[[str], str] = render_prompt,
) -> EvalResult:
    """Answers every problem `sampling.rollouts` times and grades what is in the last box.

    rfs.evaluate does the same with a file of answers, other judges and a progress bar.
    """
    if not problems:
        raise UserError("there are no problems to evaluate")
    prompted = [replace(problem, prompt=problem_prompt(problem, prompt_fn)) for problem in problems]
    start = time.perf_counter()
    groups = sample_groups(model, tokenizer, prompted, sampling)
    seconds = time.perf_counter() - start
    rows = []
    for index, group in enumerate(groups):
        for number, rollout in enumerate(group.rollouts):
            extracted = judged_part(rollout.text, None)
            verdict = grade_extracted(extracted, group.problem)
            rows.append(answer_row(index, number, group.problem, rollout, extracted, verdict))
    return score_rows(rows, sampling.rollouts, sum(row["tokens"] for row in rows) / seconds)


def answer_row(
    index: int,
    number: int,
    problem: Problem,
    rollout: Rollout,
    extracted: str | None,
    verdict: dict[str, Any],
) -> dict[str, Any]:
    """What is kept of a sampled answer, in the order in which it is written."""
    return {
        "index": index + 1,  # counted from 1, as in chapter 3
        "sample": number,
        "problem": problem.problem,
        "gtruth_answer": problem.answer,
        "generated_text": rollout.text,
        "extracted": extracted,
        **verdict,
        "tokens": rollout.num_sampled,
        "stopped": rollout.finished,  # False: at the length limit or the end of the context
    }


def grade_extracted(extracted: str | None, problem: Problem) -> dict[str, bool]:
    """The grader's verdict on what was read from an answer."""
    verdict = answer_verdict(extracted, problem.answer) if extracted else "unparsed"
    return {"correct": verdict == "correct", "parsed": verdict in ("correct", "wrong")}
