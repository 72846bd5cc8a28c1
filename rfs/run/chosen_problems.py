"""Which problems a run trains on, and which it is evaluated on.

Of your own problems, a held-out share is for evaluations and never trained on. Problems that a run
cannot use (no readable answer, a prompt that does not fit) are skipped, and counted in the log.
"""

import re
from collections.abc import Callable, Sequence

from answer_grader import UnreadableTruth, check_truth
from answer_grader.gsm8k import expected_number
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import (
    Problem,
    add_few_shot_examples,
    describe_prompt,
    few_shot_prefix,
    problem_prompt,
    store_prompt_format,
    told_prompt,
    with_prompt,
)
from reasoning_from_scratch.rollouts import worked_rollout
from reasoning_from_scratch.text import counted
from rfs.config import RunConfig
from rfs.run.folder import log
from rfs.tasks.environments.conversation import gives_own_reward
from rfs.tasks.problem_sets import source_of
from rfs.tasks.source import (
    HELD_OUT_SUFFIX,
    MIN_HELD_OUT,
    all_held_out_message,
    split_off_held_out,
    too_few_message,
)

SomeProblems = Sequence[Problem]
Sets = tuple[SomeProblems, dict[str, SomeProblems]]


def open_problems(config: RunConfig, sets: Sets, tokenizer, context_length: int) -> Sets:
    """`sets` as the model can use them, each problem with its prompt."""
    problems, eval_sets = sets
    if config.stop is not None:
        tokenizer.end_answers_at(config.stop)
        log.info("an answer also ends at %r", tokenizer.stop_text)

    prompt = config.prompt or ("book" if config.few_shot else None)  # examples use the book's

    judge = config.reward
    if config.environment and gives_own_reward(config.environment):
        judge = config.environment

    def ready(some: SomeProblems) -> SomeProblems:
        some = with_prompt(some, prompt, tokenizer)
        return usable_problems(some, tokenizer, context_length, judge)

    problems = ready(problems)
    store_prompt_format(tokenizer, prompt, problems)
    if config.prompt is not None:
        log.info("%s", describe_prompt(tokenizer, problem_prompt(problems[0])))
    if config.is_supervised:
        problems = teachable_problems(problems, tokenizer, config.max_new_tokens, context_length)
    if config.kl_solution:
        room = context_length - config.max_new_tokens
        problems = tellable_problems(problems, tokenizer, room)
    return problems, {name: ready(some) for name, some in eval_sets.items()}


def all_sets(config: RunConfig) -> Sets:
    """The problems to train on and, by name, the sets to evaluate on."""
    problems, aside = with_held_out_aside(config)
    if config.eval_every and config.problems in config.eval_problems:
        source = source_of(config.problems)
        if source.is_too_small_to_split():
            log.warning(
                "%s is measured on the problems that it trains on: they are too few to hold a "
                "tenth out, which takes about %d. So accuracy counts what the model learns by "
                "heart, too; --eval-problems names others",
                source.short_name,
                10 * MIN_HELD_OUT,
            )
    sets: dict[str, SomeProblems] = {}
    for name in config.eval_problems if config.eval_every else []:
        source = source_of(name)
        loaded = aside.get(name) or source.problems(config.eval_limit)
        sets[source.short_name] = loaded[: config.eval_limit]
    if config.few_shot:
        for name, asked in sets.items():
            sets[name] = add_few_shot_examples(config.few_shot, problems, asked)[1]
        return add_few_shot_examples(config.few_shot, problems, [])[0], sets
    return problems, sets


def solved_examples(config: RunConfig) -> str:
    """What --few-shot shows before each question; "" without it."""
    if not config.few_shot:
        return ""
    return few_shot_prefix(with_held_out_aside(config)[0][: config.few_shot])


def with_held_out_aside(config: RunConfig) -> Sets:
    """The problems to train on and, if a share of their set is held out, that share by its name. It
    is held out even if this run never evaluates: another run may, or this one when it is resumed.
    """
    source, share = source_of(config.problems, config.data_path), config.problems + HELD_OUT_SUFFIX
    if share not in config.eval_problems or not source.contains_held_out():
        return source.problems(config.problem_limit), {}
    whole = source.problems()
    rest, aside = split_off_held_out(whole)
    if not rest or len(aside) < MIN_HELD_OUT:
        if config.eval_every:
            message = too_few_message if rest else all_held_out_message
            raise UserError(message(whole, config.problems))
        return whole[: config.problem_limit], {}
    log.info(
        "held out for %s: %d of %s, under the name %s; --eval-problems chooses others",
        "evaluation" if config.eval_every else "rfs evaluate, since this run does not evaluate",
        len(aside),
        counted(len(whole), "problem"),
        source_of(share).short_name,
    )
    return rest[: config.problem_limit], {share: aside}


