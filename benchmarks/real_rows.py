"""The row on a real model, Qwen2.5-Coder-0.5B-Instruct: sampling, and a GRPO step with LoRA."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import peers
import torch
from duel import Result, Work, faster, in_turn, seconds

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

GROUP = 8  # answers to each prompt
PROMPTS_PER_STEP = 2
RANK = 16
GOALS = {8: (4.5, 8), 32: (3.8, 6.5)}  # times transformers, by rows; the second in 8 bits


def real(work: Work) -> Iterator[Result]:
    """A real model: sampling, and a GRPO step with LoRA."""
    cpu = torch.device("cpu")
    file = qwen(work.real) if work.real in QWENS else Path(work.real)
    name = str(file) if file.suffix == ".gguf" else work.real
    model, tokenizer = load_model_and_tokenizer(
        name, cpu, dtype=partial(dtype_by_name, "auto", cpu)
    )
    model.requires_grad_(False)  # so that they are packed for C once, as in a run with LoRA
    problems = load_problems("tiny", limit=PROMPTS_PER_STEP * (work.real_rounds + 1))
    prompts = [tokenizer.encode(problem_prompt(problem)) for problem in problems]
    if not peers.have("transformers"):
        yield from sampling(work, model, prompts)
        yield grpo_step(work, model, prompts)
        return
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with TemporaryDirectory() as folder, peers.quiet():
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
        some = [prompts[i % len(prompts)] for i in range(rows // GROUP)]
        sides: dict[str, Callable[[int], object]] = {  # of the number of tokens
            "ours": partial(answers, model, some, "same"),
            "8 bits": partial(answers, in_8_bits, some, "int8"),
        }
        if peer is not None:
            asked = {"top_p": 1.0, "cache": "dynamic"}
            sides["transformers"] = partial(peers.hf_generate, peer, some, GROUP, **asked)
        if peer is not None and file.suffix == ".gguf" and peers.have("xllamacpp"):
            llama = peers.LlamaCpp(file, rows, max(map(len, some)) + work.real_tokens[0])
            sides["llama.cpp"] = partial(llama.generate, some, GROUP)
        tokens = work.real_tokens[0]
        for side in sides.values():
            side(tokens // 2)  # warms up
        whole = {name: partial(side, tokens) for name, side in sides.items()}
        yield from compared(work, rows, in_turn(whole, work.real_rounds, warm=False))


def answers(model, prompts, weights: Literal["same", "int8"], tokens: int) -> None:
    rows = GROUP * len(prompts)
    asked = Sampling(tokens, rollouts=GROUP, sample_rows=rows, sampling_weights=weights)
    generate(model, prompts, asked, stop_ids=set())


def compared(work: Work, rows: int, times: dict[str, float]) -> Iterator[Result]:
    """Ours and ours in 8 bits against each peer."""
    for ours, said, goal in zip(("ours", "8 bits"), ("", ", in 8 bits"), GOALS[rows], strict=True):
        title, took = f"(d) sampling, {rows} x {work.real_tokens[0]} tokens{said}", times[ours]
        if "transformers" not in times:
            yield Result(title, seconds(took))
            continue
        yield faster(title, took, times["transformers"], "transformers", goal)
        if "llama.cpp" in times:
            peer = times["llama.cpp"]
            named = f"llama.cpp, 4 bits: {seconds(peer)}"
            yield Result(title, seconds(took), named, peer / took)


def grpo_step(work: Work, model, prompts, peer=None, peers_tokenizer=None, texts=()) -> Result:
    """Two groups of answers of a fixed length, half of them rewarded, and one update of a LoRA."""
    tokens = work.real_tokens[1]
    add_lora(model, RANK, 2.0 * RANK)
    config = resolved(
        RunConfig(
            max_new_tokens=tokens,
            rollouts=GROUP,
            problems_per_step=PROMPTS_PER_STEP,
            lora_rank=RANK,
            lora_alpha=2.0 * RANK,
        )
    )
    policy = LocalPolicy(model, AdamW(model), config, packed_logprobs, engine=FAST)

    def ours(step: int = 0) -> None:
        first = PROMPTS_PER_STEP * step
        some, streams = prompts[first : first + PROMPTS_PER_STEP], [(step, 0), (step, 1)]
        answers = generate(model, some, config, stop_ids=set(), streams=streams)
        groups = [Group(None, rollouts) for rollouts in answers]
        for group in groups:
            for number, rollout in enumerate(group.rollouts):
                rollout.reward = float(number % 2)
        train_step(policy, groups, config, 1e-6)

    title = f"(d) a GRPO step with LoRA, {PROMPTS_PER_STEP} x {GROUP} x {tokens} tokens"
    if not peers.have("transformers", "trl", "peft"):
        return Result(title, seconds(in_turn({"ours": ours}, work.real_rounds)["ours"]))
    from peft import LoraConfig

    matrices = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    mine, theirs = peers.grpo_steps(
        peer,
        peers_tokenizer,
        [{"prompt": text} for text in texts],
        ours,
        work.real_rounds - 1,
        {
            "per_device_train_batch_size": PROMPTS_PER_STEP * GROUP,
            "num_generations": GROUP,
            "max_completion_length": tokens,
            "generation_kwargs": {"min_new_tokens": tokens},
        },
        reward=every_other,
        counts_first=True,  # a step takes a minute, and their median leaves out one slow one
        adapter=LoraConfig(
            r=RANK, lora_alpha=2 * RANK, target_modules=matrices, task_type="CAUSAL_LM"
        ),
    )
    return faster(title, mine, theirs, "trl", 5)


def every_other(completions: list[str], **_) -> list[float]:
    """trl's reward for the same rewards as ours: no group is uniform, and nothing is skipped."""
    return [float(number % 2) for number in range(len(completions))]
