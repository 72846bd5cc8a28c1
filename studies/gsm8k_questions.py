"""GSM8K as gsm8k.py asks it: which problems are for what, and the prompts."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from reasoning_from_scratch.files.disk import write_atomically
from reasoning_from_scratch.problems import Problem
from rfs import load_problems
from rfs.own_policy import Policy

SHOWN = 4  # the first training problems, solved, are in the prompt and in no measurement
HELD_BACK = 200  # training problems that nothing is trained on: here the settings are chosen
LONGEST = 200  # tokens of an answer in one line
LONGEST_FREE = 320  # and of one that may be as it likes
AFTER = "\n\n"  # what follows an example in the prompt, and so an answer that is learned


@cache
def split() -> tuple[list[Problem], list[Problem], list[Problem]]:
    """GSM8K's training set as (shown in the prompt, held out, to train on)."""
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


def as_lesson(problem: Problem, answer: str) -> dict[str, str]:
    """An answer to learn, as it would stand in the prompt: one line, then an empty one."""
    return {"problem": problem.problem, "answer": problem.answer, "solution": answer + AFTER}


def worked() -> Iterator[dict]:
    """The training problems with GSM8K's own solutions, to learn."""
    for one in split()[2]:
        yield as_lesson(one, in_one_line(one))


def four_examples() -> str:
    """Four training problems, each solved in a line, before the question."""
    solved = [f"Problem: {one.problem}\nSolution: {in_one_line(one)}" for one in split()[0]]
    return AFTER.join([*solved, "Problem: {problem}\nSolution:"])


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
QWENS = "qwen"  # the best so far
IN_ONE_LINE = ("four examples", TRAINED_WITH)  # answers end with their line


def spelled(name: str) -> str:
    """A name as part of a file's."""
    return re.sub(r"\W+", "_", name)


def prompt_in(folder: Path, name: str) -> str:
    """The prompt as a file, which is what --prompt takes."""
    path = folder / f"{spelled(name)}.txt"
    write_atomically(path, PROMPTS[name]() + "\n")
    return f"{'plain' if name.endswith('no template') else 'chat'}:{path}"


def opened(model: str, name: str = TRAINED_WITH) -> Policy:
    """The model, whose answers end where that prompt's do."""
    policy = Policy.load(model)
    if name in IN_ONE_LINE:
        policy.tokenizer.end_answers_at("\n")
    return policy


def stop_of(name: str) -> str | None:
    """What ends an answer, as --stop takes it."""
    return "\\n" if name in IN_ONE_LINE else None


def longest(name: str) -> int:
    return LONGEST if name in IN_ONE_LINE else LONGEST_FREE
