"""Accuracy of a model on a set of problems: pass@k, majority vote, a line per answer, a card."""

import hashlib
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from answer_grader import (
    GRADER_VERSION,
    UnreadableTruth,
    check_truth,
    judged_part,
)
from answer_grader.gsm8k import expected_number
from reasoning_from_scratch import __version__
from reasoning_from_scratch.accuracy import answer_row, grade_extracted
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast.device import dtype_by_name, trusted_device
from reasoning_from_scratch.problems import (
    PLACEHOLDER,
    Problem,
    default_prompt_kind,
    describe_prompt,
    is_file_function,
    problem_prompt,
    prompt_function,
    render_prompt,
)
from reasoning_from_scratch.qwen3 import room_for_answer
from reasoning_from_scratch.rollouts import Group, sample_each
from reasoning_from_scratch.sampling import Rollout, Sampling
from reasoning_from_scratch.scores import (
    Answers,
    EvalResult,
    pass_at_k,
    score_rows,
    wilson_interval,
)
from reasoning_from_scratch.text import is_interactive
from reasoning_from_scratch.tokenizer import model_stop_ids
from rfs.config import part_of
from rfs.engine import FAST
from rfs.evaluation.answer_file import AnswerFile
from rfs.evaluation.options import EvaluateOptions
from rfs.files.models import load_model_and_tokenizer
from rfs.tasks.environments.conversation import gives_own_reward
from rfs.tasks.judge import make_judge, verifier_of
from rfs.tasks.own_task import Verifier

__all__ = ["EvalResult", "evaluate", "open_model", "pass_at_k", "wilson_interval"]


def evaluate(
    model,
    tokenizer,
    problems: Sequence[Problem],
    sampling: Sampling,
    *,
    out_path: str | Path | None = None,
    prompt_fn: Callable[[str], str] = render_prompt,
    fallback: str | None = None,
    verifier: Verifier | None = None,
    progress: bool = False,
    name: str = "",
    model_name: str = "",
) -> EvalResult:
    """Answers every problem `sampling.rollouts` times and grades the answers.

    With `out_path`, each problem's lines are on disk as soon as it is answered, and a second call
    with the same settings goes on where the first was killed; with further problems after the
    same first ones, it adds theirs. Only what is boxed is graded, unless `fallback` (see
    extract_final_candidate) says what else to read. A `verifier` of your own grades instead, or the
    rules of a set that has some; then a reward of 1 or more counts as correct.
    """
    environment = sampling.environment
    by_environment = environment is not None and gives_own_reward(environment)
    check_problems(problems, verifier, by_environment)
    verifiers = [verifier_of(problem, verifier) for problem in problems]
    source = answer_source(fallback, verifiers[0], environment if by_environment else None)
    custom_judge = by_environment or verifiers[0] is not None
    settings = {
        **describe_sampling(sampling),
        **describe(model, tokenizer, problems, prompt_fn, source, custom_judge),
    }
    prompted_problems = shown(model, tokenizer, problems, prompt_fn)

    def sample(todo: list[int], keep: Keep) -> None:
        remaining = [prompted_problems[index] for index in todo]
        # A problem keeps its place, so the answers are the same, whatever is left to do.
        for group in sample_each(model, tokenizer, remaining, sampling, 0, todo, engine=FAST):
            index = group.rollouts[0].place[0]
            keep(index, answer_rows(index, group, fallback, verifiers[index]))

    return answered(
        problems,
        settings,
        sample,
        num_samples=sampling.rollouts,
        model=model,
        out_path=out_path,
        progress=progress,
        name=name,
        model_name=model_name,
    )


def progress_bar(
    total: int, done: int = 0, label: str = "", quiet: bool = False, unit: str = "problem"
) -> tqdm:
    """A bar on stderr. In a file or pipe, where nothing is redrawn, it writes twice a minute."""
    seconds = 0.1 if is_interactive() else 30.0
    return tqdm(
        total=total,
        initial=done,
        desc=label,
        unit=unit,
        disable=quiet,
        mininterval=seconds,
        maxinterval=max(10.0, seconds),
    )


Keep = Callable[[int, list[dict]], None]  # (problem, its rows)


