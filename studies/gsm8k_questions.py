"""How gsm8k.py uses GSM8K: which problems serve which purpose, and the prompts."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from reasoning_from_scratch.files.disk import write_atomically
from reasoning_from_scratch.problems import Problem
from rfs import load_problems
from rfs.own_policy import Policy

EXAMPLES_IN_PROMPT = 4  # the first training problems, which no measurement uses
HELD_BACK = 200  # training problems that nothing is trained on: they choose the settings
MAX_NEW_TOKENS = 200  # of an answer in one line
MAX_NEW_TOKENS_FREE = 320  # of an answer in any form
EXAMPLE_END = "\n\n"  # ends each example in the prompt, and so each answer that is learned


@cache
def split() -> tuple[list[Problem], list[Problem], list[Problem]]:
    """GSM8K's training set as (shown in the prompt, held out, to train on)."""
    problems = load_problems("gsm8k")
    examples, rest = problems[:EXAMPLES_IN_PROMPT], problems[EXAMPLES_IN_PROMPT:]
    random.Random("held back").shuffle(rest)
    return examples, rest[:HELD_BACK], rest[HELD_BACK:]


def in_one_line(problem: Problem) -> str:
    """The worked solution without its notes for a calculator, in one line, its answer in a box."""
    words = re.sub(r"<<.*?>>", "", problem.solution).split()
    return f"{' '.join(words)} \\boxed{{{problem.answer}}}"


def as_rows(problems: Sequence[Problem]) -> Iterator[dict]:
    for p in problems:
        yield {"problem": p.problem, "answer": p.answer, "solution": in_one_line(p)}


def as_lesson(problem: Problem, answer: str) -> dict[str, str]:
    """An answer to learn, in the form of the prompt's examples: one line, then an empty one."""
    return {"problem": problem.problem, "answer": problem.answer, "solution": answer + EXAMPLE_END}


def worked_solutions() -> Iterator[dict]:
    """The training problems with GSM8K's own solutions, to learn."""
    for problem in split()[2]:
        yield as_lesson(problem, in_one_line(problem))


def four_examples() -> str:
    """Four training problems, each solved in a line, before the question."""
    solved = [f"Problem: {p.problem}\nSolution: {in_one_line(p)}" for p in split()[0]]
    return EXAMPLE_END.join([*solved, "Problem: {problem}\nSolution:"])


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
TRAINED_WITH = "four examples, no template"  # not the best: see gsm8k.csv
QWEN_PROMPT = "qwen"  # the best so far
ONE_LINE_PROMPTS = ("four examples", TRAINED_WITH)  # answers end with their line


def as_file_name(name: str) -> str:
    """The name without characters that a file's name should not have."""
    return re.sub(r"\W+", "_", name)


def prompt_in(folder: Path, prompt_name: str) -> str:
    """Writes the prompt into a file; returns it in the form that --prompt takes."""
    path = folder / f"{as_file_name(prompt_name)}.txt"
    write_atomically(path, PROMPTS[prompt_name]() + "\n")
    return f"{'plain' if prompt_name.endswith('no template') else 'chat'}:{path}"


def load_model(model: str, prompt_name: str = TRAINED_WITH) -> Policy:
    """The model; after a one-line prompt its answers end with their line."""
    policy = Policy.load(model)
    if prompt_name in ONE_LINE_PROMPTS:
        policy.tokenizer.end_answers_at("\n")
    return policy


def stop_option(prompt_name: str) -> str | None:
    """The value of --stop for this prompt."""
    return "\\n" if prompt_name in ONE_LINE_PROMPTS else None


def max_new_tokens(prompt_name: str) -> int:
    return MAX_NEW_TOKENS if prompt_name in ONE_LINE_PROMPTS else MAX_NEW_TOKENS_FREE