# --- problems that could never be rewarded ---

PLAIN_NUMBER = re.compile(r"-?\d{1,30}(\.\d{1,30})?", re.ASCII)  # read without asking the grader
NO_SOLUTION: tuple[str, Callable[[Problem], bool]] = (
    "no worked solution (a field `solution`)",
    lambda problem: bool(problem.solution),
)
CHAT_TOKENS = 200  # more than a chat template adds, its system prompt included


def usable_problems(
    problems: SomeProblems, tokenizer, context_length: int, judge: str | None
) -> SomeProblems:
    """Drop the problems that could never be rewarded; one line in the log says how many.

    `judge`: None if the grader judges; your own verifier may need no answer.
    """
    checks: list[tuple[str, Callable[[Problem], bool]]] = [
        (
            f"a prompt that is longer than the model's context of {context_length} tokens",
            lambda problem: fits_context(problem, tokenizer, context_length),
        ),
    ]
    if judge is None:
        checks.insert(0, ("no answer that the grader can read", has_answer))
    if judge == "gsm8k":
        checks.insert(0, ("no answer that is a number after ####", has_number))
    return without_faults(problems, checks)


def teachable_problems(
    problems: SomeProblems, tokenizer, max_new_tokens: int, context_length: int
) -> SomeProblems:
    """The problems with a worked solution that fits as an answer of the model."""

    def fits(problem: Problem) -> bool:
        rollout = worked_rollout(problem, tokenizer)
        return len(rollout.response_ids) <= max_new_tokens and len(rollout) <= context_length

    limit = f"--max-new-tokens {max_new_tokens}, or with the prompt than the model's context"
    checks = [
        NO_SOLUTION,
        (f"a worked solution that is longer than {limit}", fits),
    ]
    return without_faults(problems, checks)


def tellable_problems(problems: SomeProblems, tokenizer, room: int) -> SomeProblems:
    """The problems with a worked solution that fits into a teacher's prompt."""

    def shows_question(problem: Problem) -> bool:
        return problem.problem in problem_prompt(problem)

    def fits(problem: Problem) -> bool:
        return len(tokenizer.encode(told_prompt(problem))) <= room

    checks = [
        NO_SOLUTION,
        ("a prompt without the question, after which the solution would go", shows_question),
        ("a prompt that, with the solution and an answer, exceeds the model's context", fits),
    ]
    return without_faults(problems, checks)


def without_faults(
    problems: SomeProblems, checks: Sequence[tuple[str, Callable[[Problem], bool]]]
) -> SomeProblems:
    """The problems that pass all checks. Each check has a name for the fault that it finds."""
    for fault, good in checks:
        kept = [problem for problem in problems if good(problem)]
        if not kept:
            raise UserError(f"all problems have {fault}, such as {problems[0].where}")
        if len(kept) < len(problems):
            example = next(problem.where for problem in problems if not good(problem))
            count = f"{len(problems) - len(kept):,} of {len(problems):,} problems"
            log.warning("skipped %s, which have %s, such as %s", count, fault, example)
            problems = kept
    return problems


def has_answer(problem: Problem) -> bool:
    try:
        plain = problem.rules or PLAIN_NUMBER.fullmatch(problem.answer)
        return bool(plain or check_truth(problem.answer))
    except UnreadableTruth:
        return False


def has_number(problem: Problem) -> bool:
    return expected_number(problem.answer) is not None


def fits_context(problem: Problem, tokenizer, context_length: int) -> bool:
    """Whether at least one token of an answer fits after the prompt."""
    prompt = problem_prompt(problem)
    # A token has at least one byte, so most prompts need not be encoded to know.
    if len(prompt.encode("utf-8", "replace")) + CHAT_TOKENS < context_length:
        return True
    return len(tokenizer.encode(prompt)) < context_length