def answered(
    problems: Sequence[Problem],
    settings: dict[str, Any],
    answer_problems: Callable[[list[int], Keep], None],
    *,
    model,
    num_samples: int = 1,
    out_path: str | Path | None = None,
    progress: bool = False,
    name: str = "",
    model_name: str = "",
) -> EvalResult:
    """Answers the problems that are not in the file yet, and scores all of them.

    `answer_problems(todo, keep)` calls keep(problem, its rows) as soon as a problem is answered.
    """
    file = Answers()
    if out_path:
        custom_judge = "columns_hash" in settings
        file = AnswerFile(
            out_path,
            settings,
            num_samples,
            lambda count: problem_identity(problems[:count], custom_judge),
        )
    todo = [index for index in range(len(problems)) if index not in file.groups]
    done, label = len(problems) - len(todo), name or "evaluating"
    bar = progress_bar(len(problems), done, label, quiet=not progress)

    def keep(index: int, rows: list[dict]) -> None:
        file.add(index, rows)
        bar.update()

    start = time.perf_counter()
    with bar:
        answer_problems(todo, keep)
    speed = sampling_speed(todo, time.perf_counter() - start, file)
    result = score_rows(file.rows(), num_samples, speed)
    file.finish(
        {
            "name": name,
            "model": model_name,
            "result": result.scores(),
            "measured_on": measured_on(model),
        }
    )
    return result


def sampling_speed(todo: list[int], seconds: float, file: Answers) -> float:
    """Tokens per second; what the card says if there was nothing left to sample."""
    if not todo:
        return (file.read_card().get("result") or {}).get("tokens_per_sec", 0.0)
    return sum(row["tokens"] for index in todo for row in file.groups[index]) / seconds


def check_problems(
    problems: Sequence[Problem], verifier: Verifier | None = None, by_environment: bool = False
) -> None:
    """Refuses problems whose answers cannot be judged."""
    if not problems:
        raise UserError("there are no problems to evaluate; check --problems and --limit")
    for problem in problems if verifier and verifier.source == "gsm8k" else ():
        if expected_number(problem.answer) is None:
            raise UserError(
                f"problem {problem.where}: the answer {problem.answer!r} is no number that stands "
                "after ####, which --reward gsm8k reads: leave that out, and the grader reads it"
            )
    for problem in () if verifier or by_environment else problems:
        if problem.rules:  # by rules of its own
            continue
        try:
            check_truth(problem.answer)
        except UnreadableTruth as error:
            raise UserError(f"problem {problem.where}: {error}") from None


def shown(
    model, tokenizer, problems: Sequence[Problem], prompt_fn: Callable[[str], str]
) -> list[Problem]:
    """The problems with their complete prompts. A prompt too long for the model is an error."""
    prompted = [replace(problem, prompt=problem_prompt(problem, prompt_fn)) for problem in problems]
    for problem in prompted:
        tokens = len(tokenizer.encode(problem.prompt))
        room_for_answer(model, tokens, 1, f"the prompt of problem {problem.where}")
    return prompted


def answer_source(
    fallback: str | None, verifier: Verifier | None, environment: str | None = None
) -> str:
    """Who reads the answers, and where."""
    if environment:
        return f"the conversation, by {environment}"
    if verifier:
        in_file = (
            f" in a file {file_hash(verifier.source)}" if is_file_function(verifier.source) else ""
        )
        return f"the text, by {verifier.name}{in_file}"
    return "the last box" if fallback is None else f"the last box, {fallback}"


def describe_sampling(sampling: Sampling) -> dict[str, Any]:
    """The part of the card that says how answers were drawn."""
    return {
        "max_new_tokens": sampling.max_new_tokens,
        "num_samples": sampling.rollouts,
        "seed": sampling.seed,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        **({"calculator": True} if sampling.calculator else {}),  # older cards do not mention it
        **(describe_environment(sampling, sampling.environment) if sampling.environment else {}),
    }


def describe_environment(sampling: Sampling, name: str) -> dict[str, Any]:
    """The part about the environment. Its file may change, so the card has a hash of it."""
    return {
        "environment": name,
        **({"environment_file": file_hash(name)} if is_file_function(name) else {}),
        "max_turns": sampling.max_turns,
        "max_turn_tokens": sampling.max_turn_tokens,
    }


def file_hash(name: str) -> str:
    """A hash of the file in FILE.py:FUNCTION."""
    return short_hash(Path(name.rpartition(":")[0]).read_bytes())


def describe(
    model, tokenizer, problems, prompt_fn, source: str, custom_judge: bool = False
) -> dict[str, Any]:
    """The part of the card that says which model answered which problems with which prompt, so that
    scores can be compared. `custom_judge`: answers are judged not by the grader but by code that
    may read all columns of a problem."""
    # As the model reads it: a tokenizer may wrap it in a chat template.
    prompt = tokenizer.decode(tokenizer.encode(prompt_fn("{problem}")))
    weights = named_weights(model)
    return {
        "weights": weights_hash(weights),
        "dtype": str(weights[0][1].dtype) if weights else "",
        **problem_identity(problems, custom_judge),
        "prompt": prompt,
        "prompt_hash": short_hash(prompt.encode()),
        "stop_ids": sorted(model_stop_ids(tokenizer)),
        **({"stop": tokenizer.stop_text} if getattr(tokenizer, "stop_text", "") else {}),
        "answer_read_from": source,
        "grader_version": GRADER_VERSION,
    }


