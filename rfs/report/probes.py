"""A few fixed problems, answered again and again during training: what would it say now?"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from reasoning_from_scratch.problems import Problem, problem_prompt
from reasoning_from_scratch.rollouts import Judge, grader
from reasoning_from_scratch.sampling import Rollout, Sampling, generate, greedy
from reasoning_from_scratch.text import json_line
from reasoning_from_scratch.tokenizer import answer_stops, answer_text
from rfs.engine import FAST

from .tokens import TokenTexts

PROBES_FILE = "probes.jsonl"
TOP_TOKENS = 6  # most likely tokens kept at each position
MAX_POSITIONS = 64  # tokens of an answer whose distributions are kept; its text is kept whole


def record_probes(
    folder: str | Path,
    step: int,
    model: Any,
    tokenizer: Any,
    problems: Sequence[Problem],
    max_new_tokens: int = 64,
    judge: Judge = grader,
    run_sampling: Sampling | None = None,
) -> None:
    """Append one line: the answers to `problems` with greedy decoding, and what else each token
    could have been.

    step counts the updates that the weights have seen; `judge` says how an answer is rewarded.
    `run_sampling` has the run's calculator or environment, and the number of rows in a batch.
    """
    prompts = [tokenizer.encode(problem_prompt(problem)) for problem in problems]
    names = ("sample_rows", "calculator", "environment", "max_turns", "max_turn_tokens")
    copied = {name: getattr(run_sampling, name) for name in names} if run_sampling else {}
    sampling = replace(greedy(max_new_tokens), **copied)
    groups = generate(
        model,
        prompts,
        sampling,
        stop_ids=answer_stops(tokenizer),
        engine=FAST.with_partners(sampling, tokenizer, problems),
    )
    probes = [
        _probe(model, tokenizer, problem, rollout, judge)
        for problem, (rollout,) in zip(problems, groups, strict=True)
    ]
    line = json_line({"step": step, "probes": probes})
    with open(Path(folder) / PROBES_FILE, "a", encoding="utf-8") as file:
        file.write(line + "\n")


def _probe(model, tokenizer, problem, rollout: Rollout, judge) -> dict:
    texts = TokenTexts(tokenizer)
    rollout.text = text = answer_text(tokenizer, rollout)
    response = rollout.response_ids[:MAX_POSITIONS]
    probabilities, ids = next_token_distributions(model, rollout.prompt_ids, response)
    top = [
        [[texts.text_of(token), round(p, 4)] for token, p in zip(*row, strict=True)]
        for row in zip(ids.tolist(), probabilities.tolist(), strict=True)
    ]
    for position in (position for position in rollout.forced if position < MAX_POSITIONS):
        top[position] = []  # a tool wrote it: there was no alternative
    return {
        "problem_id": problem.id,
        "problem": problem.problem,
        "answer": problem.answer,
        "text": text,
        "correct": judge(rollout, problem)["correct"] >= 1,
        "finished": rollout.finished,
        "tokens": texts.texts_of(response),
        "top": top,
    }


@torch.no_grad()
def next_token_distributions(model, prompt: list[int], response: list[int]):
    """Probabilities and ids, (T, TOP_TOKENS) each, of the likeliest tokens at each position."""
    device = model.tok_emb.weight.device
    ids = torch.tensor([prompt + response[:-1]], device=device)  # (1, T)
    hidden = model.hidden_states(ids)[0, len(prompt) - 1 :]  # (T, D)
    probabilities = model.out_head(hidden).float().softmax(dim=-1)  # (T, V)
    return probabilities.topk(min(TOP_TOKENS, probabilities.shape[-1]), dim=-1)
