"""Rows on the shipped tiny model: a GRPO step, the quickstart, evaluation."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import peers
import torch
from duel import Result, Work, compare_speed, format_seconds, run_python, time_in_turn

from reasoning_from_scratch.fast.decoding import decoder_for
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.files.weights import shipped_checkpoint
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import render_prompt
from reasoning_from_scratch.qwen3 import KVCache
from reasoning_from_scratch.rollouts import reward_groups
from reasoning_from_scratch.sampling import (
    Rollout,
    Sampling,
    generate,
    sample_next_token,
    stream_key,
    uniform_at,
)
from reasoning_from_scratch.tokenizer import stop_ids_of
from reasoning_from_scratch.trainer import set_advantages, train_step
from rfs.config import RunConfig
from rfs.engine import FAST, sample_groups
from rfs.evaluation.evaluate import evaluate
from rfs.files.models import load_model_and_tokenizer
from rfs.run.options import resolved
from rfs.tasks.problem_sets import load_problems

FEW_ROWS = 8  # answers side by side: fewer than problems, so refilling matters


def grpo_step(work: Work) -> list[Result]:
    """64 rollouts of at most 64 tokens, rewards, advantages, one update; no group is dropped."""
    model, tokenizer = load_model_and_tokenizer("tiny-base")
    problems = load_problems("tiny", limit=8 * (work.steps + 1))
    config = resolved(RunConfig(max_new_tokens=64, drop_uniform_groups=False))
    policy = LocalPolicy(model, AdamW(model), config, packed_logprobs)

    def ours(step: int = 0) -> None:
        chosen = problems[8 * step : 8 * step + 8]
        groups = sample_groups(model, tokenizer, chosen, config, step)
        reward_groups(groups, config, tokenizer)
        set_advantages(groups, config)
        train_step(policy, groups, config, 1e-6)

    title = "(a) a whole GRPO step of the tiny model"
    if not peers.are_installed("transformers", "trl"):
        return [Result(title, format_seconds(time_in_turn({"ours": ours}, work.steps)["ours"]))]
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = str(shipped_checkpoint("tiny-base"))
    with peers.silence_output():
        peer = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    settings = {
        "per_device_train_batch_size": 64,
        "num_generations": 8,
        "max_completion_length": 64,
    }
    mine, theirs = peers.time_grpo_steps(
        peer,
        AutoTokenizer.from_pretrained(folder),
        peers.dataset_rows(problems),
        ours,
        work.steps,
        settings,
    )
    return [compare_speed(title, mine, theirs, "trl", 4)]


def quickstart(work: Work) -> list[Result]:
    """From the start of the process to the final table."""
    with TemporaryDirectory() as folder:
        flags = ["--log-path", str(Path(folder) / "run")] * (work.quickstart == ("quickstart",))
        start = time.perf_counter()
        run_python("-m", "rfs", *work.quickstart, *flags)
        elapsed = time.perf_counter() - start
    return [
        Result(
            "(a) quickstart, process start to final table",
            format_seconds(elapsed),
            target="<= 180 s",
            met=elapsed <= 180,
        )
    ]


def evaluation(work: Work) -> list[Result]:
    """Sampled answers of tiny-base: three in four are a guess, the others are worked out."""
    model, tokenizer = load_model_and_tokenizer("tiny-base")
    half = work.problems // 2
    problems = load_problems("tiny-test", limit=half) + load_problems("tiny-longer", limit=half)
    prompts = [tokenizer.encode(render_prompt(problem.problem)) for problem in problems]
    limit, stop_ids = 160, stop_ids_of(tokenizer)
    groups = {}  # by side

    def refilled(rows: int):
        sampling = Sampling(limit, rollouts=1, sample_rows=rows)
        groups[f"refilled {rows}"] = generate(
            model, prompts, sampling, stop_ids=stop_ids, engine=FAST
        )

    def fixed(name: str, rows: int, decode):
        groups[name] = sample_fixed_batches(model, decode, prompts, limit, stop_ids, rows)

    times = time_in_turn(
        {
            "few": lambda: refilled(FEW_ROWS),
            "all": lambda: refilled(64),
            "fixed": lambda: fixed("fixed", FEW_ROWS, model),
            "our steps": lambda: fixed("our steps", FEW_ROWS, decoder_for(model, FEW_ROWS, limit)),
            "alone": lambda: fixed("alone", 1, model),
        },
        work.rounds,
    )
    ids = {side: [group[0].response_ids for group in of_side] for side, of_side in groups.items()}
    assert all(other == ids["alone"] for other in ids.values()), "the sides must do the same work"
    lengths = sorted(map(len, ids["alone"]))
    title = f"(c) evaluation, {len(problems)} answers of {lengths[0]} to {lengths[-1]} tokens"
    result = evaluate(model, tokenizer, problems, Sampling(limit, rollouts=1))
    assert [row["tokens"] for row in result.rows] == [len(x) for x in ids["alone"]]
    return [
        compare_speed(
            f"{title}, {FEW_ROWS} rows", times["few"], times["fixed"], "fixed batches", 2
        ),
        Result(
            f"{title}, {FEW_ROWS} rows",
            format_seconds(times["few"]),
            f"fixed batches, our decoding steps: {format_seconds(times['our steps'])}",
            times["our steps"] / times["few"],
        ),
        compare_speed(f"{title}, 64 rows", times["all"], times["alone"], "one by one", 6),
    ]


@torch.no_grad()
def sample_fixed_batches(
    model, decode_step, prompts, limit: int, stop_ids: set[int], batch_size: int
):
    """Batches that run until their last answer has ended: the same tokens, nothing refilled.
    `decode_step` is the model itself, or what generate() uses."""
    groups = []
    for start in range(0, len(prompts), batch_size):
        batch = prompts[start : start + batch_size]
        lengths = torch.tensor([len(prompt) for prompt in batch])
        ids = torch.zeros(len(batch), int(lengths.max()), dtype=torch.long)  # (B, T)
        for row, prompt in enumerate(batch):
            ids[row, : len(prompt)] = torch.tensor(prompt)
        mask = torch.arange(ids.shape[1]) < lengths[:, None]
        cache = KVCache(model.cfg["n_layers"], ids.shape[1] + limit)
        hidden = model.hidden_states(ids, cache=cache, attention_mask=mask)
        logits = model.out_head(hidden[torch.arange(len(batch)), lengths - 1])  # (B, V)
        keys = stream_key(0, 0, torch.arange(start, start + len(batch)), 0)  # (B,)
        u = uniform_at(keys[:, None], torch.arange(limit))  # (B, limit)
        rollouts = [Rollout() for _ in batch]
        for position in range(limit):
            tokens = sample_next_token(logits, u[:, position]).tokens
            for rollout, token in zip(rollouts, tokens.tolist(), strict=True):
                if not rollout.finished:
                    rollout.response_ids.append(token)
                    rollout.finished = token in stop_ids
            if all(rollout.finished for rollout in rollouts):
                break
            logits = decode_step(tokens[:, None], cache=cache)[:, -1]
        groups += [[rollout] for rollout in rollouts]
    return groups
