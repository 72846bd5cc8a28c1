"""A model's correct answers to GSM8K's training problems, which then serve as worked solutions.

The model answers one chunk of problems after another until the processor time is spent. Each chunk
is written when it is done, so a killed call loses at most one.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gsm8k_questions import MAX_NEW_TOKENS, as_lesson, four_examples, split

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import write_atomically
from reasoning_from_scratch.files.weights import load_tokenizer_only
from reasoning_from_scratch.problems import Problem, with_prompt
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.sampling import Sampling
from reasoning_from_scratch.text import json_lines, read_lines
from rfs.own_policy import Policy
from rfs.tasks.source import split_off_held_out

PROBLEMS_PER_CHUNK = 16  # with four answers each, as many rows as are sampled side by side
# Answers to learn from are drawn at 0.7, as in ReST-EM (Singh et al. 2023, arXiv:2312.06585): a
# weak model is correct far more often than at 1, and its answers still differ.
SAMPLING = Sampling(MAX_NEW_TOKENS, rollouts=4, temperature=0.7)


def collect_chunks(
    load_model: Callable[[], Policy], prompt: str, path: Path, seconds: float, seed: str
) -> list[dict]:
    """The chunks in the file, with as many more as the time allows. Each is a line: its seconds,
    the number of its answers, and the correct ones. The model is loaded only if it is needed."""
    chunks = read_lines(path)
    if chunks and seconds_spent(chunks) >= seconds:
        return chunks
    policy = load_model()
    # A run holds out a part of the file that it learns from: that part is not worth sampling.
    problems = split_off_held_out(split()[2])[0]
    random.Random(f"lessons {seed}").shuffle(problems)
    while not chunks or seconds_spent(chunks) < seconds:
        first = len(chunks) * PROBLEMS_PER_CHUNK % len(problems)
        some = problems[first : first + PROBLEMS_PER_CHUNK]
        chunks.append(answer_chunk(policy, prompt, some, len(chunks), seed))
        write_atomically(path, json_lines(chunks))
    return chunks


def answer_chunk(
    policy: Policy, prompt: str, problems: Sequence[Problem], number: int, seed: str
) -> dict:
    start = time.process_time()
    prompted = with_prompt(problems, prompt, policy.tokenizer)
    sampling = replace(SAMPLING, seed=random.Random(seed).getrandbits(31))
    groups = policy.sample(prompted, sampling, step=number)
    lessons = [
        as_lesson(group.problem, rollout.text)
        for group in groups
        for rollout in group.rollouts
        if rollout.finished and correctness(rollout.text, group.problem.answer)
    ]
    answers = sum(len(group.rollouts) for group in groups)
    seconds = time.process_time() - start
    return {"seconds": seconds, "answers": answers, "lessons": lessons}


def seconds_spent(chunks: Sequence[dict]) -> float:
    return sum(chunk["seconds"] for chunk in chunks)


def write_lessons(path: Path, chunks: Sequence[dict], model_name: str) -> dict[str, float]:
    """Writes the distinct lessons into a file for --problems; returns how many there are."""
    rows = [row for chunk in chunks for row in chunk["lessons"]]
    lessons = {row["problem"] + row["solution"]: row for row in rows}
    answers = sum(chunk["answers"] for chunk in chunks)
    if not lessons:
        raise UserError(
            f"{model_name} solved none of {answers} training problems, so there is nothing to "
            "learn from: give it more time with --budget, or choose another model"
        )
    write_atomically(path, json_lines(list(lessons.values())))
    return {"lessons": float(len(lessons)), "solved": len(rows) / answers}


def check_teacher(student: str, teacher: str, arms: Sequence[str]) -> None:
    """A teacher must be another model that cuts texts into the same tokens: then its answers cost
    the student nothing to read, and each of the student's tokens has a probability under it."""
    if student == teacher:
        raise UserError(
            f"--teacher is the student itself, {student}: choose a larger one, or --arms without "
            f"{', '.join(arms)}"
        )
    student_tokenizer, teacher_tokenizer = map(load_tokenizer_only, (student, teacher))
    texts = [four_examples(), *(row.problem + row.solution for row in split()[1])]
    same = all(
        student_tokenizer.encode(text, chat_wrapped=False)
        == teacher_tokenizer.encode(text, chat_wrapped=False)
        for text in texts
    )
    if not same or student_tokenizer.eos_token_id != teacher_tokenizer.eos_token_id:
        raise UserError(
            f"{teacher} cuts texts into other tokens than {student}: choose a --teacher of the "
            "same family"
        )
