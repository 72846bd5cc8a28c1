"""The whole of GRPO on one page: read it from top to bottom, then change it.

    uv run ch07/rl_loop.py                 # the tiny model, on a CPU, in two minutes
    uv run ch07/rl_loop.py --model base    # Qwen3-0.6B on grade-school problems, on a GPU

The package provides the model, the sampler and the grader. Everything that makes it reinforcement
learning is here. What the library's trainer adds: checkpoints that resume, reports, KL, a
clipped ratio, several updates per batch, memory limits, problems in a new order in each epoch. By
default it also divides an advantage by the group's spread, averages over an answer's tokens, and
clips the gradient's norm at 1.
"""

import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rfs.commands.cli import run_script  # first: it handles Ctrl-C

# isort: split
import torch
import torch.nn.functional as F

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast.device import trusted_device
from reasoning_from_scratch.fast.engine import generate
from reasoning_from_scratch.problems import Problem, render_prompt
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.sampling import Rollout, Sampling, greedy
from reasoning_from_scratch.text import percent
from reasoning_from_scratch.tokenizer import stop_ids_of
from rfs.evaluation.evaluate import evaluate
from rfs.files.models import load_model_and_tokenizer
from rfs.run.option_checks import flag
from rfs.run.options import preset
from rfs.tasks.problem_sets import held_out, load_problems, training_problems


@dataclass
class Config:
    model: str = "tiny"
    """Train tiny, base (Qwen3-0.6B), reasoning, a folder, a file, a run (its best save) or
    RUN@SAVE."""
    problems: str | None = None
    """Learn from this problem set (default: tiny, or gsm8k for larger models)."""
    eval_problems: str | None = None
    """Measure on this problem set (default: the test set of the problems, as gsm8k-test)."""
    steps: int = 90
    problems_per_step: int = 8
    """Sample this many problems per step."""
    rollouts: int = 8
    """Sample this many rollouts per problem."""
    lr: float | None = None
    """Let AdamW take steps of this size (default: 1e-4, or 1e-6 for larger models)."""
    max_new_tokens: int | None = None
    """End an answer after this many tokens (default: 160, or 512)."""
    eval_limit: int = 100
    seed: int = 0
    log_path: Path = Path("runs/rl_loop")
    """Write metrics.jsonl into this folder; an existing file is overwritten."""


def main(config: Config) -> None:
    config = checked(with_what_suits(config))
    problems = training_problems(config.problems)
    test = load_problems(config.eval_problems, limit=config.eval_limit)
    for name, some in ((config.problems, problems), (config.eval_problems, test)):
        if some and some[0].rules:
            raise UserError(f"{name} is judged by its own rules, not by a box: use rfs train")
    # float32 on every device: in bfloat16 a weight of 0.02 does not feel an update of 1e-6.
    device = trusted_device("auto")
    model, tokenizer = load_model_and_tokenizer(config.model, device, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), config.lr, weight_decay=0.0)
    config.log_path.mkdir(parents=True, exist_ok=True)
    measure(model, tokenizer, test, config)
    with open(config.log_path / "metrics.jsonl", "w") as log:
        for step in range(config.steps):
            metrics = train_step(model, tokenizer, optimizer, problems, config, step)
            log.write(json.dumps(metrics) + "\n")
            log.flush()
            print("  ".join(f"{k} {v:.3g}" for k, v in metrics.items()), flush=True)
    measure(model, tokenizer, test, config)


