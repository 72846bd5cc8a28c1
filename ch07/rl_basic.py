"""The library way: Tinker's rl_basic on this machine.

    python ch07/rl_basic.py                       # the tiny model, on a CPU
    python ch07/rl_basic.py --model base --problems gsm8k --groups_per_batch 32 --group_size 16

Ratio times advantage, summed; reward 1 for a right answer, minus 0.1 for one without its form;
advantages are rewards minus the mean of their group. Every other choice is a flag of `rfs train`,
which knows Tinker's names too.
"""

import sys
from dataclasses import dataclass
from typing import Literal

from reasoning_from_scratch.commands.cli import run_script
from reasoning_from_scratch.run.options import configure
from reasoning_from_scratch.run.start import train

# The metrics that Tinker's documentation explains, in its order.
DOCUMENTED = (
    "progress/batch", "progress/done_frac", "reward/total", "env/all/correct", "env/all/format",
    "env/all/by_group/frac_mixed", "env/all/by_group/frac_all_good",
    "env/all/by_group/frac_all_bad", "ac_tokens_per_turn", "entropy", "kl_sample_train_v1",
    "kl_sample_train_v2", "kl_policy_base", "kl_pre_post_v1", "kl_pre_post_v2", "optim/lr",
    "time/total",
)  # fmt: skip


@dataclass
class Options:
    """What is None suits the model: see the presets in reasoning_from_scratch/run/options.py."""

    model: str = "tiny"
    """tiny, base (Qwen3-0.6B), reasoning, a folder, a file, a run (its best save) or RUN@SAVE."""
    problems: str | None = None
    """tiny, gsm8k, math-train, a file, or FILE.py:FUNCTION."""
    steps: int = 60
    groups_per_batch: int = 8
    """Problems per step."""
    group_size: int = 8
    """Rollouts per problem."""
    few_shot: int = 0
    """Show so many solved problems before each question."""
    learning_rate: float | None = None
    max_tokens: int | None = None
    """Longest answer."""
    loss_fn: Literal["importance_sampling", "ppo", "cispo", "dro"] = "importance_sampling"
    num_substeps: int = 1
    """Optimizer steps per batch."""
    num_minibatches: int = 1
    """Train on so many parts of a batch as they come, while the rest is still sampled."""
    remove_constant_reward_groups: bool = True
    kl_penalty_coef: float = 0.0
    """Price of leaving the starting model, taken from the reward."""
    compute_post_kl: bool = False
    lora_rank: int = 0
    """0 trains all weights."""
    eval_every: int = 20
    save_every: int = 20
    load_checkpoint_path: str | None = None
    """Weights to begin with."""
    seed: int = 0
    log_path: str = "runs/rl_basic"
    overwrite: bool = False
    """Delete a run that is there."""


def main(options: Options) -> None:
    config = configure(
        "importance_sampling", loss_fn=options.loss_fn,
        model=options.model, problems=options.problems, steps=options.steps,
        problems_per_step=options.groups_per_batch, rollouts=options.group_size,
        lr=options.learning_rate, max_new_tokens=options.max_tokens, few_shot=options.few_shot,
        num_substeps=options.num_substeps, num_minibatches=options.num_minibatches,
        drop_uniform_groups=options.remove_constant_reward_groups,
        kl="reward" if options.kl_penalty_coef else "none", kl_coef=options.kl_penalty_coef,
        compute_post_kl=options.compute_post_kl, lora_rank=options.lora_rank,
        eval_every=options.eval_every, save_every=options.save_every,
        load_checkpoint_path=options.load_checkpoint_path, seed=options.seed,
        log_path=options.log_path, overwrite=options.overwrite,
    )  # fmt: skip
    result = train(config)
    if not result.writes:  # under torchrun rank 0 speaks
        return
    print(f"\n{'':<32}{'first step':>12}{'last step':>12}")
    first, last = result.rows[0], result.rows[-1]
    tests = [name for name in last if name.endswith("/env/all/correct") and name[:3] != "env"]
    for name in (*DOCUMENTED, *tests):
        if last.get(name) is not None:
            print(f"{name:<32}{number(first.get(name))}{number(last[name])}")
    print(result.stopped or f"done: {result.folder}")


def number(value: float | None) -> str:
    return f"{'-' if value is None else f'{value:.4g}':>12}"


if __name__ == "__main__":
    sys.exit(run_script(main))
