"""Which problems of a set a run can use: those with a readable answer that fit into the model."""

import logging
import re
from collections.abc import Callable, Sequence

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.grading import UnreadableTruth, check_truth
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.prompts import problem_prompt

log = logging.getLogger("reasoning_from_scratch")
PLAIN = re.compile(r"-?\d{1,30}(\.\d{1,30})?", re.ASCII)  # read without asking the grader
CHAT_TOKENS = 16  # what a chat template adds


def usable_problems(
    problems: Sequence[Problem], tokenizer, context_length: int, graded: bool
) -> Sequence[Problem]:
    """Without the problems that could never be paid for; one line in the log says how many.

    `graded`: our grader judges; a verifier of one's own may do without an answer.
    """
    checks: list[tuple[str, Callable[[Problem], bool]]] = [
        (
            f"a prompt that is longer than the model's context of {context_length} tokens",
            lambda problem: fits_context(problem, tokenizer, context_length),
        ),
    ]
    if graded:
        checks.insert(0, ("no answer that the grader can read", has_answer))
    for fault, good in checks:
        kept = [problem for problem in problems if good(problem)]
        if not kept:
            raise UserError(f"every problem has {fault}, such as {problems[0].where}")
        if len(kept) < len(problems):
            example = next(problem.where for problem in problems if not good(problem))
            count = f"{len(problems) - len(kept):,} of {len(problems):,} problems"
            log.warning("left out %s, which have %s, such as %s", count, fault, example)
            problems = kept
    return problems


def has_answer(problem: Problem) -> bool:
    try:
        return bool(PLAIN.fullmatch(problem.answer) or check_truth(problem.answer))
    except UnreadableTruth:
        return False


def fits_context(problem: Problem, tokenizer, context_length: int) -> bool:
    """Whether at least one token of an answer fits behind the prompt."""
    prompt = problem_prompt(problem)
    # A token has at least one byte, so most prompts need not be encoded to know.
    if len(prompt.encode("utf-8", "replace")) + CHAT_TOKENS < context_length:
        return True
    return len(tokenizer.encode(prompt)) < context_length