def train_step(model, tokenizer, optimizer, problems: list[Problem], config, step: int) -> dict:
    start = time.perf_counter()
    # 1. Problems.  2. Rollouts: several answers to each.
    first = step * config.problems_per_step
    batch = [problems[i % len(problems)] for i in range(first, first + config.problems_per_step)]
    prompts = [tokenizer.encode(render_prompt(problem.problem)) for problem in batch]
    sampling = Sampling(config.max_new_tokens, rollouts=config.rollouts, seed=config.seed)
    groups = generate(
        model, prompts, sampling, stop_ids=stop_ids_of(tokenizer),
        streams=[(step, i) for i in range(len(batch))],
    )  # fmt: skip
    # 3. Rewards: 1 for the correct answer in a box, else 0.
    rewards = torch.tensor(
        [
            [correctness(tokenizer.decode(one.text_ids), problem.answer) for one in group]
            for problem, group in zip(batch, groups, strict=True)
        ]
    )  # (N, G)
    # 4. Advantages: better or worse than the other rollouts of the same problem.
    advantages = rewards - rewards.mean(dim=1, keepdim=True)  # (N, G)
    # 5. Log-probabilities.  6. Loss and its gradient, a group at a time.
    # All correct or all incorrect: nothing to learn from.
    live = [i for i in range(len(groups)) if advantages[i].any()]
    losses = [backward(model, prompts[i], groups[i], advantages[i]) for i in live]
    # 7. One step on their sum; none without a gradient, as momentum would move the weights.
    if live:
        optimizer.step()
        optimizer.zero_grad()
    lengths = [len(rollout.response_ids) for group in groups for rollout in group]
    return {
        "step": step,
        "progress/batch": step,
        "reward/total": rewards.mean().item(),
        "live_groups": len(live) / len(groups),
        "ac_tokens_per_turn": sum(lengths) / len(lengths),
        "loss": sum(losses),
        "time/total": time.perf_counter() - start,
    }


def backward(model, prompt: list[int], group: list[Rollout], advantages: torch.Tensor) -> float:
    """Add the gradient of one group's importance-weighted loss, - sum of ratio x advantage."""
    device = model.tok_emb.weight.device
    answers = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(rollout.response_ids) for rollout in group], batch_first=True
    ).to(device)  # (G, T)
    old_logprobs = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(rollout.logprobs) for rollout in group], batch_first=True
    ).to(device)  # (G, T)
    lengths = torch.tensor([len(one.response_ids) for one in group], device=device)  # (G,)
    mask = torch.arange(answers.shape[1], device=device) < lengths[:, None]  # (G, T)
    prompts = torch.tensor([prompt] * len(group), device=device)  # (G, P)
    # The token at position t is predicted at t - 1, so the first from the prompt's last.
    hidden = model.hidden_states(torch.cat([prompts, answers[:, :-1]], dim=1))  # (G, P + T - 1, D)
    logits = model.out_head(hidden[:, len(prompt) - 1 :])  # (G, T, V)
    logprobs = -F.cross_entropy(logits.transpose(1, 2), answers, reduction="none")  # (G, T)
    # The sampler's log-probabilities are still the model's: the ratio is 1, and its gradient is
    # that of log p. The ratio starts to matter when samples are older than the weights.
    ratio = (logprobs - old_logprobs).exp()
    loss = -(ratio * advantages.to(device)[:, None] * mask).sum()
    loss.backward()
    return loss.item()


def measure(model, tokenizer, test: list[Problem], config: Config) -> None:
    result = evaluate(model, tokenizer, test, greedy(config.max_new_tokens))
    print(f"{config.eval_problems}: {percent(result.accuracy)} of {len(test)} correct with greedy "
          f"decoding; {result.mean_length:.1f} tokens per answer", flush=True)  # fmt: skip


def checked(config: Config) -> Config:
    """Refuses what could not learn anything."""
    for name, least in (("steps", 1), ("problems_per_step", 1), ("rollouts", 2)):
        if getattr(config, name) < least:
            raise UserError(f"{flag(name)} is {getattr(config, name)}; choose {least} or more")
    if not 0 < config.lr < math.inf:
        raise UserError(f"--lr is {config.lr}; choose a small number above 0")
    return config


def with_what_suits(config: Config) -> Config:
    """Fills in whatever the command line did not give."""
    if preset(config.model)["problems"] == "tiny":
        suits = dict(problems="tiny", lr=1e-4, max_new_tokens=160)
    else:
        suits = dict(problems="gsm8k", lr=1e-6, max_new_tokens=512)
    given = {name: value for name, value in vars(config).items() if value is not None}
    chosen = suits | given
    return Config(**{"eval_problems": held_out(chosen["problems"])} | chosen)


if __name__ == "__main__":
    sys.exit(run_script(main, words=True))