def problem_identity(problems: Sequence[Problem], custom_judge: bool = False) -> dict[str, Any]:
    """Which problems, on the card: a file with answers to the first of them can be extended."""
    texts = [[problem_prompt(problem, str), problem.answer] for problem in problems]
    identity = {"problems": len(texts), "problems_hash": short_hash(json.dumps(texts).encode())}
    if custom_judge:
        columns = [[p.rules, p.facts, p.solution, p.row] for p in problems]
        identity["columns_hash"] = short_hash(json.dumps(columns, default=repr).encode())
    return identity


def named_weights(model) -> list[tuple[str, torch.Tensor]]:
    """The weights by name; none for a stand-in."""
    return sorted(model.state_dict().items()) if hasattr(model, "state_dict") else []


def weights_hash(weights: list[tuple[str, torch.Tensor]]) -> str:
    """Tells models apart by a few weights of each tensor: cheap, and any training changes it."""
    parts = [f"{name}{value.flatten()[:16].tolist()}" for name, value in weights]
    return short_hash("".join(parts).encode())


def short_hash(content: bytes) -> str:
    """A hash of twelve hexadecimal digits, enough to tell inputs apart."""
    return hashlib.sha256(content).hexdigest()[:12]


def measured_on(model) -> dict[str, str]:
    """When, with which versions and where."""
    weights = named_weights(model)
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "package": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": str(weights[0][1].device) if weights else "",
    }


def answer_rows(
    index: int, group: Group, fallback: str | None, verifier: Verifier | None
) -> list[dict]:
    """One row per sampled answer."""
    rows, problem = [], group.problem
    for number, rollout in enumerate(group.rollouts):
        extracted = judged_part(rollout.text, fallback)
        if verifier and not extracted:
            extracted = rollout.text  # your verifier may look outside of boxes
        verdict = (
            verdict_of_judge(rollout, problem, verifier)
            if verifier or rollout.outcome is not None
            else grade_extracted(extracted, problem)
        )
        rows.append(answer_row(index, number, problem, rollout, extracted, verdict))
    return rows


def verdict_of_judge(
    rollout: Rollout, problem: Problem, verifier: Verifier | None
) -> dict[str, Any]:
    """The verdict of a verifier, or of an environment that has talked with the model."""
    reward = make_judge(verifier)(rollout, problem)["correct"]
    row = {
        "correct": reward >= 1,
        "parsed": not rollout.failure,
        "reward": reward,
        "reward_failure": rollout.failure,
    }
    if rollout.outcome is None:
        return row
    return row | {"outcome": rollout.outcome, "turns": rollout.turns}


# --- as the command asks for it: commands/evaluate.py ---


def evaluate_from_options(
    options: EvaluateOptions,
    model,
    tokenizer,
    problems: Sequence[Problem],
    verifier: Verifier | None,
    problem_set: str,
    model_name: str,
    out_path: Path | None,
) -> EvalResult:
    """`evaluate` as the options say."""
    if options.stop is not None:
        tokenizer.end_answers_at(options.stop)
    render = prompt_function(options.prompt or default_prompt_kind(problems), tokenizer)
    if options.prompt is not None:
        if render(PLACEHOLDER) != render_prompt(PLACEHOLDER):
            # As in training, it replaces the prompts that problems bring, and the book's does not.
            problems = [replace(problem, prompt="") for problem in problems]
        print(describe_prompt(tokenizer, problem_prompt(problems[0], render)))
    return evaluate(
        model,
        tokenizer,
        problems,
        part_of(options, Sampling, rollouts=options.samples),
        prompt_fn=render,
        out_path=out_path,
        progress=True,
        name=problem_set,
        model_name=model_name,
        fallback=None if options.fallback == "none" else options.fallback,
        verifier=verifier,
    )


def open_model(name: str, device: str, dtype: str):
    """Model and tokenizer on a device that computes correctly, in the format that suits it."""
    usable_device = trusted_device(device)
    model_dtype = partial(dtype_by_name, dtype, usable_device)
    return load_model_and_tokenizer(name, usable_device, dtype=model_dtype)
