"""GRPO in sixty lines, in the calls of Tinker's client.

    uv run ch07/rl_client.py            # the calls reach a LocalPolicy in this process

    rfs serve --model tiny              # in one terminal; in another one
    export TINKER_BASE_URL=http://127.0.0.1:8000 TINKER_API_KEY=tml-local
    uv run --with tinker ch07/rl_client.py    # they go through Tinker's client

Either way the loop's code is the same, and so are its numbers. rl_loop.py holds a model, an
optimizer and a loss. Here the loop only makes calls (sample, forward_backward, optim_step, and a
sampler with the current weights), so the model may be anywhere.
"""

import math
import os
import sys
from dataclasses import dataclass

from reasoning_from_scratch.errors import UserError
from rfs.commands.cli import run_script  # first: it handles Ctrl-C

# isort: split
from reasoning_from_scratch.files.weights import load_tokenizer_only
from reasoning_from_scratch.problems import Problem, render_prompt
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.text import percent
from rfs.files.saved_models import which_weights
from rfs.tasks.problem_sets import held_out, load_problems, training_problems

if "TINKER_API_KEY" in os.environ:
    import tinker
else:
    import local_tinker as tinker  # the same names, beside this file


@dataclass
class Config:
    model: str = "tiny"
    """Train this model, which is served; in this process tiny, base, a folder or a run."""
    tokenizer: str | None = None
    """Use this model's tokenizer (default: the same)."""
    problems: str = "tiny"
    steps: int = 60
    problems_per_step: int = 8
    """Sample this many problems per step."""
    rollouts: int = 8
    """Sample this many rollouts per problem."""
    lora_rank: int = 0
    """Train LoRA of this rank; 0 trains all weights, which Tinker's service does not offer."""
    lr: float = 1e-4
    max_new_tokens: int = 160
    """End an answer after this many tokens."""
    eval_limit: int = 100


def main(config: Config) -> None:
    """Trains with a server or in this process, and measures before and after."""
    check(config)
    tokenizer = load_tokenizer_only(which_weights(config.tokenizer or config.model))
    problems, test = training_problems(config.problems), load_problems(held_out(config.problems))
    if problems[0].rules:
        told = "is judged by its own rules, not by a box: use rfs train"
        raise UserError(f"{config.problems} {told}")
    service = tinker.ServiceClient()
    trainer = service.create_lora_training_client(config.model, config.lora_rank).result()
    sampler = trainer.save_weights_and_get_sampling_client().result()
    measure(sampler, tokenizer, test[: config.eval_limit], config)
    for step in range(config.steps):
        # 1. Problems.
        first, count = step * config.problems_per_step, config.problems_per_step
        batch = [problems[i % len(problems)] for i in range(first, first + count)]
        prompts = [tokenizer.encode(render_prompt(problem.problem)) for problem in batch]
        # 2. Rollouts: several answers to each.
        params = tinker.SamplingParams(max_tokens=config.max_new_tokens)
        groups = sampled(sampler, prompts, config.rollouts, params)
        data, reward = [], 0.0
        for problem, prompt, group in zip(batch, prompts, groups, strict=True):
            # 3. Rewards: 1 for the correct answer in a box, else 0.
            rewards = [correctness(text_of(answer, tokenizer), problem.answer) for answer in group]
            # 4. Advantages: better or worse than the other rollouts of the same problem.
            mean = sum(rewards) / len(rewards)
            reward += mean / len(batch)
            data += [
                datum(prompt, answer, own - mean)
                for answer, own in zip(group, rewards, strict=True)
                if own != mean  # else there is nothing to learn from it
            ]
        loss = 0.0
        if data:
            # 5. Log-probabilities.  6. Loss and its gradient: - sum of ratio x advantage.
            passed = trainer.forward_backward(data, "importance_sampling")
            # 7. One step on it, requested before we wait for the pass, so that no time is lost.
            stepped = trainer.optim_step(tinker.AdamParams(learning_rate=config.lr))
            loss = passed.result().metrics["loss:sum"]
            stepped.result()
            sampler = trainer.save_weights_and_get_sampling_client().result()
        print(f"step {step}  reward/total {reward:.3f}  loss {loss:.4f}", flush=True)
    measure(sampler, tokenizer, test[: config.eval_limit], config)


def check(config: Config) -> None:
    """Refuses what could not learn anything."""
    least = dict(
        steps=1, problems_per_step=1, rollouts=2, lora_rank=0, max_new_tokens=1, eval_limit=1
    )
    for name, smallest in least.items():
        if getattr(config, name) < smallest:
            raise UserError(f"{name} is {getattr(config, name)}; choose {smallest} or more")
    if not 0 < config.lr < math.inf:
        raise UserError(f"lr is {config.lr}; choose a small number above 0")


def sampled(sampler, prompts: list[list[int]], count: int, params) -> list[list]:
    """Requests all samples before it waits for the first, so that they are drawn together."""
    asked = [sampler.sample(tinker.ModelInput.from_ints(ids), count, params) for ids in prompts]
    return [future.result().sequences for future in asked]


def measure(sampler, tokenizer, test: list[Problem], config: Config) -> None:
    prompts = [tokenizer.encode(render_prompt(problem.problem)) for problem in test]
    params = tinker.SamplingParams(max_tokens=config.max_new_tokens, temperature=0.0)
    answers = [group[0] for group in sampled(sampler, prompts, 1, params)]
    texts = [text_of(answer, tokenizer) for answer in answers]
    right = sum(correctness(text, p.answer) for text, p in zip(texts, test, strict=True))
    print(f"{percent(right / len(test))} of {len(test)} test problems correct (greedy)", flush=True)


def text_of(answer, tokenizer) -> str:
    tokens = list(answer.tokens)
    return tokenizer.decode(tokens[:-1] if answer.stop_reason == "stop" else tokens)


def datum(prompt: list[int], answer, advantage: float):
    """One answer to learn from. The token at position t is predicted at t - 1, so its values go
    there. The prompt gets zeros, so nothing is learned from it."""
    tokens, before = list(answer.tokens), len(prompt) - 1
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(prompt + tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": [0] * before + tokens,
            "logprobs": [0.0] * before + list(answer.logprobs),
            "advantages": [0.0] * before + [advantage] * len(tokens),
        },
    )


if __name__ == "__main__":
    sys.exit(run_script(main, words=True))
