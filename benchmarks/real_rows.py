"""The row on a real model, Qwen2.5-Coder-0.5B-Instruct: sampling, and a GRPO step with LoRA."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import peers
import torch
from duel import Result, Work, compare_speed, format_seconds, time_in_turn

from reasoning_from_scratch.fast.device import dtype_by_name
from reasoning_from_scratch.fast.engine import generate
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.files.hub_models import QWENS, qwen
from reasoning_from_scratch.files.weights import save_hf_folder
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.optim.lora import add_lora
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import problem_prompt
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.sampling import Sampling
from reasoning_from_scratch.trainer import train_step
from rfs.config import RunConfig
from rfs.engine import FAST
from rfs.files.models import load_model_and_tokenizer
from rfs.run.options import resolved
from rfs.tasks.problem_sets import load_problems

GROUP_SIZE = 8
PROMPTS_PER_STEP = 2
LORA_RANK = 16
SPEED_GOALS = {8: (4.5, 8), 32: (3.8, 6.5)}  # times transformers, by rows; the second in 8 bits


def measure_real_model(work: Work) -> Iterator[Result]:
    """A real model: sampling, and a GRPO step with LoRA."""
    cpu = torch.device("cpu")
    file = qwen(work.real_model) if work.real_model in QWENS else Path(work.real_model)
    name = str(file) if file.suffix == ".gguf" else work.real_model
    model, tokenizer = load_model_and_tokenizer(
        name, cpu, dtype=partial(dtype_by_name, "auto", cpu)
    )
    model.requires_grad_(False)  # so that they are packed for C once, as in a run with LoRA
    problems = load_problems("tiny", limit=PROMPTS_PER_STEP * (work.real_rounds + 1))
    prompts = [tokenizer.encode(problem_prompt(problem)) for problem in problems]
    if not peers.are_installed("transformers"):
        yield from sampling(work, model, prompts)
        yield grpo_step(work, model, prompts)
        return
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with TemporaryDirectory() as folder, peers.silence_output():
        save_hf_folder(model, tokenizer, folder)
        peer = AutoModelForCausalLM.from_pretrained(folder, dtype=model.tok_emb.weight.dtype)
        peers_tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [tokenizer.decode(prompt) for prompt in prompts]
    assert [peers_tokenizer(text).input_ids for text in texts] == prompts, "the same prompts"
    yield from sampling(work, model, prompts, peer, file)
    yield grpo_step(work, model, prompts, peer, peers_tokenizer, texts)


def sampling(work: Work, model, prompts, peer=None, file: Path | None = None) -> Iterator[Result]:
    """Answers of a fixed length from the whole distribution at temperature 1."""
    in_8_bits = deepcopy(model)  # what is packed for C, and kept, has one number format
    for rows in work.real_rows:
        batch_prompts = [prompts[i % len(prompts)] for i in range(rows // GROUP_SIZE)]
        sides: dict[str, Callable[[int], object]] = {  # of the number of tokens
            "ours": partial(sample_answers, model, batch_prompts, "same"),
            "8 bits": partial(sample_answers, in_8_bits, batch_prompts, "int8"),
        }
        if peer is not None:
            settings = {"top_p": 1.0, "cache": "dynamic"}
            call = partial(peers.hf_generate, peer, batch_prompts, GROUP_SIZE, **settings)
            sides["transformers"] = call
        if peer is not None and file.suffix == ".gguf" and peers.are_installed("xllamacpp"):
            llama = peers.LlamaCpp(file, rows, max(map(len, batch_prompts)) + work.real_tokens[0])
            sides["llama.cpp"] = partial(llama.generate, batch_prompts, GROUP_SIZE)
        tokens = work.real_tokens[0]
        for side in sides.values():
            side(tokens // 2)  # warms up
        calls = {name: partial(side, tokens) for name, side in sides.items()}
        yield from comparison_rows(work, rows, time_in_turn(calls, work.real_rounds, warm_up=False))


def sample_answers(model, prompts, weights: Literal["same", "int8"], tokens: int) -> None:
    rows = GROUP_SIZE * len(prompts)
    sampling = Sampling(tokens, rollouts=GROUP_SIZE, sample_rows=rows, sampling_weights=weights)
    generate(model, prompts, sampling, stop_ids=set())


def comparison_rows(work: Work, rows: int, times: dict[str, float]) -> Iterator[Result]:
    """Our sampler, and ours in 8 bits, against each peer."""
    suffixes = {"ours": "", "8 bits": ", in 8 bits"}
    for (ours, suffix), goal in zip(suffixes.items(), SPEED_GOALS[rows], strict=True):
        title, elapsed = f"(d) sampling, {rows} x {work.real_tokens[0]} tokens{suffix}", times[ours]
        if "transformers" not in times:
            yield Result(title, format_seconds(elapsed))
            continue
        yield compare_speed(title, elapsed, times["transformers"], "transformers", goal)
        if "llama.cpp" in times:
            peer = times["llama.cpp"]
            peer_label = f"llama.cpp, 4 bits: {format_seconds(peer)}"
            yield Result(title, format_seconds(elapsed), peer_label, peer / elapsed)


def grpo_step(work: Work, model, prompts, peer=None, peers_tokenizer=None, texts=()) -> Result:
    """Two groups of answers of a fixed length, half of them rewarded, and one update of a LoRA."""
    tokens = work.real_tokens[1]
    add_lora(model, LORA_RANK, 2.0 * LORA_RANK)
    config = resolved(
        RunConfig(
            max_new_tokens=tokens,
            rollouts=GROUP_SIZE,
            problems_per_step=PROMPTS_PER_STEP,
            lora_rank=LORA_RANK,
            lora_alpha=2.0 * LORA_RANK,
        )
    )
    policy = LocalPolicy(model, AdamW(model), config, packed_logprobs, engine=FAST)

    def ours(step: int = 0) -> None:
        first = PROMPTS_PER_STEP * step
        step_prompts, streams = prompts[first : first + PROMPTS_PER_STEP], [(step, 0), (step, 1)]
        answers = generate(model, step_prompts, config, stop_ids=set(), streams=streams)
        groups = [Group(None, rollouts) for rollouts in answers]
        for group in groups:
            for number, rollout in enumerate(group.rollouts):
                rollout.reward = float(number % 2)
        train_step(policy, groups, config, 1e-6)

    title = f"(d) a GRPO step with LoRA, {PROMPTS_PER_STEP} x {GROUP_SIZE} x {tokens} tokens"
    if not peers.are_installed("transformers", "trl", "peft"):
        return Result(title, format_seconds(time_in_turn({"ours": ours}, work.real_rounds)["ours"]))
    from peft import LoraConfig

    matrices = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    mine, theirs = peers.time_grpo_steps(
        peer,
        peers_tokenizer,
        [{"prompt": text} for text in texts],
        ours,
        work.real_rounds - 1,
        {
            "per_device_train_batch_size": PROMPTS_PER_STEP * GROUP_SIZE,
            "num_generations": GROUP_SIZE,
            "max_completion_length": tokens,
            "generation_kwargs": {"min_new_tokens": tokens},
        },
        reward=every_other,
        count_first_step=True,  # a step takes a minute, and their median leaves out one slow one
        adapter=LoraConfig(
            r=LORA_RANK, lora_alpha=2 * LORA_RANK, target_modules=matrices, task_type="CAUSAL_LM"
        ),
    )
    return compare_speed(title, mine, theirs, "trl", 5)


def every_other(completions: list[str], **_) -> list[float]:
    """trl's reward for the same rewards as ours: no group is uniform, and nothing is skipped."""
    return [float(number % 2) for number in range(len(completions))]
