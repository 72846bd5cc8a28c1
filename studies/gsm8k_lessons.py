"""Correct answers of a model to GSM8K's training problems, which then serve as worked solutions.

A chunk of problems after another is answered until the processor time is spent. Each chunk is
written when it is done, so a call that was killed loses at most one.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gsm8k_questions import LONGEST, as_lesson, four_examples, split

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import write_atomically
from reasoning_from_scratch.files.weights import load_tokenizer_only
from reasoning_from_scratch.problems import Problem, with_prompt
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.sampling import Sampling
from reasoning_from_scratch.text import as_lines, read_lines
from rfs.own_policy import Policy
from rfs.tasks.source import kept_apart

CHUNK = 16  # problems, with four answers each: as many rows as are sampled side by side
# Answers to learn from are drawn at 0.7, as in ReST-EM (Singh et al. 2023, arXiv:2312.06585): a
# weak model is correct far more often than at 1, and its answers still differ.
SAMPLING = Sampling(LONGEST, rollouts=4, temperature=0.7)


def collect(
    open_model: Callable[[], Policy], prompt: str, path: Path, seconds: float, seed: str
) -> list[dict]:
    """The chunks in the file, with as many more as the time allows. Each is a line: what it took,
    how many answers there were, and the correct ones. The model is opened only if it is needed."""
    chunks = read_lines(path)
    if chunks and spent(chunks) >= seconds:
        return chunks
    policy = open_model()
    # Of a file to learn from, a run keeps these aside by itself: they would be sampled for nothing.
    order = kept_apart(split()[2])[0]
    random.Random(f"lessons {seed}").shuffle(order)
    while not chunks or spent(chunks) < seconds:
        first = len(chunks) * CHUNK % len(order)
        chunks.append(answered(policy, prompt, order[first : first + CHUNK], len(chunks), seed))
        write_atomically(path, as_lines(chunks))
    return chunks


def answered(
    policy: Policy, prompt: str, problems: Sequence[Problem], number: int, seed: str
) -> dict:
    started = time.process_time()
    shown = with_prompt(problems, prompt, policy.tokenizer)
    draws = replace(SAMPLING, seed=random.Random(seed).getrandbits(31))
    groups = policy.sample(shown, draws, step=number)
    lessons = [
        as_lesson(group.problem, rollout.text)
        for group in groups
        for rollout in group.rollouts
        if rollout.finished and correctness(rollout.text, group.problem.answer)
    ]
    answers = sum(len(group.rollouts) for group in groups)
    took = time.process_time() - started
    return {"seconds": took, "answers": answers, "lessons": lessons}


def spent(chunks: Sequence[dict]) -> float:
    return sum(chunk["seconds"] for chunk in chunks)


def write_lessons(path: Path, chunks: Sequence[dict], who: str) -> dict[str, float]:
    """All different lessons in a file that --problems takes, and how many there are."""
    each = {row["problem"] + row["solution"]: row for chunk in chunks for row in chunk["lessons"]}
    answers = sum(chunk["answers"] for chunk in chunks)
    if not each:
        raise UserError(
            f"{who} solved none of {answers} training problems, so there is nothing to learn from: "
            "give it more time with --budget, or choose another model"
        )
    write_atomically(path, as_lines(list(each.values())))
    found = sum(len(chunk["lessons"]) for chunk in chunks)
    return {"lessons": float(len(each)), "solved": found / answers}


def check_teacher(student: str, teacher: str, arms: Sequence[str]) -> None:
    """A teacher must be another model that cuts texts into the same tokens: then its answers cost
    the student nothing to read, and each of the student's tokens has a probability under it."""
    if student == teacher:
        raise UserError(
            f"--teacher is the student itself, {student}: choose a larger one, or --arms without "
            f"{', '.join(arms)}"
        )
    mine, theirs = load_tokenizer_only(student), load_tokenizer_only(teacher)
    texts = [four_examples(), *(row.problem + row.solution for row in split()[1])]
    same = all(
        mine.encode(text, chat_wrapped=False) == theirs.encode(text, chat_wrapped=False)
        for text in texts
    )
    if not same or mine.eos_token_id != theirs.eos_token_id:
        raise UserError(
            f"{teacher} cuts texts into other tokens than {student}: choose a --teacher of the "
            "same family"
        )
