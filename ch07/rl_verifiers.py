"""An environment from verifiers, a model from `rfs serve`: an agent acts, Tinker's client trains.

    rfs serve --model tiny-reasoning --all-weights      # in one terminal; in another one
    export TINKER_BASE_URL=http://127.0.0.1:8000 TINKER_API_KEY=tml-local
    uv run --with verifiers --with transformers --with tinker ch07/rl_verifiers.py

verifiers renders a conversation to tokens, sends them to /inference/v1/generate, and keeps in its
trace which tokens were sampled, with what log-probability. These go into the loss unchanged: no
text is tokenized a second time, which might not give the same tokens. Replace `Story` and the
harness "null" with a taskset and a harness of your own.
"""

import asyncio
import os
import sys
from dataclasses import dataclass

from rfs.commands.cli import run_script  # first: it handles Ctrl-C

# isort: split
import tinker
import verifiers.v1 as vf
from renderers import Qwen3RendererConfig
from verifiers.v1.agent import Agent
from verifiers.v1.clients import TrainClientConfig
from verifiers.v1.harnesses.null import NullHarnessConfig
from verifiers.v1.runtimes import SubprocessConfig

from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rewards import correctness
from rfs.tasks.problem_sets import training_problems


@dataclass
class Config:
    model: str = "tiny-reasoning"
    """Train this model, which is served."""
    folder: str = "checkpoints/tiny-reasoning"
    """Find its tokenizer and chat template in this folder."""
    problems: str = "tiny"
    steps: int = 10
    problems_per_step: int = 4
    """Sample this many problems per step."""
    rollouts: int = 4
    """Sample this many rollouts per problem; each is a separate process and takes some seconds."""
    lr: float = 1e-4
    max_new_tokens: int = 160
    """End an answer after this many tokens."""


class StoryData(vf.TaskData):
    answer: str = ""


class Story(vf.Task[StoryData, vf.State, vf.TaskConfig]):
    """A word problem; its answer is to be in a box."""

    @vf.reward
    async def correct(self, trace) -> float:
        return correctness(trace.messages[-1].content or "", self.data.answer)


def main(config: Config) -> None:
    problems = training_problems(config.problems)
    trainer = tinker.ServiceClient().create_lora_training_client(config.model, 0).result()
    for step in range(config.steps):
        first, count = step * config.problems_per_step, config.problems_per_step
        batch = [problems[i % len(problems)] for i in range(first, first + count)]
        # The current weights, by the name under which /inference/v1/generate finds them.
        weights = trainer.save_weights_for_sampler("now").result().path
        groups = asyncio.run(sampled(weights, batch, config))
        data, rewards = [], []
        for group in groups:
            mean = sum(trace.reward for trace in group) / len(group)
            rewards.append(mean)
            for trace in group:
                if trace.reward != mean:
                    data += [datum(branch, trace.reward - mean) for branch in trace.branches]
        loss = 0.0
        if data:
            passed = trainer.forward_backward(data, "importance_sampling")
            trainer.optim_step(tinker.AdamParams(learning_rate=config.lr)).result()
            loss = passed.result().metrics["loss:sum"]
        print(f"step {step}  reward/total {sum(rewards) / len(rewards):.3f}  loss {loss:.4f}",
              flush=True)  # fmt: skip


async def sampled(weights: str, batch: list[Problem], config: Config) -> list[list[vf.Trace]]:
    """verifiers' part: an agent is a model, a harness and a place to run in."""
    client = TrainClientConfig(
        base_url=os.environ["TINKER_BASE_URL"].rstrip("/") + "/v1",
        api_key_var="TINKER_API_KEY",
        renderer=Qwen3RendererConfig(),
        renderer_model_name=config.folder,
    )
    about = vf.AgentConfig(
        model=weights,
        client=client,
        harness=NullHarnessConfig(id="null"),
        runtime=SubprocessConfig(),
        sampling=vf.SamplingConfig(temperature=1.0, max_tokens=config.max_new_tokens),
        max_turns=1,
    )
    async with Agent(about) as agent:
        tasks = [
            Story(StoryData(idx=i, prompt=problem.problem, answer=problem.answer))
            for i, problem in enumerate(batch)
        ]
        return [
            list(await asyncio.gather(*[agent.run(task) for _ in range(config.rollouts)]))
            for task in tasks
        ]


def datum(branch, advantage: float) -> tinker.Datum:
    """Everything that the model read and wrote in one branch of the conversation. Tokens that it
    only read have the advantage 0."""
    ids = branch.token_ids
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(ids[:-1]),
        loss_fn_inputs={
            "target_tokens": ids[1:],
            "logprobs": branch.logprobs[1:],
            "advantages": [advantage * mask for mask in branch.sampled_mask[1:]],
        },
    )


if __name__ == "__main__":
    sys.exit(run_script(main, words=True))
