"""Two steps of a model of 0.2 GB within a budget; prints the process's peak, and how many of
8 rollouts shared a micro-batch. Usage: budget_job.py SIZE"""

import re
import sys
from dataclasses import replace
from pathlib import Path

import torch
from toy import toy_model

from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.fast.cut import FAST
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.rollouts import Group, Rollout
from reasoning_from_scratch.run.memory import checkpoint_blocks, fit_memory
from reasoning_from_scratch.sampling import generate
from reasoning_from_scratch.trainer import train_step

PROMPT, LONGEST, ROLLOUTS = [1, 2, 3], 300, 8
SIZES = {
    "vocab_size": 8000,
    "emb_dim": 512,
    "n_layers": 12,
    "hidden_dim": 1536,
    "n_heads": 8,
    "head_dim": 64,
    "n_kv_groups": 4,
    "tie_embeddings": True,
}


def main() -> None:
    model = toy_model(**SIZES)
    optimizer = AdamW(model)
    config = TrainConfig(max_new_tokens=LONGEST, rollouts=ROLLOUTS, memory_budget=sys.argv[1])
    config = fit_memory(model, optimizer, config, len(PROMPT) + LONGEST)
    if config.gradient_checkpointing:
        checkpoint_blocks(model)
    for step in range(2):
        sampling = replace(config, max_new_tokens=8)
        (samples,) = generate(
            model, [PROMPT], sampling, streams=[(step, 0)], stop_ids=set(), engine=FAST
        )
        # Sampling 300 tokens would take longer than all the rest; what it gives is repeated.
        copies = LONGEST // len(samples[0].response_ids)
        rollouts = [
            Rollout(
                None,
                PROMPT,
                sample.response_ids * copies,
                sample.logprobs * copies,
                [],
                "",
                False,
                reward=float(i % 2),
                advantage=(-1.0) ** i,
            )
            for i, sample in enumerate(samples)
        ]
        train_step(
            LocalPolicy(model, optimizer, config, packed_logprobs),
            [Group(None, rollouts)],
            config,
            1e-5,
        )
    peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[1]
    print(1024 * int(peak), config.micro_batch_tokens // (len(PROMPT) + LONGEST))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(2)  # each thread has memory of its own
    main()
